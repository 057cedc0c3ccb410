"""What a sampler is asked for, and how a parameter's value is said in those terms.

A parameter is one dimension; a number that may be `auto` is two, `p.auto` (leave it out) and `p`. The
dimensions of a space never change from trial to trial: a sampler that learns over all of them at once needs
every one in every trial, so a value that does not apply is asked for too and then dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from tuner.errors import InputError, did_you_mean
from tuner.space.configuration import Value
from tuner.space.parameters import AUTO, Boolean, Choice, Composite, Float, Integer, Parameter, same


@dataclass(frozen=True)
class NumberDimension:
    """A number from `low` to `high`, both included; `whole` numbers only, by `step`, or by its logarithm."""

    name: str
    low: int | float
    high: int | float
    step: int | float | None
    log: bool
    whole: bool


@dataclass(frozen=True)
class ChoiceDimension:
    """One of several values; `ordered` says that neighbours are alike."""

    name: str
    choices: tuple[Value, ...]
    ordered: bool = False


Dimension = NumberDimension | ChoiceDimension


def auto_name(parameter: Parameter) -> str:
    """The name of the dimension that says whether a number is left out."""
    return f"{parameter.name}.{AUTO}"


def may_be_auto(parameter: Parameter) -> bool:
    """Whether leaving the flag out is one of its possibilities."""
    if isinstance(parameter, (Integer, Float)):
        return parameter.auto
    return not isinstance(parameter, Boolean) and AUTO in parameter.choices


def dimensions_of(parameter: Parameter) -> tuple[Dimension, ...]:
    """The dimensions of one parameter."""
    if isinstance(parameter, Boolean):
        return (ChoiceDimension(parameter.name, (False, True)),)
    if isinstance(parameter, Choice):
        return (ChoiceDimension(parameter.name, parameter.choices, parameter.ordered),)
    if isinstance(parameter, Composite):
        return (ChoiceDimension(parameter.name, parameter.choices),)
    number = NumberDimension(
        name=parameter.name,
        low=parameter.low,
        high=parameter.high,
        step=parameter.step,
        log=parameter.log,
        whole=isinstance(parameter, Integer),
    )
    if not parameter.auto:
        return (number,)
    return (ChoiceDimension(auto_name(parameter), (True, False)), number)


def chosen(parameter: Parameter, assignment: Mapping[str, Value]) -> Value:
    """The value that an assignment gives a parameter; `auto` where it leaves the flag out.

    A number is put on its step exactly (0.87, not 0.8700000000000001).
    """
    if isinstance(parameter, (Integer, Float)) and parameter.auto and assignment[auto_name(parameter)]:
        return AUTO
    value = assignment[parameter.name]
    if isinstance(parameter, Integer):
        return int(value)
    if isinstance(parameter, Float):
        return _on_step(float(value), parameter)
    return value


def assigned(parameter: Parameter, value: Value | None) -> dict[str, Value]:
    """A parameter's dimensions for a value; for None, of what leaving it unsaid means.

    Unsaid means `auto` where that is possible, and otherwise the stated default, the first choice, off, or
    the lowest number.

    Raises `InputError` for a value the parameter cannot have.
    """
    if isinstance(parameter, (Integer, Float)):
        return _assigned_number(parameter, value)
    if value is None:
        return {parameter.name: _unsaid(parameter)}
    if isinstance(parameter, Boolean):
        if not isinstance(value, bool):
            raise InputError(f"'{parameter.name}' is a switch and cannot be {value!r}", hint="true or false")
        return {parameter.name: value}
    for choice in parameter.choices:
        if same(choice, value):
            return {parameter.name: choice}
    raise InputError(
        f"{value!r} is no choice of '{parameter.name}'",
        hint=did_you_mean(str(value), [str(choice) for choice in parameter.choices]),
    )


def count(parameter: Parameter) -> int | None:
    """How many values it can have, `auto` included; None for endlessly many."""
    if isinstance(parameter, Boolean):
        return 2
    if isinstance(parameter, (Choice, Composite)):
        return len(parameter.choices)
    if parameter.low == parameter.high:
        return 1 + parameter.auto
    if parameter.step is None or (isinstance(parameter, Float) and parameter.log):
        return None
    return steps_within(parameter.low, parameter.high, parameter.step) + 1 + parameter.auto


def steps_within(low: float, high: float, step: float) -> int:
    """How many whole steps fit between two numbers, counted in decimals as a person writes them."""
    return int((_decimal(high) - _decimal(low)) / _decimal(step))


def is_on_step(value: float, low: float, step: float) -> bool:
    """Whether `value` is `low` plus whole steps."""
    return (_decimal(value) - _decimal(low)) % _decimal(step) == 0


def _unsaid(parameter: Choice | Composite | Boolean) -> Value:
    if may_be_auto(parameter):
        return AUTO
    if parameter.default is not None:
        return parameter.default
    return False if isinstance(parameter, Boolean) else parameter.choices[0]


def _assigned_number(parameter: Integer | Float, value: Value | None) -> dict[str, Value]:
    unsaid = parameter.low if parameter.default is None else parameter.default
    if value is None and not parameter.auto:
        return {parameter.name: unsaid}
    if value is None or value == AUTO:
        if not parameter.auto:
            raise InputError(f"'{parameter.name}' cannot be auto in this space", hint="give it auto: true")
        return {auto_name(parameter): True, parameter.name: unsaid}
    number = _checked(parameter, value)
    return (
        {auto_name(parameter): False, parameter.name: number} if parameter.auto else {parameter.name: number}
    )


def _checked(parameter: Integer | Float, value: Value) -> int | float:
    if isinstance(value, (bool, str)):
        raise InputError(f"'{parameter.name}' is a number and cannot be {value!r}")
    if not parameter.low <= value <= parameter.high:
        raise InputError(
            f"{value} is outside the range of '{parameter.name}', {parameter.low} to {parameter.high}"
        )
    if isinstance(parameter, Integer):
        if value != int(value):
            raise InputError(f"'{parameter.name}' is a whole number and cannot be {value}")
        value = int(value)
    low, step = parameter.low, parameter.step
    if step is not None and not is_on_step(_rounded(value), low, step):
        raise InputError(f"{value} is not on the grid of '{parameter.name}': {low}, then steps of {step}")
    return value if isinstance(parameter, Integer) else _on_step(float(value), parameter)


def _on_step(value: float, parameter: Float) -> float:
    if parameter.step is None:
        return value
    low, step = _decimal(parameter.low), _decimal(parameter.step)
    return float(low + step * round((_decimal(value) - low) / step))


def _rounded(value: int | float) -> int | float:
    """Without the dust of binary arithmetic, as `Configuration` compares values."""
    return value if isinstance(value, int) else round(value, 9)


def _decimal(value: float) -> Decimal:
    return Decimal(str(value))
