"""A launch command as a user typed it, read back into canonical flags."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tuner.errors import InputError
from tuner.sglang.flags import Flag, Takes
from tuner.sglang.installation import Installation
from tuner.sglang.planning import PLACED, FlagValue
from tuner.space.configuration import Value

_ASSIGNMENT = re.compile(r"^(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)$", re.DOTALL)
_INTEGER = re.compile(r"^-?(?:0|[1-9]\d*)$")
_DECIMAL = re.compile(r"^-?\d*\.\d+$|^-?\d+\.$|^-?\d+(?:\.\d*)?[eE][-+]?\d+$")

_TEXT_FLAGS = ("_path", "_name", "revision", "_version", "_addr", "_key")
"""Ends of flags whose values are text even where they look like numbers (a revision `1.10`)."""


@dataclass(frozen=True)
class TypedCommand:
    """What a typed command sets: flags by canonical name, variables, and the words that start the server."""

    flags: dict[str, FlagValue] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


def read_command(words: tuple[str, ...] | list[str], installation: Installation) -> TypedCommand:
    """Read `VAR=1 python -m sglang.launch_server --model X --tp 8 …`, already split into words.

    The variables and the program in front may be missing. `--host` and `--port` are read and left out, as
    every server gets a place of its own. Numbers become numbers, switches true or false, several values a
    tuple.
    Raises `InputError` for a flag that the installed version does not know and for a word that is no flag.
    """
    variables: dict[str, str] = {}
    at = 1 if words and words[0] == "env" else 0
    while at < len(words) and (assigned := _ASSIGNMENT.match(words[at])) is not None:
        variables[assigned["name"]] = assigned["value"]
        at += 1
    begin = at
    own = installation.command
    if tuple(words[begin : begin + len(own)]) == own:
        at += len(own)  # It may have words with two dashes of its own, which are no flags of the server.
    # `python -m module` has a single dash; the server's flags have two.
    while at < len(words) and not words[at].startswith("--"):
        at += 1
    command, model = _split_model(tuple(words[begin:at]))
    flags: dict[str, FlagValue] = {"model_path": model} if model is not None else {}
    while at < len(words):
        at = _read_flag(words, at, flags, installation)
    return TypedCommand(
        {name: value for name, value in flags.items() if name not in PLACED}, variables, command
    )


def _split_model(front: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """`sglang serve MODEL` names the model without a flag."""
    if "serve" not in front[:-1]:
        return front, None
    after = front.index("serve") + 1
    if len(front) - after > 1:
        raise InputError(f"the word '{front[after + 1]}' of the launch command belongs to no flag")
    return front[:after], front[after]


def _read_flag(
    words: tuple[str, ...] | list[str], at: int, flags: dict[str, FlagValue], installation: Installation
) -> int:
    """Read the flag at `at` into `flags`; where the next one begins."""
    if not words[at].startswith("--"):
        raise InputError(f"the word '{words[at]}' of the launch command belongs to no flag")
    word, equals, attached = words[at].partition("=")
    flag, negated = installation.flags.read(word)
    if flag.takes is Takes.NONE:
        if equals:
            raise InputError(f"{word} is a switch and takes no value, but is set to '{attached}'")
        flags[flag.canonical] = not negated
        return at + 1
    values = [attached] if equals else []
    at += 1
    most = 1 if flag.takes is Takes.ONE else len(words)
    while not equals and at < len(words) and len(values) < most and not words[at].startswith("--"):
        values.append(words[at])
        at += 1
    if not values:
        raise InputError(f"{word} needs a value, and none follows it in the launch command")
    flags[flag.canonical] = _value(flag, values)
    return at


def _value(flag: Flag, values: list[str]) -> FlagValue:
    is_text = flag.canonical.endswith(_TEXT_FLAGS)
    typed = tuple(text if is_text else typed_value(text) for text in values)
    return typed if flag.takes is Takes.MANY else typed[0]


def typed_value(text: str) -> Value:
    """A word as the number that it spells, else as it is (`007` and `1_000` are words)."""
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _DECIMAL.match(text) else text
