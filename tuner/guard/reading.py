"""The guard's part of a study definition."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.document import Node
from tuner.guard.accuracy import DEFAULT_LIMIT_S, check_command
from tuner.guard.prompts import SHIPPED

GUARD_KEYS = ("enabled", "prompts", "allow_lossy", "accuracy")


@dataclass(frozen=True)
class GuardSpec:
    """How the output of configurations is judged.

    `prompts` are answered by the default server and by every other; `allow_lossy` lets switches be tuned that
    trade quality for speed; `accuracy` is a command of the user's that judges a running server, `{url}` in it
    is the server's address.
    """

    enabled: bool = True
    prompts: Path = SHIPPED
    allow_lossy: bool = False
    accuracy: tuple[str, ...] = ()
    accuracy_limit_s: float = DEFAULT_LIMIT_S

    def to_json(self) -> dict[str, Any]:
        """What makes two studies judge alike."""
        return {
            "enabled": self.enabled,
            "prompts": self.prompts.name,
            "allow_lossy": self.allow_lossy,
            "accuracy": list(self.accuracy),
        }


def parse_guard(node: Node | None) -> GuardSpec:
    """The guard of a definition; by default the shipped prompts, no lossy switch. Raises `InputError`."""
    if node is None:
        return GuardSpec()
    keys = node.mapping(known=GUARD_KEYS)
    prompts = SHIPPED
    if "prompts" in keys:
        prompts = Path(keys["prompts"].text())
        if not prompts.is_file():
            raise keys["prompts"].refuse("there is no such file", hint="a YAML file like the shipped one")
    command, limit_s = _accuracy(keys.get("accuracy"))
    return GuardSpec(
        enabled=keys["enabled"].boolean() if "enabled" in keys else True,
        prompts=prompts,
        allow_lossy=keys["allow_lossy"].boolean() if "allow_lossy" in keys else False,
        accuracy=command,
        accuracy_limit_s=limit_s,
    )


def _accuracy(node: Node | None) -> tuple[tuple[str, ...], float]:
    if node is None:
        return (), DEFAULT_LIMIT_S
    keys = node.mapping(known=("command", "limit_s"), required=("command",))
    given = keys["command"]
    words = (
        tuple(item.text() for item in given.sequence(least=1))
        if isinstance(given.value, list)
        else tuple(shlex.split(given.text()))
    )
    check_command(words)
    return words, keys["limit_s"].number(least=1) if "limit_s" in keys else DEFAULT_LIMIT_S
