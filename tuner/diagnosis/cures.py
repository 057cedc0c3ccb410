"""Hints with values: what the numbers of a message say about how far to turn a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.diagnosis.failure import Hint, Kind

_MARGIN_GIB = 0.5
"""Left over besides the shortage: allocators round up and fragment."""
_LOWER_FOR = frozenset({Kind.OOM_KV_CACHE, Kind.OOM_GRAPH_CAPTURE, Kind.OOM_SERVING, Kind.OOM_DRAFT_MODEL})


def hints_for(kind: Kind, hints: Sequence[Hint], numbers: dict[str, float]) -> tuple[Hint, ...]:
    """The hints, with values where the numbers give an exact cure."""
    return tuple(_valued(kind, hint, numbers) for hint in hints)


def _valued(kind: Kind, hint: Hint, numbers: dict[str, float]) -> Hint:
    value: float | None = None
    if hint.name == "mem_fraction_static" and hint.direction == "increase":
        value = numbers.get("least_fraction")
    elif hint.name == "mem_fraction_static" and kind in _LOWER_FOR:
        value = _lower_fraction(numbers)
    elif hint.name == "cuda_graph_max_bs" and numbers.get("capturing_bs", 0) > 1:
        # Sizes are captured from large to small: the one that failed is the first that is too large.
        value = int(numbers["capturing_bs"]) // 2
    return replace(hint, value=value) if value is not None else hint


def _lower_fraction(numbers: dict[str, float]) -> float | None:
    """The fraction in use less what was missing, where the message tells both and the card's size."""
    if not {"mem_fraction_static", "total_gib", "asked_gib", "free_gib"} <= numbers.keys():
        return None
    if numbers["total_gib"] <= 0:
        return None
    missing = max(0.0, numbers["asked_gib"] - numbers["free_gib"]) + _MARGIN_GIB
    lower = numbers["mem_fraction_static"] - missing / numbers["total_gib"]
    return round(lower - 0.0005, 3) if lower > 0 else None
