"""The decode window of a level and the tokens in it: pure arithmetic over request samples.

A level is whole when all of its requests decode at the same time. Its window then reaches from the last
first token to the first finish: every request decodes in all of it, and no prefill of the level falls into
it. Where the server never runs the whole level at once, the window is the span in which the whole level is
outstanding, from the last send to the first finish; queued requests count as part of the level.

A window's end seldom falls on an arrival of every request, so counts are interpolated there: a chunk of
tokens is taken to be made evenly over the gap before its arrival, but never over more than that request's
median gap. Without the interpolation the moment at which one batch's chunks happen to be read would decide
over a token per request; without the bound a request that waits for another one's prefill would be credited
with most of its next token before the window begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuner.measure.measurement import RequestSample
from tuner.measure.statistics import median

_FEWEST_TOKENS = 4


class NoWindow(ValueError):
    """The samples hold no usable window; the message says why."""


@dataclass(frozen=True)
class DecodeWindow:
    """A span of time (monotonic seconds) and the output tokens, fractions included, made in it.

    `running` is the most requests that were between their first and their last token at the same moment.
    """

    start_s: float
    end_s: float
    tokens: float
    running: int
    whole: bool

    @property
    def length_s(self) -> float:
        """How long it is; more than zero."""
        return self.end_s - self.start_s

    @property
    def tok_s(self) -> float:
        """Output tokens per second over the window."""
        return self.tokens / self.length_s


def decode_window(requests: Sequence[RequestSample]) -> DecodeWindow:
    """The window of a level whose requests all returned tokens.

    Raises `NoWindow` where there is nothing to divide: no tokens from a request, no time between the two
    ends, or fewer tokens in between than the level has requests (at least 4).
    """
    if not requests or not all(request.arrivals_s for request in requests):
        raise NoWindow("not every request returned tokens")
    running = _most_at_once(requests)
    whole = running == len(requests)
    end_s = min(request.arrivals_s[-1] for request in requests)
    if whole:
        start_s = max(request.arrivals_s[0] for request in requests)
        ends = "the last first token and the first finish"
    else:
        start_s = max(request.sent_s for request in requests)
        ends = "the last send and the first finish"
    if end_s <= start_s:
        raise NoWindow(f"no time lies between {ends}")
    tokens = 0.0
    for request in requests:
        progress = _Progress(request)
        tokens += progress.at(end_s) - progress.at(start_s)
    fewest = max(_FEWEST_TOKENS, len(requests))
    if tokens < fewest:
        raise NoWindow(f"only {tokens:.1f} tokens lie between {ends}, and at least {fewest} are needed")
    return DecodeWindow(start_s, end_s, tokens, running, whole)


def _most_at_once(requests: Sequence[RequestSample]) -> int:
    """The most requests that overlap from first to last token, both moments included."""
    starts = sorted(request.arrivals_s[0] for request in requests)
    ends = sorted(request.arrivals_s[-1] for request in requests)
    return max(position + 1 - _ended_before(ends, start_s) for position, start_s in enumerate(starts))


def _ended_before(ends: Sequence[float], moment_s: float) -> int:
    count = bisect_right(ends, moment_s)
    while count and ends[count - 1] == moment_s:
        count -= 1
    return count


class _Progress:
    """The tokens of one request as a function of time."""

    def __init__(self, request: RequestSample) -> None:
        # Chunks that came in one piece have one arrival time; the last of them holds the count.
        at = dict(zip(request.arrivals_s, request.tokens, strict=True))
        self._times_s = list(at)
        self._counts = list(at.values())
        gaps_s = gaps_of(self._times_s)
        self._usual_gap_s = median(gaps_s) if gaps_s else 0.0

    def at(self, moment_s: float) -> float:
        """Tokens made until then: none before the first arrival, all from the last one on."""
        following = bisect_right(self._times_s, moment_s)
        if following == 0:
            return 0.0
        made = self._counts[following - 1]
        if following == len(self._times_s):
            return float(made)
        gap_s = min(self._times_s[following] - self._times_s[following - 1], self._usual_gap_s)
        to_wait_s = self._times_s[following] - moment_s
        share = max(0.0, 1.0 - to_wait_s / gap_s)
        return made + (self._counts[following] - made) * share


def gaps_of(times_s: Sequence[float]) -> list[float]:
    """The time from each moment to the next one."""
    return [later - earlier for earlier, later in pairwise(times_s)]
