"""TrialRecord: everything of one trial; the one thing that is saved, shown and exported."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.space.configuration import Value

RECORD_VERSION = 1
RECORD_FILE = "record.json"

# The states of a trial, in Optuna's words where Optuna has one.
RUNNING = "running"
COMPLETE = "complete"
PRUNED = "pruned"
FAILED = "failed"
LOOKED = "looked"
"""By a launch that is less than a full one (`fidelity`): measured or died, and without a score."""

LOOK = "look"
"""The role of a look."""
EXPLAIN = "explain"
"""The role of a launch that explains the best after the search. It is no candidate for the best itself."""


@dataclass(frozen=True)
class TrialRecord:
    """One trial, JSON-able, written as the trial goes.

    `role`: baseline, known-good, search, repair, repeat, confirm, explain or look. `state`: running,
    complete, pruned, failed or looked. `scores` has a number for each goal of the objective, `score` is the
    first; `gain` is how much better that is than the study's reference (0.09 is 9 % better, whatever the
    direction). `repair_of` and `repeat_of` are trials, `same_as` an earlier one that ran as the same server.
    `infeasible` names the capacities that are too small and the limits that are exceeded, `excesses` by how
    much, relatively. `attempts` are the failures of earlier launches of this trial. `accept_length` is the
    tokens of a step with speculation, the geometric mean over the scored levels, where the first score counts
    tokens. A look says its `fidelity` and what it is `blind_to`; `looked` is what it measured for each goal,
    comparable with other looks alone. Times are seconds; `started` is ISO 8601 in UTC.
    """

    trial: int
    study: str
    label: str
    role: str
    state: str
    started: str
    configuration: dict[str, Value]
    fingerprint: str
    source: str = ""
    repeat_of: int | None = None
    repair_of: int | None = None
    same_as: int | None = None
    objective: str = ""
    unit: str = ""
    direction: str = "maximize"
    score: float | None = None
    scores: tuple[float, ...] = ()
    gain: float | None = None
    reference: str = ""
    infeasible: tuple[str, ...] = ()
    excesses: dict[str, float] = field(default_factory=dict)
    launch: dict[str, Any] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()
    phases: tuple[dict[str, Any], ...] = ()
    ready_s: float | None = None
    took_s: float | None = None
    levels: tuple[dict[str, Any], ...] = ()
    server: dict[str, Any] = field(default_factory=dict)
    fallbacks: tuple[dict[str, Any], ...] = ()
    output: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] | None = None
    attempts: tuple[dict[str, Any], ...] = ()
    accept_length: float | None = None
    fidelity: str = ""
    blind_to: tuple[str, ...] = ()
    looked: tuple[float, ...] = ()
    leftovers: tuple[str, ...] = ()
    tuner_version: str = ""
    version: int = RECORD_VERSION

    def to_json(self) -> dict[str, Any]:
        """The fields; tuples as lists."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str = "record") -> TrialRecord:
        """The inverse of `to_json`. Raises `TunerError` for a record of another version."""
        version = data.get("version")
        if version != RECORD_VERSION:
            raise TunerError(
                f"{where}: a record of version {version}, this program reads version {RECORD_VERSION}",
                hint="use the version of tuner that wrote it, or move the study's folder away",
            )
        known = {item.name for item in fields(cls)}
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in data.items()
            if key in known
        }
        return cls(**values)


def shown_fallback(fallback: dict[str, Any]) -> str:
    """`all_reduce: asked for custom, runs nccl`."""
    asked = fallback["asked"] if fallback["asked"] is not None else "its default"
    return f"{fallback['param']}: asked for {asked}, runs {fallback['runs']}"


def write_record(record: TrialRecord, folder: Path) -> Path:
    """Write `record.json`, replacing the old one in one step so that a reader never sees half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD_FILE
    scratch = folder / f".{RECORD_FILE}.new"
    scratch.write_text(json.dumps(record.to_json(), indent=1) + "\n", encoding="utf-8")
    scratch.replace(path)
    return path


def read_record(folder: Path) -> TrialRecord:
    """Read a trial folder's record. Raises `TunerError` where there is none that can be read."""
    path = folder / RECORD_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TunerError(f"{path}: cannot be read: {error}") from None
    return TrialRecord.from_json(data, str(path))


def read_records(study_folder: Path) -> list[TrialRecord]:
    """All records of a study, by trial number."""
    folders = sorted(path.parent for path in study_folder.glob(f"trial-*/{RECORD_FILE}"))
    return sorted((read_record(folder) for folder in folders), key=lambda record: record.trial)


def trial_folder(study_folder: Path, trial: int) -> Path:
    """Where a trial leaves its files."""
    return study_folder / f"trial-{trial:04d}"


def shown_score(record: TrialRecord) -> str:
    """The score with its unit, as people see it."""
    return f"{record.score:.2f} {record.unit}".rstrip() if record.score is not None else record.state
