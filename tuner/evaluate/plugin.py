"""An evaluator from outside: `--evaluator module:object`.

The object is called with the study's definition and the clock, and returns something with
`evaluate(request, listener) -> Outcome`. What else it has is optional, and is looked for by name:

- `space`: the `SearchSpace` to search in place of the study's, its known-good configurations included.
- `preflight()`: checks before the first launch; raises a `TunerError` for what has to be mended, and returns
  lines that are worth telling the user.
- `vet(configurations, listener)`: says of each, without a launch, why it cannot run, or None (see `Vetter`).
- `fidelities()`: says which cheaper launches it can make to compare choices (see `Looker`).
- `clock`: the clock by which it lives, where that is not the system's (virtual time).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.clock import Clock
from tuner.errors import InputError, did_you_mean
from tuner.evaluate.protocol import Evaluator
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition

Factory = Callable[[StudyDefinition, Clock], Evaluator]


@dataclass(frozen=True)
class Plugged:
    """An evaluator and what it brings along; None or empty where it does not."""

    evaluator: Evaluator
    space: SearchSpace | None = None
    clock: Clock | None = None
    notes: tuple[str, ...] = ()


def load_evaluator(name: str, definition: StudyDefinition, clock: Clock) -> Plugged:
    """Import `module:object` and make its evaluator.

    Raises `InputError` where the module or the object is missing, fails, or makes no evaluator.
    """
    factory = _object(name)
    try:
        made: Any = factory(definition, clock)
    except TypeError as error:
        raise InputError(
            f"--evaluator {name} cannot be called with a study's definition and a clock: {error}"
        ) from error
    if not callable(getattr(made, "evaluate", None)):
        raise InputError(
            f"--evaluator {name} made {type(made).__name__}, which has no evaluate(request, listener)"
        )
    preflight: Callable[[], Sequence[str]] = getattr(made, "preflight", tuple)
    return Plugged(
        made,
        space=getattr(made, "space", None),
        clock=getattr(made, "clock", None),
        notes=tuple(preflight()),
    )


def _object(name: str) -> Factory:
    module_name, colon, path = name.partition(":")
    if not colon or not path:
        raise InputError(
            f"--evaluator {name}: a module and an object are needed", hint="like my_module:my_evaluator"
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(
            f"--evaluator {name}: {error}", hint="the module has to be on PYTHONPATH or installed"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(
                f"--evaluator {name}: {module_name} has no '{part}'", hint=did_you_mean(part, dir(found))
            )
        found = getattr(found, part)
    factory: Factory = found
    return factory
