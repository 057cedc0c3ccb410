"""What two definitions of a study differ in, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.errors import InputError
from tuner.space.canonical import differences as space_differences
from tuner.study.definition import Baseline

IDENTITY_FILE = "study.json"
"""Beside a study's results: what makes it this study."""


def read_identity(folder: Path) -> dict[str, Any]:
    """What makes the study in this folder the study it is. Raises `InputError` where that cannot be read."""
    file = folder / IDENTITY_FILE
    try:
        identity = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file}: what the study searched cannot be read: {error}",
            hint="give the folder of a study that `python -m tuner optimize` has left",
        ) from error
    if not isinstance(identity, dict) or not isinstance(identity.get("space"), dict):
        raise InputError(f"{file}: does not say what the study searched")
    return identity


def baseline_in(identity: dict[str, Any]) -> Baseline:
    """What the study's gains are relative to."""
    told = identity.get("baseline")
    command, flags = (told.get(key) if isinstance(told, dict) else None for key in ("command", "flags"))
    return Baseline(tuple(command) if command else None, flags if isinstance(flags, dict) else {})


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """One line for each thing in which `new` is not what `old` was: `workload.seed: was 512, is 1024`.

    Both are `StudyDefinition.identity` as JSON keeps it, the space's part as `SearchSpace.canonical`.
    """
    plain_old, plain_new = json.loads(json.dumps(old)), json.loads(json.dumps(new))
    in_space = space_differences(plain_old.pop("space", {}), plain_new.pop("space", {}))
    return [*(f"search space: {line}" for line in in_space), *_differences(plain_old, plain_new, "")]


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            child = f"{path}.{key}" if path else key
            if key not in new:
                yield f"{child}: was {_shown(old[key])}, is gone"
            elif key not in old:
                yield f"{child}: is new ({_shown(new[key])})"
            else:
                yield from _differences(old[key], new[key], child)
    elif old != new:
        yield f"{path}: was {_shown(old)}, is {_shown(new)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"
