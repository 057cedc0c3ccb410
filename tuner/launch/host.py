"""What the CPUs and the memory of this machine do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import psutil

from tuner.launch import process_tree

_GIB = 1024**3


@dataclass(frozen=True)
class HostReading:
    """CPU since the reading before, over all cores; memory now.

    `busiest_core_percent` shows a thread that is the limit where the mean does not. `steal_percent` is what
    a hypervisor gave to other machines.
    """

    cpu_percent: float
    busiest_core_percent: float
    steal_percent: float
    memory_used_gib: float
    memory_available_gib: float
    swap_used_gib: float


class HostMeter(Protocol):
    """Reads the host."""

    def read(self) -> HostReading:
        """What it does, since the reading before."""


class LocalHost:
    """Implements `HostMeter` for this machine. The first reading is over the time since it was made."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times(percpu=True)

    def read(self) -> HostReading:
        """See `HostMeter`."""
        now = psutil.cpu_times(percpu=True)
        cores = [_busy(then, core) for then, core in zip(self._before, now, strict=False)]
        self._before = now
        total_s = sum(core.total_s for core in cores)
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        return HostReading(
            cpu_percent=_percent(sum(core.busy_s for core in cores), total_s),
            busiest_core_percent=max((_percent(core.busy_s, core.total_s) for core in cores), default=0.0),
            steal_percent=_percent(sum(core.steal_s for core in cores), total_s),
            memory_used_gib=memory.used / _GIB,
            memory_available_gib=memory.available / _GIB,
            swap_used_gib=swap.used / _GIB,
        )


def is_of_launch(pid: int, marker: str) -> bool:
    """Whether the process with this pid carries the marker of a launch. False where it cannot be seen."""
    process = process_tree.find(pid)
    return process is not None and process_tree.marker_of(process) == marker


@dataclass(frozen=True)
class _Core:
    busy_s: float
    steal_s: float
    total_s: float


def _busy(before: object, now: object) -> _Core:
    """The differences; a counter may step back a little after a CPU was offline."""

    def since(name: str) -> float:
        return max(0.0, float(getattr(now, name, 0.0)) - float(getattr(before, name, 0.0)))

    # Guests are counted in `user` already.
    busy_s = sum(since(name) for name in ("user", "nice", "system", "irq", "softirq"))
    steal_s = since("steal")
    return _Core(busy_s, steal_s, busy_s + steal_s + since("idle") + since("iowait"))


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole > 0 else 0.0
