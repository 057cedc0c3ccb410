"""LaunchRecord: what is remembered of a launch, so that a later run of the tuner can end it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.redact import redact_argv, redact_environment
from tuner.sglang.plan import LaunchPlan

_EXECUTOR = "local"


@dataclass(frozen=True)
class LaunchRecord:
    """A launch on this machine.

    `started_s` is when the system says the first process started, in seconds since the epoch.
    `memory_before_mib` is what was in use on its GPUs before it.
    """

    plan: LaunchPlan
    pid: int
    started_s: float
    marker: str
    log_path: Path
    memory_before_mib: dict[int, float]

    @property
    def port(self) -> int:
        """The port of the plan, which every launched plan has."""
        if self.plan.port is None:
            raise TunerError("a plan without a port was launched; this is an error of the tuner")
        return self.plan.port

    def to_json(self) -> dict[str, Any]:
        """The record for a file, secrets redacted."""
        return {
            "executor": _EXECUTOR,
            "pid": self.pid,
            "started_s": self.started_s,
            "marker": self.marker,
            "log_path": str(self.log_path),
            "memory_before_mib": {str(gpu): mib for gpu, mib in self.memory_before_mib.items()},
            "plan": _plan_to_json(self.plan),
        }

    @classmethod
    def from_json(cls, info: dict[str, Any]) -> LaunchRecord:
        """The record out of `to_json`. Raises `TunerError` where it is not one."""
        try:
            if info["executor"] != _EXECUTOR:
                raise TunerError(
                    f"this server was started by the executor '{info['executor']}' and not by '{_EXECUTOR}'",
                    hint="end it where it was started",
                )
            record = cls(
                plan=_plan_from_json(info["plan"]),
                pid=int(info["pid"]),
                started_s=float(info["started_s"]),
                marker=str(info["marker"]),
                log_path=Path(info["log_path"]),
                memory_before_mib={int(gpu): float(mib) for gpu, mib in info["memory_before_mib"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TunerError(
                f"the record of a running server cannot be read ({type(error).__name__}: {error})",
                hint="end the server by hand; its processes carry TUNER_LAUNCH in their environment",
            ) from error
        return record


def _plan_to_json(plan: LaunchPlan) -> dict[str, Any]:
    return {
        "command": redact_argv(plan.command),
        "flags": [redact_argv([flag, *values]) for flag, values in plan.flags],
        "variables": redact_environment(dict(plan.variables)),
        "host": plan.host,
        "port": plan.port,
        "gpus": list(plan.gpus),
    }


def _plan_from_json(shown: dict[str, Any]) -> LaunchPlan:
    return LaunchPlan(
        command=tuple(shown["command"]),
        flags=tuple((flag, tuple(values)) for flag, *values in shown["flags"]),
        variables=tuple(shown["variables"].items()),
        host=shown["host"],
        port=int(shown["port"]),
        gpus=tuple(shown["gpus"]),
    )
