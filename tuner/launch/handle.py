"""LocalHandle: a server on this machine, from its launch until nothing of it is left."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tuner.clock import Clock
from tuner.errors import BrokenEnvironment
from tuner.launch import process_tree
from tuner.launch.gpus import GpuProbe
from tuner.launch.host import is_of_launch
from tuner.launch.main_process import MainProcess
from tuner.launch.ports import is_free, port_holder
from tuner.launch.process_tree import ProcessKey, TreeTotal
from tuner.launch.protocol import Activity, StopReport
from tuner.launch.record import LaunchRecord
from tuner.launch.server_log import ServerLog
from tuner.launch.snapshot import process_table, python_stacks
from tuner.sglang.plan import LaunchPlan

MEMORY_TOLERANCE_MIB = 512.0
"""GPU memory counts as given back within this distance of what was in use before the launch."""


@dataclass(frozen=True)
class StopLimits:
    """How long stopping waits, in seconds: for a polite end, after SIGKILL, for port and GPU memory."""

    stop_grace_s: float = 15.0
    kill_grace_s: float = 10.0
    clean_limit_s: float = 60.0


class LocalHandle:
    """See `ServerHandle`. Not to be shared between threads, apart from `poll` and `read_log`."""

    def __init__(
        self,
        record: LaunchRecord,
        log: ServerLog,
        main: MainProcess,
        *,
        probe: GpuProbe,
        clock: Clock,
        limits: StopLimits,
    ) -> None:
        self._record = record
        self._log = log
        self._main = main
        self._probe = probe
        self._clock = clock
        self._limits = limits
        self._seen: dict[ProcessKey, psutil.Process] = {}
        self._cpu_s = TreeTotal()
        self._read_bytes = TreeTotal()
        self._signals: list[str] = []
        self._swept_pids: list[int] = []
        self._stop_started_s: float | None = None
        self._report: StopReport | None = None

    @property
    def plan(self) -> LaunchPlan:
        """See `ServerHandle`. Of a server that was found again: with its secrets redacted."""
        return self._record.plan

    @property
    def url(self) -> str:
        """See `ServerHandle`."""
        return f"http://{self.plan.host}:{self._port}"

    @property
    def log_path(self) -> Path:
        """See `ServerHandle`."""
        return self._log.path

    def poll(self) -> int | None:
        """See `ServerHandle`. 255 for a server of an earlier run: its exit code cannot be known."""
        return self._main.poll()

    def read_log(self, offset: int) -> bytes:
        """See `ServerHandle`. Without the secrets of the launch; empty where there is no log (any more)."""
        return self._log.read(offset)

    def activity(self) -> Activity:
        """See `ServerHandle`. The totals never shrink, also when processes end."""
        processes = self._processes()
        return Activity(
            cpu_s=self._cpu_s.update(process_tree.sample(processes, process_tree.cpu_s)),
            read_bytes=int(self._read_bytes.update(process_tree.sample(processes, process_tree.read_bytes))),
            gpu_memory_mib=self._gpu_memory_mib(),
        )

    def owns_port(self) -> bool:
        """See `ServerHandle`.

        True also where it cannot be told, since a process of the launch does not let us see its sockets
        (it changed its user): its answers are then the better witness, and a healthy server would
        otherwise be thrown away.
        """
        hidden = False
        for process in self._processes(thorough=True):
            try:
                connections = process.net_connections(kind="tcp")
            except psutil.AccessDenied:
                hidden = True
            except psutil.Error:
                continue
            else:
                if any(
                    connection.status == psutil.CONN_LISTEN and connection.laddr.port == self._port
                    for connection in connections
                ):
                    return True
        return hidden

    def owns(self, pid: int) -> bool:
        """See `ServerHandle`. False where the process does not let us see its environment."""
        return is_of_launch(pid, self._record.marker)

    def snapshot(self) -> dict[str, str]:
        """See `ServerHandle`: the process table, and Python stacks where py-spy is there."""
        processes = self._processes(thorough=True)
        stacks = python_stacks(processes, os.environ)
        return {"processes.txt": process_table(processes), **({"py-spy.txt": stacks} if stacks else {})}

    def stop(self) -> StopReport:
        """See `ServerHandle`.

        SIGTERM goes to the first process alone: SGLang handles it there, and to its other processes it
        would be a crash. What does not end within the grace is killed: the group, then whatever carries
        the marker of this launch or was seen below it. Interrupted, it can be called again and goes on.
        """
        if self._report is not None and self._report.clean:
            return self._report
        if self._stop_started_s is None:
            self._stop_started_s = self._clock.monotonic_s()
        self._processes(thorough=True)  # who is below it, as long as that can be seen
        self._end_politely(deadline_s=self._stop_started_s + self._limits.stop_grace_s)
        self._end_by_force()
        leftovers = self._wait_until_clean()
        self._log.scrub()
        self._report = StopReport(
            exit_code=self._main.exit_code,
            clean=not leftovers,
            took_s=self._clock.monotonic_s() - self._stop_started_s,
            signals=tuple(self._signals),
            swept_pids=tuple(self._swept_pids),
            leftovers=leftovers,
        )
        return self._report

    def info(self) -> dict[str, Any]:
        """See `ServerHandle`. Secrets are redacted."""
        return self._record.to_json()

    def _end_politely(self, *, deadline_s: float) -> None:
        if self._main.poll() is not None:
            return
        if "SIGTERM" not in self._signals:
            self._signals.append("SIGTERM")
            self._main.terminate()
        process_tree.wait_until(lambda: self._main.poll() is not None, self._clock, deadline_s=deadline_s)

    def _end_by_force(self) -> None:
        def look() -> list[psutil.Process]:
            found = self._processes(thorough=True)
            if found:
                self._note_kill(found)
                self._main.kill_group()
            return found

        process_tree.end_all(look, self._clock, limit_s=self._limits.kill_grace_s)
        self._main.collect()

    def _note_kill(self, found: list[psutil.Process]) -> None:
        if "SIGKILL" not in self._signals:
            self._signals.append("SIGKILL")
        group = self._main.session
        for process in found:
            in_group = group is not None and process_tree.is_in_group(process, group)
            if not in_group and process.pid not in self._swept_pids:
                self._swept_pids.append(process.pid)

    def _wait_until_clean(self) -> tuple[str, ...]:
        """Wait for processes, port and GPU memory; what is still there at the end."""
        found: tuple[str, ...] = ()

        def is_clean() -> bool:
            nonlocal found
            self._main.collect()
            found = self._leftovers()
            return not found

        deadline_s = self._clock.monotonic_s() + self._limits.clean_limit_s
        process_tree.wait_until(is_clean, self._clock, deadline_s=deadline_s)
        return found

    def _leftovers(self) -> tuple[str, ...]:
        processes = [f"process {process_tree.described(found)}" for found in self._processes(thorough=True)]
        if not processes and self._main.poll() is None:
            processes = [f"process {self._record.pid}"]  # being taken down; its exit code is not there yet
        taken = not is_free(self._port, self.plan.host) and not self._is_port_of_others()
        port = [f"port {self._port} of {self.plan.host} is taken"] if taken else []
        return (*processes, *port, *self._memory_leftovers())

    def _is_port_of_others(self) -> bool:
        """Whether a process that is none of this launch holds the port; it is not ours to wait for."""
        holder = port_holder(self._port)
        if holder is None:
            return False
        return process_tree.marker_of(holder) != self._record.marker and not any(
            holder.pid == process.pid for process in self._seen.values()
        )

    def _memory_leftovers(self) -> list[str]:
        before_mib = self._record.memory_before_mib
        if not before_mib:
            return []
        try:
            now_mib = self._probe.memory_used_mib(before_mib)
        except BrokenEnvironment as error:
            return [f"GPU memory of {', '.join(map(str, before_mib))} cannot be read: {error.message}"]
        above_mib = {gpu: now_mib[gpu] - before_mib[gpu] for gpu in now_mib}
        return [
            f"GPU {gpu} has {mib:.0f} MiB more in use than before the launch"
            for gpu, mib in above_mib.items()
            if mib > MEMORY_TOLERANCE_MIB
        ]

    def _processes(self, *, thorough: bool = False) -> list[psutil.Process]:
        """The living processes of the launch.

        Its session, what is below the first process, and what was ever seen there. `thorough` also reads
        the environment of every process of the machine, and so finds those that left all three unseen.
        """
        found = list(self._seen.values())
        if self._main.process is not None:
            found += [self._main.process, *process_tree.descendants(self._main.process)]
        session = self._main.session
        if session is not None:
            found += process_tree.session_members(session)
        for process in self._seen.values():
            if session is None or not process_tree.is_in_session(process, session):
                found += process_tree.descendants(process)
        if thorough:
            found += process_tree.find_marked(lambda marker: marker == self._record.marker)
        self._seen = _living_by_key(found)
        return list(self._seen.values())

    def _gpu_memory_mib(self) -> float | None:
        used_mib = _or_none(lambda: self._probe.memory_used_mib(self.plan.gpus))
        return sum(used_mib.values()) if used_mib else None

    @property
    def _port(self) -> int:
        return self._record.port


def _living_by_key(processes: list[psutil.Process]) -> dict[ProcessKey, psutil.Process]:
    living: dict[ProcessKey, psutil.Process] = {}
    for process in processes:
        if process_tree.is_alive(process):
            try:
                living[process_tree.key_of(process)] = process
            except psutil.Error:
                continue
    return living


def _or_none(reading: Callable[[], dict[int, float]]) -> dict[int, float] | None:
    try:
        return reading()
    except BrokenEnvironment:
        return None
