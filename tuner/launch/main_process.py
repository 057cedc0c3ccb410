"""The first process of a launch: our own child, or one that an earlier run of the tuner left."""

from __future__ import annotations

import signal
import subprocess
from typing import Protocol

import psutil

from tuner import programs
from tuner.launch.process_tree import is_alive

UNKNOWN_EXIT_CODE = 255
"""What stands for the exit code of a process that is not our child: the system tells it to nobody else."""


class MainProcess(Protocol):
    """What a handle does with the first process of its launch."""

    @property
    def process(self) -> psutil.Process | None:
        """The process, or None where it was gone before we looked."""

    @property
    def session(self) -> int | None:
        """Its session and group, as long as the number cannot have passed on to somebody else."""

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while it runs or where it cannot be known."""

    def poll(self) -> int | None:
        """The exit code (255 where it cannot be known), or None while it runs. Never blocks."""

    def terminate(self) -> None:
        """SIGTERM to this one process."""

    def kill_group(self) -> None:
        """SIGKILL to its process group, where that can be done at one stroke."""

    def collect(self) -> None:
        """Give the pid back to the system, if the process has ended."""


class OwnMain:
    """Our own child, which leads a session and a group.

    Its exit code is looked at and left where it is until `collect`: as long as it lies there the system
    gives the number to no other process and no other group, so a signal to the group meets only ours.
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._process = psutil.Process(child.pid)

    @property
    def pid(self) -> int:
        """Its pid, which is also the number of its session and group."""
        return self._child.pid

    @property
    def started_s(self) -> float:
        """When it started, in seconds since the epoch, as the system tells it."""
        return float(self._process.create_time())

    @property
    def process(self) -> psutil.Process | None:
        """See `MainProcess`."""
        return self._process

    @property
    def session(self) -> int | None:
        """See `MainProcess`."""
        return self._child.pid if self._child.returncode is None else None

    @property
    def exit_code(self) -> int | None:
        """See `MainProcess`."""
        return self.poll()

    def poll(self) -> int | None:
        """See `MainProcess`."""
        return programs.exit_code_of(self._child)

    def terminate(self) -> None:
        """See `MainProcess`."""
        if self.session is not None:
            self._child.terminate()

    def kill_group(self) -> None:
        """See `MainProcess`."""
        programs.signal_group(self._child, signal.SIGKILL)  # others' processes are named as left over

    def collect(self) -> None:
        """See `MainProcess`."""
        self._child.poll()


class FoundMain:
    """A process of an earlier run, or None where only others of its launch are left."""

    def __init__(self, process: psutil.Process | None) -> None:
        self._process = process

    @property
    def process(self) -> psutil.Process | None:
        """See `MainProcess`."""
        return self._process

    @property
    def session(self) -> int | None:
        """See `MainProcess`."""
        return self._process.pid if self._process is not None and is_alive(self._process) else None

    @property
    def exit_code(self) -> int | None:
        """See `MainProcess`."""
        return None

    def poll(self) -> int | None:
        """See `MainProcess`."""
        return None if self.session is not None else UNKNOWN_EXIT_CODE

    def terminate(self) -> None:
        """See `MainProcess`."""
        if self._process is not None and is_alive(self._process):
            try:
                self._process.terminate()
            except psutil.Error:
                return

    def kill_group(self) -> None:
        """Nothing: that the group is ours could not be held fast. Its members are ended one by one."""

    def collect(self) -> None:
        """Nothing: another process collects it."""
