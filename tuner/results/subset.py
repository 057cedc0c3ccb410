"""A launch with some parameters left out, made of what was launched with them: no server is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.errors import InputError
from tuner.sglang.composites import ALL_REDUCE, SPECULATIVE, is_built_in, sets_of
from tuner.sglang.flags import canonical_name
from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import AUTO, Composite, Parameter

_SETS_NOTHING: Mapping[str, tuple[Value, ...]] = {ALL_REDUCE: (AUTO, "custom"), SPECULATIVE: (AUTO, "off")}
"""The choices of built-in composites that leave everything to the engine."""
_DRAFT_NUMBERS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
"""One of them follows from the others."""


def launch_without(
    launch: Mapping[str, Any], parameters: Sequence[Parameter], smaller: Configuration
) -> dict[str, Any]:
    """A record's `launch` with these parameters set as in `smaller`, where they are unsaid.

    Only the parts that a server is started from are changed: `config`, `config_left_out` and `variables`.
    Raises `InputError` for a parameter of which the record does not show what it set.
    """
    changed = {
        **launch,
        "config": dict(launch["config"]),
        "config_left_out": list(launch["config_left_out"]),
        "variables": dict(launch.get("variables", {})),
    }
    for parameter in parameters:
        _leave_out(changed, parameter, smaller.get(parameter.name, AUTO))
    return changed


def _leave_out(launch: dict[str, Any], parameter: Parameter, unsaid: Value) -> None:
    names = _sets(parameter, unsaid)
    keys = [key for key in launch["config"] if _belongs(key, names)]
    words = [item for item in launch["config_left_out"] if _belongs(item["words"][0], names)]
    variables = [name for name in launch["variables"] if name in names]
    found = len(keys) + len(words) + len(variables)
    plain = not isinstance(parameter, Composite)
    if (plain and found != 1) or (words and unsaid not in (AUTO, False)):
        raise _cannot(parameter)
    for name in variables:
        launch["variables"][name] = str(unsaid)
        if unsaid == AUTO or not plain:
            del launch["variables"][name]
    if parameter.name in _DRAFT_NUMBERS:
        _count_drafts(launch["config"], parameter, unsaid)
    for key in keys:
        launch["config"][key] = unsaid
        if unsaid in (AUTO, False) or not plain:
            del launch["config"][key]
    launch["config_left_out"] = [item for item in launch["config_left_out"] if item not in words]


def _count_drafts(config: dict[str, Any], parameter: Parameter, unsaid: Value) -> None:
    """With top-k 1 the draft tokens are steps + 1, as when a launch is planned; else nobody can tell."""
    alone = parameter.name == "speculative_num_steps" and config.get("speculative-eagle-topk") == 1
    if not alone or not isinstance(unsaid, int):
        raise _cannot(parameter)
    config["speculative-num-draft-tokens"] = unsaid + 1


def _sets(parameter: Parameter, unsaid: Value) -> set[str]:
    """The canonical flags and the variables that a parameter may have set."""
    if not isinstance(parameter, Composite):
        return {parameter.name}
    if unsaid not in _SETS_NOTHING.get(parameter.name, (AUTO,)):
        raise _cannot(parameter)
    names = set(sets_of(parameter.name)) if is_built_in(parameter.name) else set()
    for effect in parameter.effects.values():
        names |= {name for name, _ in (*effect.flags, *effect.variables)}
    return names | {"speculative_*"} if parameter.name == SPECULATIVE else names


def _belongs(word: str, names: set[str]) -> bool:
    name = canonical_name(word.lstrip("-").replace("-", "_"))
    return name in names or ("speculative_*" in names and name.startswith("speculative_"))


def _cannot(parameter: Parameter) -> InputError:
    return InputError(
        f"what leaving out '{parameter.name}' does to the launch cannot be told from its record",
        hint="have it launched: run `python -m tuner optimize` for the study again with --explain 1",
    )
