"""The launch flags of each SGLang release, read from `flags.tsv`, and a parser that behaves like SGLang's.

The table holds names, types, defaults and choices as the parsers of 0.5.12, 0.5.14, 0.5.19 and 0.5.23 state
them. Like SGLang's, the parser takes abbreviations, so a flag that was split in two becomes ambiguous.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.simulator.release import Release

_TABLE = Path(__file__).parent / "flags.tsv"
_REMOVED = "tc_piecewise was removed; select breakable, full, or disabled"


@dataclass(frozen=True)
class Flag:
    """One launch flag of one release.

    `kind`: value, switch, on-off, deprecated, deprecated-switch, deprecated-value or deprecated-constant.
    """

    kind: str
    options: tuple[str, ...]
    destination: str
    type_name: str
    values: str | None
    default: Any
    required: bool
    choices: tuple[str, ...]


class DeprecatedOption(argparse.Action):
    """A flag that still works but warns; SGLang refuses it in a `--config` file."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store the value (or True for a switch) and remember the flag for its warning."""
        del parser
        namespace.deprecated_options = [*getattr(namespace, "deprecated_options", []), option_string]
        if self.nargs == 0:
            setattr(namespace, self.dest, True)
        else:
            setattr(namespace, self.dest, values)


def flags_of(release: Release) -> tuple[Flag, ...]:
    """The flags that `release` has, in the order in which its help lists them."""
    flags = []
    for line in _TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        first, last, kind, options, destination, type_name, values, default, choices = line.split("\t")
        if int(first) <= release.number <= int(last):
            required = default == "required"
            flags.append(
                Flag(
                    kind=kind,
                    options=tuple(options.split(",")),
                    destination=destination,
                    type_name=type_name,
                    values=None if values == "-" else values,
                    default=None if required else json.loads(default),
                    required=required,
                    choices=() if choices == "-" else tuple(choices.split(",")),
                )
            )
    return tuple(flags)


def build_parser(release: Release) -> argparse.ArgumentParser:
    """SGLang's argument parser of that release, without the help texts."""
    parser = argparse.ArgumentParser(prog="sglang serve")
    for flag in flags_of(release):
        _add(parser, flag)
    return parser


def parse_count(text: str) -> int:
    """A whole number with an optional suffix: `4k` is 4000, `4Ki` is 4096 (0.5.14+). Raises ValueError."""
    match = re.fullmatch(r"([+-]?\d+(?:\.\d+)?)\s*([kKmMgG]?)(i?)", text.strip())
    if match is None or (match.group(3) and not match.group(2)):
        raise ValueError(text)
    scale = (1024 if match.group(3) else 1000) ** " kmg".index(match.group(2).lower() or " ")
    return int(float(match.group(1)) * scale) if match.group(2) else int(match.group(1))


def _graph_backend(text: str) -> str:
    if text == "tc_piecewise":
        raise argparse.ArgumentTypeError(_REMOVED)
    return text


_TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "count": parse_count, "json": json.loads}


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    common: dict[str, Any] = {"dest": flag.destination, "default": flag.default}
    if flag.kind == "switch":
        parser.add_argument(*flag.options, action="store_true", **common)
        return
    if flag.kind == "on-off":
        parser.add_argument(*flag.options, action=argparse.BooleanOptionalAction, **common)
        return
    if flag.kind in ("deprecated", "deprecated-switch", "deprecated-constant"):
        parser.add_argument(*flag.options, action=DeprecatedOption, nargs=0, **common)
        return
    kind = _TYPES[flag.type_name]
    if flag.destination.startswith("cuda_graph_backend_") and "tc_piecewise" not in flag.choices:
        kind = _graph_backend
    common["type"] = kind
    if flag.values is not None:
        common["nargs"] = int(flag.values) if flag.values.isdigit() else flag.values
    if flag.choices:
        common["choices"] = [kind(choice) for choice in flag.choices]
    if flag.kind == "deprecated-value":
        common["action"] = DeprecatedOption
    parser.add_argument(*flag.options, required=flag.required, **common)
