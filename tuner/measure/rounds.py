"""A round boiled down to what is needed to tell how fast the server was, and a level from its rounds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuner.measure.estimate import Estimate, estimate, independent_estimate
from tuner.measure.measurement import RequestSample
from tuner.measure.stability import drift_of, is_bimodal, slow_beginning
from tuner.measure.statistics import median
from tuner.measure.window import DecodeWindow, Slice, decode_window, slices_of

_FEWEST_INDEPENDENT = 4
_STALL = 1.5
_READ_TOGETHER = 0.2
_MOST_GAPS = 4000


@dataclass(frozen=True)
class Round:
    """The window of one round, the slices it was cut into, and the time between its chunks."""

    window: DecodeWindow
    slices: tuple[Slice, ...]
    gaps_s: tuple[float, ...]


@dataclass(frozen=True)
class Steady:
    """The speed of a level: tokens per second, engine steps per second, and tokens per engine step.

    The first is the product of the other two; each has its own interval.
    """

    tok_s: Estimate
    steps_s: Estimate
    accepted: Estimate
    dropped: int
    drift: float
    bimodal: bool


def round_of(requests: Sequence[RequestSample], kind: str, concurrency: int | None) -> Round:
    """Boil one round down. Raises `NoWindow`."""
    window = decode_window(requests, kind, concurrency)
    return Round(window, slices_of(requests, window), _gaps_in(requests, window))


def steady_of(rounds: Sequence[Round], kind: str) -> Steady:
    """The speed over all rounds but a slow beginning, with intervals.

    The mean is tokens over seconds of the windows. From four rounds on the interval is that of the rounds,
    each with prompts of its own, as independent values (batch means). Fewer are cut into slices, which
    depend on each other (see `estimate`); their even trend within a round is taken out first, because
    answers that grow slow the engine down in every round alike, and a mean over the same part of every
    answer is not uncertain for that. Waves, whose speed changes throughout, are never cut.
    """
    rates = [one.window.tok_s for one in rounds]
    dropped = slow_beginning(rates, relative_error(rounds))
    kept = rounds[dropped:]
    seconds = math.fsum(one.window.length_s for one in kept)
    tokens = math.fsum(one.window.tokens for one in kept)
    steps = math.fsum(one.window.steps for one in kept)
    running = math.fsum(one.window.mean_running * one.window.length_s for one in kept) / seconds
    tok_s, steps_s, each = tokens / seconds, steps / seconds / max(running, 1e-9), tokens / max(steps, 1e-9)
    if kind == "waves" or len(kept) >= _FEWEST_INDEPENDENT:
        speed = independent_estimate([one.window.tok_s for one in kept])
        pace = independent_estimate([_steps_s(one.window) for one in kept])
        gain = independent_estimate([_gain(one.window) for one in kept])
    else:
        speed = estimate(_series(kept, lambda part: part.tokens / part.seconds))
        pace = estimate(_series(kept, lambda part: part.steps / part.seconds))
        gain = estimate(_series(kept, lambda part: part.tokens / max(part.steps, 1e-9)))
    changes = kind in ("waves", "burst", "open")  # their speed is meant to change throughout
    speeds = _series(kept, lambda part: part.tokens / part.seconds)
    return Steady(
        tok_s=speed.around(tok_s),
        steps_s=pace.around(steps_s),
        accepted=gain.around(each * running),
        dropped=dropped,
        drift=0.0 if changes else _drift(kept, speeds),
        bimodal=not changes and (is_bimodal(speeds) or _has_two_gaps(kept)),
    )


def relative_error(rounds: Sequence[Round]) -> float:
    """One standard error of a round's speed, relative, from what varies inside the rounds."""
    halves = [
        estimate([part.tokens / part.seconds for part in one.slices]).half_width
        for one in rounds
        if one.slices
    ]
    known = [half for half in halves if half is not None]
    return median(known) / 2 if known else 0.0


def _steps_s(window: DecodeWindow) -> float:
    return window.steps / window.length_s


def _gain(window: DecodeWindow) -> float:
    return window.tokens / max(window.steps, 1e-9)


def _series(rounds: Sequence[Round], value: Callable[[Slice], float]) -> list[float]:
    """The value of every slice without the even trend that all rounds have in common."""
    places: list[float] = []
    values: list[float] = []
    centred: list[float] = []
    for one in rounds:
        of_round = [value(part) for part in one.slices]
        mean = math.fsum(of_round) / len(of_round) if of_round else 0.0
        places += [(index + 0.5) / len(of_round) - 0.5 for index in range(len(of_round))]
        values += of_round
        centred += [found - mean for found in of_round]
    weight = math.fsum(place * place for place in places)
    slope = math.fsum(place * found for place, found in zip(places, centred, strict=True)) / (weight or 1.0)
    return [found - slope * place for place, found in zip(places, values, strict=True)]


def _drift(rounds: Sequence[Round], speeds: Sequence[float]) -> float:
    """Drift from round to round; in a single round only upwards, since longer answers are slower anyway."""
    if len(rounds) > 1:
        return drift_of(speeds)
    return max(0.0, drift_of([part.tokens / part.seconds for one in rounds for part in one.slices]))


def _has_two_gaps(rounds: Sequence[Round]) -> bool:
    """Whether some of the engine's steps take half as long again as the others (stalls)."""
    if not all(one.window.whole and one.window.clean for one in rounds):
        return False  # steps that others are prefilled in between are longer
    gaps_s = [gap_s for one in rounds for gap_s in one.gaps_s]
    if not gaps_s:
        return False
    least_s = _READ_TOGETHER * median(gaps_s)
    return is_bimodal([gap_s for gap_s in gaps_s if gap_s > least_s], apart=_STALL - 1.0)


def _gaps_in(requests: Sequence[RequestSample], window: DecodeWindow) -> tuple[float, ...]:
    """The time between a request's chunks inside a piece, of evenly chosen ones where there are many."""
    starts_s = [start_s for start_s, _ in window.pieces]
    found = []
    for request in requests:
        for earlier_s, later_s in pairwise(request.arrivals_s):
            piece = bisect_right(starts_s, earlier_s) - 1
            if piece >= 0 and later_s <= window.pieces[piece][1]:
                found.append(later_s - earlier_s)
    return tuple(found[:: 1 + len(found) // _MOST_GAPS])
