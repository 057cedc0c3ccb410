"""A server's start as a script: lines with their times, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from tuner.simulator.deaths import traceback_in


@dataclass(frozen=True)
class Event:
    """A line at `at_s`.

    `speaker`: main, rank0, ranks (the same line from every rank) or raw (text as it stands).
    """

    at_s: float
    speaker: str
    text: str


@dataclass(frozen=True)
class Script:
    """A start in simulated seconds.

    `ending`: ready, exception (the schedulers raise `failure`) or abort (the time-out of a collective kills
    them).
    """

    events: tuple[Event, ...]
    ending: str
    at_s: float
    failure: str = ""


class StartEndedError(Exception):
    """The start ends here, before the server is ready."""

    def __init__(self, ending: str, failure: str) -> None:
        super().__init__(ending)
        self.ending = ending
        self.failure = failure


class ScriptWriter:
    """Writes events while its clock and the free memory of a card advance."""

    def __init__(self, now_s: float, free_gib: float) -> None:
        self.events: list[Event] = []
        self.now_s = now_s
        self._free_gib = free_gib

    @property
    def free_gib(self) -> float:
        """Free memory of a card, as the log shows it."""
        return max(0.05, self._free_gib)

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def take(self, gib: float) -> None:
        """Use memory."""
        self._free_gib -= gib

    def ranks(self, text: str) -> None:
        """A line from every rank."""
        self.events.append(Event(self.now_s, "ranks", text))

    def rank0(self, text: str) -> None:
        """A line from the first rank."""
        self.events.append(Event(self.now_s, "rank0", text))

    def raw(self, text: str) -> None:
        """Text as it stands."""
        self.events.append(Event(self.now_s, "raw", text))

    def fail(self, phase: str, exception: str) -> NoReturn:
        """End the start with an exception of the schedulers. Raises `StartEndedError`."""
        raise StartEndedError("exception", traceback_in(phase, exception))


def clock_text(seconds: float) -> str:
    """Minutes and seconds, as progress bars show them."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"
