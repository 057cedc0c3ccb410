"""What a server's log says, as events.

Memory is in GiB: SGLang prints "GB" for bytes / 2^30. `rank` is what stands in the prefix of the line
(`DP0 TP3`), empty for the main process and for servers on one GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.sglang.phases import Phase

_NUMBER = re.compile(r"\d+")


def leads(rank: str) -> bool:
    """Whether a rank speaks for the launch: the first of every kind (`DP0 TP0`), or the main process."""
    return all(int(number) == 0 for number in _NUMBER.findall(rank))


@dataclass(frozen=True)
class PhaseSeen:
    """A rank has entered a phase."""

    phase: Phase
    rank: str = ""


@dataclass(frozen=True)
class Progress:
    """`done` of `total` steps of a phase (checkpoint shards, graph sizes, kernels)."""

    phase: Phase
    done: int
    total: int


@dataclass(frozen=True)
class WeightsLoaded:
    """A rank's weights are on its GPU; `draft` for the draft model's."""

    rank: str
    draft: bool
    seconds: float | None
    weights_gib: float | None
    available_gib: float | None


@dataclass(frozen=True)
class KvAllocated:
    """A KV pool of a rank: its tokens and its size (keys and values together)."""

    rank: str
    label: str
    tokens: int
    size_gib: float | None
    dtype: str | None


@dataclass(frozen=True)
class GraphsCaptured:
    """A set of CUDA graphs of a rank. `what` says what they are for (`target decode`, `draft extend`)."""

    rank: str
    what: str
    seconds: float | None
    memory_gib: float | None
    available_gib: float | None


@dataclass(frozen=True)
class Limits:
    """The sizes that the scheduler settled on."""

    rank: str
    max_total_num_tokens: int
    chunked_prefill_size: int
    max_prefill_tokens: int
    max_running_requests: int
    context_len: int
    available_gib: float | None


@dataclass(frozen=True)
class DecodeBatch:
    """A periodic line about decoding. `gen_tok_s` counts from the line before, pauses and prefill included.

    `graph` is false where the batch ran without a CUDA graph; `usage` is the filled share of the KV pool.
    """

    rank: str
    running: int
    queue: int
    gen_tok_s: float
    accept_length: float | None
    graph: bool | None
    usage: float | None


@dataclass(frozen=True)
class PrefillBatch:
    """A prefill was run."""

    rank: str
    new_tokens: int
    cached_tokens: int
    running: int
    queue: int


@dataclass(frozen=True)
class Retraction:
    """The KV pool was full and requests were thrown back into the queue."""

    rank: str
    requests: int | None


@dataclass(frozen=True)
class ReadyLine:
    """The server says that it is ready."""


@dataclass(frozen=True)
class PortBusy:
    """The server says that a port it needs is taken."""

    text: str


LogEvent = (
    PhaseSeen
    | Progress
    | WeightsLoaded
    | KvAllocated
    | GraphsCaptured
    | Limits
    | DecodeBatch
    | PrefillBatch
    | Retraction
    | ReadyLine
    | PortBusy
)
