"""Programs beside the servers: each in a session of its own, with a deadline, ended with all it has started.

The exit code of a child is looked at and left where it is until its group has been killed: as long as it lies
there the system gives the number to no other process and no other group, so the signal meets only ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from tuner.clock import Clock, SystemClock

_POLL_S = 0.05
_COLLECT_LIMIT_S = 10.0
_KEPT_BYTES = 1 << 20


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code (negative: the signal), None where it had to be ended.

    `output` and `errors` are what it printed on its two streams, of each no more than the last MiB.
    """

    exit_code: int | None
    output: str
    errors: str


def run_to_end(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    limit_s: float,
    grace_s: float = 0.0,
    wanted: Callable[[], bool] = lambda: True,
    clock: Clock | None = None,
) -> Ended:
    """Run a program, given to no shell, until it ends, `limit_s` is over, or it is no longer `wanted`.

    `environment` is all that it gets; it reads nothing. Whatever is then left of its session is ended, also
    when an exception passes: politely at first where `grace_s` says for how long. Both streams go to files,
    so that no grandchild holds a pipe open. Raises `OSError` where it cannot be started, `ValueError` for
    words that no program can be given.
    """
    clock = clock or SystemClock()
    deadline_s = clock.monotonic_s() + limit_s
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = start(argv, environment=environment, stdout=output, stderr=errors)
        try:
            while (exit_code := exit_code_of(child)) is None:
                if clock.monotonic_s() >= deadline_s or not wanted():
                    break
                clock.sleep(_POLL_S)
        finally:
            end(child, grace_s=grace_s, clock=clock)
        return Ended(exit_code, tail_of(output), tail_of(errors))


def start(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program as the leader of a session and a group. Whoever starts it has to `end` it."""
    return subprocess.Popen(
        list(argv), env=dict(environment), stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )


def exit_code_of(child: subprocess.Popen[bytes]) -> int | None:
    """The exit code, or None while it runs. Never blocks, and collects nothing."""
    if child.returncode is not None:
        return child.returncode
    try:
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # SIGCHLD is ignored in this program: the system keeps no exit codes
        return child.poll()
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def wait_for(child: subprocess.Popen[bytes], limit_s: float, clock: Clock | None = None) -> int | None:
    """The exit code as soon as there is one, None where there is none within `limit_s`. Collects nothing."""
    clock = clock or SystemClock()
    deadline_s = clock.monotonic_s() + limit_s
    while (exit_code := exit_code_of(child)) is None and clock.monotonic_s() < deadline_s:
        clock.sleep(_POLL_S)
    return exit_code


def signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """A signal to all of its group, unless it has been collected. Those of other users are left alone."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)


def end(child: subprocess.Popen[bytes], *, grace_s: float = 0.0, clock: Clock | None = None) -> None:
    """End it with what is left of its group, and collect it. It has `grace_s` to go by itself (SIGTERM)."""
    if grace_s > 0:
        signal_group(child, signal.SIGTERM)
        wait_for(child, grace_s, clock)
    signal_group(child, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_COLLECT_LIMIT_S)


def tail_of(file: IO[bytes], most_bytes: int = _KEPT_BYTES) -> str:
    """The end of what was written to a file that is open here."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), most_bytes, max(0, size - most_bytes)).decode("utf-8", "replace")
