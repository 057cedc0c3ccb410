"""The comparison language of rules (`forbid`) and conditions (`when`).

    cuda_graph_max_bs > 256 and mem_fraction_static > 0.9
    speculative != off and all_reduce in [custom, pcie-ipc]
    chunked_prefill_size % page_size != 0

How it reads a configuration:

- A bare word is a parameter if one has that name. Otherwise it is a value, possible only where it is
  compared with a parameter that has it among its choices. Text in quotes is always a value.
- `auto` means absent. A comparison with an absent parameter is false, whatever its sign, except for
  `== auto` (true), `!= auto` (false) and a list that holds `auto`. So with `x` absent `x != 3` is false and
  `not x == 3` is true.
- A switch alone (`enable_mixed_chunk`) holds where it is on.
- `/` divides as on paper; a division by zero makes its comparison false. `%` is the remainder.

The text is checked when it is read; deciding whether it holds never fails.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.errors import InputError, did_you_mean, nearest
from tuner.space import language
from tuner.space.configuration import Value
from tuner.space.language import (
    Arithmetic,
    Comparison,
    Membership,
    Negative,
    Not,
    Number,
    Quoted,
    Several,
    Tree,
    Word,
    Written,
)
from tuner.space.parameters import AUTO, Boolean, Choice, Composite, Float, Integer, Parameter, same

_Values = Mapping[str, object]
_Quantity = Callable[[_Values], "int | float | None"]
_Test = Callable[[_Values], bool]

_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATE: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


@dataclass(frozen=True)
class Condition:
    """Something that holds for a configuration or does not. `text` is spelled with single spaces."""

    text: str
    names: frozenset[str]
    test: _Test = field(compare=False, repr=False)

    def holds(self, configuration: Mapping[str, object]) -> bool:
        """Whether it holds for these values; never raises."""
        return self.test(configuration)


@dataclass(frozen=True)
class Rule:
    """A combination that must not be launched, and why."""

    forbid: Condition
    because: str


def parse_condition(text: str, parameters: Sequence[Parameter]) -> Condition:
    """Read a condition over these parameters.

    Raises `InputError` for a text that is no condition, a word that is neither a parameter nor a choice of
    the one it is compared with (the nearest is named), a comparison of things that cannot be compared, and
    a condition that names no parameter.
    """
    tree, spelling = language.parse(text)
    reader = _Reader(text, {parameter.name: parameter for parameter in parameters})
    test = reader.condition(tree)
    if not reader.names:
        raise InputError(f"'{text}' names no parameter, so it always or never holds")
    return Condition(spelling, frozenset(reader.names), test)


class _Reader:
    """Gives the tree its meaning: checks it against the parameters and turns it into a test."""

    def __init__(self, text: str, parameters: Mapping[str, Parameter]) -> None:
        self._text = text
        self._parameters = parameters
        self.names: set[str] = set()

    # --- conditions ---------------------------------------------------------------------------------

    def condition(self, tree: Tree) -> _Test:
        if isinstance(tree, Several):
            tests = [self.condition(operand) for operand in tree.operands]
            if tree.token.text == "and":
                return lambda values: all(test(values) for test in tests)
            return lambda values: any(test(values) for test in tests)
        if isinstance(tree, Not):
            negated = self.condition(tree.operand)
            return lambda values: not negated(values)
        if isinstance(tree, Comparison):
            return self._comparison(tree)
        if isinstance(tree, Membership):
            return self._membership(tree)
        return self._switch(tree)

    def _switch(self, tree: Tree) -> _Test:
        parameter = self._parameter(tree)
        if parameter is None and isinstance(tree, Word):
            raise self._unknown(tree, self._parameters)
        if not isinstance(parameter, Boolean):
            what = f"'{parameter.name}'" if parameter else "this"
            raise self._refuse(tree, f"{what} is no condition by itself", hint="compare it with something")
        return lambda values: values.get(parameter.name) is True

    def _comparison(self, tree: Comparison) -> _Test:
        left, right = self._parameter(tree.left), self._parameter(tree.right)
        if left is not None and right is not None:
            return self._two_parameters(left, right, tree)
        for parameter, side in ((left, tree.right), (right, tree.left)):
            if parameter is None or not isinstance(side, (Number, Quoted, Word)):
                continue
            if not _is_quantity(side, parameter, tree.token.text):
                return self._parameter_and_value(parameter, side, tree)
        return _ordering(tree.token.text, self._quantity(tree.left), self._quantity(tree.right))

    def _two_parameters(self, left: Parameter, right: Parameter, tree: Comparison) -> _Test:
        if _is_number(left) and _is_number(right):
            return _ordering(tree.token.text, self._quantity(tree.left), self._quantity(tree.right))
        if _is_number(left) or _is_number(right) or isinstance(left, Boolean) != isinstance(right, Boolean):
            raise self._refuse(tree, f"'{left.name}' and '{right.name}' are of different kinds")
        wanted = self._wanted(tree, left)

        def test(values: _Values) -> bool:
            one, other = _present(values, left.name), _present(values, right.name)
            return one is not None and other is not None and same(one, other) == wanted

        return test

    def _parameter_and_value(self, parameter: Parameter, side: Written, tree: Comparison) -> _Test:
        if _is_number(parameter):
            value = self._value(side, parameter)
            if tree.token.text in language.ORDERS:
                raise self._refuse(
                    side, f"'{_shown(value)}' is more a choice than a number", hint="use == or !="
                )
        wanted = self._wanted(tree, parameter)
        return _one_of(parameter.name, (self._value(side, parameter),), wanted)

    def _membership(self, tree: Membership) -> _Test:
        parameter = self._parameter(tree.left)
        if parameter is None and isinstance(tree.left, Word):
            raise self._unknown(tree.left, self._parameters)
        if parameter is None:
            raise self._refuse(tree.left, "only a parameter can be looked up in a list")
        items = tuple(self._value(item, parameter) for item in tree.items)
        return _one_of(parameter.name, items, tree.wanted)

    def _wanted(self, tree: Comparison, parameter: Parameter) -> bool:
        if tree.token.text in language.ORDERS:
            raise self._refuse(
                tree,
                f"'{parameter.name}' has no order, so '{tree.token.text}' says nothing",
                hint="use ==, != or in [...]",
            )
        return tree.token.text == "=="

    # --- values -------------------------------------------------------------------------------------

    def _value(self, tree: Written, parameter: Parameter) -> Value:
        """The value written here, which `parameter` can have, or `auto`."""
        if isinstance(tree, Word) and tree.name == AUTO:
            return AUTO
        written = _written(tree)
        if isinstance(parameter, Boolean):
            if not isinstance(written, bool):
                raise self._refuse(tree, f"'{parameter.name}' is a switch: true or false")
            return written
        if isinstance(parameter, (Integer, Float)):
            if isinstance(written, (bool, str)):
                raise self._refuse(
                    tree,
                    f"'{parameter.name}' is a number; '{_shown(written)}' is neither that nor a parameter",
                    hint=did_you_mean(_shown(written), self._parameters),
                )
            return written
        for choice in parameter.choices:
            if same(choice, written):
                return choice
        choices = [_shown(choice) for choice in parameter.choices]
        near = nearest(_shown(written), choices) or nearest(_shown(written), self._parameters)
        raise self._refuse(
            tree,
            f"'{_shown(written)}' is no choice of '{parameter.name}'"
            + (" and no parameter" if isinstance(tree, Word) else ""),
            hint=f"did you mean '{near}'?" if near else f"its choices: {', '.join(choices)}",
        )

    # --- quantities ---------------------------------------------------------------------------------

    def _quantity(self, tree: Tree) -> _Quantity:
        """A calculation; None where a parameter in it is absent or the result is no number."""
        if isinstance(tree, Number):
            return _constant(tree.value)
        if isinstance(tree, Negative):
            operand = self._quantity(tree.operand)
            return lambda values: _calculated(operator.sub, 0, operand(values))
        if isinstance(tree, Arithmetic):
            left, right = self._quantity(tree.left), self._quantity(tree.right)
            calculate = _CALCULATE[tree.token.text]
            return lambda values: _calculated(calculate, left(values), right(values))
        parameter = self._parameter(tree)
        if parameter is not None:
            if not _is_number(parameter):
                raise self._refuse(tree, f"'{parameter.name}' is no number", hint=_kind_hint(parameter))
            return lambda values: _number(values.get(parameter.name))
        if isinstance(tree, Word):
            raise self._unknown(tree, self._parameters)
        raise self._refuse(tree, "expected a number here")

    # --- words --------------------------------------------------------------------------------------

    def _parameter(self, tree: Tree) -> Parameter | None:
        if not isinstance(tree, Word) or tree.name not in self._parameters:
            return None
        self.names.add(tree.name)
        return self._parameters[tree.name]

    def _unknown(self, word: Word, known: Mapping[str, Parameter]) -> InputError:
        parts = word.name.split("-")
        if len(parts) > 1 and any(part in known for part in parts):
            return self._refuse(
                word, f"'{word.name}' is one word", hint="a minus needs a space on both sides"
            )
        return self._refuse(
            word, f"'{word.name}' is no parameter of this space", hint=did_you_mean(word.name, known)
        )

    def _refuse(self, tree: Tree, what: str, *, hint: str = "") -> InputError:
        return language.refusal(self._text, tree.token, what, hint=hint)


def _is_number(parameter: Parameter) -> bool:
    """Whether every value of it, `auto` aside, is a number."""
    if isinstance(parameter, Choice):
        return all(
            choice == AUTO or (isinstance(choice, (int, float)) and not isinstance(choice, bool))
            for choice in parameter.choices
        )
    return isinstance(parameter, (Integer, Float))


def _is_quantity(side: Written, parameter: Parameter, sign: str) -> bool:
    """Whether this side is a number to measure the parameter with, and not one of its choices."""
    if not isinstance(side, Number) or not _is_number(parameter):
        return False
    return isinstance(parameter, (Integer, Float)) or sign in language.ORDERS


def _kind_hint(parameter: Parameter) -> str:
    if isinstance(parameter, (Choice, Composite)):
        return f"its choices: {', '.join(_shown(choice) for choice in parameter.choices)}"
    return "it is a switch: write it alone, or compare it with true or false"


def _written(tree: Written) -> Value:
    if isinstance(tree, Word):
        return tree.name == "true" if tree.name in ("true", "false") else tree.name
    return tree.value


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _constant(number: int | float) -> _Quantity:
    def quantity(_: _Values) -> int | float:
        return number

    return quantity


def _present(values: _Values, name: str) -> object:
    value = values.get(name)
    return None if value == AUTO else value


def _number(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _calculated(
    calculate: Callable[[float, float], float], left: float | None, right: float | None
) -> float | None:
    if left is None or right is None:
        return None
    try:
        return _number(calculate(left, right))
    except (ZeroDivisionError, OverflowError):
        return None


def _ordering(sign: str, left: _Quantity, right: _Quantity) -> _Test:
    compare = _ORDER[sign]

    def test(values: _Values) -> bool:
        one, other = left(values), right(values)
        return one is not None and other is not None and compare(one, other)

    return test


def _one_of(name: str, items: tuple[Value, ...], wanted: bool) -> _Test:
    def test(values: _Values) -> bool:
        value = _present(values, name)
        if value is None:
            return wanted and AUTO in items
        return any(same(value, item) for item in items) == wanted

    return test
