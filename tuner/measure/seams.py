"""What measuring needs of others: a server, somebody who hears of it, and who watches the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tuner.measure.load import Schedule, run_round
from tuner.measure.measurement import ClientEffort, LevelSample, LevelSummary, RequestSample
from tuner.measure.prompts import Prompt
from tuner.measure.serverlog import LogReading


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


@runtime_checkable
class TellsLastSpeed(Protocol):
    """A server that can also be asked how fast it was, for where its log says nothing."""

    def last_gen_tok_s(self) -> float | None:
        """`last_gen_throughput` of `/server_info`, summed over data-parallel ranks; None where unknown.

        Only asked while no load is on: the question goes through the scheduler's loop.
        """


class MeasureListener(Protocol):
    """Hears how far measuring is. A level is its concurrency, or its rate for the workload kind `open`."""

    def on_warmup(self, level: float) -> None:
        """The warm-up begins."""

    def on_level(self, level: float, attempt: int) -> None:
        """A level begins, for the first or the second time."""

    def on_level_done(self, sample: LevelSample, summary: LevelSummary) -> None:
        """A level counts."""

    def on_level_void(self, sample: LevelSample) -> None:
        """A level does not count; `sample.void` says why."""


class RoundLoad(Protocol):
    """What sends the requests of a round."""

    def send(
        self,
        server: ServerUnderLoad,
        prompts: Sequence[Prompt],
        schedule: Schedule,
        limit_s: float,
        silence_limit_s: float,
    ) -> tuple[tuple[RequestSample, ...], ClientEffort | None]:
        """Send them and wait until all have ended: a sample per prompt, and the client's own effort.

        Requests that have not ended after `limit_s` seconds, when the server is gone, or when nothing came
        for `silence_limit_s`, carry the reason as their error.
        """


class OwnLoad:
    """The tuner's own client."""

    def send(
        self,
        server: ServerUnderLoad,
        prompts: Sequence[Prompt],
        schedule: Schedule,
        limit_s: float,
        silence_limit_s: float,
    ) -> tuple[tuple[RequestSample, ...], ClientEffort | None]:
        """See `RoundLoad`."""
        return run_round(
            server.url,
            prompts,
            schedule,
            limit_s=limit_s,
            alive=server.alive,
            silence_limit_s=silence_limit_s,
            api_key=server.api_key,
        )


@dataclass(frozen=True)
class Watched:
    """What was seen of the machine during a level.

    `void` is why the level cannot count (a throttled GPU, another program on it), `energy_j` what the GPUs
    in use took in all, `facts` whatever belongs into the raw record, JSON-able.
    """

    void: str = ""
    energy_j: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class LevelWatch(Protocol):
    """Watches the machine while a level is measured: telemetry."""

    def begin(self) -> None:
        """The load of a level is about to begin."""

    def end(self) -> Watched:
        """The load of the level is over."""


class NoWatch:
    """Watches nothing."""

    def begin(self) -> None:
        """See `LevelWatch`."""

    def end(self) -> Watched:
        """See `LevelWatch`."""
        return Watched()
