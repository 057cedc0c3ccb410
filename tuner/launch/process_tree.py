"""Finding and ending the processes of a launch, by pid and start time, session and environment marker.

Never by name. Every function bears with processes that end, become zombies or cannot be read meanwhile.
A `psutil.Process` remembers when its process started and refuses to signal a later one with the same pid.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import psutil

from tuner.clock import Clock
from tuner.launch.environment import MARKER

ProcessKey: TypeAlias = tuple[int, float]
"""A pid and the time its process started: what tells a process from a later one with the same pid."""

_POLL_S = 0.05


def key_of(process: psutil.Process) -> ProcessKey:
    """What identifies the process as long as the machine is up."""
    return process.pid, process.create_time()


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs. A zombie does not: it holds no memory and no port, only its exit code.

    A process whose first thread ended looks like a zombie while its other threads run on, or are being
    taken down with the GPU memory they hold: it lives.
    """
    try:
        if not process.is_running():
            return False
        status = process.status()
        return status != psutil.STATUS_DEAD and (status != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.Error:
        return False


def find(pid: int) -> psutil.Process | None:
    """The process that has this pid now, or None."""
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def marker_of(process: psutil.Process) -> str | None:
    """The marker in its environment; None where it has none, ended, or belongs to somebody else."""
    try:
        return process.environ().get(MARKER)
    except (psutil.Error, OSError):
        return None


def find_marked(belongs: Callable[[str], bool]) -> list[psutil.Process]:
    """All living processes of this machine whose marker `belongs`; never ourselves or an ancestor."""
    found = []
    for pid in _pids_of_others():
        process = find(pid)
        if process is None:
            continue
        marker = marker_of(process)
        if marker is not None and belongs(marker) and is_alive(process):
            found.append(process)
    return found


def session_members(session: int) -> list[psutil.Process]:
    """All living processes of a session; never ourselves or an ancestor."""
    members = (find(pid) for pid in _pids_of_others() if _lookup(os.getsid, pid) == session)
    return [process for process in members if process is not None and is_alive(process)]


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Its living children, their children and so on; those whose parent died are no longer among them."""
    try:
        children = process.children(recursive=True)
    except psutil.Error:
        return []
    return [child for child in children if is_alive(child)]


def is_in_group(process: psutil.Process, group: int) -> bool:
    """Whether it belongs to that process group."""
    return _lookup(os.getpgid, process.pid) == group


def is_in_session(process: psutil.Process, session: int) -> bool:
    """Whether it belongs to that session."""
    return _lookup(os.getsid, process.pid) == session


def kill(process: psutil.Process) -> None:
    """SIGKILL, unless it is gone or its pid belongs to another process by now."""
    try:
        process.kill()
    except psutil.Error:
        return


def described(process: psutil.Process) -> str:
    """Its pid and name, for people."""
    try:
        return f"{process.pid} ({process.name()})"
    except psutil.Error:
        return str(process.pid)


def end_all(
    look: Callable[[], list[psutil.Process]], clock: Clock, *, limit_s: float
) -> list[psutil.Process]:
    """Kill all that `look` finds, and look again, until it finds nothing; what is left after `limit_s`.

    Looking again is needed: a process may fork between being seen and being killed.
    """
    deadline_s = clock.monotonic_s() + limit_s
    while found := look():
        if clock.monotonic_s() >= deadline_s:
            return found
        for process in found:
            kill(process)
        clock.sleep(_POLL_S)
    return []


def wait_until(condition: Callable[[], bool], clock: Clock, *, deadline_s: float) -> bool:
    """Wait for `condition` until the clock's monotonic time reaches the deadline; whether it came true."""
    while not condition():
        if clock.monotonic_s() >= deadline_s:
            return False
        clock.sleep(_POLL_S)
    return True


class TreeTotal:
    """A running total over a tree of processes, of a counter that a parent inherits from children it reaps.

    Linux adds CPU time and bytes read of a child to its parent when the parent collects the exit code. So
    the last value of a process that ended counts only where no living parent took it over. The total never
    shrinks.
    """

    def __init__(self) -> None:
        self._living: dict[ProcessKey, tuple[ProcessKey | None, float]] = {}
        self._orphaned = 0.0
        self._total = 0.0

    def update(self, living: Mapping[ProcessKey, tuple[ProcessKey | None, float]]) -> float:
        """The total, given for every living process its parent (where it is one of them) and its counter."""
        for key, (parent, value) in self._living.items():
            if key not in living and parent not in living:
                self._orphaned += value
        self._living = dict(living)
        self._total = max(self._total, self._orphaned + sum(value for _, value in living.values()))
        return self._total


def sample(
    processes: Iterable[psutil.Process], counter: Callable[[psutil.Process], float]
) -> dict[ProcessKey, tuple[ProcessKey | None, float]]:
    """What `TreeTotal.update` wants: the counter of each process, and its parent."""
    by_pid = {process.pid: process for process in processes}
    taken: dict[ProcessKey, tuple[ProcessKey | None, float]] = {}
    for process in by_pid.values():
        try:
            parent = by_pid.get(process.ppid())
            taken[key_of(process)] = (key_of(parent) if parent else None, counter(process))
        except (psutil.Error, OSError):
            continue
    return taken


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of the process and of the children it has reaped."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def read_bytes(process: psutil.Process) -> float:
    """Bytes the process and the children it has reaped caused to be read from disk."""
    return float(process.io_counters().read_bytes)


def _pids_of_others() -> list[int]:
    own = {os.getpid()}
    try:
        own.update(parent.pid for parent in psutil.Process().parents())
    except psutil.Error:
        own.add(os.getppid())
    return [pid for pid in psutil.pids() if pid not in own]


def _lookup(question: Callable[[int], int], pid: int) -> int | None:
    try:
        return question(pid)
    except OSError:
        return None
