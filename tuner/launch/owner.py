"""Which tuner process a trial belongs to, so that the next run can tell a dead one from a busy one."""

from __future__ import annotations

import os
import socket

import psutil


def this_owner() -> str:
    """This process, by host, pid and start: no later process is ever called the same."""
    return f"{socket.gethostname()}/{os.getpid()}/{psutil.Process().create_time():.2f}"


def is_owner_alive(owner: str) -> bool:
    """Whether that process still runs. Of another host's nothing is known, so it counts as alive."""
    host, _, rest = owner.rpartition("/")[0].rpartition("/")
    started = owner.rpartition("/")[2]
    if not host or host != socket.gethostname():
        return bool(host)
    try:
        return f"{psutil.Process(int(rest)).create_time():.2f}" == started
    except (psutil.Error, ValueError):
        return False
