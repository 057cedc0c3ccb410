"""The process tree of a server: its schedulers and detokenizer, and how the launcher ends itself and them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_SET_DEATH_SIGNAL = 1
_SET_NAME = 15


class Children:
    """Stand-ins for SGLang's child processes: they sleep, and die with the launcher."""

    def __init__(self, names: tuple[str, ...]) -> None:
        parent = os.getpid()
        self.pids = {name: _spawn(name, parent) for name in names}

    def crashed(self) -> tuple[str, int, int] | None:
        """(name, pid, exit code) of a child that ended by itself, or None."""
        for name, pid in self.pids.items():
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self.pids[name]
                return name, pid, os.waitstatus_to_exitcode(status)
        return None

    def kill(self) -> None:
        """End them and collect what is left of them."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.pids = {}


def die(children: Children | None) -> NoReturn:
    """End as SGLang's launcher does after a failure: children first, then itself, by SIGKILL."""
    if children is not None:
        children.kill()
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(1)  # not reached


def _spawn(name: str, parent: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        library = ctypes.CDLL(None)
        library.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        library.prctl(_SET_NAME, name.encode()[:15], 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        while os.getppid() == parent:
            signal.sigtimedwait([], 60)
    finally:
        os._exit(0)
