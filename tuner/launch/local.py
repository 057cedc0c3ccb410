"""LocalExecutor: servers as processes of this machine (Linux)."""

from __future__ import annotations

import errno
import json
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from tuner import programs
from tuner.clock import Clock
from tuner.errors import BrokenEnvironment, InputError, TunerError
from tuner.launch import process_tree
from tuner.launch.environment import child_environment, clean_environment, recorded
from tuner.launch.gpus import GpuProbe, check_exist, check_free, complaints
from tuner.launch.handle import LocalHandle, StopLimits
from tuner.launch.main_process import FoundMain, MainProcess, OwnMain
from tuner.launch.ports import LOOPBACK, PortPool
from tuner.launch.protocol import Lease
from tuner.launch.record import LaunchRecord
from tuner.launch.server_log import ServerLog, secret_values
from tuner.sglang.plan import LaunchPlan

LOG_NAME = "server.log"
ENVIRONMENT_NAME = "environment.json"

_START_TOLERANCE_S = 2.0  # the clock may be set meanwhile; the marker is unique anyhow


class LocalExecutor:
    """See `Executor`. One server at a time.

    `marker_scope` names the study: its processes carry it in their environment, and `sweep_leftovers` ends
    what an earlier run left. `base_environment` is what servers inherit, by default the clean part of ours.
    """

    def __init__(
        self,
        probe: GpuProbe,
        clock: Clock,
        *,
        marker_scope: str,
        stop_grace_s: float = 15.0,
        kill_grace_s: float = 10.0,
        clean_limit_s: float = 60.0,
        base_environment: Mapping[str, str] | None = None,
    ) -> None:
        if not marker_scope or "\0" in marker_scope:
            raise TunerError("the marker of launches needs a name to go by; this is an error of the tuner")
        self._probe = probe
        self._clock = clock
        self._scope = marker_scope
        self._limits = StopLimits(stop_grace_s, kill_grace_s, clean_limit_s)
        self._base = clean_environment(os.environ) if base_environment is None else dict(base_environment)
        self._ports = PortPool()
        self._own_markers: set[str] = set()
        # The driver gives memory back seconds after a process was killed. Until then a lease waits for it.
        self._memory_back_by_s: float | None = None

    @property
    def slots(self) -> int:
        """One: a second server on the same box would change what is measured of the first."""
        return 1

    def lease(self, gpus: tuple[int, ...]) -> Lease:
        """See `Executor`. GPUs are NVML indices. Raises `InputError` for GPUs that are not there."""
        check_exist(self._probe, gpus)
        if self._memory_back_by_s is not None:
            process_tree.wait_until(
                lambda: not complaints(self._probe, gpus), self._clock, deadline_s=self._memory_back_by_s
            )
            self._memory_back_by_s = None
        check_free(self._probe, gpus)
        return Lease(host=LOOPBACK, port=self._ports.fresh(), gpus=gpus)

    def complaints(self, gpus: tuple[int, ...]) -> tuple[str, ...]:
        """See `Executor`."""
        return tuple(complaints(self._probe, gpus)) if gpus else ()

    def launch(self, plan: LaunchPlan, folder: Path) -> LocalHandle:
        """See `Executor`. The environment is recorded beside the log, in `environment.json`.

        The server runs in our working directory, so that relative paths in the plan mean what they say. A
        log that lies there from an earlier launch is kept under another name.
        """
        if plan.port is None:
            raise TunerError(
                "a plan has to be given a port before it is launched; this is an error of the tuner"
            )
        marker = f"{self._scope}:{secrets.token_hex(8)}"
        environment = child_environment(self._base, plan.environment, marker=marker, gpus=plan.gpus)
        memory_before_mib = self._probe.memory_used_mib(plan.gpus)
        log_path = folder / LOG_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _keep_earlier(log_path)
            (folder / ENVIRONMENT_NAME).write_text(
                json.dumps(recorded(environment), indent=2) + "\n", "utf-8"
            )
            log_file = log_path.open("ab")  # appending, as several processes write to it at once
        except OSError as error:
            raise BrokenEnvironment(
                f"the log of a server cannot be written: {error}",
                hint="see whether the disk is full and whether the folder of the study is yours",
            ) from error
        self._own_markers.add(marker)
        with log_file:
            try:
                main = OwnMain(_start(plan, environment, log_file.fileno()))
                record = LaunchRecord(
                    plan=plan,
                    pid=main.pid,
                    started_s=main.started_s,
                    marker=marker,
                    log_path=log_path.absolute(),
                    memory_before_mib=memory_before_mib,
                )
                log = ServerLog(record.log_path, secret_values(plan.argv, environment))
                return self._handle(record, log, main)
            except BaseException:  # Ctrl-C before anybody holds the handle
                self._end_marked(lambda found: found == marker)
                raise

    def attach(self, info: dict[str, Any]) -> LocalHandle | None:
        """See `Executor`. The first process is known by pid, start and marker, the others by the marker.

        Raises `TunerError` where `info` is of another executor or no such record.
        """
        record = LaunchRecord.from_json(info)
        main = _find_main(record)
        if main is None and not process_tree.find_marked(lambda marker: marker == record.marker):
            return None
        self._own_markers.add(record.marker)
        log = ServerLog(record.log_path, _secrets_of(main))
        return self._handle(record, log, FoundMain(main))

    def sweep_leftovers(self, scope: str | None = None) -> list[int]:
        """Kill what earlier runs of this study (or of `scope`) left running; the pids that were ended.

        What this executor launched or attached to is left alone. Only one run of a study may be alive:
        another one's servers would be ended too. Raises `BrokenEnvironment` for what cannot be ended.
        """
        wanted = self._scope if scope is None else scope
        ended, left = self._end_marked(
            lambda marker: marker not in self._own_markers and marker.rpartition(":")[0] == wanted
        )
        if left:
            names = ", ".join(map(process_tree.described, left))
            raise BrokenEnvironment(
                f"processes of an earlier run cannot be ended, and hold what a new server needs: {names}",
                hint="what SIGKILL does not end waits in a driver or for a disk; the machine needs a reboot",
            )
        if ended:
            self._memory_back_by_s = self._clock.monotonic_s() + self._limits.clean_limit_s
        return ended

    def _end_marked(self, belongs: Callable[[str], bool]) -> tuple[list[int], list[psutil.Process]]:
        """Kill all processes whose marker `belongs`: the pids that were found, and what is left of them."""
        pids: dict[int, None] = {}

        def look() -> list[psutil.Process]:
            found = process_tree.find_marked(belongs)
            pids.update((process.pid, None) for process in found)
            return found

        left = process_tree.end_all(look, self._clock, limit_s=self._limits.kill_grace_s)
        return list(pids), left

    def _handle(self, record: LaunchRecord, log: ServerLog, main: MainProcess) -> LocalHandle:
        return LocalHandle(record, log, main, probe=self._probe, clock=self._clock, limits=self._limits)


def _start(plan: LaunchPlan, environment: dict[str, str], log_fd: int) -> subprocess.Popen[bytes]:
    try:
        return programs.start(plan.argv, environment=environment, stdout=log_fd, stderr=subprocess.STDOUT)
    except (FileNotFoundError, PermissionError, NotADirectoryError, ValueError) as error:
        raise InputError(
            f"'{plan.command[0]}' cannot be started: {error}",
            hint="name a Python that has SGLang installed, by its path",
        ) from error
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            raise InputError(f"'{plan.command[0]}' is no program this machine can run") from error
        raise BrokenEnvironment(
            f"the system starts no more processes: {error}",
            hint="see the limits of processes and of memory (`ulimit -u`, `free -g`)",
        ) from error


def _find_main(record: LaunchRecord) -> psutil.Process | None:
    process = process_tree.find(record.pid)
    if process is None or not process_tree.is_alive(process):
        return None
    same_start = abs(process_tree.key_of(process)[1] - record.started_s) <= _START_TOLERANCE_S
    return process if same_start and process_tree.marker_of(process) == record.marker else None


def _secrets_of(process: psutil.Process | None) -> set[str]:
    """The secrets it was started with; no record has them."""
    try:
        return secret_values(process.cmdline(), process.environ()) if process is not None else set()
    except (psutil.Error, OSError):
        return set()


def _keep_earlier(log_path: Path) -> None:
    """Free the name of the log: `server.log` becomes `server.1.log`, or the next number."""
    if not log_path.exists():
        return
    number = 1
    while (kept := log_path.with_suffix(f".{number}.log")).exists():
        number += 1
    log_path.rename(kept)
