"""A ready server as the measuring room wants it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuner.clock import Clock
from tuner.errors import TunerError
from tuner.launch.protocol import ServerHandle
from tuner.measure.serverlog import DecodeReading, LogReading, PrefillMark, RetractionMark
from tuner.sglang.endpoints import ServerClient, last_gen_tok_s
from tuner.sglang.events import DecodeBatch, LogEvent, PrefillBatch, Retraction
from tuner.sglang.log import LogReader

_DATA_PARALLEL = re.compile(r"\bDP(\d+)")
_IDLE_LIMIT_S = 30.0
_IDLE_EVERY_S = 0.2


class RunningServer:
    """Implements `ServerUnderLoad` and `TellsLastSpeed` of the measuring room on a handle and a client."""

    def __init__(self, handle: ServerHandle, client: ServerClient, clock: Clock) -> None:
        self._handle = handle
        self._client = client
        self._clock = clock

    @property
    def url(self) -> str:
        """Where it serves."""
        return self._handle.url

    @property
    def api_key(self) -> str | None:
        """The key that it asks for, if any."""
        return self._client.api_key

    def alive(self) -> bool:
        """Whether its main process runs."""
        return self._handle.poll() is None

    def flush_cache(self) -> None:
        """Empty the prefix cache; the server refuses that until its last requests are gone."""
        deadline_s = self._clock.monotonic_s() + _IDLE_LIMIT_S
        while not self._client.flush_cache():
            if self._clock.monotonic_s() >= deadline_s:
                raise TunerError(f"requests were still running after {_IDLE_LIMIT_S:g} s")
            self._clock.sleep(_IDLE_EVERY_S)

    def last_gen_tok_s(self) -> float | None:
        """What it remembers of its last decode line; None where it does not answer."""
        try:
            return last_gen_tok_s(self._client.server_info())
        except TunerError:
            return None

    def log_mark(self) -> int:
        """How long the log is."""
        return self._handle.log_path.stat().st_size

    def log_readings_since(self, mark: int) -> Iterator[LogReading]:
        """The decode, prefill and retraction lines since then."""
        reader = LogReader()
        for event in [*reader.feed(self._handle.read_log(mark)), *reader.finish()]:
            reading = _reading(event)
            if reading is not None:
                yield reading


def _reading(event: LogEvent) -> LogReading | None:
    if isinstance(event, DecodeBatch):
        return DecodeReading(
            running=event.running,
            queued=event.queue,
            gen_tok_s=event.gen_tok_s,
            accept_length=event.accept_length,
            cuda_graph=event.graph is not False,
            rank=_data_parallel_rank(event.rank),
        )
    if isinstance(event, PrefillBatch):
        return PrefillMark(_data_parallel_rank(event.rank))
    if isinstance(event, Retraction):
        return RetractionMark(_data_parallel_rank(event.rank))
    return None


def _data_parallel_rank(rank: str) -> int:
    found = _DATA_PARALLEL.search(rank)
    return int(found[1]) if found else 0
