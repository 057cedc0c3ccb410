"""Latencies of requests, and whether they meet limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.measure.measurement import RequestSample
from tuner.measure.progress import gaps_of
from tuner.measure.statistics import percentile

KINDS = ("ttft", "tpot", "itl", "e2e")
PERCENTS = (50, 75, 90, 95, 99)

LIMIT_NAMES = tuple(f"{kind}_p{percent}_ms" for kind in KINDS for percent in PERCENTS)
_LIMIT = re.compile(r"^(ttft|tpot|itl|e2e)_p(\d+)_ms$")


@dataclass(frozen=True)
class Limit:
    """A percentile of a latency that must not exceed `most_ms`; `name` is one of `LIMIT_NAMES`."""

    name: str
    most_ms: float

    @property
    def kind(self) -> str:
        """ttft, tpot, itl or e2e."""
        return self.name.partition("_")[0]

    @property
    def percent(self) -> int:
        """The percentile."""
        found = _LIMIT.match(self.name)
        if found is None:
            raise ValueError(f"no limit is called {self.name}")
        return int(found[2])

    @property
    def shown(self) -> str:
        """`ttft p99 <= 500 ms`."""
        return f"{self.kind} p{self.percent} <= {self.most_ms:g} ms"


@dataclass(frozen=True)
class Latencies:
    """The latencies of one request in milliseconds.

    `ttft_ms` from the send to the first token; `itl_ms` the gaps between chunks (with speculation or
    `--stream-interval` a chunk carries several tokens); `tpot_ms` (last token - first token) / (tokens - 1),
    None for a single token; `e2e_ms` from the send to the last token.
    """

    ttft_ms: float
    tpot_ms: float | None
    itl_ms: tuple[float, ...]
    e2e_ms: float

    @classmethod
    def of(cls, request: RequestSample) -> Latencies | None:
        """Those of a request that returned tokens, else None."""
        if not request.arrivals_s:
            return None
        first_s, last_s = request.arrivals_s[0], request.arrivals_s[-1]
        tokens = request.output_tokens
        return cls(
            ttft_ms=(first_s - request.sent_s) * 1e3,
            tpot_ms=(last_s - first_s) / (tokens - 1) * 1e3 if tokens > 1 else None,
            itl_ms=tuple(gap_s * 1e3 for gap_s in gaps_of(request.arrivals_s)),
            e2e_ms=(last_s - request.sent_s) * 1e3,
        )

    def meets(self, limits: Sequence[Limit]) -> bool:
        """Whether this one request is within every limit.

        A percentile has no meaning for the one value that a request has of ttft, tpot and e2e, so its value
        must not exceed the limit; of its many gaps the percentile is taken.
        """
        for limit in limits:
            if limit.kind == "itl":
                value = percentile(self.itl_ms, limit.percent) if self.itl_ms else 0.0
            else:
                value = getattr(self, f"{limit.kind}_ms") or 0.0
            if value > limit.most_ms:
                return False
        return True


def latency_percentiles(latencies: Sequence[Latencies]) -> dict[str, float]:
    """All of `LIMIT_NAMES` over all requests (itl: over all gaps); 0 where there is no value at all."""
    values: Mapping[str, list[float]] = {
        "ttft": [one.ttft_ms for one in latencies],
        "tpot": [one.tpot_ms for one in latencies if one.tpot_ms is not None],
        "itl": [gap_ms for one in latencies for gap_ms in one.itl_ms],
        "e2e": [one.e2e_ms for one in latencies],
    }
    found = {}
    for kind in KINDS:
        ordered = sorted(values[kind])
        for percent in PERCENTS:
            found[f"{kind}_p{percent}_ms"] = round(percentile(ordered, percent), 4) if ordered else 0.0
    return found
