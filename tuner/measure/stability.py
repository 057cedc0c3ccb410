"""Whether a series of speeds is one speed: drift, a slow beginning, and jumps between two values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.measure.estimate import estimate

_DRIFT_LEAST = 0.01
"""A smaller drift than the tuner wants to tell is none."""

_DRIFT_QUANTILE = 2.0
"""Difference of the halves over half of a 95 % interval: twice is chance in about one of 10,000 series."""

_FEWEST = 8

_SEPARATION = 4.5
"""Ashman's D of the best split in two. For one normal hump it is 2.7, for an even spread 3.5; two groups
whose middles lie 4.5 spreads apart do not overlap."""

_SLOWER = 0.02
_ERRORS = 4.0
_APART = 0.05
_FEWEST_SHARE = 0.03


def drift_of(values: Sequence[float]) -> float:
    """By how much the second half is above the first (0.02: 2 %); 0.0 where that may be chance.

    It is drift where either the halves differ by more than their intervals allow, which finds a step, or a
    line through all values rises or falls by more, which finds a slope.
    """
    if len(values) < _FEWEST:
        return 0.0
    half = len(values) // 2
    first, second = estimate(values[:half]), estimate(values[half:])
    if not first.mean:
        return 0.0
    change = second.mean / first.mean - 1.0
    if abs(change) < _DRIFT_LEAST:
        return 0.0
    noise = math.hypot(first.half_width or 0.0, second.half_width or 0.0)
    if abs(change) >= _DRIFT_QUANTILE * noise or _slopes(values):
        return change
    return 0.0


def _slopes(values: Sequence[float]) -> bool:
    """Whether the values rise or fall evenly by more than their scatter around a line allows."""
    count = len(values)
    mean = math.fsum(values) / count
    places = [(index + 0.5) / count - 0.5 for index in range(count)]
    weight = math.fsum(place * place for place in places)
    slope = math.fsum(place * value for place, value in zip(places, values, strict=True)) / weight
    rest = estimate([value - slope * place for place, value in zip(places, values, strict=True)])
    # Places are spread evenly over 1, so their variance is 1/12, and so much wider is a slope's error.
    return abs(slope / mean) >= _DRIFT_QUANTILE * math.sqrt(12) * (rest.half_width or 0.0)


def slow_beginning(means: Sequence[float], error: float) -> int:
    """How many of the first values are too slow for chance: a server that was still getting faster.

    The values are those of rounds, `error` is the relative standard error of one of them as far as it shows
    inside a round. Left out are as many as possible, at most half, that are all below the mean of the later
    ones by 2 %, by four such errors, and by four times the spread of the later ones.
    """
    for dropped in range(len(means) // 2, 0, -1):
        rest = means[dropped:]
        mean = math.fsum(rest) / len(rest)
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in rest) / max(1, len(rest) - 1))
        if mean - max(means[:dropped]) > max(_SLOWER * mean, _ERRORS * error * mean, _ERRORS * spread):
            return dropped
    return 0


def is_bimodal(values: Sequence[float], apart: float = _APART) -> bool:
    """Whether the values fall into two groups: at least 3 % of them (and 3) in each, and `apart` relative.

    The groups are those of the split with the least variance within. Ashman's D, the distance of their
    means over the root mean square of their spreads, must exceed 4.5.
    """
    ordered = sorted(values)
    count = len(ordered)
    least = max(3, math.ceil(_FEWEST_SHARE * count))
    if count < 2 * least:
        return False
    split = _best_split(ordered, least)
    low, low_spread = _mean_and_spread(ordered[:split])
    high, high_spread = _mean_and_spread(ordered[split:])
    if not low or high / low - 1.0 < apart:
        return False
    spread = math.hypot(low_spread, high_spread)
    return math.sqrt(2) * (high - low) > _SEPARATION * spread


def _best_split(ordered: Sequence[float], least: int) -> int:
    """Where to cut so that the groups' means are as far apart as their sizes allow (Otsu's criterion)."""
    total = math.fsum(ordered)
    count = len(ordered)
    best, best_value = least, -1.0
    below = math.fsum(ordered[: least - 1])
    for split in range(least, count - least + 1):
        below += ordered[split - 1]
        between = below / split - (total - below) / (count - split)
        value = split * (count - split) * between * between
        if value > best_value:
            best, best_value = split, value
    return best


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
