"""SGLang's log, one line at a time: the wordings (0.4.6 to 0.5.23) that tell where a server stands. Pure.

What follows from a line is for its readers to say: `tuner.sglang.log` follows a server as it starts, and
`tuner.diagnosis` asks afterwards what a dead one was about to do.
"""

from __future__ import annotations

import re
from enum import Enum, auto


class Marker(Enum):
    """What a line says of the server's life."""

    ARGUMENTS = auto()
    DISTRIBUTED_BEGIN = auto()
    WEIGHTS_BEGIN = auto()
    WEIGHTS_PROGRESS = auto()
    WEIGHTS_END = auto()
    KV_POOL = auto()
    OTHER_POOL = auto()
    POOLS_END = auto()
    GRAPHS_BEGIN = auto()
    GRAPHS_END = auto()
    GRAPHS_PROGRESS = auto()
    JIT_BEGIN = auto()
    JIT_PROGRESS = auto()
    JIT_END = auto()
    LIMITS = auto()
    HTTP_STARTS = auto()
    READY = auto()
    BATCH = auto()
    RETRACTION = auto()
    SHUTDOWN = auto()


Mark = tuple[Marker, "re.Match[str]"]
"""What a line says, and the match, whose groups hold what the line tells besides."""

# In this order, the first that fits. Where nothing anchors a wording it may stand behind others. A bar may be
# cut before its numbers, where a server died while it was drawn.
_WORDINGS: tuple[tuple[Marker, re.Pattern[str]], ...] = tuple(
    (marker, re.compile(pattern, re.DOTALL))
    for marker, pattern in (
        (
            Marker.BATCH,
            r"^(?P<kind>Decode|Prefill) batch(?: \[\d+\])?[.,] ",
        ),
        (
            Marker.LIMITS,
            r"max_total_num_tokens=(?P<tokens>\d+), chunked_prefill_size=(?P<chunk>-?\d+|None), "
            r"max_prefill_tokens=(?P<prefill>\d+), max_running_requests=(?P<running>\d+), "
            r"context_len=(?P<context>\d+)(?:, available_\w+_mem=(?P<available>[\d.]+) GB)?",
        ),
        (Marker.ARGUMENTS, r"server_args=(?:ServerArgs\(|\{)"),
        (Marker.DISTRIBUTED_BEGIN, r"^Init (?:torch distributed|parallel|nccl) begin"),
        (Marker.WEIGHTS_BEGIN, r"^Load weight begin"),
        (
            Marker.WEIGHTS_END,
            r"^Load weight end\.?(?:.*?elapsed=(?P<seconds>[\d.]+) s)?"
            r"(?:.*?avail mem=(?P<available>[\d.]+) GB)?(?:.*?mem usage=(?P<used>-?[\d.]+) GB)?",
        ),
        (
            Marker.WEIGHTS_PROGRESS,
            r"(?:Loading .{0,60}checkpoint shards|Multi-thread loading(?: \w+ checkpoint)? shards"
            r"|Loading safetensors using [^:]+)"
            r":(?:\s+\d+% Completed \| (?P<done>\d+)/(?P<total>\d+))?",
        ),
        (
            Marker.KV_POOL,
            r"^(?:(?P<label>.+?) )?KV Cache is allocated\.(?: dtype: (?P<dtype>[\w.]+),)?"
            r" #tokens: (?P<tokens>\d+)"
            r"(?:, K size: (?P<keys>[\d.]+) GB, V size: (?P<values>[\d.]+) GB"
            r"|, KV size: (?P<both>[\d.]+) GB)?",
        ),
        (
            Marker.OTHER_POOL,
            r"^(?:.{0,40}KV Cache is allocated|KV Cache VA upper bound|Mamba Cache is allocated)",
        ),
        (Marker.POOLS_END, r"^Memory pool end"),
        (Marker.GRAPHS_BEGIN, r"^Capture .*?(?:cuda|CUDA) graph begin\b"),
        (Marker.GRAPHS_END, r"^Capture (?P<what>.*?)(?:cuda|CUDA) graph end\b(?P<rest>.*)"),
        (
            Marker.GRAPHS_PROGRESS,
            r"Capturing(?:[^|]*\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)| batches\b)",
        ),
        (
            Marker.JIT_PROGRESS,
            r"(?:DeepGEMM warmup|Compiling|Autotun)[^|]*\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)",
        ),
        (
            Marker.JIT_BEGIN,
            r"^(?:Entering DeepGEMM JIT|Try DeepGEMM JIT|Running FlashInfer autotune"
            r"|.{0,40}\bJIT: (?:Loading|Building|Compiling)|.{0,20}Compiling .{0,60}kernel"
            r"|ninja: Entering|\[\d+/\d+\] .*nvcc|Building extension module"
            r"|Using /.*as PyTorch extensions root)",
        ),
        (Marker.JIT_END, r"^(?:FlashInfer autotune (?:completed|done|finished)|Loading extension module)"),
        (
            Marker.HTTP_STARTS,
            r"^INFO:\s+(?:Started server process|Waiting for application startup"
            r"|Application startup complete|Uvicorn running on)",
        ),
        (Marker.READY, r"^The server is fired up and ready to roll!"),
        (Marker.SHUTDOWN, r"^(?:SIGTERM received|Gracefully exiting|INFO:\s+Shutting down)"),
        (
            Marker.RETRACTION,
            r"^(?:KV cache pool is full\. Retract requests|Decode out of memory happened)\."
            r"(?:.*?#retracted_reqs: (?P<requests>\d+))?",
        ),
    )
)

# Most lines say nothing of this; they are told by the words that every wording has one of.
_TELLING = re.compile(
    r" batch|server_args=|max_total_num_tokens=|^Init |Load weight |checkpoint|loading|safetensors|Cache"
    r"|cache pool|Memory pool|Capt|JIT|autotun|Autotun|Compiling|ninja|nvcc|extension|warmup|^INFO: "
    r"|^The server is|^SIGTERM|^Gracefully|^Decode out"
)


def mark_of(message: str) -> Mark | None:
    """What a line without its prefix says, or None where it says nothing of the server's life."""
    if _TELLING.search(message) is None:
        return None
    for marker, pattern in _WORDINGS:
        found = pattern.search(message)
        if found is not None:
            return marker, found
    return None
