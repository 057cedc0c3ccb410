"""Writes a trial's record while the trial goes, so that a tuner that dies leaves its evidence."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import LaunchShown, Listener, PhaseNews, Request
from tuner.measure.level import level_to_line
from tuner.measure.measurement import LevelSample, LevelSummary
from tuner.results.record import TrialRecord, write_record

SAMPLES_FILE = "samples.jsonl"
PLAN_FILE = "launch.json"


class Recorder(Listener):
    """Keeps one trial's record up to date, in memory. `record` is how it stands."""

    def __init__(self, record: TrialRecord, folder: Path) -> None:
        self.record = record
        self.folder = folder
        self._phase: str | None = None

    def folder_of(self, attempt: int) -> Path:
        """Where an attempt leaves its files."""
        return self.folder if attempt == 1 else self.folder / f"attempt-{attempt}"

    def on_launch(self, request: Request, launch: LaunchShown) -> None:
        """See `Listener`."""
        self._phase = None
        self._change(launch=asdict(launch), levels=(), phases=())

    def on_phase(self, request: Request, news: PhaseNews) -> None:
        """Written only when the phase changes."""
        if str(news.phase) == self._phase:
            return
        self._phase = str(news.phase)
        begun = {"phase": self._phase, "start_s": round(news.elapsed_s, 2), "end_s": round(news.elapsed_s, 2)}
        closed = tuple(
            {**span, "end_s": begun["start_s"]} if index == len(self.record.phases) - 1 else span
            for index, span in enumerate(self.record.phases)
        )
        self._change(phases=(*closed, begun))

    def on_level(self, request: Request, sample: LevelSample, summary: LevelSummary | None) -> None:
        """See `Listener`."""
        if summary is not None:
            self._change(levels=(*self.record.levels, asdict(summary)))

    def on_outcome(self, request: Request, outcome: Outcome) -> None:
        """See `Listener`."""
        self._change(
            phases=tuple(span.to_json() for span in outcome.phases),
            ready_s=outcome.ready_s,
            took_s=(self.record.took_s or 0.0) + outcome.took_s,
            server=asdict(outcome.facts),
            fallbacks=tuple(asdict(fallback) for fallback in outcome.fallbacks),
            output=outcome.output,
            failure=outcome.failure.to_json() if outcome.failure is not None else None,
            leftovers=outcome.leftovers,
        )

    def retry(self, why: str = "") -> None:
        """This launch does not count: keep its failure, or `why` it does not, as an earlier attempt."""
        attempt = self.record.failure or {"kind": "not-scored", "summary": why}
        self._change(attempts=(*self.record.attempts, attempt), failure=None, levels=())

    def close(self, record: TrialRecord) -> None:
        """Replace the record by its final form."""
        self.record = record

    def _change(self, **changes: object) -> None:
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]


class FolderRecorder(Recorder):
    """Keeps it on disk as well, with the plan and the raw samples of each launch."""

    def __init__(self, record: TrialRecord, folder: Path) -> None:
        super().__init__(record, folder)
        self._save()

    def folder_of(self, attempt: int) -> Path:
        """See `Recorder`. The folder is made."""
        folder = super().folder_of(attempt)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def on_launch(self, request: Request, launch: LaunchShown) -> None:
        """See `Listener`. The plan is also kept beside the log of its launch."""
        plan = json.dumps(asdict(launch), indent=1) + "\n"
        (request.folder / PLAN_FILE).write_text(plan, encoding="utf-8")
        super().on_launch(request, launch)

    def on_level(self, request: Request, sample: LevelSample, summary: LevelSummary | None) -> None:
        """Raw samples go to their own file, whether the level counts or not."""
        with (request.folder / SAMPLES_FILE).open("a", encoding="utf-8") as file:
            file.write(level_to_line(sample) + "\n")
        super().on_level(request, sample, summary)

    def close(self, record: TrialRecord) -> None:
        """Replace the record by its final form."""
        super().close(record)
        self._save()

    def _change(self, **changes: object) -> None:
        super()._change(**changes)
        self._save()

    def _save(self) -> None:
        write_record(self.record, self.folder)
