"""The tokens and the steps of one request as functions of time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from tuner.measure.measurement import RequestSample
from tuner.measure.statistics import median

_SAME_COUNT = 0.02


class Progress:
    """How many of `counts` had been made at a moment, fractions included.

    A moment seldom falls on an arrival, so counts are interpolated: a chunk is taken to be made evenly over
    the gap before its arrival, but never over more than the median gap. Without the interpolation the moment
    at which one batch's chunks happen to be read would decide over a token per request; without the bound a
    request that waits for another one's prefill would be credited with most of its next token too early.
    """

    def __init__(self, times_s: Sequence[float], counts: Sequence[float]) -> None:
        # Chunks that came in one piece have one arrival time; the last of them holds the count.
        at = dict(zip(times_s, counts, strict=True))
        self._times_s = list(at)
        self._counts = list(at.values())
        gaps_s = gaps_of(self._times_s)
        self._usual_gap_s = median(gaps_s) if gaps_s else 0.0

    @classmethod
    def of_tokens(cls, request: RequestSample) -> Progress:
        """Tokens received."""
        return cls(request.arrivals_s, request.tokens)

    @classmethod
    def of_steps(cls, request: RequestSample) -> Progress:
        """Engine steps that the request took part in.

        Without speculation a step gives one token. With it, chunks are steps where there are as many of
        them as the server verified; else (`--stream-interval`) steps are spread evenly over the tokens.
        """
        chunks = len(request.arrivals_s)
        verified = request.verify_steps
        if not verified or chunks < 2:
            return cls.of_tokens(request)
        if abs(chunks - 1 - verified) <= max(1.0, _SAME_COUNT * verified):
            return cls(request.arrivals_s, range(1, chunks + 1))
        each = verified / max(1, request.output_tokens - request.tokens[0])
        return cls(request.arrivals_s, [count * each for count in request.tokens])

    def at(self, moment_s: float) -> float:
        """The count until then: none before the first arrival, all from the last one on."""
        times_s = self._times_s
        if not times_s or moment_s < times_s[0]:
            return 0.0
        if moment_s >= times_s[-1]:
            return float(self._counts[-1])
        following = bisect_right(times_s, moment_s)
        made = self._counts[following - 1]
        gap_s = min(times_s[following] - times_s[following - 1], self._usual_gap_s)
        share = max(0.0, 1.0 - (times_s[following] - moment_s) / gap_s) if gap_s else 0.0
        return made + (self._counts[following] - made) * share


def gaps_of(times_s: Sequence[float]) -> list[float]:
    """The time from each moment to the next one."""
    return [later - earlier for earlier, later in pairwise(times_s)]
