"""How many tokens a step gives with speculation, by the drafts that were asked for.

A server with drafts is as fast as its steps are short and as the drafts are accepted. The second depends on
what the model happens to write, which makes most of the noise between launches of the same (Kimi-K2.5 with
EAGLE-3 at one stream: 3 to 4 %), and on no knob but those of the drafts. So it is learnt from all launches
together, and each launch tells of the rest what its own luck does not blur.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_STEPS = "speculative_num_steps"
_DRAFTS = "speculative"
_OFF = frozenset({"off", "none"})
_ODDS = 0.6
"""Of a draft that follows an accepted one. Published for EAGLE-3 on Kimi-K2.5: 0.65, 0.40, 0.25 for the
first, second and third together."""
_UNSAID_STEPS = 3
_UNEVEN = 0.03
"""How far (sd of the logarithm) the accept length of a number of steps is from what even odds give."""
_NOISE = 0.05
_NOISE_LAUNCHES = 4
"""The noise of a launch's accept length (logarithm) beforehand, and how many launches that is worth."""

Drafts = tuple[tuple[str, str], ...]


class Acceptance:
    """Learns from launches: what was asked for, and the accept length (tokens of a step) that came of it."""

    def __init__(self, launches: Iterable[tuple[Mapping[str, Any], float]]) -> None:
        told: dict[Drafts, dict[int, list[float]]] = {}
        for values, length in launches:
            told.setdefault(_drafts(values), {}).setdefault(_steps(values), []).append(math.log(length))
        self._odds = {drafts: _mean_odds(by_steps) for drafts, by_steps in told.items()}
        self._told = told
        self._usual: dict[tuple[Drafts, int], float] = {}
        # So many launches with a number of steps tell as much of it as those with other numbers.
        self._own = (_noise(told) / _UNEVEN) ** 2

    def usual(self, values: Mapping[str, Any]) -> float:
        """The logarithm of the accept length to be expected; 0 without speculation.

        The mean over launches with the same drafts. A number of steps that was rarely launched leans on the
        others: the odds of a draft fall about evenly from step to step.
        """
        drafts, steps = drafts_of(values)
        return self._usual_of(drafts, steps) if drafts else 0.0

    def _usual_of(self, drafts: Drafts, steps: int) -> float:
        if (drafts, steps) not in self._usual:
            same = self._told.get(drafts, {}).get(steps, [])
            leaning = math.log(_length(self._odds.get(drafts, _ODDS), steps))
            total = math.fsum(same) + self._own * leaning
            self._usual[drafts, steps] = total / (len(same) + self._own)
        return self._usual[drafts, steps]

    def doubt(self, values: Mapping[str, Any]) -> float:
        """The sd of what is usual, beyond what all numbers of steps have in common."""
        drafts, steps = drafts_of(values)
        same = self._told.get(drafts, {}).get(steps, [])
        return _UNEVEN * math.sqrt(self._own / (len(same) + self._own)) if drafts else 0.0

    def excess(self, values: Mapping[str, Any]) -> float:
        """By how much (logarithm) more is accepted than was expected before anything was launched."""
        drafts, steps = drafts_of(values)
        return self._usual_of(drafts, steps) - math.log(_length(_ODDS, steps)) if drafts else 0.0


def drafts_of(values: Mapping[str, Any]) -> tuple[Drafts, int]:
    """What decides on the accept length, and the number of steps; 0 without speculation."""
    drafts = _drafts(values)
    return drafts, _steps(values) if drafts else 0


def _drafts(values: Mapping[str, Any]) -> Drafts:
    """Everything that decides on the drafts, but for the number of steps; empty without speculation."""
    found = {name: str(values[name]) for name in values if name.startswith(_DRAFTS) and name != _STEPS}
    if found.get(_DRAFTS, found.get("speculative_algorithm", "none")).lower() in _OFF:
        return ()
    return tuple(sorted(found.items()))


def _steps(values: Mapping[str, Any]) -> int:
    steps = values.get(_STEPS)
    return steps if isinstance(steps, int) and steps > 0 else _UNSAID_STEPS


def _length(odds: float, steps: int) -> float:
    """Tokens of a step when each draft is accepted with these odds, as long as the one before it was."""
    return 1.0 + math.fsum(odds**position for position in range(1, steps + 1))


def _noise(told: Mapping[Drafts, Mapping[int, Sequence[float]]]) -> float:
    """The sd of the logarithm of the accept length between launches with the same drafts."""
    squares, count = _NOISE_LAUNCHES * _NOISE**2, float(_NOISE_LAUNCHES)
    for by_steps in told.values():
        for lengths in by_steps.values():
            mean = math.fsum(lengths) / len(lengths)
            squares += math.fsum((length - mean) ** 2 for length in lengths)
            count += len(lengths) - 1
    return math.sqrt(squares / count)


def _mean_odds(by_steps: Mapping[int, list[float]]) -> float:
    found = [_odds(math.exp(length), steps) for steps, lengths in by_steps.items() for length in lengths]
    return math.fsum([_ODDS, *found]) / (len(found) + 1)


def _odds(length: float, steps: int) -> float:
    """The odds that give this accept length (bisection)."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _length(middle, steps) < length else (low, middle)
    return (low + high) / 2
