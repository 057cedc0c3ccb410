"""The numbers that messages name: asked, free, the least fraction that would have worked."""

from __future__ import annotations

import re

_UNIT = {
    "b": 1 / 2**30,
    "kb": 1 / 2**20,
    "kib": 1 / 2**20,
    "mb": 1 / 2**10,
    "mib": 1 / 2**10,
    "gb": 1.0,
    "gib": 1.0,
    "tib": 1024.0,
    "tb": 1024.0,
}
_SIZE = r"(-?\d[\d.]*) ?([KMGT]?i?B|bytes)"

_ASKED = re.compile(rf"tried to allocate {_SIZE}|Requesting {_SIZE}|calloc {_SIZE}", re.I)
_FREE = re.compile(rf"of which {_SIZE} is free|only have {_SIZE} free|free: {_SIZE}|; {_SIZE} free", re.I)
_TOTAL = re.compile(rf"total capac\w*ty of {_SIZE}", re.I)
_MINE = re.compile(rf"this process has {_SIZE} memory in use", re.I)
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch", re.I)
_RESERVED = re.compile(rf"{_SIZE} is reserved by PyTorch", re.I)
_REST = re.compile(rf"rest_memory ?[=:] ?{_SIZE}", re.I)
_LEAST = re.compile(r"mem-fraction-static above (\d*\.?\d+)", re.I)
_PLAIN: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("required_bytes", re.compile(r"Required: (\d+)", re.I)),
    ("limit_bytes", re.compile(r"Hardware limit: ?(\d+)", re.I)),
    ("available_tokens", re.compile(r"Available tokens: (\d+)", re.I)),
    ("asked_tokens", re.compile(r"Try to allocate (\d+) tokens", re.I)),
    ("profiled_tokens", re.compile(r"profiled value:? (-?\d+)", re.I)),
    ("capturing_bs", re.compile(r"Capturing batches \(bs=(\d+)", re.I)),
)
_FRACTION = re.compile(r"['\"]?mem_fraction_static['\"]?[=:] ?(\d*\.\d+)|--mem-fraction-static[= ](\d*\.\d+)")


def read_numbers(message: str) -> dict[str, float]:
    """What a message tells, in GiB where it is memory: asked_gib, free_gib, total_gib, least_fraction…"""
    found: dict[str, float] = {}
    for name, pattern in (
        ("asked_gib", _ASKED),
        ("free_gib", _FREE),
        ("total_gib", _TOTAL),
        ("mine_gib", _MINE),
        ("allocated_gib", _ALLOCATED),
        ("reserved_gib", _RESERVED),
        ("rest_gib", _REST),
    ):
        size = _gib(pattern.search(message))
        if size is not None:
            found[name] = size
    for name, pattern in (*_PLAIN, ("least_fraction", _LEAST)):
        match = pattern.search(message)
        value = _number(match[1]) if match is not None else None
        if value is not None:
            found[name] = value
    return found


def shortage_gib(numbers: dict[str, float]) -> float | None:
    """How much memory was missing: asked less free, or a negative rest."""
    if numbers.get("rest_gib", 0.0) < 0:
        return round(-numbers["rest_gib"], 3)
    if "asked_gib" in numbers and "free_gib" in numbers:
        return round(max(0.0, numbers["asked_gib"] - numbers["free_gib"]), 3)
    return None


def held_by_others_gib(numbers: dict[str, float]) -> float | None:
    """Memory in use that is not this process's own, where PyTorch's message tells enough to say so."""
    if "total_gib" not in numbers or "free_gib" not in numbers:
        return None
    # In a container a process does not see its own entry: what PyTorch holds plus a context stands for it.
    mine = numbers.get("mine_gib")
    if mine is None and "allocated_gib" in numbers:
        mine = numbers["allocated_gib"] + numbers.get("reserved_gib", 0.0) + 2.0
    return max(0.0, numbers["total_gib"] - numbers["free_gib"] - mine) if mine is not None else None


def fraction_in_use(text: str) -> float | None:
    """The mem_fraction_static that a line with the server's arguments names."""
    found = _FRACTION.search(text)
    return _number(found[1] or found[2]) if found is not None else None


def _gib(match: re.Match[str] | None) -> float | None:
    if match is None:
        return None
    filled = [group for group in match.groups() if group is not None]
    value, unit = _number(filled[0]), filled[1].lower()
    if value is None:
        return None
    return round(value * _UNIT.get("b" if unit == "bytes" else unit, 1.0), 4)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
