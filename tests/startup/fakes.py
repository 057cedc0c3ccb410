"""A server that exists only on paper: a script of what it does at which second of a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.clock import ManualClock
from tuner.errors import TunerError
from tuner.launch.protocol import Activity, StopReport
from tuner.sglang.plan import LaunchPlan


@dataclass
class PaperServer:
    """`log`: second → line. `dies_at_s`: when it ends, with `exit_code`. `activity_at`: totals by second."""

    clock: ManualClock
    log: dict[float, str] = field(default_factory=dict)
    dies_at_s: float = float("inf")
    exit_code: int = -9
    activity_at: Callable[[float], Activity] = lambda _: Activity()
    ours: bool = True
    plan: LaunchPlan = field(default_factory=lambda: LaunchPlan(("python",), (), port=30000))
    url: str = "http://127.0.0.1:30000"
    log_path: Path = Path("server.log")

    def poll(self) -> int | None:
        return self.exit_code if self.clock.monotonic_s() >= self.dies_at_s else None

    def read_log(self, offset: int) -> bytes:
        now_s = min(self.clock.monotonic_s(), self.dies_at_s)
        return "".join(f"{line}\n" for at_s, line in sorted(self.log.items()) if at_s <= now_s).encode()[
            offset:
        ]

    def activity(self) -> Activity:
        return self.activity_at(self.clock.monotonic_s())

    def owns_port(self) -> bool:
        return self.ours

    def owns(self, pid: int) -> bool:
        return False

    def snapshot(self) -> dict[str, str]:
        raise AssertionError("following a start does not look into the server")

    def stop(self) -> StopReport:
        raise AssertionError("following a start must not stop the server")

    def info(self) -> dict[str, Any]:
        return {}


@dataclass
class PaperClient:
    """Well from `well_from_s` on; gives a token from `token_from_s` on."""

    clock: ManualClock
    well_from_s: float = float("inf")
    token_from_s: float = float("inf")
    knocks: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)

    def healthy(self, timeout_s: float) -> bool:
        self.knocks.append(self.clock.monotonic_s())
        return self.clock.monotonic_s() >= self.well_from_s

    def generate_one_token(self, timeout_s: float) -> str:
        self.requests.append(self.clock.monotonic_s())
        if self.clock.monotonic_s() < self.token_from_s:
            raise TunerError("HTTP 500: no kernel")
        return "mu"


def at_once(work: Callable[[], str]) -> Future[str]:
    """Stands in for a thread: the work is done before this returns."""
    future: Future[str] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # as a thread would hand it over
        future.set_exception(error)
    return future


def never(work: Callable[[], str]) -> Future[str]:
    """A thread whose request hangs."""
    return Future()


AT = "[2026-03-01 12:00:00"
ARGUMENTS = f"{AT}] server_args=ServerArgs(model_path='/m')"
INIT = f"{AT} TP0] Init parallel begin."
WEIGHTS = f"{AT} TP0] Load weight begin. avail mem=93.90 GB"
WEIGHTS_END = f"{AT} TP0] Load weight end. elapsed=9.0 s, type=X, avail mem=20.00 GB, mem usage=73.90 GB."
CAPTURE = f"{AT} TP0] Capture target decode CUDA graph begin. backend=full, avail mem=9.00 GB"
JIT = f"{AT} TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time"
UVICORN = f"{AT}] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"
READY = f"{AT}] The server is fired up and ready to roll!"
