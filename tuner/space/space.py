"""SearchSpace: which configurations are possible, which of them are forbidden, and which to try first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, overload

from tuner.errors import InputError, did_you_mean
from tuner.space.canonical import canonical_space, differences
from tuner.space.configuration import Configuration, Value
from tuner.space.dimensions import (
    ChoiceDimension,
    Dimension,
    NumberDimension,
    assigned,
    chosen,
    count,
    dimensions_of,
)
from tuner.space.parameters import AUTO, Choice, Composite, Float, Integer, Parameter, same
from tuner.space.rules import Condition, Rule

__all__ = [
    "ChoiceDimension",
    "Dimension",
    "KnownGood",
    "NumberDimension",
    "SearchSpace",
    "differences",
]

_MOST_BRANCHES = 100_000
"""Combinations of the parameters that conditions name; beyond, counting a space is not worth the time."""


@dataclass(frozen=True)
class KnownGood:
    """A configuration known to run, tried before the search begins.

    `values` is complete: what the file leaves unsaid is in it as `SearchSpace.assignment` fills it in.
    """

    name: str
    values: Configuration
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """The parameters in the order of their declaration, the rules, and the known-good configurations.

    `conditions` holds the parsed `when` of the parameters that have one; each names only parameters that
    stand before its own. `dropped` says in words what `without` took out.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    conditions: Mapping[str, Condition]
    rules: tuple[Rule, ...]
    known_good: tuple[KnownGood, ...]
    file: str
    dropped: tuple[str, ...] = field(default=(), compare=False)

    # --- between a sampler and a configuration --------------------------------------------------------

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What a sampler is asked for: all of these, in every trial, whatever the values."""
        return tuple(dimension for parameter in self.parameters for dimension in dimensions_of(parameter))

    def configuration(self, assignment: Mapping[str, Value]) -> Configuration:
        """The configuration that values of all dimensions stand for.

        What is `auto` and what does not apply is left out. Raises `InputError` where a dimension is missing.
        """
        values: dict[str, Value] = {}
        for parameter in self.parameters:
            condition = self.conditions.get(parameter.name)
            if condition is not None and not condition.holds(values):
                continue
            try:
                value = chosen(parameter, assignment)
            except KeyError as missing:
                raise InputError(f"there is no value for {missing} of the search space {self.name}") from None
            if value != AUTO:
                values[parameter.name] = value
        return Configuration(values)

    @overload
    def assignment(self, values: Mapping[str, Value]) -> dict[str, Value]: ...
    @overload
    def assignment(self, values: Mapping[str, Value], *, strict: Literal[True]) -> dict[str, Value]: ...
    @overload
    def assignment(
        self, values: Mapping[str, Value], *, strict: Literal[False]
    ) -> dict[str, Value] | None: ...
    def assignment(self, values: Mapping[str, Value], *, strict: bool = True) -> dict[str, Value] | None:
        """The values of all dimensions that give this configuration: the inverse of `configuration`.

        What `values` leaves unsaid is `auto` where that is possible, and otherwise its stated default, its
        first choice, off, or its lowest number.

        Raises `InputError` for an unknown parameter, a value that is no choice, out of range or off its
        step; with `strict=False` the answer to those is None.
        """
        try:
            return self._complete(values)
        except InputError:
            if strict:
                raise
            return None

    def _complete(self, values: Mapping[str, Value]) -> dict[str, Value]:
        known = [parameter.name for parameter in self.parameters]
        for name in values:
            if name not in known:
                raise InputError(
                    f"'{name}' is no parameter of the search space {self.name}",
                    hint=did_you_mean(name, known),
                )
        found: dict[str, Value] = {}
        for parameter in self.parameters:
            found |= assigned(parameter, values.get(parameter.name))
        return found

    def broken_rule(self, configuration: Mapping[str, Value]) -> Rule | None:
        """The first rule that forbids this configuration, or None."""
        return next((rule for rule in self.rules if rule.forbid.holds(configuration)), None)

    # --- the space as a whole -------------------------------------------------------------------------

    def size(self) -> int | None:
        """How many different configurations there are, rules left aside.

        None where a number has no step and so endlessly many values, or where the conditions depend on too
        many combinations to count.
        """
        named = {name for condition in self.conditions.values() for name in condition.names}
        deciding = [parameter for parameter in self.parameters if parameter.name in named]
        others = [parameter for parameter in self.parameters if parameter.name not in named]
        counts = {parameter.name: count(parameter) for parameter in self.parameters}
        branches = 1
        for parameter in deciding:
            branches *= counts[parameter.name] or _MOST_BRANCHES + 1
        if branches > _MOST_BRANCHES or None in counts.values():
            return None
        total = 0
        for values in self._combinations(deciding, {}):
            points = 1
            for parameter in others:
                condition = self.conditions.get(parameter.name)
                if condition is None or condition.holds(values):
                    points *= counts[parameter.name] or 1
            total += points
        return total

    def _combinations(
        self, parameters: list[Parameter], values: dict[str, Value]
    ) -> Iterator[dict[str, Value]]:
        """The different values these parameters can have together, each on top of `values`."""
        if not parameters:
            yield values
            return
        first, rest = parameters[0], parameters[1:]
        condition = self.conditions.get(first.name)
        if condition is not None and not condition.holds(values):
            yield from self._combinations(rest, values)
            return
        for value in _possible(first):
            more = values if value == AUTO else {**values, first.name: value}
            yield from self._combinations(rest, more)

    def without(
        self, unavailable: Mapping[str, Mapping[str, str]], absent: Mapping[str, str] | None = None
    ) -> SearchSpace:
        """The same space without choices that cannot be had here (parameter → choice → reason), and without
        the parameters of which nothing can (`absent`: parameter → reason).

        Known-good configurations that use one of them go too; `dropped` of the new space names everything
        that went. Parameters and choices the space does not have are passed over. An absent parameter that
        conditions or rules name is for them what it is where it is left out.

        Raises `InputError` where a parameter is left without any choice.
        """
        gone = {one.name: one for one in self.parameters if one.name in (absent or {})}
        parameters: list[Parameter] = []
        dropped = [f"{name}: {reason}" for name, reason in (absent or {}).items() if name in gone]
        for parameter in self.parameters:
            if parameter.name in gone:
                continue
            reasons = unavailable.get(parameter.name, {})
            if not isinstance(parameter, (Choice, Composite)) or not reasons:
                parameters.append(parameter)
                continue
            narrowed, lines = _narrowed(parameter, reasons, self.file)
            parameters.append(narrowed)
            dropped += lines
        kept: list[KnownGood] = []
        for known in self.known_good:
            used = _uses(known.values, unavailable) or _sets(known.values, gone)
            if used is None:
                left = {name: value for name, value in known.values.items() if name not in gone}
                kept.append(replace(known, values=Configuration(left)))
            else:
                dropped.append(f"known-good configuration '{known.name}': it uses {used}")
        return replace(
            self,
            parameters=tuple(parameters),
            conditions={name: one for name, one in self.conditions.items() if name not in gone},
            known_good=tuple(kept),
            dropped=(*self.dropped, *dropped),
        )

    def canonical(self) -> dict[str, Any]:
        """What makes this space this space, JSON-able: parameters, rules, known-good values, no prose."""
        return canonical_space(
            self.parameters,
            self.conditions,
            self.rules,
            {known.name: known.values for known in self.known_good},
        )

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that two spaces share exactly when their `canonical` is the same."""
        return hashlib.sha256(json.dumps(self.canonical(), sort_keys=True).encode()).hexdigest()[:12]


def _possible(parameter: Parameter) -> Iterator[Value]:
    """All values of a parameter that has finitely many, `auto` included."""
    if not isinstance(parameter, (Integer, Float)):
        for dimension in dimensions_of(parameter):
            yield from getattr(dimension, "choices", ())
        return
    if parameter.auto:
        yield AUTO
    for index in range((count(parameter) or 0) - parameter.auto):
        yield chosen(
            replace(parameter, auto=False), {parameter.name: parameter.low + index * (parameter.step or 0)}
        )


def _narrowed(
    parameter: Choice | Composite, reasons: Mapping[str, str], file: str
) -> tuple[Parameter, list[str]]:
    gone = {choice: reasons[str(choice)] for choice in parameter.choices if str(choice) in reasons}
    if len(gone) == len(parameter.choices):
        listed = "; ".join(f"{choice}: {reason}" for choice, reason in gone.items())
        raise InputError(
            f"{file}: parameters.{parameter.name}: none of its choices can be had here ({listed})",
            hint="add a choice that this box and the installed SGLang have, or take the parameter out",
        )
    lines = [f"{parameter.name}={choice}: {reason}" for choice, reason in gone.items()]
    default = None if parameter.default in gone else parameter.default
    if isinstance(parameter, Composite):
        kept = tuple(choice for choice in parameter.choices if choice not in gone)
        return replace(parameter, choices=kept, default=default), lines
    left = tuple(choice for choice in parameter.choices if choice not in gone)
    return replace(parameter, choices=left, default=default), lines


def _uses(values: Configuration, unavailable: Mapping[str, Mapping[str, str]]) -> str | None:
    for name, choices in unavailable.items():
        value = values.get(name)
        if value is not None and any(same(str(value), choice) for choice in choices):
            return f"{name}={value}"
    return None


def _sets(values: Configuration, gone: Mapping[str, Parameter]) -> str | None:
    """The first of these parameters that a configuration sets to something else than its default."""
    for name, parameter in gone.items():
        value = values.get(name)
        if value is not None and not (parameter.default is not None and same(value, parameter.default)):
            return f"{name}={value}"
    return None
