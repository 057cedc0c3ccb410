"""What a hung server's processes are doing, before they are killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from tuner.programs import run_to_end
from tuner.redact import redact_argv

_DUMP_LIMIT_S = 15.0
_MOST_DUMPS = 16


def process_table(processes: Iterable[psutil.Process]) -> str:
    """A line per process: pid, parent, state, threads, CPU, resident memory, what it sleeps in, command."""
    rows = ["pid ppid state threads cpu_s rss_mib wchan command"]
    for process in processes:
        try:
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
                used = f"{times.user + times.system:.1f} {memory.rss / 2**20:.0f}"
                words = " ".join(redact_argv(process.cmdline())) or process.name()
                rows.append(
                    f"{process.pid} {process.ppid()} {process.status()} {process.num_threads()} "
                    f"{used} {_wait_channel(process.pid)} {words}"
                )
        except psutil.Error:
            continue
    return "\n".join(rows) + "\n"


def python_stacks(processes: Iterable[psutil.Process], environment: Mapping[str, str]) -> str:
    """`py-spy dump` of each process, or the empty string where py-spy is not to be found.

    It is looked for in PATH and beside the server's own Python. A dump that takes too long is left out.
    """
    dumps: list[str] = []
    for process in list(processes)[:_MOST_DUMPS]:
        program = _py_spy(process, environment)
        if program is None:
            continue
        try:
            done = run_to_end(
                [program, "dump", "--pid", str(process.pid)], environment=os.environ, limit_s=_DUMP_LIMIT_S
            )
        except OSError as error:
            dumps.append(f"=== {process.pid}: {error}")
            continue
        if done.exit_code is None:
            dumps.append(f"=== {process.pid}: no dump within {_DUMP_LIMIT_S:g} s")
        else:
            dumps.append(f"=== {process.pid}\n{done.output or done.errors}")
    return "\n".join(dumps)


def _py_spy(process: psutil.Process, environment: Mapping[str, str]) -> str | None:
    found = shutil.which("py-spy", path=environment.get("PATH"))
    if found is not None:
        return found
    try:
        beside = Path(process.cmdline()[0]).parent / "py-spy"
    except (psutil.Error, IndexError):
        return None
    return str(beside) if beside.is_file() else None


def _wait_channel(pid: int) -> str:
    """The kernel function a process sleeps in, `-` where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/wchan").read_text(encoding="ascii").strip() or "-"
    except (OSError, ValueError):
        return "-"
