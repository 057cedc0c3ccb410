"""The measuring of one running server: warm-up, then level after level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tuner.clock import Clock, SystemClock
from tuner.errors import TunerError
from tuner.measure.level import summarise, void_reason
from tuner.measure.load import run_level
from tuner.measure.measurement import LevelSample, LevelSummary, Measurement, RequestSample, Workload
from tuner.measure.prompts import SAFE_TOKEN_IDS, fresh_prompts
from tuner.measure.serverlog import LogReading, series_of

ATTEMPTS = 2
"""A void level is measured again once."""

_DYING_LIMIT_S = 10.0
_DYING_EVERY_S = 0.2


class ServerUnderLoad(Protocol):
    """What measuring needs of a server that is ready."""

    @property
    def url(self) -> str:
        """Where it serves, as `http://host:port`."""

    @property
    def api_key(self) -> str | None:
        """The key that it asks for, if any."""

    def alive(self) -> bool:
        """Whether its process runs. Asked five times a second under load: it has to answer at once."""

    def flush_cache(self) -> None:
        """Empty the prefix cache, waiting until the server is idle. Raises `TunerError` where it cannot."""

    def log_mark(self) -> int:
        """Where the log ends now."""

    def log_readings_since(self, mark: int) -> Iterable[LogReading]:
        """The decode, prefill and retraction lines printed since `mark`, in order."""


class MeasureListener(Protocol):
    """Hears how far measuring is."""

    def on_warmup(self, concurrency: int) -> None:
        """The warm-up begins."""

    def on_level(self, concurrency: int, attempt: int) -> None:
        """A level begins, for the first or the second time."""

    def on_level_done(self, sample: LevelSample, summary: LevelSummary) -> None:
        """A level counts."""

    def on_level_void(self, sample: LevelSample) -> None:
        """A level does not count; `sample.void` says why."""


class LevelVoid(TunerError):
    """A level stayed void although it was measured again; the server itself is alive.

    `samples` are the raw records of everything that was measured before, the void attempts included.
    """

    def __init__(self, concurrency: int, reason: str, samples: Sequence[LevelSample]) -> None:
        super().__init__(f"the load at concurrency {concurrency} gives no result: {reason}")
        self.concurrency = concurrency
        self.reason = reason
        self.samples = tuple(samples)


class ServerGone(TunerError):
    """The server process ended while load was put on it: its exit code and its log tell why.

    `samples` are the raw records up to then.
    """

    def __init__(self, concurrency: int, reason: str, samples: Sequence[LevelSample]) -> None:
        super().__init__(f"the server ended under load at concurrency {concurrency}: {reason}")
        self.concurrency = concurrency
        self.reason = reason
        self.samples = tuple(samples)


def measure(
    server: ServerUnderLoad,
    workload: Workload,
    seed: str,
    listener: MeasureListener,
    *,
    clock: Clock | None = None,
    token_ids: range = SAFE_TOKEN_IDS,
) -> tuple[Measurement, list[LevelSample]]:
    """Warm the server up at its busiest level, then measure every level in the given order.

    Returns the summaries and all raw records, void attempts included. The same `seed` sends the same
    prompts, which no other level and no other attempt sends. Raises `ServerGone` when the server dies,
    `LevelVoid` when a level is void twice or the warm-up brings nothing back, and `InputError` for a
    workload that cannot be sent.
    """
    session = _Session(server, workload, seed, token_ids, clock or SystemClock(), samples=[])
    busiest = max(workload.concurrency)
    listener.on_warmup(busiest)
    session.warm_up(busiest)
    summaries = []
    for concurrency in workload.concurrency:
        for attempt in range(1, ATTEMPTS + 1):
            listener.on_level(concurrency, attempt)
            level = session.measure_level(concurrency, attempt)
            if not level.void:
                break
            listener.on_level_void(level)
        else:
            raise LevelVoid(concurrency, level.void, session.samples)
        summaries.append(summarise(level))
        listener.on_level_done(level, summaries[-1])
    return Measurement(tuple(summaries)), session.samples


@dataclass
class _Session:
    server: ServerUnderLoad
    workload: Workload
    seed: str
    token_ids: range
    clock: Clock
    samples: list[LevelSample]

    def warm_up(self, concurrency: int) -> None:
        """Short load that nobody counts. Only a warm-up without any answer is worth an error."""
        output_tokens = min(self.workload.warmup_output_tokens, self.workload.output_tokens)
        requests = self._send(concurrency, output_tokens, "warm-up")
        failed = [request.error for request in requests if request.error]
        if not failed:
            return
        self._raise_if_gone(concurrency, failed[0], requests)
        if len(failed) == concurrency:
            reason = f"all {concurrency} requests of the warm-up failed: {failed[0]}"
            raise LevelVoid(concurrency, reason, self.samples)

    def measure_level(self, concurrency: int, attempt: int) -> LevelSample:
        """One attempt at a level, kept in `samples`; its `void` says whether it counts."""
        level = self._attempt(concurrency, attempt)
        self.samples.append(level)
        if level.void:
            self._raise_if_gone(concurrency, level.void, level.requests)
        return level

    def _attempt(self, concurrency: int, attempt: int) -> LevelSample:
        level = LevelSample(
            concurrency=concurrency,
            input_tokens=self.workload.input_tokens,
            output_tokens=self.workload.output_tokens,
            requests=(),
            attempt=attempt,
        )
        try:
            self.server.flush_cache()
        except TunerError as error:
            return replace(level, void=f"the prefix cache could not be flushed: {error.message}")
        mark = self.server.log_mark()
        requests = self._send(concurrency, self.workload.output_tokens, f"attempt {attempt}")
        series = series_of(self.server.log_readings_since(mark))
        level = replace(
            level,
            requests=requests,
            server_tok_s=series.gen_tok_s,
            server_accept_lengths=series.accept_lengths,
            eager_decode_lines=series.eager_decode_lines,
            retraction_lines=series.retraction_lines,
        )
        return replace(level, void=void_reason(level))

    def _send(self, concurrency: int, output_tokens: int, purpose: str) -> tuple[RequestSample, ...]:
        prompts = fresh_prompts(
            self.workload.dataset,
            concurrency,
            self.workload.input_tokens,
            f"{self.seed}/C={concurrency}/{purpose}",
            self.token_ids,
        )
        return run_level(
            self.server.url,
            prompts,
            output_tokens,
            limit_s=self.workload.level_limit_s,
            alive=self.server.alive,
            api_key=self.server.api_key,
        )

    def _raise_if_gone(self, concurrency: int, reason: str, requests: Sequence[RequestSample]) -> None:
        """Raise `ServerGone` if the server is gone, or where requests failed, if it goes within seconds.

        When a scheduler of SGLang dies its streams end at once, but the launcher, whose exit is waited
        for here, follows 6 to 7 seconds later. Measured again at once, the level would fail on a server
        that is about to die and be taken for void.
        """
        failed = any(request.error for request in requests)
        deadline_s = self.clock.monotonic_s() + (_DYING_LIMIT_S if failed else 0.0)
        while self.server.alive():
            if self.clock.monotonic_s() >= deadline_s:
                return
            self.clock.sleep(_DYING_EVERY_S)
        raise ServerGone(concurrency, reason, self.samples)
