"""Reading SGLang's log (0.4.6 to 0.5.23): bytes in, events out. Pure.

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
from tuner.sglang.phases import Phase

_LONGEST_LINE = 32 * 1024
"""Bytes of a line that are looked at: the resolved arguments take 20 KiB, and nothing of use comes later."""

_END_OF_LINE = re.compile(rb"[\r\n]")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"^(?:[^|]{0,60}\| )?\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"(?P<ranks>(?: (?:DP|PP|ATTN_CP|ATTN_DP|MOE_DP|MOE_EP|CP|TP|EP)\d+)*)\] ?(?P<message>.*)$"
)

_INIT_BEGIN = re.compile(r"^Init (?:torch distributed|parallel) begin")
_ARGUMENTS = re.compile(r"server_args=(?:ServerArgs\(|\{)")
_SPECULATES = re.compile(r"'?speculative_algorithm'?[=:] ?'(?P<name>\w+)'")
_WITHOUT_DRAFT = ("None", "NGRAM")
_WEIGHTS_END = re.compile(
    r"^Load weight end\.(?:.*?elapsed=(?P<seconds>[\d.]+) s)?(?:.*?avail mem=(?P<available>[\d.]+) GB)?"
    r"(?:.*?mem usage=(?P<used>-?[\d.]+) GB)?"
)
_SHARDS = re.compile(
    r"(?:Loading .{0,60}checkpoint shards|Multi-thread loading(?: \w+ checkpoint)? shards"
    r"|Loading safetensors using [^:]+)"
    r":\s+\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)"
)
_BAR = re.compile(
    r"(?P<name>Capturing|DeepGEMM warmup|Compiling|Autotun)[^|]*\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)"
)
_KV = re.compile(
    r"^(?:(?P<label>.+?) )?KV Cache is allocated\.(?: dtype: (?P<dtype>[\w.]+),)? #tokens: (?P<tokens>\d+)"
    r"(?:, K size: (?P<keys>[\d.]+) GB, V size: (?P<values>[\d.]+) GB|, KV size: (?P<both>[\d.]+) GB)?"
)
_KV_ALSO = re.compile(r"^(?:KV Cache VA upper bound|Memory pool end|Mamba Cache is allocated)")
_GRAPH = re.compile(r"^Capture (?P<what>.*?)(?:cuda|CUDA) graph (?P<side>begin|end)\b(?P<rest>.*)", re.DOTALL)
_ELAPSED = re.compile(r"elapsed[=: ]+(?P<seconds>[\d.]+) s")
_MEMORY = re.compile(r"mem usage=(?P<gib>-?[\d.]+) GB")
_AVAILABLE = re.compile(r"avail mem=(?P<gib>[\d.]+) GB")
_JIT_BEGIN = re.compile(
    r"^(?:Entering DeepGEMM JIT|Try DeepGEMM JIT|Running FlashInfer autotune"
    r"|.{0,40}\bJIT: (?:Loading|Building|Compiling)|.{0,20}Compiling .{0,60}kernel"
    r"|ninja: Entering|\[\d+/\d+\] .*nvcc|Building extension module|Using /.*as PyTorch extensions root)"
)
_JIT_END = re.compile(r"^(?:FlashInfer autotune (?:completed|done|finished)|Loading extension module)")
_LIMITS = re.compile(
    r"max_total_num_tokens=(?P<tokens>\d+), chunked_prefill_size=(?P<chunk>-?\d+|None), "
    r"max_prefill_tokens=(?P<prefill>\d+), max_running_requests=(?P<running>\d+), "
    r"context_len=(?P<context>\d+)(?:, available_\w+_mem=(?P<available>[\d.]+) GB)?"
)
_SERVING_SOON = re.compile(
    r"^INFO:\s+(?:Started server process|Waiting for application startup|Uvicorn running on)"
)
_READY = "The server is fired up and ready to roll!"
_SHUTDOWN = re.compile(r"^(?:SIGTERM received|Gracefully exiting|INFO:\s+Shutting down)")
_PORT_BUSY = re.compile(
    r"error while attempting to bind on address|\[Errno 98\] Address already in use|^Port is already in use"
    r"|dist_init_port at \d+ is not available"
)
_ACCESS = re.compile(r"^INFO:\s+\S+ - \"(?:GET|POST|HEAD) ")
_BATCH = re.compile(r"^(?P<kind>Decode|Prefill) batch(?: \[\d+\])?[.,] ")
_RETRACTION = re.compile(
    r"^(?:KV cache pool is full\. Retract requests|Decode out of memory happened)\."
    r"(?:.*?#retracted_reqs: (?P<requests>\d+))?"
)


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
        if prefix is None:
            yield from self._bar(message)
        for read in (self._startup, self._pools, self._steady):
            yield from read(message, rank)

    def _bar(self, message: str) -> Iterator[LogEvent]:
        """Progress bars have no prefix; the leading rank draws them."""
        shards = _SHARDS.search(message)
        if shards is not None:
            leader = self._leader()
            phase = Phase.DRAFT_MODEL if leader.loads > 1 else Phase.WEIGHT_LOAD
            yield from self._enter(phase, self._leading_name())
            yield Progress(phase, int(shards["done"]), int(shards["total"]))
            return
        bar = _BAR.search(message)
        if bar is not None:
            phase = Phase.GRAPH_CAPTURE if bar["name"] == "Capturing" else Phase.JIT_COMPILE
            yield from self._enter(phase, self._leading_name())
            yield Progress(phase, int(bar["done"]), int(bar["total"]))

    def _startup(self, message: str, rank: str) -> Iterator[LogEvent]:
        state = self._state(rank)
        if _ARGUMENTS.search(message):
            speculates = _SPECULATES.search(message)
            self._drafts = speculates is not None and speculates["name"] not in _WITHOUT_DRAFT
            # From 0.5.14 (the first with a graph config) the draft's weights load before the pools.
            self._draft_loads_first = "cuda_graph_config" in message
            yield from self._enter(Phase.IMPORT, rank)
        elif _INIT_BEGIN.match(message):
            # Until 0.5.13 the draft worker initialises its own after the target is complete.
            yield from self._enter(Phase.DRAFT_MODEL if state.loads else Phase.DISTRIBUTED_INIT, rank)
        elif message.startswith("Load weight begin"):
            state.loads += 1
            state.captured_before_draft = state.captured
            yield from self._enter(Phase.DRAFT_MODEL if state.loads > 1 else Phase.WEIGHT_LOAD, rank)
        elif message.startswith("Load weight end"):
            yield from self._weights_end(message, rank)
        elif _JIT_BEGIN.match(message):
            yield from self._enter(Phase.JIT_COMPILE, rank or self._leading_name())
        elif _JIT_END.match(message):
            leader = self._state(rank or self._leading_name())
            if leader.phase is Phase.JIT_COMPILE:
                yield from self._enter(leader.before_jit, rank or self._leading_name())
        elif _SERVING_SOON.match(message):
            yield from self._enter(Phase.WARMUP, rank)
        elif message.startswith(_READY):
            yield from self._enter(Phase.READY, rank)
            yield ReadyLine()
        elif _SHUTDOWN.match(message):
            yield from self._enter(Phase.SHUTDOWN, rank)
        if _PORT_BUSY.search(message):
            yield PortBusy(message[:300])

    def _weights_end(self, message: str, rank: str) -> Iterator[LogEvent]:
        state = self._state(rank)
        if "Committed real weights" in message:
            return  # With overlapped loading the weights come last, after the graphs.
        found = _WEIGHTS_END.match(message)
        if found is not None:
            seconds, used, available = (_number(found[name]) for name in ("seconds", "used", "available"))
            yield WeightsLoaded(rank, state.loads > 1, seconds, used, available)
        if state.loads == 1 and self._drafts and self._draft_loads_first:
            yield from self._enter(Phase.DRAFT_MODEL, rank)
        elif not state.captured_before_draft:
            # The pools are allocated next, and say so only when that is done.
            yield from self._enter(Phase.KV_CACHE_ALLOC, rank)

    def _pools(self, message: str, rank: str) -> Iterator[LogEvent]:
        state = self._state(rank)
        kv = _KV.match(message)
        if kv is not None:
            halves = _number(kv["keys"]), _number(kv["values"])
            size = sum(half for half in halves if half is not None) if kv["keys"] else _number(kv["both"])
            yield KvAllocated(rank, kv["label"] or "", int(kv["tokens"]), size, kv["dtype"])
        if (kv is not None or _KV_ALSO.match(message)) and not state.captured_before_draft:
            yield from self._enter(Phase.KV_CACHE_ALLOC, rank)
        graph = _GRAPH.match(message)
        if graph is not None:
            state.captured = True
            yield from self._enter(Phase.GRAPH_CAPTURE, rank)
            if graph["side"] == "end":
                yield GraphsCaptured(
                    rank,
                    graph["what"].strip(),
                    _first(_ELAPSED, "seconds", graph["rest"]),
                    _first(_MEMORY, "gib", graph["rest"]),
                    _first(_AVAILABLE, "gib", graph["rest"]),
                )
        limits = _LIMITS.search(message)
        if limits is not None:
            chunk = limits["chunk"]
            yield Limits(
                rank,
                int(limits["tokens"]),
                -1 if chunk == "None" else int(chunk),
                int(limits["prefill"]),
                int(limits["running"]),
                int(limits["context"]),
                _number(limits["available"]),
            )

    def _steady(self, message: str, rank: str) -> Iterator[LogEvent]:
        batch = _BATCH.match(message)
        if batch is not None:
            event = (_decode if batch["kind"] == "Decode" else _prefill)(message, rank)
            # A log whose beginning is missing is of a server that serves.
            if leads(rank) and self.phase in (Phase.READY, Phase.ARGUMENTS):
                yield from self._enter(Phase.SERVING, "")
            if event is not None:
                yield event
            return
        retraction = _RETRACTION.match(message)
        if retraction is not None:
            requests = retraction["requests"]
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
