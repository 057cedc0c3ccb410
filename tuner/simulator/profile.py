"""Reading a box profile. Every key is checked; an unknown or missing one is named with its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from tuner.document import Node, read_document
from tuner.errors import InputError, did_you_mean
from tuner.simulator.box import (
    AllReduce,
    Attention,
    Box,
    Draft,
    Experts,
    Gpus,
    Memory,
    Model,
    Noise,
    Prefill,
    Rule,
    Startup,
    Step,
    Table,
    Warmup,
)
from tuner.simulator.release import NEWEST, OLDEST, Release

PROFILES = Path(__file__).parent / "profiles"
PHASES = ("distributed-init", "weight-load", "kv-cache-alloc", "graph-capture", "serving")
EFFECTS = ("warning", "death", "hang", "garbled")

_Kind = TypeVar("_Kind")


def shipped_boxes() -> tuple[str, ...]:
    """The names of the profiles that come with the program."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.yaml")))


def read_box(name_or_path: str) -> Box:
    """The box of a shipped name, or of a profile file.

    Raises `InputError` for an unknown name and for anything wrong in the file.
    """
    if name_or_path in shipped_boxes():
        return _box(read_document(PROFILES / f"{name_or_path}.yaml"))
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return _box(read_document(path))
    raise InputError(
        f"there is no box named '{name_or_path}'",
        hint=f"{did_you_mean(name_or_path, shipped_boxes())} (or give the path of a profile)",
    )


def _box(root: Node) -> Box:
    optional = {"draft", "experts", "all_reduce", "rules"}
    known = tuple(field.name for field in fields(Box))
    keys = root.mapping(known=known, required=tuple(name for name in known if name not in optional))
    rules = keys["rules"].sequence() if "rules" in keys else []
    return Box(
        name=keys["name"].text(),
        sglang_version=_release(keys["sglang_version"]),
        seed=keys["seed"].integer(),
        time_scale=keys["time_scale"].number(least=0.001),
        gpus=_record(Gpus, keys["gpus"]),
        model=_record(Model, keys["model"]),
        draft=_record(Draft, keys["draft"]) if "draft" in keys else None,
        step=_record(Step, keys["step"]),
        experts=_record(Experts, keys["experts"]) if "experts" in keys else None,
        all_reduce=_record(AllReduce, keys["all_reduce"]) if "all_reduce" in keys else None,
        attention=_record(Attention, keys["attention"]),
        prefill=_record(Prefill, keys["prefill"]),
        memory=_record(Memory, keys["memory"]),
        startup=_record(Startup, keys["startup"]),
        warmup=_record(Warmup, keys["warmup"]),
        noise=_record(Noise, keys["noise"]),
        rules=tuple(_rule(node) for node in rules),
    )


def _release(node: Node) -> Release:
    release = Release.parse(node.text())
    if release is None:
        raise node.refuse(f"release '{node.value}' is not modelled", hint=f"0.5.{OLDEST} to 0.5.{NEWEST} are")
    return release


def _rule(node: Node) -> Rule:
    rule = _record(Rule, node)
    keys = node.mapping()
    keys["phase"].text(one_of=PHASES)
    keys["effect"].text(one_of=EFFECTS)
    if bool(rule.flag) == bool(rule.variable):
        raise node.refuse("a rule needs either 'flag' or 'variable'")
    if bool(rule.values) == (rule.above is not None):
        raise node.refuse("a rule needs either 'values' or 'above'")
    if not rule.text and rule.effect in ("warning", "death"):
        raise node.refuse("the key 'text' is missing", hint="what the server prints")
    return rule


def _record(kind: type[_Kind], node: Node) -> _Kind:
    members = fields(kind)  # type: ignore[arg-type]
    keys = node.mapping(
        known=tuple(member.name for member in members),
        required=tuple(member.name for member in members if member.default is MISSING),
    )
    values = {
        member.name: _READERS[str(member.type)](keys[member.name])
        for member in members
        if member.name in keys
    }
    return kind(**values)


def _table(node: Node) -> Table:
    points = []
    for key, value in node.items():
        try:
            points.append((float(key), value.number()))
        except ValueError:
            raise value.refuse(f"the key '{key}' must be a number") from None
    if points != sorted(points):
        raise node.refuse("the keys must rise")
    return tuple(points)


def _span(node: Node) -> tuple[float, float]:
    ends = [item.number(least=0) for item in node.sequence()]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise node.refuse("expected two numbers, the smaller first")
    return ends[0], ends[1]


def _words(node: Node) -> tuple[str, ...]:
    words = (item.scalar() for item in node.sequence())
    return tuple(str(word).lower() if isinstance(word, bool) else str(word) for word in words)


_READERS: dict[str, Callable[[Node], Any]] = {
    "str": lambda node: node.text(),
    "int": lambda node: node.integer(least=0),
    "float": lambda node: node.number(least=0),
    "bool": lambda node: node.boolean(),
    "float | None": lambda node: node.number(),
    "Table": _table,
    "tuple[str, ...]": _words,
    "tuple[float, ...]": lambda node: tuple(item.number(least=0) for item in node.sequence()),
    "tuple[float, float]": _span,
    "tuple[tuple[str, float], ...]": lambda node: tuple(
        (key, value.number(least=0)) for key, value in node.items()
    ),
}
