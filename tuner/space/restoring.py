"""A search space read back from what makes its identity, as a study's folder keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.document import Node
from tuner.space.reading import parse_space
from tuner.space.space import SearchSpace

_NO_PROSE = "so the study's search space says"
"""In place of a rule's reason, which is no part of the identity."""


def restored_space(content: Mapping[str, Any], name: str, file: str) -> SearchSpace:
    """The space of which `SearchSpace.canonical` gave this content; prose is left out.

    `file` is named in complaints. Raises `InputError` where the content is none that a space ever gave.
    """
    parameters = {
        parameter: _parameter(kept) if isinstance(kept, Mapping) else kept
        for parameter, kept in _mapping(content.get("parameters")).items()
    }
    rules = [{"forbid": text, "because": _NO_PROSE} for text in content.get("rules", ())]
    known_good = [
        {"name": known, "values": values} for known, values in _mapping(content.get("known_good")).items()
    ]
    written = {"parameters": parameters, "rules": rules, "known_good": known_good}
    return parse_space(_node(written, file, ""), name)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _parameter(kept: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter as it is written: without what is not stated, a composite's effects with its choices."""
    written = {key: value for key, value in kept.items() if value is not None and key != "effects"}
    if kept.get("log"):
        written.pop("step", None)
    effects = kept.get("effects")
    if effects:
        written["choices"] = {choice: effects.get(choice) for choice in kept.get("choices", ())}
    return written


def _node(value: Any, file: str, path: str) -> Node:
    if isinstance(value, Mapping):
        inside = {key: _node(child, file, f"{path}.{key}".lstrip(".")) for key, child in value.items()}
        return Node(inside, file, path)
    if isinstance(value, (list, tuple)):
        return Node([_node(child, file, f"{path}[{at}]") for at, child in enumerate(value)], file, path)
    return Node(value, file, path)
