"""Looking at processes that tests have started."""

from __future__ import annotations

import time
from pathlib import Path


def is_running(pid: int) -> bool:
    """Gives the system a moment to take it down."""
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state in "ZX":
            return False
        time.sleep(0.02)
    return True
