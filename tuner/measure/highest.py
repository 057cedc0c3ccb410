"""The highest load that meets the limits: which level to measure next on one running server."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.measure.latency import Limit
from tuner.measure.measurement import LevelSummary, Workload

_CLOSE = 1.1
"""The search ends when the lowest load that misses is within 10 % of the highest that meets."""


def meets(summary: LevelSummary, limits: Sequence[Limit]) -> bool:
    """Whether the level is within every limit. `KeyError` where its record has no such latency."""
    return all(summary.latency_ms[limit.name] <= limit.most_ms for limit in limits)


def next_level(workload: Workload, measured: Sequence[LevelSummary], limits: Sequence[Limit]) -> float | None:
    """The level that the bisection measures next, None when it is done.

    First the highest level of the workload: if it meets, there is nothing to find. Then the lowest: if that
    misses, there is nothing to find either. Then the geometric mean of the two sides.
    """
    lowest, highest = min(workload.levels), max(workload.levels)
    verdicts = {summary.level: meets(summary, limits) for summary in measured}
    if highest not in verdicts:
        return highest
    if verdicts[highest] or not verdicts.get(lowest, True):
        return None
    if lowest not in verdicts:
        return lowest
    good = max(level for level, met in verdicts.items() if met)
    bad = min(level for level, met in verdicts.items() if not met and level > good)
    return _between(good, bad, whole=workload.kind != "open")


def _between(good: float, bad: float, *, whole: bool) -> float | None:
    """The level between the two sides, None where they are close."""
    if bad / good <= _CLOSE or (whole and bad - good <= 1):
        return None
    middle = math.sqrt(good * bad)
    return min(max(round(middle), good + 1), bad - 1) if whole else round(middle, 3)


def highest_level(measured: Sequence[LevelSummary], limits: Sequence[Limit]) -> float:
    """The highest of the measured levels that meets, below every one that misses; 0 where none does."""
    found = 0.0
    for summary in sorted(measured, key=lambda summary: summary.level):
        if not meets(summary, limits):
            break
        found = summary.level
    return found
