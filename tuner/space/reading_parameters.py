"""One parameter of a search space read from YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tuner.document import Node
from tuner.errors import InputError, did_you_mean
from tuner.redact import is_secret
from tuner.space.configuration import Value
from tuner.space.dimensions import assigned, is_on_step, steps_within
from tuner.space.parameters import (
    AUTO,
    BUILT_IN_COMPOSITES,
    Boolean,
    Choice,
    Composite,
    Effect,
    Float,
    Integer,
    Parameter,
    same,
)
from tuner.space.reading_expectations import with_expectation

_COMMON = ("type", "default", "when", "about", "expect")
_KEYS = {
    "integer": (*_COMMON, "low", "high", "step", "log", "auto"),
    "float": (*_COMMON, "low", "high", "step", "log", "auto"),
    "choice": (*_COMMON, "choices", "ordered"),
    "boolean": _COMMON,
    "composite": (*_COMMON, "choices"),
}
_NAME = re.compile(r"^(?:[a-z][a-z0-9_]*|[A-Z][A-Z0-9_]*)$")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_WORDS_OF_RULES = ("and", "or", "not", "in", "true", "false", AUTO)
_CANONICAL_FLAGS = {
    "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "speculative_draft_model": "speculative_draft_model_path",
    "tp": "tp_size",
    "tensor_parallel_size": "tp_size",
    "pp": "pp_size",
    "pipeline_parallel_size": "pp_size",
    "dp": "dp_size",
    "data_parallel_size": "dp_size",
    "ep": "ep_size",
    "expert_parallel_size": "ep_size",
}
"""Other spellings of flags, each with the one used here whatever the installed version calls it."""

_CANONICAL_PARAMETERS = {**_CANONICAL_FLAGS, "speculative_algorithm": "speculative"}

_FARTHEST = 1e15
_FINEST = 1e-9
"""Beyond these a float no longer tells neighbouring values apart; configurations compare to nine decimals."""


def read_parameter(name: str, node: Node) -> Parameter:
    """One parameter: keys and values, or the short forms `[a, b]` (a choice) and `boolean`.

    A list under the name of a built-in composite is that composite. Raises `InputError` for anything that
    cannot be used. `when` is taken as it is; `tuner.space.reading` reads it.
    """
    _check_name(name, node)
    if isinstance(node.value, list):
        return _short_list(name, node)
    if node.value == "boolean":
        return Boolean(name=name)
    keys = node.mapping(required=("type",))
    kind = keys["type"].text(one_of=tuple(_KEYS))
    node.mapping(known=_KEYS[kind])
    if name in BUILT_IN_COMPOSITES and kind != "composite":
        raise keys["type"].refuse(f"'{name}' stands for several flags", hint="write type: composite")
    if kind == "boolean":
        parameter: Parameter = Boolean(name=name, **_common(keys))
    elif kind == "choice":
        ordered = keys["ordered"].boolean() if "ordered" in keys else False
        choices = _choices(_needed(node, keys, "choices"))
        parameter = Choice(name=name, choices=choices, ordered=ordered, **_common(keys))
    elif kind == "composite":
        parameter = _composite(name, node, keys)
    else:
        parameter = _number(kind, name, node, keys)
    return with_expectation(_with_checked_default(parameter, keys), keys.get("expect"))


def _short_list(name: str, node: Node) -> Parameter:
    if name in BUILT_IN_COMPOSITES:
        choices, effects = _composite_choices(name, node)
        return Composite(name=name, choices=choices, effects=effects)
    if sorted(item.value for item in node.value if isinstance(item.value, bool)) == [False, True] and (
        len(node.value) == 2
    ):
        return Boolean(name=name)
    return Choice(name=name, choices=_choices(node))


def _check_name(name: str, node: Node, canonical: Mapping[str, str] = _CANONICAL_PARAMETERS) -> None:
    plain = name.lstrip("-").replace("-", "_")
    if plain in canonical:
        raise node.refuse(
            f"in search spaces this is called '{canonical[plain]}', whatever the installed SGLang calls it",
            hint=f"did you mean '{canonical[plain]}'?",
        )
    if name != plain and _NAME.match(plain):
        raise node.refuse("names are written without dashes", hint=f"did you mean '{plain}'?")
    if not _NAME.match(name):
        raise node.refuse(
            "a name is a flag in small letters or an environment variable in capitals",
            hint="for example mem_fraction_static, or NCCL_PROTO",
        )
    if name in _WORDS_OF_RULES:
        raise node.refuse(f"'{name}' is a word of the language of rules and cannot be a name")
    _refuse_secret(name, node)


def _refuse_secret(name: str, node: Node) -> None:
    if is_secret(name):
        raise node.refuse(
            f"'{name}' looks like a secret, and what a search space holds is written to the study's files",
            hint="set it in the environment that the tuner is started in",
        )


def _common(keys: Mapping[str, Node]) -> dict[str, Any]:
    return {
        "when": keys["when"].text() if "when" in keys else None,
        "about": keys["about"].text() if "about" in keys else "",
    }


def _needed(node: Node, keys: Mapping[str, Node], key: str) -> Node:
    node.mapping(required=(key,))
    return keys[key]


def _with_checked_default(parameter: Parameter, keys: Mapping[str, Node]) -> Parameter:
    if "default" not in keys:
        return parameter
    node = keys["default"]
    value = node.scalar()
    if value == AUTO and isinstance(parameter, (Integer, Float)):
        raise node.refuse(
            "the default is what the engine uses when the flag is left out, and that is a number",
            hint="leave the default out where it is not known",
        )
    try:
        default = assigned(parameter, value)[parameter.name]
    except InputError as error:
        raise node.refuse(f"the default does not fit: {error.message}", hint=error.hint) from None
    return replace(parameter, default=default)


# --- numbers ----------------------------------------------------------------------------------------


def _number(kind: str, name: str, node: Node, keys: Mapping[str, Node]) -> Integer | Float:
    low_node, high_node = _needed(node, keys, "low"), _needed(node, keys, "high")
    log = keys["log"].boolean() if "log" in keys else False
    auto = keys["auto"].boolean() if "auto" in keys else False
    if log and "step" in keys:
        raise keys["step"].refuse("a range by its logarithm has no step", hint="take out step or log")
    parameter: Integer | Float
    if kind == "integer":
        low, high = low_node.integer(), high_node.integer()
        step = keys["step"].integer() if "step" in keys else 1
        parameter = Integer(name=name, low=low, high=high, step=step, log=log, auto=auto, **_common(keys))
    else:
        parameter = Float(
            name=name,
            low=low_node.number(),
            high=high_node.number(),
            step=keys["step"].number() if "step" in keys else None,
            log=log,
            auto=auto,
            **_common(keys),
        )
    _check_range(parameter, low_node, high_node, keys.get("step"))
    return parameter


def _check_range(parameter: Integer | Float, low: Node, high: Node, step: Node | None) -> None:
    for node in (low, high):
        if abs(node.value) > _FARTHEST:
            raise node.refuse(f"{node.value} is farther from 0 than {_FARTHEST:g}")
    if parameter.low > parameter.high:
        raise high.refuse(
            f"the range is empty: high, {parameter.high}, is below low, {parameter.low}",
            hint="swap low and high",
        )
    if parameter.log and parameter.low <= 0:
        raise low.refuse(f"a range by its logarithm begins above 0, not at {parameter.low}")
    if step is None or parameter.step is None:
        return
    if parameter.step <= 0:
        raise step.refuse(f"a step must be above 0, not {parameter.step}")
    if parameter.step < _FINEST:
        raise step.refuse(f"the step {parameter.step} is finer than {_FINEST:g}", hint="leave the step out")
    if parameter.step > parameter.high - parameter.low:
        raise step.refuse(
            f"the step {parameter.step} is larger than the range, {parameter.low} to {parameter.high}"
        )
    if not is_on_step(parameter.high, parameter.low, parameter.step):
        steps = steps_within(parameter.low, parameter.high, parameter.step)
        last = Decimal(str(parameter.low)) + steps * Decimal(str(parameter.step))
        raise high.refuse(
            f"{parameter.high} cannot be reached from {parameter.low} in steps of {parameter.step}",
            hint=f"the last value on the grid is {last}",
        )


# --- choices ----------------------------------------------------------------------------------------


def _choices(node: Node) -> tuple[Value, ...]:
    found: list[Value] = []
    for item in node.sequence(least=1):
        value = item.scalar()
        if isinstance(value, bool):
            raise item.refuse(
                "true and false are no choices",
                hint='for a switch write type: boolean; for the word put it in quotes: "true"',
            )
        if isinstance(value, str):
            item.text()
        if isinstance(value, float):
            item.number()
        if any(same(value, known) or str(value) == str(known) for known in found):
            raise item.refuse(f"the choice {value} stands here twice")
        found.append(value)
    return tuple(found)


def _composite(name: str, node: Node, keys: Mapping[str, Node]) -> Composite:
    choices, effects = _composite_choices(name, _needed(node, keys, "choices"))
    return Composite(name=name, choices=choices, effects=effects, **_common(keys))


def _composite_choices(name: str, node: Node) -> tuple[tuple[str, ...], dict[str, Effect]]:
    """The choices, and what those set whose effect is spelled out: `name: {flags: ..., env: ...}`."""
    if isinstance(node.value, list):
        choices = tuple(item.text() for item in node.sequence(least=1))
        for choice, item in zip(choices, node.sequence(), strict=True):
            _check_built_in(choice, name, item)
            if choices.count(choice) > 1:
                raise item.refuse(f"the choice {choice} stands here twice")
        return choices, {}
    effects: dict[str, Effect] = {}
    for choice, item in node.items():
        if item.is_null():
            _check_built_in(choice, name, item)
        elif choice == AUTO:
            raise item.refuse("auto leaves everything out, so it can set nothing")
        else:
            effects[choice] = _effect(item)
    if not node.mapping():
        raise node.refuse("a composite needs at least one choice")
    return tuple(node.mapping()), effects


def _check_built_in(choice: str, name: str, node: Node) -> None:
    """Refuse a choice that nothing says the meaning of."""
    if choice == AUTO:
        return
    if name not in BUILT_IN_COMPOSITES:
        raise node.refuse(
            f"what '{choice}' of the composite '{name}' sets is not said",
            hint=f"write {choice}: {{flags: {{...}}, env: {{...}}}}; "
            f"only {' and '.join(BUILT_IN_COMPOSITES)} are built in",
        )
    if choice not in BUILT_IN_COMPOSITES[name]:
        raise node.refuse(
            f"'{choice}' is no built-in choice of '{name}', and what it sets is not said",
            hint=did_you_mean(choice, BUILT_IN_COMPOSITES[name]),
        )


def _effect(node: Node) -> Effect:
    keys = node.mapping(known=("flags", "env"))
    flags = keys["flags"].items() if "flags" in keys else ()
    variables = keys["env"].items() if "env" in keys else ()
    return Effect(
        flags=tuple((flag, _flag_value(flag, item)) for flag, item in flags),
        variables=tuple((variable, _variable_value(variable, item)) for variable, item in variables),
    )


def _flag_value(flag: str, node: Node) -> Value | tuple[Value, ...]:
    if _VARIABLE.match(flag) and flag != flag.lower():
        raise node.refuse("flags are in small letters", hint="environment variables belong under env")
    _check_name(flag, node, _CANONICAL_FLAGS)
    if isinstance(node.value, list):
        return tuple(item.scalar() for item in node.sequence(least=1))
    value = node.scalar()
    if value is False:
        raise node.refuse("false would set nothing", hint="true adds the bare flag; otherwise leave it out")
    return value


def _variable_value(variable: str, node: Node) -> str:
    if not _VARIABLE.match(variable):
        raise node.refuse("this cannot be the name of an environment variable")
    _refuse_secret(variable, node)
    value = node.scalar()
    if isinstance(value, bool):
        raise node.refuse(
            "a variable holds text", hint='write "1" or "true" in quotes, as its reader expects'
        )
    return str(value)
