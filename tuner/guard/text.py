"""Whether a text can be an answer at all: pure functions, no model needed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

LOOP_UNITS = 24
"""A repetition that covers fewer tokens is no loop: lists and verses repeat themselves too."""

_LOOP_TURNS = 4
_PERIOD_MOST = 32
_RUN = 24
_RULES = frozenset("-=_*#~.·•+/\\|<>")
"""Characters that people draw lines with."""
_STRANGE_SHARE = 0.1


def is_looping(units: Sequence[object]) -> bool:
    """Whether it ends in a loop: at least half of it, and at least `LOOP_UNITS` units, are one sequence of at
    most 32 units over and over, four times or more."""
    for period in range(1, min(_PERIOD_MOST, len(units) // _LOOP_TURNS) + 1):
        covered = period
        while covered < len(units) and units[-covered - 1] == units[-covered - 1 + period]:
            covered += 1
        if covered >= max(LOOP_UNITS, _LOOP_TURNS * period, len(units) / 2):
            return True
    return False


def is_strange(text: str) -> bool:
    """Whether it is no text: a run of one character (`!!!!!!` is what NaN looks like in many vocabularies),
    or more than a tenth of it control characters, characters that could not be decoded, or no characters."""
    body = text.rstrip("\ufffd").strip()  # the end may cut a character in two
    if not body:
        return False
    strange = sum(_is_no_text(character) for character in body)
    return strange > _STRANGE_SHARE * len(body) or _longest_run(body) >= _RUN


def _is_no_text(character: str) -> bool:
    if character in "\n\r\t":
        return False
    # Control, not assigned, private use, surrogate.
    return character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cn", "Co", "Cs")


def _longest_run(text: str) -> int:
    longest = run = 0
    before = ""
    for character in text:
        run = run + 1 if character == before else 1
        before = character
        if not character.isspace() and character not in _RULES:
            longest = max(longest, run)
    return longest
