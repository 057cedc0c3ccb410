"""SGLang's `--config FILE.yaml`, with its strictness.

Keys are emitted as `--key` as they stand (so underscores are unknown options), `null` becomes the word None,
and keys whose flag is neither a plain value nor a plain switch are refused. Only the two-word form counts:
`--config=FILE` is accepted and ignored. Options of the command line come after those of the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tuner.document import parse_document
from tuner.errors import InputError
from tuner.simulator.flags import DeprecatedOption


class ConfigFileError(Exception):
    """What SGLang raises as a ValueError for a file it cannot use."""


def merge_config_file(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """`words` with the options of the `--config` file put in front of them.

    Raises `ConfigFileError` with SGLang's text where SGLang would raise.
    """
    places = [index for index, word in enumerate(words) if word == "--config"]
    if not places:
        return words
    if len(places) > 1:
        raise ConfigFileError("Multiple config files specified! Only one allowed.")
    place = places[0]
    if place == len(words) - 1:
        raise ConfigFileError("No config file specified after --config flag!")
    path = Path(words[place + 1])
    return [*_options(_read(path), parser), *words[:place], *words[place + 2 :]]


def _read(path: Path) -> dict[str, Any]:
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise ConfigFileError(f"Config file must be YAML format, got: {path.suffix}")
    if not path.exists():
        raise ConfigFileError(f"Config file not found: {path}")
    text = path.read_text(encoding="utf-8")
    try:
        data: dict[str, Any] = parse_document(text, str(path)).plain()
    except InputError as error:
        if "top level" in error.message:
            raise ConfigFileError("Config file must contain a dictionary at root level") from None
        raise ConfigFileError(error.message) from None
    return data


def _options(data: dict[str, Any], parser: argparse.ArgumentParser) -> list[str]:
    plain = (argparse._StoreAction, argparse._StoreTrueAction, argparse._HelpAction)
    refused = {action.dest: action for action in parser._actions if not isinstance(action, plain)}
    switches = {action.dest for action in parser._actions if isinstance(action, argparse._StoreTrueAction)}
    words: list[str] = []
    for key, value in data.items():
        destination = key.replace("-", "_")
        if destination in refused:
            name = _action_name(refused[destination])
            raise ConfigFileError(f"Unsupported config option '{destination}' with action '{name}'")
        option = f"--{key}"
        if isinstance(value, bool) or (destination in switches and value in ("yes", "on", "no", "off")):
            # YAML 1.1, which SGLang reads, takes these words for booleans.
            on = value in (True, "yes", "on")
            if destination in switches:
                words += [option] if on else []
            else:
                words += [option, str(on).lower()]
        elif isinstance(value, list):
            words += [option, *(str(item) for item in value)] if value else []
        elif isinstance(value, dict):
            words += [option, json.dumps(value)]
        else:
            words += [option, str(value)]
    return words


def _action_name(action: argparse.Action) -> str:
    """The name of the action's class in SGLang."""
    if isinstance(action, DeprecatedOption):
        return "DeprecatedStoreTrueAction" if action.nargs == 0 else "DeprecatedAliasStoreAction"
    return type(action).__name__
