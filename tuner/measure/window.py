"""The steady part of one round and the tokens in it: pure arithmetic over request samples.

- `batch`: whole when all requests decode at the same time; the window then reaches from the last first token
  to the first finish, so that every request decodes in all of it and no prefill of the round falls into it.
  Where the server never runs the whole round at once, it is the time in which the server is as full as it
  gets: from the last first token before any finish until no request waits any more, and on to the next finish
  where the last to begin made it as full as it ever was; without the time in which those that waited are
  prefilled. A round that fits is the case of this in which none waits.
- `waves`: likewise, but until the last finish, because the shrinking of the batch is what is looked at.
- `closed`: the span in which as many requests are outstanding as the level asks for, from the last first
  token of the beginning to the first finish that no new request follows, without the time in which a new
  request is prefilled. Where the server never runs as many, as for a batch.
- `burst`, `open`: from the first token of all to the last send.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.measure.measurement import RequestSample
from tuner.measure.progress import Progress, gaps_of
from tuner.measure.statistics import median

_FEWEST_TOKENS = 4
_LEAST_CLEAN_SHARE = 0.2

Piece = tuple[float, float]


class NoWindow(ValueError):
    """The samples hold no usable window; the message says why."""


@dataclass(frozen=True)
class Slice:
    """A stretch of the window: its length, and the tokens and request steps made in it."""

    seconds: float
    tokens: float
    steps: float


@dataclass(frozen=True)
class DecodeWindow:
    """Spans of time (monotonic seconds), and what was made in them, fractions included.

    `running` is the most requests that were between their first and their last token at the same moment,
    `mean_running` their mean number over the window. `steps` counts every request's steps. `clean` is false
    where prefills of new requests could not be cut out.
    """

    pieces: tuple[Piece, ...]
    tokens: float
    steps: float
    running: int
    mean_running: float
    whole: bool
    clean: bool = True

    @property
    def start_s(self) -> float:
        """Where the first piece begins."""
        return self.pieces[0][0]

    @property
    def end_s(self) -> float:
        """Where the last piece ends."""
        return self.pieces[-1][1]

    @property
    def length_s(self) -> float:
        """How long the pieces are together; more than zero."""
        return sum(end_s - start_s for start_s, end_s in self.pieces)

    @property
    def tok_s(self) -> float:
        """Output tokens per second over the window."""
        return self.tokens / self.length_s


def decode_window(
    requests: Sequence[RequestSample], kind: str = "batch", concurrency: int | None = None
) -> DecodeWindow:
    """The window of a round whose requests all returned tokens.

    Raises `NoWindow` where there is nothing to divide: no tokens from a request, no time between the two
    ends, fewer tokens in between than the level has requests (at least 4), or none whose time is known,
    because a client that was kept from its core read them all together.
    """
    if not requests or not all(request.arrivals_s for request in requests):
        raise NoWindow("not every request returned tokens")
    level = concurrency or len(requests)
    running, full_s = _fullest(requests)
    whole = kind == "open" or running >= level
    start_s, end_s, ends = _ends(requests, kind, level, whole=whole, full_s=full_s)
    if end_s <= start_s:
        raise NoWindow(f"no time lies between {ends}")
    fewest = max(_FEWEST_TOKENS, level if kind in ("batch", "closed") else 0)
    window = _counted(requests, ((start_s, end_s),), running, whole=whole)
    if kind == "closed" or (kind in ("batch", "waves") and not whole):
        pieces = _without_prefills(requests, start_s, end_s, whole=whole)
        without = _counted(requests, pieces, running, whole=whole)
        # A loop that hardly decodes would go on so, and is scored with its prefills; a round has them once.
        least_s = _LEAST_CLEAN_SHARE * window.length_s if kind == "closed" else 0.0
        enough = without.length_s >= least_s and without.tokens >= fewest
        window = without if enough else replace(window, clean=False)
    if window.tokens < fewest:
        raise NoWindow(
            f"only {window.tokens:.1f} tokens lie between {ends}, and at least {fewest} are needed"
        )
    if not window.mean_running:
        raise NoWindow(f"all that came between {ends} was read at one moment")
    return window


def slices_of(
    requests: Sequence[RequestSample], window: DecodeWindow, steps_each: float = 8.0
) -> tuple[Slice, ...]:
    """The window cut into stretches of about `steps_each` engine steps, in order of time."""
    tokens = [Progress.of_tokens(request) for request in requests]
    steps = [Progress.of_steps(request) for request in requests]
    # Where hardly anything runs, every engine step is still one request's step.
    all_steps = window.steps / max(1.0, window.mean_running)
    each_s = window.length_s / max(1, round(all_steps / steps_each))
    found: list[Slice] = []
    rest = Slice(0.0, 0.0, 0.0)  # what a piece leaves when it is no multiple of `each_s`
    for start_s, end_s in window.pieces:
        parts = max(1, round((end_s - start_s) / each_s))
        edges = [start_s + (end_s - start_s) * part / parts for part in range(parts)] + [end_s]
        made = [_sum_at(tokens, edge) for edge in edges]
        done = [_sum_at(steps, edge) for edge in edges]
        for part in range(parts):
            rest = Slice(
                rest.seconds + edges[part + 1] - edges[part],
                rest.tokens + made[part + 1] - made[part],
                rest.steps + done[part + 1] - done[part],
            )
            if rest.seconds >= 0.75 * each_s:
                found.append(rest)
                rest = Slice(0.0, 0.0, 0.0)
    return tuple(found)


# --- where the window lies -----------------------------------------------------------------------------


def _ends(
    requests: Sequence[RequestSample], kind: str, level: int, *, whole: bool, full_s: float
) -> tuple[float, float, str]:
    """Beginning and end, and their names. `full_s`: see `_fullest`."""
    first_tokens_s = [request.arrivals_s[0] for request in requests]
    finishes_s = [request.arrivals_s[-1] for request in requests]
    last_sent_s = max(request.sent_s for request in requests)
    if kind in ("burst", "open"):
        return min(first_tokens_s), last_sent_s, "the first token and the last send"
    if kind == "closed" and whole and len(requests) > level:
        beginning = sorted(requests, key=lambda request: request.sent_s)[:level]
        start_s = max(request.arrivals_s[0] for request in beginning)
        end_s = min((finish_s for finish_s in finishes_s if finish_s >= last_sent_s), default=last_sent_s)
        return start_s, end_s, "the beginning and the first finish without a successor"
    first_finish_s = min(finishes_s)
    start_s = max(first_s for first_s in first_tokens_s if first_s <= first_finish_s)
    beginning_name = "the last first token" if whole else "the last first token before a finish"
    if kind == "waves":
        return start_s, max(finishes_s), f"{beginning_name} and the last finish"
    emptier_s = min(finish_s for finish_s in finishes_s if finish_s >= full_s)
    end_s = max(*first_tokens_s, emptier_s)
    return start_s, end_s, f"{beginning_name} and {'the first finish' if whole else 'the end of the queue'}"


def _without_prefills(
    requests: Sequence[RequestSample], start_s: float, end_s: float, *, whole: bool
) -> tuple[Piece, ...]:
    """The span without the prefills in it, and without pieces too short to count steps in.

    A request that does not wait is prefilled from its send to its first token; one that waits, from the last
    finish before that, which made room for it.
    """
    finishes_s = sorted(request.arrivals_s[-1] for request in requests)
    gaps_s = [gap_s for request in requests for gap_s in gaps_of(request.arrivals_s[:64])]
    shortest_s = 2 * median(gaps_s) if gaps_s else 0.0
    prefills: list[Piece] = []
    for request in requests:
        first_s = request.arrivals_s[0]
        finished = 0 if whole else bisect_left(finishes_s, first_s)
        room_s = finishes_s[finished - 1] if finished else request.sent_s
        prefills.append((max(request.sent_s, room_s), first_s))
    pieces: list[Piece] = []
    at_s = start_s
    for begun_s, first_s in sorted(prefills):
        if first_s <= at_s or begun_s >= end_s:
            continue
        if begun_s - at_s > shortest_s:
            pieces.append((at_s, begun_s))
        at_s = first_s
    if end_s - at_s > shortest_s:
        pieces.append((at_s, end_s))
    return tuple(pieces)


# --- counting ------------------------------------------------------------------------------------------


def _counted(
    requests: Sequence[RequestSample], pieces: tuple[Piece, ...], running: int, *, whole: bool
) -> DecodeWindow:
    tokens = steps = decoding_s = 0.0
    for request in requests:
        made, done = Progress.of_tokens(request), Progress.of_steps(request)
        first_s, last_s = request.arrivals_s[0], request.arrivals_s[-1]
        for start_s, end_s in pieces:
            tokens += made.at(end_s) - made.at(start_s)
            steps += done.at(end_s) - done.at(start_s)
            decoding_s += max(0.0, min(end_s, last_s) - max(start_s, first_s))
    length_s = sum(end_s - start_s for start_s, end_s in pieces)
    mean_running = decoding_s / length_s if length_s else 0.0
    return DecodeWindow(pieces, tokens, steps, running, mean_running, whole)


def _sum_at(progress: Sequence[Progress], moment_s: float) -> float:
    return sum(one.at(moment_s) for one in progress)


def _fullest(requests: Sequence[RequestSample]) -> tuple[int, float]:
    """The most requests that overlap from first to last token, both moments included, and the last moment at
    which one that begins makes them so many."""
    starts_s = sorted(request.arrivals_s[0] for request in requests)
    ends_s = sorted(request.arrivals_s[-1] for request in requests)
    overlaps = [(place + 1 - bisect_left(ends_s, start_s), start_s) for place, start_s in enumerate(starts_s)]
    return max(overlaps)
