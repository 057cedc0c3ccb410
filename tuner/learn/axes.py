"""Configurations as rows of numbers: one axis for each parameter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.learn.observation import Observation
from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import AUTO, Boolean, Choice, Float, Integer, Parameter
from tuner.space.space import SearchSpace

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

_ALIKE = 0.9
"""How much a number and its absence are alike where the absence is known to come to that number."""
_LENGTH = 0.45
"""Over which share of an axis the speed is expected to change."""


@dataclass(frozen=True)
class Rows:
    """Configurations: whether each axis applies, its place (0 to 1, NaN where none), and its level."""

    active: Floats
    place: Floats
    level: Whole
    configurations: tuple[Configuration, ...]

    def __len__(self) -> int:
        return len(self.level)


class Axes:
    """The axes of a space. What `auto` comes to is learnt from the servers that ran with it."""

    def __init__(self, space: SearchSpace, observations: Iterable[Observation] = ()) -> None:
        self.space = space
        self.names = tuple(parameter.name for parameter in space.parameters)
        self._parameters = space.parameters
        self._conditions = set(space.conditions)
        self._levels: list[dict[Value, int]] = [{} for _ in self._parameters]
        self._places: list[dict[Value, float]] = [{} for _ in self._parameters]
        self._auto = self._resolved(observations)

    def _resolved(self, observations: Iterable[Observation]) -> dict[str, float]:
        """Parameter → the number that leaving it out comes to."""
        seen: dict[str, list[float]] = {}
        for observation in observations:
            for name in self.names:
                value = observation.resolved.get(name)
                if name not in observation.configuration and isinstance(value, (int, float)):
                    seen.setdefault(name, []).append(float(value))
        found = {name: median(values) for name, values in seen.items()}
        for parameter in self._parameters:
            if parameter.name not in found and _is_number(parameter.default):
                found[parameter.name] = float(parameter.default)  # type: ignore[arg-type]
        return found

    def number(self, name: str, configuration: Configuration) -> float | None:
        """The number that a parameter has here or comes to; None where nobody knows."""
        value = configuration.get(name)
        return float(value) if _is_number(value) else self._auto.get(name)  # type: ignore[arg-type]

    def rows(self, configurations: Sequence[Configuration]) -> Rows:
        """The configurations as numbers."""
        columns = list(zip(self._parameters, self._levels, self._places, strict=True))
        active, place, level = [], [], []
        for configuration in configurations:
            values = dict(configuration)
            for parameter, levels, places in columns:
                value = values.get(parameter.name, AUTO)
                key = _key(value)
                if key not in levels:
                    levels[key], places[key] = len(levels), self._place(parameter, value)
                level.append(levels[key])
                place.append(places[key])
                unsaid = value == AUTO and parameter.name in self._conditions
                active.append(float(self._applies(parameter, configuration)) if unsaid else 1.0)
        shape = (len(configurations), len(self._parameters))
        return Rows(
            np.array(active, dtype=np.float64).reshape(shape),
            np.array(place, dtype=np.float64).reshape(shape),
            np.array(level, dtype=np.int64).reshape(shape),
            tuple(configurations),
        )

    def _applies(self, parameter: Parameter, configuration: Configuration) -> bool:
        return self.space.conditions[parameter.name].holds(configuration)

    def _place(self, parameter: Parameter, value: Value) -> float:
        number = self._auto.get(parameter.name) if value == AUTO else value
        if not _is_number(number) or isinstance(parameter, Boolean):
            return math.nan
        return place_of(parameter, float(number))  # type: ignore[arg-type]

    def alike(self, one: Rows, other: Rows) -> Floats:
        """For every axis how much two configurations are alike in it: 1 the same, 0 nothing in common.

        Shape: axes, rows of `one`, rows of `other`. An axis that does not apply has nothing in common with
        anything.
        """
        same = one.level.T[:, :, None] == other.level.T[:, None, :]
        distance = one.place.T[:, :, None] - other.place.T[:, None, :]
        near = np.exp(-0.5 * (distance / _LENGTH) ** 2) * _ALIKE
        found = np.where(same, 1.0, np.nan_to_num(near, nan=0.0))
        both: Floats = one.active.T[:, :, None] * other.active.T[:, None, :]
        return found * both


def place_of(parameter: Parameter, number: float) -> float:
    """Where a number lies between the parameter's ends, 0 to 1; NaN for a parameter without ends."""
    low, high, log = _range(parameter)
    if low is None or high is None or high <= low:
        return math.nan
    number = min(max(number, low), high)
    return math.log(number / low) / math.log(high / low) if log else (number - low) / (high - low)


def _range(parameter: Parameter) -> tuple[float | None, float | None, bool]:
    if isinstance(parameter, (Integer, Float)):
        return float(parameter.low), float(parameter.high), parameter.log
    numbers = [float(choice) for choice in getattr(parameter, "choices", ()) if _is_number(choice)]
    if not isinstance(parameter, Choice) or not parameter.ordered or not numbers:
        return None, None, False
    return min(numbers), max(numbers), min(numbers) > 0


def _key(value: Value) -> Value:
    """Keeps `True` and `1` apart."""
    return f"switch {value}" if isinstance(value, bool) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def expected(values: Mapping[str, float], names: Sequence[str], default: float) -> Floats:
    """An array in the order of the axes."""
    return np.array([values.get(name, default) for name in names])
