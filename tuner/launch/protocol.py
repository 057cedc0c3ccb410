"""The seam behind which a server runs: here, and later over SSH, in Docker or under Ray.

An executor hands out places (`lease`), starts a server in one (`launch`) and finds one again after the
tuner itself died (`attach`). A handle is all that the rest of the program knows of a running server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tuner.sglang.plan import LaunchPlan


@dataclass(frozen=True)
class Lease:
    """A place for one server: a port on loopback and the GPUs it may use."""

    host: str
    port: int
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class Activity:
    """Signs of life of a server's process tree, as running totals; None where it cannot be told.

    `cpu_s`: CPU seconds used; `read_bytes`: bytes read from disk; `gpu_memory_mib`: memory in use on
    the leased GPUs.
    """

    cpu_s: float = 0.0
    read_bytes: int = 0
    gpu_memory_mib: float | None = None


@dataclass(frozen=True)
class StopReport:
    """What stopping a server took, and whether the box is as it was.

    `clean` is true when no process of the launch is left, its port is free and the GPU memory is back to
    where it was before the launch. `leftovers` says what was not.
    """

    exit_code: int | None
    clean: bool
    took_s: float
    signals: tuple[str, ...] = ()
    swept_pids: tuple[int, ...] = ()
    leftovers: tuple[str, ...] = field(default=())


class ServerHandle(Protocol):
    """A server that was started."""

    @property
    def plan(self) -> LaunchPlan:
        """What was launched, with its place."""

    @property
    def url(self) -> str:
        """Where it serves once it is ready, without a trailing slash."""

    @property
    def log_path(self) -> Path:
        """Where its output goes."""

    def poll(self) -> int | None:
        """The exit code (negative for a signal), or None while it runs. Cheap; never blocks."""

    def read_log(self, offset: int) -> bytes:
        """What was written to the log since byte `offset`."""

    def activity(self) -> Activity:
        """Signs of life, measured now."""

    def owns_port(self) -> bool:
        """Whether the process that listens on the port belongs to this launch."""

    def owns(self, pid: int) -> bool:
        """Whether a process of this machine belongs to this launch."""

    def snapshot(self) -> dict[str, str]:
        """What its processes are doing, as texts by file name; for a server that hangs and will be ended."""

    def stop(self) -> StopReport:
        """End it and everything it started, and wait until the place is as it was. May be called again."""

    def info(self) -> dict[str, Any]:
        """What `Executor.attach` needs to find this server again, JSON-able."""


class Executor(Protocol):
    """Where servers run."""

    @property
    def slots(self) -> int:
        """How many servers may run at the same time."""

    def lease(self, gpus: tuple[int, ...]) -> Lease:
        """A fresh free port and the GPUs. Raises `BrokenEnvironment` where the GPUs are occupied."""

    def complaints(self, gpus: tuple[int, ...]) -> tuple[str, ...]:
        """Who else uses these GPUs, in words; nobody where no server of ours runs and this is empty."""

    def launch(self, plan: LaunchPlan, folder: Path) -> ServerHandle:
        """Start a placed plan, its log in `folder`/server.log.

        Raises `InputError` where the program cannot be started (missing, not executable).
        """

    def attach(self, info: dict[str, Any]) -> ServerHandle | None:
        """The server that `info` describes, or None where nothing of it is left."""
