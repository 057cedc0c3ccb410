"""The errors a person sees, each with the exit code it ends the program with.

    TunerError            70  an error of the tuner itself
    ├── InputError         2  what the user wrote cannot be used; nothing was launched
    ├── BrokenEnvironment  3  the box has to be mended before any trial can succeed
    └── NothingRan         1  the search ended and no configuration ran

A message says what is wrong, where, and why it matters; the hint says what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_NOTHING_RAN = 1
EXIT_BAD_INPUT = 2
EXIT_BROKEN_ENVIRONMENT = 3
EXIT_TUNER_ERROR = 70
EXIT_INTERRUPTED = 130


class TunerError(Exception):
    """An error with a message for a person, a hint at the cure, and an exit code."""

    exit_code = EXIT_TUNER_ERROR

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class InputError(TunerError):
    """Something the user wrote (a file, a flag, a name) cannot be used."""

    exit_code = EXIT_BAD_INPUT


class BrokenEnvironment(TunerError):
    """The box, its driver, its disk or the server's installation has to be mended first."""

    exit_code = EXIT_BROKEN_ENVIRONMENT


class NothingRan(TunerError):
    """The search is over and not one configuration could be measured."""

    exit_code = EXIT_NOTHING_RAN


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known spelling closest to `word`, or None where nothing is close."""
    options = list(known)
    matches = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    if not matches:
        folded = {option.lower().replace("-", "_"): option for option in options}
        return folded.get(word.lower().replace("-", "_"))
    return matches[0]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence naming the nearest known spelling, or the known words, for a hint."""
    options = sorted(known)
    match = nearest(word, options)
    if match is not None:
        return f"did you mean '{match}'?"
    return f"known: {', '.join(options)}" if options else ""
