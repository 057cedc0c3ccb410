"""The steady part of one round and the tokens in it: pure arithmetic over request samples.

- `batch`: whole when all requests decode at the same time; the window then reaches from the last first token
  to the first finish, so that every request decodes in all of it and no prefill of the round falls into it.
  Where the server never runs the whole round at once, it is the time in which all of it is outstanding, from
  the last send to the first finish; queued requests count as part of the level.
- `waves`: likewise, but until the last finish, because the shrinking of the batch is what is looked at.
- `closed`: the span in which as many requests are outstanding as the level asks for, from the last first
  token of the beginning to the first finish that no new request follows, without the time in which a new
  request is prefilled.
- `burst`, `open`: from the first token of all to the last send.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

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
    running = _most_at_once(requests)
    whole = kind == "open" or running >= level
    start_s, end_s, ends = _ends(requests, kind, level, whole=whole)
    if end_s <= start_s:
        raise NoWindow(f"no time lies between {ends}")
    pieces: tuple[Piece, ...] = ((start_s, end_s),)
    clean = True
    if kind == "closed":
        pieces, clean = _without_prefills(requests, start_s, end_s, whole=whole)
    window = _counted(requests, pieces, running, whole=whole, clean=clean)
    fewest = max(_FEWEST_TOKENS, level if kind in ("batch", "closed") else 0)
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
    requests: Sequence[RequestSample], kind: str, level: int, *, whole: bool
) -> tuple[float, float, str]:
    """Beginning and end, and their names."""
    finishes_s = [request.arrivals_s[-1] for request in requests]
    last_sent_s = max(request.sent_s for request in requests)
    if kind in ("burst", "open"):
        first_token_s = min(request.arrivals_s[0] for request in requests)
        return first_token_s, last_sent_s, "the first token and the last send"
    beginning = sorted(requests, key=lambda request: request.sent_s)[:level]
    if kind == "closed" and len(requests) > level:
        # What does not fit runs by itself at first; from the first finish on, others wait.
        start_s = max(request.arrivals_s[0] for request in beginning) if whole else min(finishes_s)
        end_s = min((finish_s for finish_s in finishes_s if finish_s >= last_sent_s), default=last_sent_s)
        return start_s, end_s, "the beginning and the first finish without a successor"
    end_s = max(finishes_s) if kind == "waves" else min(finishes_s)
    finish = "the last finish" if kind == "waves" else "the first finish"
    if whole:
        return max(request.arrivals_s[0] for request in requests), end_s, f"the last first token and {finish}"
    return last_sent_s, end_s, f"the last send and {finish}"


def _without_prefills(
    requests: Sequence[RequestSample], start_s: float, end_s: float, *, whole: bool
) -> tuple[tuple[Piece, ...], bool]:
    """The span without the prefills in it, or all of it where too little would be left.

    A request that does not wait is prefilled from its send to its first token; one that waits, at most for
    the time that the fastest one took.
    """
    prefill_s = min(request.arrivals_s[0] - request.sent_s for request in requests)
    gaps_s = [gap_s for request in requests for gap_s in gaps_of(request.arrivals_s[:64])]
    shortest_s = 2 * median(gaps_s) if gaps_s else 0.0
    prefills = sorted(
        (
            request.sent_s if whole else max(request.sent_s, request.arrivals_s[0] - prefill_s),
            request.arrivals_s[0],
        )
        for request in requests
    )
    pieces: list[Piece] = []
    at_s = start_s
    for begun_s, first_s in prefills:
        if first_s <= at_s or begun_s >= end_s:
            continue
        if begun_s - at_s > shortest_s:
            pieces.append((at_s, begun_s))
        at_s = first_s
    if end_s - at_s > shortest_s:
        pieces.append((at_s, end_s))
    clean_s = sum(until_s - from_s for from_s, until_s in pieces)
    if clean_s < _LEAST_CLEAN_SHARE * (end_s - start_s):
        return ((start_s, end_s),), False
    return tuple(pieces), True


# --- counting ------------------------------------------------------------------------------------------


def _counted(
    requests: Sequence[RequestSample], pieces: tuple[Piece, ...], running: int, *, whole: bool, clean: bool
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
    return DecodeWindow(pieces, tokens, steps, running, mean_running, whole, clean)


def _sum_at(progress: Sequence[Progress], moment_s: float) -> float:
    return sum(one.at(moment_s) for one in progress)


def _most_at_once(requests: Sequence[RequestSample]) -> int:
    """The most requests that overlap from first to last token, both moments included."""
    starts = sorted(request.arrivals_s[0] for request in requests)
    ends = sorted(request.arrivals_s[-1] for request in requests)
    return max(position + 1 - bisect_left(ends, start_s) for position, start_s in enumerate(starts))
