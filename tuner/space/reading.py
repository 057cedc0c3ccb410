"""Search spaces read from YAML; what cannot be used is refused with its place and the nearest spelling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tuner.document import Node, read_document
from tuner.errors import InputError, did_you_mean
from tuner.space.configuration import Configuration, Value
from tuner.space.dimensions import assigned
from tuner.space.parameters import AUTO, Composite, Parameter
from tuner.space.reading_parameters import read_parameter
from tuner.space.rules import Condition, Rule, parse_condition
from tuner.space.space import KnownGood, SearchSpace


def read_space(path: Path) -> SearchSpace:
    """The search space in a YAML file; its name is the file's unless it states one.

    Raises `InputError` for a file that cannot be read and for anything in it that cannot be used.
    """
    return parse_space(read_document(path), path.stem)


def parse_space(node: Node, name: str) -> SearchSpace:
    """The search space in a document that is already read; `name` is used where it states none.

    Raises `InputError` for an unknown key, a wrong type, an impossible range, a condition or rule that names
    an unknown parameter or value, and a known-good configuration that the space itself does not allow.
    """
    keys = node.mapping(
        known=("name", "description", "parameters", "rules", "known_good"), required=("parameters",)
    )
    parameters = _parameters(keys["parameters"])
    conditions = _conditions(keys["parameters"], parameters)
    rules = tuple(_rule(item, parameters) for item in keys["rules"].sequence()) if "rules" in keys else ()
    space = SearchSpace(
        name=keys["name"].text() if "name" in keys else name,
        description=keys["description"].text() if "description" in keys else "",
        parameters=parameters,
        conditions=conditions,
        rules=rules,
        known_good=(),
        file=node.file,
    )
    known_good: list[KnownGood] = []
    for item in keys["known_good"].sequence() if "known_good" in keys else ():
        known_good.append(_known_good(item, space, [known.name for known in known_good]))
    return replace(space, known_good=tuple(known_good))


def _parameters(node: Node) -> tuple[Parameter, ...]:
    parameters = tuple(read_parameter(name, item) for name, item in node.items())
    if not parameters:
        raise node.refuse("a search space needs at least one parameter")
    _refuse_double_use(node, parameters)
    return parameters


def _refuse_double_use(node: Node, parameters: tuple[Parameter, ...]) -> None:
    """Refuse a flag or variable that two parameters would set: which one wins would be anyone's guess."""
    owners = {parameter.name: parameter.name for parameter in parameters}
    for parameter in parameters:
        if not isinstance(parameter, Composite):
            continue
        for effect in parameter.effects.values():
            for name in (*dict(effect.flags), *dict(effect.variables)):
                owner = owners.setdefault(name, parameter.name)
                if owner != parameter.name:
                    raise node.mapping()[parameter.name].refuse(
                        f"it sets '{name}', which the parameter '{owner}' sets too",
                        hint="leave it to one of the two",
                    )


def _conditions(node: Node, parameters: tuple[Parameter, ...]) -> dict[str, Condition]:
    conditions: dict[str, Condition] = {}
    for position, parameter in enumerate(parameters):
        if parameter.when is None:
            continue
        when = node.mapping()[parameter.name].mapping()["when"]
        condition = _condition(when, parameters)
        earlier = {known.name for known in parameters[:position]}
        for name in sorted(condition.names - earlier):
            if name == parameter.name:
                raise when.refuse("a parameter cannot depend on itself")
            raise when.refuse(
                f"'{name}' stands below '{parameter.name}', and values are decided from top to bottom, "
                "so a condition may only name parameters above its own",
                hint=f"move '{name}' above '{parameter.name}'",
            )
        conditions[parameter.name] = condition
    return conditions


def _rule(node: Node, parameters: tuple[Parameter, ...]) -> Rule:
    keys = node.mapping(known=("forbid", "because"), required=("forbid", "because"))
    return Rule(_condition(keys["forbid"], parameters), keys["because"].text())


def _condition(node: Node, parameters: tuple[Parameter, ...]) -> Condition:
    text = node.text()
    try:
        return parse_condition(text, parameters)
    except InputError as error:
        raise node.refuse(error.message, hint=error.hint) from None


def _known_good(node: Node, space: SearchSpace, taken: list[str]) -> KnownGood:
    keys = node.mapping(known=("name", "about", "values"), required=("name", "values"))
    name = keys["name"].text()
    if name in taken:
        raise keys["name"].refuse(f"another known-good configuration is called '{name}' already")
    stated = {key: _known_value(key, item, space) for key, item in keys["values"].items()}
    values = space.configuration(space.assignment(stated))
    _refuse_what_does_not_apply(keys["values"], stated, values, space.conditions)
    broken = space.broken_rule(values)
    if broken is not None:
        raise keys["values"].refuse(
            f"'{name}' breaks the rule '{broken.forbid.text}' ({broken.because}): it means {values.shown()}",
            hint="change its values or the rule",
        )
    return KnownGood(name, values, keys["about"].text() if "about" in keys else "")


def _known_value(name: str, node: Node, space: SearchSpace) -> Value:
    by_name = {parameter.name: parameter for parameter in space.parameters}
    if name not in by_name:
        raise node.refuse("there is no such parameter in this space", hint=did_you_mean(name, by_name))
    value = node.scalar()
    try:
        assigned(by_name[name], value)
    except InputError as error:
        raise node.refuse(error.message, hint=error.hint) from None
    return value


def _refuse_what_does_not_apply(
    node: Node, stated: Mapping[str, Value], values: Configuration, conditions: Mapping[str, Condition]
) -> None:
    for name, value in stated.items():
        if name not in values and value != AUTO and name in conditions:
            raise node.mapping()[name].refuse(
                f"it does not apply here: it exists only when {conditions[name].text}", hint="leave it out"
            )
