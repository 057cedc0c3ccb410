"""Time as something that is handed in, so that tests can turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a room gets its time from."""

    def monotonic_s(self) -> float:
        """Seconds that never run backwards; only differences have a meaning."""

    def wall_s(self) -> float:
        """Seconds since the epoch, for records that people read."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class SystemClock:
    """The clock of this machine."""

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    def wall_s(self) -> float:
        """See `Clock`."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        time.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that moves only when it is told to sleep or to advance."""

    def __init__(self, start_s: float = 0.0, *, wall_start_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s
        self._wall_offset_s = wall_start_s - start_s

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return self._now_s

    def wall_s(self) -> float:
        """See `Clock`."""
        return self._now_s + self._wall_offset_s

    def sleep(self, seconds: float) -> None:
        """Advance at once by `seconds`."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now_s += max(0.0, seconds)
