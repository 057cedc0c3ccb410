"""What was chosen: the values of one trial's parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

Value = int | float | str | bool


class Configuration(Mapping[str, Value]):
    """Parameter name → value; hashable, and the same whatever the order of its names.

    A parameter that is absent leaves its flag or variable out of the launch (`auto`), whether it was
    chosen so or does not apply (`speculative_num_steps` where `speculative` is off).
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value] | None = None) -> None:
        self._values: dict[str, Value] = dict(sorted((values or {}).items()))

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.fingerprint == other.fingerprint

    def __repr__(self) -> str:
        return f"Configuration({self.shown()})"

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that two configurations share exactly when they are the same."""
        canonical = json.dumps([[name, _canonical(value)] for name, value in self._values.items()])
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def shown(self) -> str:
        """One line for people: `cuda_graph_max_bs=128 speculative=off`."""
        words = [f"{name}={_shown(value)}" for name, value in self._values.items()]
        return " ".join(words) or "(engine defaults)"

    def to_json(self) -> dict[str, Value]:
        """The plain values, by name."""
        return dict(self._values)


def _canonical(value: Value) -> Value:
    if isinstance(value, (bool, str)):
        return value
    rounded = round(float(value), 9)
    return int(rounded) if rounded.is_integer() else rounded


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
