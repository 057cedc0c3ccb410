"""From what was chosen to what is launched, for the installed version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from tuner.errors import InputError, did_you_mean, nearest
from tuner.sglang.composites import (
    NEEDS_DRAFT_MODEL,
    OFF,
    SPECULATIVE,
    Unavailable,
    effect_of,
    is_built_in,
    sets_of,
)
from tuner.sglang.flags import Flag, Takes, canonical_name, names_of_all_versions
from tuner.sglang.installation import Installation
from tuner.sglang.plan import LaunchPlan
from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import AUTO, Boolean, Choice, Composite, Effect, Float, Integer, Parameter

FlagValue = Value | tuple[Value, ...]

PLACED = ("host", "port")
"""Flags that belong to a server's place, which the executor chooses."""

_TREE_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")


@dataclass(frozen=True)
class SpaceCheck:
    """What the installed version makes of a search space.

    `unavailable`: parameter → choice → why this version cannot do it; `absent`: the same of whole parameters.
    `notes` are worth telling the user.
    """

    unavailable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# --- before anything is launched -------------------------------------------------------------------------


def check_space(
    parameters: tuple[Parameter, ...],
    fixed_flags: Mapping[str, FlagValue],
    installation: Installation,
    *,
    fixed_variables: Mapping[str, str] | None = None,
) -> SpaceCheck:
    """Hold a space and the fixed flags against the installed version.

    A parameter whose flag SGLang has in other versions only is `absent`, and so is a choice that resembles
    none of those that are listed `unavailable`.
    Raises `InputError` for a flag that no version has, a fixed flag that this one lacks, a value that is
    misspelt or of the wrong kind, a flag or variable that is set twice (fixed and tuned, or by two
    parameters), flags of a server's place, and a composite of which no choice is available.
    """
    owners: dict[str, str] = {}
    notes: list[str] = []
    for name, value in fixed_flags.items():
        flag = _known(name, installation, f"the fixed flag {name}")
        _words(name, value, flag)
        _claim(owners, flag.canonical, "the fixed flags")
        if flag.deprecated:
            notes.append(f"{flag.names[0]} is deprecated: {flag.help}")
    for name in fixed_variables or {}:
        _claim(owners, name, "the fixed variables")

    unavailable: dict[str, dict[str, str]] = {}
    absent: dict[str, str] = {}
    for parameter in parameters:
        for owned in _sets(parameter, installation):
            _claim(owners, owned, f"the parameter {parameter.name}")
        if isinstance(parameter, Composite):
            lacking = _check_composite(parameter, installation)
        elif parameter.is_variable:
            continue
        elif _is_of_another_version(parameter.name, installation):
            absent[parameter.name] = f"{installation.shown()} has no flag for it"
            continue
        else:
            lacking = _check_flag(parameter, installation)
        if lacking:
            unavailable[parameter.name] = lacking
    notes += _speculation_notes(parameters, owners)
    return SpaceCheck(unavailable, absent, tuple(notes))


def _is_of_another_version(name: str, installation: Installation) -> bool:
    return installation.flags.flag(name) is None and canonical_name(name) in names_of_all_versions()


def _check_flag(parameter: Integer | Float | Choice | Boolean, installation: Installation) -> dict[str, str]:
    """The choices that this version's flag does not list, with the reason."""
    flag = _known(parameter.name, installation, f"the parameter {parameter.name}")
    lacking: dict[str, str] = {}
    if isinstance(parameter, Boolean):
        _words(parameter.name, True, flag)
    elif isinstance(parameter, Choice):
        for value in parameter.choices:
            if value == AUTO:
                continue
            if flag.choices and nearest(str(value), flag.choices) is None:
                lacking[str(value)] = f"{installation.shown()} lists no such choice of {flag.names[0]}"
            else:
                _words(parameter.name, value, flag)
    elif flag.takes is Takes.NONE:
        raise InputError(
            f"the parameter {parameter.name} is a range of numbers, but {flag.names[0]} is a switch",
            hint="make it a boolean",
        )
    elif flag.choices:
        for value in (parameter.low, parameter.high):
            _words(parameter.name, value, flag)
    return lacking


def _check_composite(parameter: Composite, installation: Installation) -> dict[str, str]:
    lacking: dict[str, str] = {}
    for choice in parameter.choices:
        if choice == AUTO:
            continue
        if choice in parameter.effects:
            for name, value in parameter.effects[choice].flags:
                if _is_of_another_version(name, installation):
                    lacking[choice] = f"{installation.shown()} has no flag for {name}"
                    break
                flag = _known(name, installation, f"{parameter.name}={choice}")
                _words(name, value, flag)
            continue
        effect = effect_of(parameter.name, choice, installation)
        if isinstance(effect, Unavailable):
            lacking[choice] = effect.reason
    if lacking and len(lacking) == len(parameter.choices):
        reasons = "; ".join(f"{choice}: {reason}" for choice, reason in lacking.items())
        raise InputError(
            f"no choice of the parameter {parameter.name} is available here: {reasons}",
            hint="remove the parameter from the search space, or install a version that has a choice",
        )
    return lacking


def _sets(parameter: Parameter, installation: Installation) -> list[str]:
    """The canonical flags and the variables that a parameter may set."""
    if not isinstance(parameter, Composite):
        return [parameter.name if parameter.is_variable else _canonical(parameter.name, installation)]
    owned = set(sets_of(parameter.name)) if is_built_in(parameter.name) else set()
    for effect in parameter.effects.values():
        owned |= {_canonical(name, installation) for name, _ in effect.flags} | {
            name for name, _ in effect.variables
        }
    return sorted(owned)


def _claim(owners: dict[str, str], name: str, owner: str) -> None:
    if name in PLACED:
        raise InputError(
            f"{owner} must not set {name}: every server gets a place of its own", hint=f"remove {name}"
        )
    if name in owners:
        raise InputError(
            f"{name} is set twice: by {owners[name]} and by {owner}",
            hint="a flag is either fixed or tuned, by one parameter; remove one of the two",
        )
    owners[name] = owner


def _speculation_notes(parameters: tuple[Parameter, ...], owners: Mapping[str, str]) -> list[str]:
    if "speculative_eagle_topk" in owners and "speculative_num_steps" not in owners:
        raise InputError(
            "speculative_eagle_topk is set without speculative_num_steps, which SGLang always refuses",
            hint="add speculative_num_steps",
        )
    tuned = next((p for p in parameters if isinstance(p, Composite) and p.name == SPECULATIVE), None)
    wanting = [choice for choice in tuned.choices if choice in NEEDS_DRAFT_MODEL] if tuned is not None else []
    if not wanting or "speculative_draft_model_path" in owners:
        return []
    return [
        f"{SPECULATIVE} may be {' or '.join(wanting)}, but no speculative_draft_model_path is given: only "
        "models that bring their own draft layers (DeepSeek, GLM) can start so"
    ]


# --- the plan --------------------------------------------------------------------------------------------


def plan_launch(
    *,
    command: tuple[str, ...],
    fixed_flags: Mapping[str, FlagValue],
    fixed_variables: Mapping[str, str],
    parameters: tuple[Parameter, ...],
    configuration: Configuration,
    installation: Installation,
) -> LaunchPlan:
    """What to start for a configuration, without a place yet. Pure.

    Fixed flags come first, then the parameters in their order. A parameter that the configuration lacks, and
    the value `auto`, set nothing. Without a speculative algorithm all other `speculative_…` flags are left
    out. With one that drafts token by token and `speculative_num_steps` set, SGLang needs the other two
    numbers: the top-k is filled in as 1, and with top-k 1 the draft tokens are steps + 1, which SGLang
    enforces anyway.

    Raises `InputError` where the installed version cannot do it; `check_space` finds all of that beforehand.
    """
    flags: dict[str, FlagValue] = {}
    variables = dict(fixed_variables)
    for name, value in fixed_flags.items():
        _set(flags, name, value, installation)
    for parameter in parameters:
        chosen = configuration.get(parameter.name, AUTO)
        if chosen == AUTO:
            continue
        if isinstance(parameter, Composite):
            effect = _effect(parameter, str(chosen), installation)
            for name, setting in effect.flags:
                _set(flags, name, setting, installation)
            variables.update(effect.variables)
        elif parameter.is_variable:
            variables[parameter.name] = _variable_text(chosen)
        else:
            _set(flags, parameter.name, chosen, installation)
    _complete_speculation(flags, installation)
    rendered: list[tuple[str, tuple[str, ...]]] = []
    for name, value in flags.items():
        rendered += _words(name, value, _known(name, installation, name))
    return LaunchPlan(command, tuple(rendered), tuple(variables.items()))


def _effect(parameter: Composite, choice: str, installation: Installation) -> Effect:
    if choice in parameter.effects:
        return parameter.effects[choice]
    effect = effect_of(parameter.name, choice, installation)
    if isinstance(effect, Unavailable):
        raise InputError(f"{parameter.name}={choice} cannot be launched: {effect.reason}")
    return effect


def _set(flags: dict[str, FlagValue], name: str, value: FlagValue, installation: Installation) -> None:
    canonical = _canonical(name, installation)
    if canonical in PLACED:
        raise InputError(f"{canonical} cannot be set: every server gets a place of its own")
    flags[canonical] = value


def _complete_speculation(flags: dict[str, FlagValue], installation: Installation) -> None:
    algorithm = str(flags.get("speculative_algorithm", OFF)).upper()
    if algorithm == OFF.upper():
        for name in [name for name in flags if name.startswith("speculative_")]:
            del flags[name]
        return
    steps = flags.get("speculative_num_steps")
    if algorithm not in _TREE_ALGORITHMS or isinstance(steps, (tuple, str)) or steps is None:
        return
    completed = {**flags}
    if completed.setdefault("speculative_eagle_topk", 1) in (1, "1"):
        completed["speculative_num_draft_tokens"] = int(steps) + 1
    # A stand-in for SGLang may do without the numbers that follow from the steps.
    flags.update(
        {name: value for name, value in completed.items() if installation.flags.flag(name) is not None}
    )


# --- words -----------------------------------------------------------------------------------------------


def _canonical(name: str, installation: Installation) -> str:
    flag = installation.flags.flag(name)
    return flag.canonical if flag is not None else canonical_name(name)


def _known(name: str, installation: Installation, what: str) -> Flag:
    flag = installation.flags.flag(name)
    if flag is None:
        raise InputError(
            f"{what}: {installation.shown()} has no flag for it",
            hint=_nearest_only(canonical_name(name), installation.flags.canonical_names),
        )
    return flag


def _nearest_only(name: str, known: Iterable[str]) -> str:
    """Like `did_you_mean` without listing hundreds of names where none is close."""
    match = nearest(name, known)
    return (
        f"did you mean '{match}'?"
        if match is not None
        else "see `--help` of the installed version for its flags"
    )


def _words(name: str, value: FlagValue, flag: Flag) -> list[tuple[str, tuple[str, ...]]]:
    """A flag and its value as words: nothing at all for a switch that is off."""
    word = next((spelled for spelled in flag.names if spelled == _hyphened(name)), flag.names[0])
    if isinstance(value, bool):
        if flag.takes is not Takes.NONE:
            raise InputError(f"{word} takes a value, and {str(value).lower()} is none: it is no switch")
        if value:
            return [(word, ())]
        return [(flag.negation, ())] if flag.negation is not None else []
    if flag.takes is Takes.NONE:
        raise InputError(
            f"{word} is a switch and takes no value, but is set to {value!r}", hint="use true or false"
        )
    texts = _texts(value, flag)
    for text in texts:
        if text.startswith("-") and not _is_negative_number(text):
            raise InputError(f"{word}: a value that begins with a dash would be taken for a flag: {text!r}")
        if flag.choices and text not in flag.choices:
            raise InputError(f"{word} cannot be {text!r}", hint=did_you_mean(text, flag.choices))
    return [(word, texts)]


def _texts(value: FlagValue, flag: Flag) -> tuple[str, ...]:
    if isinstance(value, tuple):
        if flag.takes is not Takes.MANY and len(value) != 1:
            raise InputError(f"{flag.names[0]} takes one value, but is set to {len(value)}")
        return tuple(number_text(item) for item in value)
    if isinstance(value, str) and flag.takes is Takes.MANY:
        # A configuration holds single values; a list among its choices is written "1 2 4 8".
        return tuple(value.split())
    return (number_text(value),)


def number_text(value: Value) -> str:
    """A value as a word: 0.88, never 0.8800000000000001, and without exponent, which argparse can misread."""
    if not isinstance(value, float):
        return str(value)
    text = format(Decimal(f"{value:.12g}"), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _variable_text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else number_text(value)


def _is_negative_number(text: str) -> bool:
    digits = text[1:].replace(".", "", 1)
    return digits.isdigit()


def _hyphened(name: str) -> str:
    return "--" + name.lstrip("-").replace("_", "-")
