"""What is left of another space's configuration in this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.errors import InputError
from tuner.space.configuration import Configuration, Value
from tuner.space.dimensions import assigned, chosen
from tuner.space.parameters import AUTO, Float, Integer
from tuner.space.space import SearchSpace


def cut_to(space: SearchSpace, values: Mapping[str, Value]) -> Configuration:
    """The configuration of `space` that comes nearest to these values.

    A number goes to the nearest one that is possible. What the space does not have, a parameter or a choice,
    is left unsaid, and so is what the space has and `values` do not say. Rules are not looked at.
    """
    kept: dict[str, Value] = {}
    for parameter in space.parameters:
        value = values.get(parameter.name)
        if isinstance(parameter, (Integer, Float)) and value != AUTO:
            value = _nearest(parameter, value)
        if value is None:
            continue
        try:
            assigned(parameter, value)
        except InputError:
            continue
        kept[parameter.name] = value
    return space.configuration(space.assignment(kept))


def _nearest(parameter: Integer | Float, value: Value | None) -> Value | None:
    """The possible number that is nearest; None for what is no number."""
    if value is None or isinstance(value, (bool, str)):
        return None
    number = min(max(value, parameter.low), parameter.high)
    if isinstance(parameter, Integer):
        return parameter.low + round((number - parameter.low) / parameter.step) * parameter.step
    return chosen(replace(parameter, auto=False), {parameter.name: number})
