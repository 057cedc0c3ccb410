"""What makes a search space the same space: its content as plain data, and the differences in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.space.configuration import Configuration
from tuner.space.parameters import Boolean, Choice, Composite, Effect, Integer, Parameter
from tuner.space.rules import Condition, Rule


def canonical_space(
    parameters: Sequence[Parameter],
    conditions: Mapping[str, Condition],
    rules: Sequence[Rule],
    known_good: Mapping[str, Configuration],
) -> dict[str, Any]:
    """Parameters, rules and known-good values as JSON-able data, without prose.

    The order of parameters, rules and known-good configurations does not matter, and neither does spacing
    within a condition; the order of choices does, to samplers.
    """
    return {
        "parameters": {
            parameter.name: _parameter(parameter, conditions.get(parameter.name)) for parameter in parameters
        },
        "rules": sorted({rule.forbid.text for rule in rules}),
        "known_good": {name: values.to_json() for name, values in known_good.items()},
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """How a space changed, a sentence for each change; empty when it is the same.

    Takes what `SearchSpace.canonical` gave then and gives now.
    """
    sentences = _members("parameter", old.get("parameters", {}), new.get("parameters", {}))
    before, after = old.get("rules", []), new.get("rules", [])
    sentences += [f"the rule '{text}' is new" for text in after if text not in before]
    sentences += [f"the rule '{text}' is gone" for text in before if text not in after]
    return sentences + _members(
        "known-good configuration", old.get("known_good", {}), new.get("known_good", {})
    )


def _parameter(parameter: Parameter, condition: Condition | None) -> dict[str, Any]:
    content: dict[str, Any]
    if isinstance(parameter, Boolean):
        content = {"type": "boolean"}
    elif isinstance(parameter, Choice):
        content = {"type": "choice", "choices": list(parameter.choices), "ordered": parameter.ordered}
    elif isinstance(parameter, Composite):
        effects = {choice: _effect(effect) for choice, effect in parameter.effects.items()}
        content = {"type": "composite", "choices": list(parameter.choices), "effects": effects}
    else:
        content = {
            "type": "integer" if isinstance(parameter, Integer) else "float",
            "low": parameter.low,
            "high": parameter.high,
            "step": parameter.step,
            "log": parameter.log,
            "auto": parameter.auto,
        }
    return {**content, "default": parameter.default, "when": condition.text if condition else None}


def _effect(effect: Effect) -> dict[str, Any]:
    flags = {name: list(value) if isinstance(value, tuple) else value for name, value in effect.flags}
    return {"flags": flags, "env": dict(effect.variables)}


def _members(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    sentences = [f"the {kind} '{name}' is new" for name in new if name not in old]
    sentences += [f"the {kind} '{name}' is gone" for name in old if name not in new]
    for name in new:
        if name in old:
            sentences += [f"the {kind} '{name}': {change}" for change in _changes(old[name], new[name])]
    return sentences


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    changes: list[str] = []
    for key in dict.fromkeys([*new, *old]):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if key == "choices" and isinstance(before, list) and isinstance(after, list):
            changes += _choice_changes(before, after)
        else:
            changes.append(f"{key} was {_shown(before)} and is now {_shown(after)}")
    return changes


def _choice_changes(before: list[Any], after: list[Any]) -> list[str]:
    changes = [f"the choice {_shown(choice)} is new" for choice in after if choice not in before]
    changes += [f"the choice {_shown(choice)} is gone" for choice in before if choice not in after]
    return changes or ["the order of its choices changed"]


def _shown(value: Any) -> str:
    return "not stated" if value is None else str(value)
