"""Where the records of a study are kept: in its folder, or in memory for studies in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tuner.results.export import Verdict, write_exports
from tuner.results.record import TrialRecord, read_records, trial_folder
from tuner.results.recorder import FolderRecorder, Recorder
from tuner.results.standings import Expected, standings

VERDICT_FILE = "verdict.json"
EXPECTED_FILE = "expected.json"


class TrialLog(Protocol):
    """Keeps the records of one study, and what they come to."""

    def records(self) -> list[TrialRecord]:
        """All of them, by trial number."""

    def begin(self, record: TrialRecord) -> Recorder:
        """A recorder that keeps this trial's record from now on, in place of one that is there."""

    def export(
        self, records: Sequence[TrialRecord], expected: Expected, verdict: Verdict | None = None
    ) -> None:
        """Make the best of them ready to be started; keep what is expected, and a verdict."""


class FolderLog:
    """One folder a trial; `best.yaml`, `best.sh`, `verdict.json` and `expected.json` beside them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def records(self) -> list[TrialRecord]:
        """See `TrialLog`."""
        return read_records(self._folder)

    def begin(self, record: TrialRecord) -> Recorder:
        """See `TrialLog`."""
        return FolderRecorder(record, trial_folder(self._folder, record.trial))

    def export(
        self, records: Sequence[TrialRecord], expected: Expected, verdict: Verdict | None = None
    ) -> None:
        """See `TrialLog`."""
        text = json.dumps({str(trial): score for trial, score in expected.items()}, indent=1) + "\n"
        (self._folder / EXPECTED_FILE).write_text(text, encoding="utf-8")
        if verdict is not None:
            text = json.dumps(verdict, indent=1) + "\n"
            (self._folder / VERDICT_FILE).write_text(text, encoding="utf-8")
        if standings(records, expected):
            write_exports(records, self._folder / "best.yaml", verdict, expected)


class MemoryLog:
    """Nothing is written; for thousands of studies."""

    def __init__(self) -> None:
        self._recorders: dict[int, Recorder] = {}

    def records(self) -> list[TrialRecord]:
        """See `TrialLog`."""
        return [self._recorders[trial].record for trial in sorted(self._recorders)]

    def begin(self, record: TrialRecord) -> Recorder:
        """See `TrialLog`."""
        return self._recorders.setdefault(record.trial, Recorder(record, Path("nowhere")))

    def export(
        self, records: Sequence[TrialRecord], expected: Expected, verdict: Verdict | None = None
    ) -> None:
        """Nobody starts what never ran."""


def read_verdict(folder: Path) -> Verdict | None:
    """The verdict on a study, or None where nothing was confirmed yet."""
    try:
        verdict: Verdict = json.loads((folder / VERDICT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return verdict


def read_expected(folder: Path) -> Expected:
    """What the search expected of its trials when it last exported; empty where it has not."""
    try:
        told = json.loads((folder / EXPECTED_FILE).read_text(encoding="utf-8"))
        return {int(trial): float(score) for trial, score in told.items()}
    except (OSError, ValueError, AttributeError):
        return {}
