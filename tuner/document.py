"""YAML files read so that every complaint names the file, the key and the line.

A `Node` is a value together with where it stands. Readers of search spaces, studies and box profiles
ask a node for what they expect (`integer`, `text`, `mapping` …) and get an `InputError` that says what
is wrong and where when it is something else. This is the only module that reads YAML.

Unlike YAML 1.1, only `true` and `false` are booleans (`off` is a word: a choice of `speculative`), `1e-5`
is a number, and `12:30`, `010` and `1_000` are words and no numbers in disguise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tuner.errors import InputError, did_you_mean


class _Loader(yaml.SafeLoader):
    """SafeLoader that takes a plain word for a value of `_PLAIN_TYPES` and for text otherwise."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper that puts text in quotes where readers of YAML 1.1 or `_Loader` would take it for more."""


_PLAIN_TYPES = {
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)", [*"-+0123456789"]),
    "float": (
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        [*"-+0123456789."],
    ),
    "null": (r"~|null|Null|NULL|", [*"~nN", ""]),
}
"""The pattern of each kind of word that is no text, and the letters it can begin with."""

_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _PLAIN_TYPES.items():
    for _user in (_Loader, _Dumper):
        _user.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Unquoted, line separators other than \n are folded away on reading.
    style = '"' if any(letter in text for letter in "\x85\u2028\u2029\ufeff") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


@dataclass(frozen=True)
class Node:
    """A value of a YAML file and where it stands.

    `value` is a scalar, a list of nodes or a dict of nodes; `path` is the key path shown in messages.
    """

    value: Any
    file: str
    path: str = ""
    line: int = 0

    def refuse(self, what: str, *, hint: str = "") -> InputError:
        """The error to raise when this value cannot be used: file, line, key path, what, hint."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        key = f": {self.path}" if self.path else ""
        return InputError(f"{where}{key}: {what}", hint=hint)

    # --- containers ---------------------------------------------------------------------------------

    def mapping(
        self, *, known: tuple[str, ...] | None = None, required: tuple[str, ...] = ()
    ) -> dict[str, Node]:
        """The keys and their nodes; refuses unknown keys (nearest spelling named) and missing ones."""
        if not isinstance(self.value, dict):
            raise self.refuse(f"expected keys and values, got {self._shown()}")
        if known is not None:
            for key, node in self.value.items():
                if key not in known:
                    raise node.refuse("unknown key", hint=did_you_mean(key, known))
        for key in required:
            if key not in self.value:
                raise self.refuse(f"the key '{key}' is missing")
        return self.value

    def sequence(self, *, least: int = 0) -> list[Node]:
        """The items in order; refuses anything but a list with at least `least` items."""
        if not isinstance(self.value, list):
            raise self.refuse(f"expected a list, got {self._shown()}")
        if len(self.value) < least:
            items = "item" if least == 1 else "items"
            raise self.refuse(f"expected at least {least} {items}, got {len(self.value)}")
        return self.value

    def items(self) -> Iterator[tuple[str, Node]]:
        """The keys of a mapping and their nodes, whatever the keys are."""
        return iter(self.mapping().items())

    # --- scalars ------------------------------------------------------------------------------------

    def text(self, *, one_of: tuple[str, ...] | None = None) -> str:
        """A non-empty string, one of `one_of` where that is given."""
        if not isinstance(self.value, str):
            quotable = self.is_scalar() and not self.is_null()
            raise self.refuse(
                f"expected text, got {self._shown()}", hint="put it in quotes" if quotable else ""
            )
        if not self.value.strip():
            raise self.refuse("must not be empty")
        if one_of is not None and self.value not in one_of:
            raise self.refuse(f"'{self.value}' is not possible here", hint=did_you_mean(self.value, one_of))
        return self.value

    def boolean(self) -> bool:
        """`true` or `false`."""
        if not isinstance(self.value, bool):
            raise self.refuse(f"expected true or false, got {self._shown()}")
        return self.value

    def integer(self, *, least: int | None = None, most: int | None = None) -> int:
        """A whole number within the bounds."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.refuse(f"expected a whole number, got {self._shown()}")
        self._check_bounds(self.value, least, most)
        return self.value

    def number(self, *, least: float | None = None, most: float | None = None) -> float:
        """A finite number within the bounds."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.refuse(f"expected a number, got {self._shown()}")
        if self.value != self.value or self.value in (float("inf"), float("-inf")):
            raise self.refuse(f"expected a finite number, got {self._shown()}")
        self._check_bounds(self.value, least, most)
        return float(self.value)

    def scalar(self) -> str | int | float | bool:
        """Any single value but null."""
        if self.value is None or not self.is_scalar():
            raise self.refuse(f"expected a single value, got {self._shown()}")
        value: str | int | float | bool = self.value
        return value

    def is_scalar(self) -> bool:
        """Whether this is a single value and neither a list nor a mapping."""
        return not isinstance(self.value, (list, dict))

    def is_null(self) -> bool:
        """Whether nothing stands here."""
        return self.value is None

    def plain(self) -> Any:
        """The value without positions: scalars, lists and dicts."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def _check_bounds(self, value: float, least: float | None, most: float | None) -> None:
        if least is not None and value < least:
            raise self.refuse(f"{value} is below the least possible, {least}")
        if most is not None and value > most:
            raise self.refuse(f"{value} is above the most possible, {most}")

    def _shown(self) -> str:
        if self.value is None:
            return "nothing"
        if isinstance(self.value, dict):
            return "keys and values"
        if isinstance(self.value, list):
            return "a list"
        return f"{type(self.value).__name__} {self.value!r}"


def read_document(path: Path) -> Node:
    """Read a YAML file whose root is a mapping.

    Raises `InputError` for a file that cannot be read, is no YAML, holds more than one document, repeats a
    key, or whose root is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return parse_document(text, str(path))


def parse_document(text: str, file: str) -> Node:
    """Like `read_document`, for a text that is already there; `file` is the name used in messages."""
    try:
        root = yaml.compose(text, Loader=_Loader)
        node = Node({}, file) if root is None else _build(root, file, "")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{file}:{mark.line + 1}" if mark is not None else file
        raise InputError(f"{where}: this is not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: this is not valid YAML: {error}") from None
    if not isinstance(node.value, dict):
        raise node.refuse("the file must hold keys and values at its top level")
    return node


def write_document(data: Any) -> str:
    """`data` (scalars, lists, dicts) as YAML text in the given order of keys."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100
    )
    return text


def _build(node: yaml.Node, file: str, path: str) -> Node:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return Node(_build_mapping(node, file, path), file, path, line)
    if isinstance(node, yaml.SequenceNode):
        items = [_build(item, file, f"{path}[{index}]") for index, item in enumerate(node.value)]
        return Node(items, file, path, line)
    loader = _Loader("")
    try:
        value = loader.construct_object(node)
    finally:
        loader.dispose()
    if value is not None and not isinstance(value, (str, int, float, bool)):
        raise Node(value, file, path, line).refuse(f"a value of the kind {node.tag} has no use here")
    return Node(value, file, path, line)


def _build_mapping(node: yaml.MappingNode, file: str, path: str) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise Node(None, file, path or "top level", line).refuse("a key must be a single word")
        key = key_node.value
        child_path = f"{path}.{key}" if path else key
        child = replace(_build(value_node, file, child_path), line=line)
        if key in found:
            raise child.refuse(
                f"this key stands here twice (first on line {found[key].line})", hint="remove one of the two"
            )
        found[key] = child
    return found
