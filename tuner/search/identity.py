"""What two definitions of a study differ in, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tuner.space.canonical import differences as space_differences


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
