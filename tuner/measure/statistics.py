"""Small statistics over plain numbers."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie, linear between the two nearest ranks.

    Raises `ValueError` for no values and for a percentage outside 0 to 100.
    """
    if not values:
        raise ValueError("no values")
    if not 0 <= percent <= 100:
        raise ValueError(f"no percentage: {percent}")
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    if below == len(ordered) - 1:
        return ordered[below]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (rank - below)


def median(values: Sequence[float]) -> float:
    """The middle value. Raises `ValueError` for no values."""
    return percentile(values, 50)
