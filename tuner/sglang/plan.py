"""LaunchPlan: exactly what will be started, for the installed version."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, replace
from typing import Any

from tuner.redact import redact_argv, redact_environment


@dataclass(frozen=True)
class LaunchPlan:
    """A server's command line and environment, without its place (port, GPUs) until it has one.

    `command` starts the server (`python -m sglang.launch_server`); `flags` follow it, each with its values
    as words. `variables` are set on top of the clean base environment. Both keep the given order.
    """

    command: tuple[str, ...]
    flags: tuple[tuple[str, tuple[str, ...]], ...]
    variables: tuple[tuple[str, str], ...] = ()
    host: str = "127.0.0.1"
    port: int | None = None
    gpus: tuple[int, ...] = ()

    def at(self, *, port: int, gpus: tuple[int, ...] = ()) -> LaunchPlan:
        """The same launch in a place of its own."""
        return replace(self, port=port, gpus=gpus)

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of the command line; never to be joined for a shell."""
        words = list(self.command)
        for flag, values in self.flags:
            words += [flag, *values]
        words += ["--host", self.host]
        if self.port is not None:
            words += ["--port", str(self.port)]
        return tuple(words)

    @property
    def environment(self) -> dict[str, str]:
        """The variables to set, the choice of GPUs included."""
        variables = dict(self.variables)
        if self.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in self.gpus)
        return variables

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits of what is launched, whatever the port and the GPU indices."""
        flags = sorted([flag, *values] for flag, values in self.flags)
        canonical = json.dumps([list(self.command), flags, sorted(self.variables)])
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def shown(self) -> str:
        """The command as a person would type it, secrets redacted."""
        variables = [
            f"{name}={shlex.quote(value)}" for name, value in redact_environment(self.environment).items()
        ]
        return " ".join([*variables, *(shlex.quote(word) for word in redact_argv(self.argv))])

    def to_json(self) -> dict[str, Any]:
        """The plan for the record, secrets redacted."""
        return {
            "argv": redact_argv(self.argv),
            "variables": redact_environment(self.environment),
            "host": self.host,
            "port": self.port,
            "gpus": list(self.gpus),
            "fingerprint": self.fingerprint,
        }
