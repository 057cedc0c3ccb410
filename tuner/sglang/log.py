"""Following SGLang's log as it grows: bytes in, events out. Pure. The wordings: `tuner.sglang.markers`.

Standard output and error are one stream here. Lines end with `\\n`, or with the `\\r` of a progress bar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.sglang.events import (
    DecodeBatch,
    GraphsCaptured,
    KvAllocated,
    Limits,
    LogEvent,
    PhaseSeen,
    PortBusy,
    PrefillBatch,
    Progress,
    ReadyLine,
    Retraction,
    WeightsLoaded,
    leads,
)
from tuner.sglang.markers import Mark, Marker, mark_of
from tuner.sglang.phases import Phase

_LONGEST_LINE = 32 * 1024
"""Bytes of a line that are looked at: the resolved arguments take 20 KiB, and nothing of use comes later."""

_END_OF_LINE = re.compile(rb"[\r\n]")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"^(?:[^|]{0,60}\| )?\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"(?P<ranks>(?: (?:DP|PP|ATTN_CP|ATTN_DP|MOE_DP|MOE_EP|CP|TP|EP)\d+)*)\] ?(?P<message>.*)$"
)

_SPECULATES = re.compile(r"'?speculative_algorithm'?[=:] ?'(?P<name>\w+)'")
_WITHOUT_DRAFT = ("None", "NGRAM")
_ELAPSED = re.compile(r"elapsed[=: ]+(?P<seconds>[\d.]+) s")
_MEMORY = re.compile(r"mem usage=(?P<gib>-?[\d.]+) GB")
_AVAILABLE = re.compile(r"avail mem=(?P<gib>[\d.]+) GB")
_PORT_BUSY = re.compile(
    r"error while attempting to bind on address|\[Errno 98\] Address already in use|^Port is already in use"
    r"|dist_init_port at \d+ is not available"
)
_ACCESS = re.compile(r"^INFO:\s+\S+ - \"(?:GET|POST|HEAD) ")


@dataclass
class _Rank:
    """What one rank has done so far."""

    phase: Phase = Phase.ARGUMENTS
    before_jit: Phase = Phase.ARGUMENTS
    loads: int = 0
    captured: bool = False
    captured_before_draft: bool = False


class LogReader:
    """Feed it the log as it grows; it remembers unfinished lines and what every rank has done."""

    def __init__(self) -> None:
        self.lines_of_life = 0
        """Lines so far that show the server at work; answers to requests, also to ours, do not."""
        self._partial = b""
        self._ranks: dict[str, _Rank] = {}
        self._drafts = False
        self._draft_loads_first = False

    @property
    def phase(self) -> Phase:
        """The phase of the rank that speaks for the launch."""
        return self._leader().phase

    def feed(self, data: bytes) -> list[LogEvent]:
        """The events of all lines that `data` completes. Bytes that are no UTF-8 are replaced."""
        *complete, rest = _END_OF_LINE.split(data)
        events: list[LogEvent] = []
        for piece in complete:
            line = self._partial + piece[: max(0, _LONGEST_LINE - len(self._partial))]
            self._partial = b""
            events += self._line(line)
        self._partial += rest[: max(0, _LONGEST_LINE - len(self._partial))]
        return events

    def finish(self) -> list[LogEvent]:
        """The events of a last line that has no end; for when nothing more will come."""
        line, self._partial = self._partial, b""
        return list(self._line(line)) if line else []

    # --- one line --------------------------------------------------------------------------------------

    def _line(self, raw: bytes) -> Iterator[LogEvent]:
        text = _ANSI.sub("", raw.decode(errors="replace"))
        prefix = _PREFIX.match(text)
        rank = prefix["ranks"].strip() if prefix else ""
        message = prefix["message"] if prefix else text.strip()
        if not message or _ACCESS.match(message):
            return
        self.lines_of_life += 1
        mark = mark_of(message)
        if mark is not None:
            if prefix is None:
                yield from self._bar(mark)
            for read in (self._startup, self._pools, self._steady):
                yield from read(mark, message, rank)
        if _PORT_BUSY.search(message):
            yield PortBusy(message[:300])

    def _bar(self, mark: Mark) -> Iterator[LogEvent]:
        """Progress bars have no prefix; the leading rank draws them."""
        marker, found = mark
        if marker is Marker.WEIGHTS_PROGRESS:
            phase = Phase.DRAFT_MODEL if self._leader().loads > 1 else Phase.WEIGHT_LOAD
        elif marker is Marker.GRAPHS_PROGRESS:
            phase = Phase.GRAPH_CAPTURE
        elif marker is Marker.JIT_PROGRESS:
            phase = Phase.JIT_COMPILE
        else:
            return
        yield from self._enter(phase, self._leading_name())
        if found["done"]:
            yield Progress(phase, int(found["done"]), int(found["total"]))

    def _startup(self, mark: Mark, message: str, rank: str) -> Iterator[LogEvent]:
        marker, state = mark[0], self._state(rank)
        if marker is Marker.ARGUMENTS:
            speculates = _SPECULATES.search(message)
            self._drafts = speculates is not None and speculates["name"] not in _WITHOUT_DRAFT
            # From 0.5.14 (the first with a graph config) the draft's weights load before the pools.
            self._draft_loads_first = "cuda_graph_config" in message
            yield from self._enter(Phase.IMPORT, rank)
        elif marker is Marker.DISTRIBUTED_BEGIN:
            # Until 0.5.13 the draft worker initialises its own after the target is complete.
            yield from self._enter(Phase.DRAFT_MODEL if state.loads else Phase.DISTRIBUTED_INIT, rank)
        elif marker is Marker.WEIGHTS_BEGIN:
            state.loads += 1
            state.captured_before_draft = state.captured
            yield from self._enter(Phase.DRAFT_MODEL if state.loads > 1 else Phase.WEIGHT_LOAD, rank)
        elif marker is Marker.WEIGHTS_END:
            yield from self._weights_end(mark, message, rank)
        elif marker is Marker.JIT_BEGIN:
            yield from self._enter(Phase.JIT_COMPILE, rank or self._leading_name())
        elif marker is Marker.JIT_END:
            leader = self._state(rank or self._leading_name())
            if leader.phase is Phase.JIT_COMPILE:
                yield from self._enter(leader.before_jit, rank or self._leading_name())
        elif marker is Marker.HTTP_STARTS:
            yield from self._enter(Phase.WARMUP, rank)
        elif marker is Marker.READY:
            yield from self._enter(Phase.READY, rank)
            yield ReadyLine()
        elif marker is Marker.SHUTDOWN:
            yield from self._enter(Phase.SHUTDOWN, rank)

    def _weights_end(self, mark: Mark, message: str, rank: str) -> Iterator[LogEvent]:
        state, found = self._state(rank), mark[1]
        if "Committed real weights" in message:
            return  # With overlapped loading the weights come last, after the graphs.
        seconds, used, available = (_number(found[name]) for name in ("seconds", "used", "available"))
        yield WeightsLoaded(rank, state.loads > 1, seconds, used, available)
        if state.loads == 1 and self._drafts and self._draft_loads_first:
            yield from self._enter(Phase.DRAFT_MODEL, rank)
        elif not state.captured_before_draft:
            # The pools are allocated next, and say so only when that is done.
            yield from self._enter(Phase.KV_CACHE_ALLOC, rank)

    def _pools(self, mark: Mark, message: str, rank: str) -> Iterator[LogEvent]:
        (marker, found), state = mark, self._state(rank)
        if marker is Marker.KV_POOL:
            halves = _number(found["keys"]), _number(found["values"])
            size = (
                sum(half for half in halves if half is not None) if found["keys"] else _number(found["both"])
            )
            yield KvAllocated(rank, found["label"] or "", int(found["tokens"]), size, found["dtype"])
        if marker in _POOLS and not state.captured_before_draft:
            yield from self._enter(Phase.KV_CACHE_ALLOC, rank)
        if marker in (Marker.GRAPHS_BEGIN, Marker.GRAPHS_END):
            state.captured = True
            yield from self._enter(Phase.GRAPH_CAPTURE, rank)
            if marker is Marker.GRAPHS_END:
                yield GraphsCaptured(
                    rank,
                    found["what"].strip(),
                    _first(_ELAPSED, "seconds", found["rest"]),
                    _first(_MEMORY, "gib", found["rest"]),
                    _first(_AVAILABLE, "gib", found["rest"]),
                )
        if marker is Marker.LIMITS:
            chunk = found["chunk"]
            yield Limits(
                rank,
                int(found["tokens"]),
                -1 if chunk == "None" else int(chunk),
                int(found["prefill"]),
                int(found["running"]),
                int(found["context"]),
                _number(found["available"]),
            )

    def _steady(self, mark: Mark, message: str, rank: str) -> Iterator[LogEvent]:
        marker, found = mark
        if marker is Marker.BATCH:
            event = (_decode if found["kind"] == "Decode" else _prefill)(message, rank)
            # A log whose beginning is missing is of a server that serves.
            if leads(rank) and self.phase in (Phase.READY, Phase.ARGUMENTS):
                yield from self._enter(Phase.SERVING, "")
            if event is not None:
                yield event
        elif marker is Marker.RETRACTION:
            requests = found["requests"]
            yield Retraction(rank, int(requests) if requests else None)

    # --- ranks -----------------------------------------------------------------------------------------

    def _state(self, rank: str) -> _Rank:
        return self._ranks.setdefault(rank, _Rank())

    def _leading_name(self) -> str:
        """The rank that draws progress bars: a leading one, else the first that spoke, else none."""
        ranks = [rank for rank in self._ranks if rank]
        return next((rank for rank in ranks if leads(rank)), ranks[0] if ranks else "")

    def _leader(self) -> _Rank:
        """Of the main process and the leading rank, the one that is further on."""
        main, leading = self._state(""), self._state(self._leading_name())
        return main if _ORDER[main.phase] > _ORDER[leading.phase] else leading

    def _enter(self, phase: Phase, rank: str) -> Iterator[LogEvent]:
        state = self._state(rank)
        if state.phase is phase:
            return
        if phase is Phase.JIT_COMPILE:
            state.before_jit = state.phase
        state.phase = phase
        yield PhaseSeen(phase, rank)


_POOLS = (Marker.KV_POOL, Marker.OTHER_POOL, Marker.POOLS_END)
_ORDER = {phase: at for at, phase in enumerate(Phase)}


def _decode(message: str, rank: str) -> LogEvent | None:
    running, queue = _field(message, r"#running-req: (\d+)"), _field(message, r"#queue-req: (\d+)")
    tokens = _field(message, r"gen throughput \(token/s\): ([\d.]+)")
    if running is None or tokens is None:
        return None
    graph = re.search(r"\bgraph: (True|False)", message)
    return DecodeBatch(
        rank,
        int(running),
        int(queue or 0),
        tokens,
        _field(message, r"(?<!block )accept len: ([\d.]+)"),
        graph[1] == "True" if graph else None,
        _field(message, r"(?<!swa )token usage: ([\d.]+)"),
    )


def _prefill(message: str, rank: str) -> LogEvent | None:
    new, cached = _field(message, r"#new-token: (\d+)"), _field(message, r"#cached-token: (\d+)")
    if new is None:
        return None
    running, queue = _field(message, r"#running-req: (\d+)"), _field(message, r"#queue-req: (\d+)")
    return PrefillBatch(rank, int(new), int(cached or 0), int(running or 0), int(queue or 0))


def _field(message: str, pattern: str) -> float | None:
    found = re.search(pattern, message)
    return _number(found[1]) if found else None


def _first(pattern: re.Pattern[str], group: str, text: str) -> float | None:
    found = pattern.search(text)
    return _number(found[group]) if found else None


def _number(text: str | None) -> float | None:
    """Numbers are printed with a sentence's full stop behind them now and then."""
    try:
        return float(text.rstrip(".")) if text else None
    except ValueError:
        return None
