"""The case files: `why`, `log`, perhaps `exit_code`, and `expected`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.document import read_document

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))


@dataclass(frozen=True)
class Case:
    """A log and what a diagnosis of it must say. `never` lists "param direction" pairs that would mislead."""

    log: str
    exit_code: int | None
    kind: str
    cause: str
    phase: str | None
    hints: list[dict[str, Any]]
    never: list[str]
    shortage_gib: float | None


def read_case(path: Path) -> Case:
    """One file of the folder."""
    data = read_document(path).plain()
    expected = data["expected"]
    return Case(
        log=data["log"],
        exit_code=data.get("exit_code"),
        kind=expected["kind"],
        cause=expected["cause"],
        phase=expected.get("phase"),
        hints=expected.get("hints", []),
        never=expected.get("never", []),
        shortage_gib=expected.get("shortage_gib"),
    )
