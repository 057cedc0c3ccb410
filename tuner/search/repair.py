"""From a failure with an exact cure to the configuration that would have run.

A crash costs a quarter of an hour; where its messages name the least memory fraction that would have done,
or the graph batch that was too large, the next launch can be the mended one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import Float, Integer, Parameter
from tuner.space.space import SearchSpace

_HEADROOM = 0.005
"""Added to a least memory fraction: the message rounds, and a pool of a few tokens serves nobody."""


@dataclass(frozen=True)
class Repair:
    """The configuration to try instead, and what was changed."""

    configuration: Configuration
    change: str


def repair_of(failure: Mapping[str, Any], configuration: Configuration, space: SearchSpace) -> Repair | None:
    """The change that the failure's hints ask for with a value; None where none is exact or possible.

    `failure` is `Failure.to_json`. The value is put on the space's grid, on the safe side of the hint.
    """
    for hint in failure["hints"]:
        name, value = hint.get("param"), hint.get("value")
        parameter = next((known for known in space.parameters if known.name == name), None)
        if parameter is None or value is None or isinstance(value, (bool, str)):
            continue
        for candidate in _values(parameter, str(hint["direction"]), float(value)):
            mended = {**configuration, parameter.name: candidate}
            assignment = space.assignment(mended, strict=False)
            if assignment is None:
                continue
            changed = space.configuration(assignment)
            if changed != configuration and space.broken_rule(changed) is None:
                before = configuration.get(parameter.name, "auto")
                return Repair(changed, f"{parameter.name} {before} → {candidate}")
    return None


def _values(parameter: Parameter, direction: str, value: float) -> Iterator[Value]:
    """The grid's value nearest to `value` on its safe side."""
    if not isinstance(parameter, (Integer, Float)):
        choices = [choice for choice in getattr(parameter, "choices", ()) if isinstance(choice, (int, float))]
        fitting = [
            choice for choice in choices if (choice >= value if direction == "increase" else choice <= value)
        ]
        if fitting:
            yield min(fitting) if direction == "increase" else max(fitting)
        return
    step = parameter.step or (1 if isinstance(parameter, Integer) else 0.0)
    if direction == "increase":
        wanted = value + (_HEADROOM if isinstance(parameter, Float) else 0)
        steps = math.ceil(round((wanted - parameter.low) / step, 6)) if step else None
    else:
        wanted = value
        steps = math.floor(round((wanted - parameter.low) / step, 6)) if step else None
    found = wanted if steps is None else parameter.low + max(0, steps) * step
    if parameter.low <= round(found, 9) <= parameter.high:
        yield int(found) if isinstance(parameter, Integer) else round(found, 9)
