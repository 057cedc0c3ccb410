"""What the server's own log says about a level, from lines that were parsed elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class DecodeReading:
    """A `Decode batch` line. SGLang prints one per `--decode-log-interval` steps, by default 40.

    `gen_tok_s` covers the time since the decode line before. `rank` is the data-parallel rank that printed
    it: each prints its own lines about its own requests.
    """

    running: int
    queued: int
    gen_tok_s: float
    accept_length: float | None = None
    cuda_graph: bool = True
    rank: int = 0


@dataclass(frozen=True)
class PrefillMark:
    """A `Prefill batch` line."""

    rank: int = 0


@dataclass(frozen=True)
class RetractionMark:
    """A line that says that running requests were put back because the KV pool is full."""

    rank: int = 0


LogReading = DecodeReading | PrefillMark | RetractionMark


@dataclass(frozen=True)
class ServerSeries:
    """A level as the server's log tells it.

    `gen_tok_s` (summed over the data-parallel ranks) and `accept_lengths` are of steady decode lines only:
    see `series_of`. `eager_decode_lines` counts decode lines without a CUDA graph, steady or not.
    """

    gen_tok_s: tuple[float, ...] = ()
    accept_lengths: tuple[float, ...] = ()
    eager_decode_lines: int = 0
    retraction_lines: int = 0


def series_of(readings: Iterable[LogReading]) -> ServerSeries:
    """Boil the lines that were printed during a level down to figures that can be trusted.

    SGLang divides the tokens since the last decode line by the wall-clock time since then, so a line counts
    only when nothing but decoding happened in between: the line before is a decode line of the same rank
    with as many running requests, and that many is the most that the rank ever ran.
    """
    by_rank: dict[int, list[LogReading]] = {}
    for reading in readings:
        by_rank.setdefault(reading.rank, []).append(reading)
    steady = [_steady(lines) for lines in by_rank.values()]
    everything = [line for lines in by_rank.values() for line in lines]
    return ServerSeries(
        gen_tok_s=tuple(sum(line.gen_tok_s for line in lines) for lines in zip(*steady, strict=False)),
        accept_lengths=tuple(
            line.accept_length for lines in steady for line in lines if line.accept_length is not None
        ),
        eager_decode_lines=sum(
            isinstance(line, DecodeReading) and not line.cuda_graph for line in everything
        ),
        retraction_lines=sum(isinstance(line, RetractionMark) for line in everything),
    )


def _steady(lines: list[LogReading]) -> list[DecodeReading]:
    most = max((line.running for line in lines if isinstance(line, DecodeReading)), default=0)
    return [
        line
        for before, line in pairwise(lines)
        if isinstance(before, DecodeReading)
        and isinstance(line, DecodeReading)
        and before.running == line.running == most
    ]


def joined(first: ServerSeries, second: ServerSeries) -> ServerSeries:
    """Two stretches of the log as one."""
    return ServerSeries(
        gen_tok_s=first.gen_tok_s + second.gen_tok_s,
        accept_lengths=first.accept_lengths + second.accept_lengths,
        eager_decode_lines=first.eager_decode_lines + second.eager_decode_lines,
        retraction_lines=first.retraction_lines + second.retraction_lines,
    )
