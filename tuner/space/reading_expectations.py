"""What a search-space file expects of a parameter before anything was launched."""

from __future__ import annotations

from dataclasses import replace

from tuner.document import Node
from tuner.errors import did_you_mean
from tuner.space.parameters import AUTO, Boolean, Choice, Expectation, Float, Integer, Parameter

SMALLER = "smaller is faster"
LARGER = "larger is faster"
_LEAST_GAIN = -0.95
_MOST_GAIN = 5.0


def with_expectation(parameter: Parameter, node: Node | None) -> Parameter:
    """The parameter with what `expect` says of it: a direction for numbers, gains for the rest.

    Raises `InputError` where that does not fit the parameter.
    """
    if node is None:
        return parameter
    if isinstance(node.value, dict):
        return replace(parameter, expect=_gains(parameter, node))
    direction = node.text(one_of=(SMALLER, LARGER))
    if not _is_number(parameter):
        raise node.refuse(
            "only numbers are smaller or larger", hint="say what its choices gain, such as {triton: 0.05}"
        )
    return replace(parameter, expect=Expectation(larger_is_faster=direction == LARGER))


def _gains(parameter: Parameter, node: Node) -> Expectation:
    if isinstance(parameter, (Integer, Float)):
        raise node.refuse("a range has no choices to name", hint=f"write '{SMALLER}' or '{LARGER}'")
    choices = ["true"] if isinstance(parameter, Boolean) else [str(one) for one in parameter.choices]
    gains = {}
    for choice, item in node.items():
        if choice == AUTO:
            raise item.refuse("gains are over leaving it out, which is auto")
        if choice not in choices:
            raise item.refuse(
                f"'{choice}' is no choice of '{parameter.name}'", hint=did_you_mean(choice, choices)
            )
        gains[choice] = item.number(least=_LEAST_GAIN, most=_MOST_GAIN)
    if not gains:
        raise node.refuse("names no choice", hint="leave it out where nothing is known")
    return Expectation(gains=gains)


def _is_number(parameter: Parameter) -> bool:
    if isinstance(parameter, (Integer, Float)):
        return True
    numbers = [one for one in getattr(parameter, "choices", ()) if one != AUTO]
    return (
        isinstance(parameter, Choice)
        and parameter.ordered
        and all(isinstance(one, (int, float)) for one in numbers)
    )
