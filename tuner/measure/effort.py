"""Whether the client itself was the limit: how busy its thread and how late its loop was."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tuner.measure.measurement import ClientEffort
from tuner.measure.statistics import percentile

CPU_SHARE_LIMIT = 0.85
"""Above this share of one core, waits in the client's own queue grow without bound (1 / (1 - share)), and
what looks like the server's speed is the client's."""

LATE_SHARE_LIMIT = 0.25
"""The loop woke up late for this share of the time. Single hiccups of some 10 ms, which move the ends of a
window of seconds by less than 1 %, stay far below."""

_OWN_WORK = 0.5
"""A late loop that needed less of its core was kept from it by others, as on a small box where the server
takes every core: its stamps are coarse, but what it counts over a window is still the server's speed."""

_STOP_LIMIT = 0.1
"""Unless it was stopped for this part of a round at once: then so much of the window's length is chance."""

_TICK_S = 0.02
_SHORTEST_S = 0.5
"""A shorter round says too little: one hiccup would be a large share of it."""

_PUNCTUAL_S = 0.005
"""Timers are this late on any busy machine; it moves no window by more than it moves the next."""


class EffortMeter:
    """Measures one round: `start`, `tick` in every turn of the loop, `stop` when the last answer is there."""

    def __init__(self) -> None:
        self._lags_s: list[float] = []
        self.due_s = 0.0
        """When the loop should turn next."""

    def start(self, now_s: float) -> None:
        """Begin; what the loop and this thread do from now on counts."""
        self._lags_s.clear()
        self._began_s = now_s
        self._began_cpu_s = time.thread_time()
        self.due_s = now_s + _TICK_S

    def tick(self, now_s: float) -> None:
        """The loop has turned: if that was due, note how late it is."""
        if now_s >= self.due_s:
            self._lags_s.append(now_s - self.due_s)
            self.due_s = now_s + _TICK_S

    def stop(self) -> ClientEffort:
        """The effort since `start`."""
        took_s = max(1e-9, time.monotonic() - self._began_s)
        cpu_s = time.thread_time() - self._began_cpu_s
        return ClientEffort(
            seconds=round(took_s, 4),
            cpu_share=round(cpu_s / took_s, 4),
            lag_p99_ms=round(percentile(self._lags_s, 99) * 1e3, 3) if self._lags_s else 0.0,
            late_share=round(sum(lag for lag in self._lags_s if lag > _PUNCTUAL_S) / took_s, 4),
        )


def limited_by_client(efforts: Sequence[ClientEffort]) -> str:
    """Why the client was the limit in one of the rounds, or the empty string."""
    for effort in efforts:
        if effort.seconds < _SHORTEST_S:
            continue
        if effort.cpu_share > CPU_SHARE_LIMIT:
            return (
                f"the load client was the limit: it needed {effort.cpu_share:.0%} of a core, "
                f"more than {CPU_SHARE_LIMIT:.0%}"
            )
        if effort.late_share > LATE_SHARE_LIMIT and (
            effort.cpu_share > _OWN_WORK or effort.lag_p99_ms > _STOP_LIMIT * effort.seconds * 1e3
        ):
            return f"the load client was the limit: {_lateness(effort)}"
    return ""


def kept_waiting(efforts: Sequence[ClientEffort]) -> str:
    """A sentence on rounds in which others kept the client from its core, or the empty string."""
    late = [
        effort for effort in efforts if effort.seconds >= _SHORTEST_S and effort.late_share > LATE_SHARE_LIMIT
    ]
    if not late:
        return ""
    worst = max(late, key=lambda effort: effort.late_share)
    return (
        "other processes kept the load client from its core, so times of single tokens are coarse: "
        + _lateness(worst)
    )


def _lateness(effort: ClientEffort) -> str:
    return (
        f"it was late for {effort.late_share:.0%} of the time "
        f"(99 % of its timers within {effort.lag_p99_ms:.0f} ms) and needed {effort.cpu_share:.0%} of a core"
    )
