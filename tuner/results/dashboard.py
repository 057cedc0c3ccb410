"""A trial as optuna-dashboard shows it: flat attributes, a note, and its files as artifacts.

The dashboard sorts a column only where the attribute is a number in every trial that has it, and cuts
text at 1,024 characters; so attributes are few, flat and of one type, and long things go to the note.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna_dashboard import save_note

from tuner.results.note import trial_note
from tuner.results.record import COMPLETE, TrialRecord, shown_fallback

Attribute = str | int | float | bool

_ARTIFACTS = (
    ("server.log", "text/plain"),
    ("samples.jsonl", "application/jsonl"),
    ("record.json", "application/json"),
    ("answers.json", "application/json"),
    ("processes.txt", "text/plain"),
    ("py-spy.txt", "text/plain"),
)
_LARGEST_BYTES = 64 * 1024 * 1024


def attributes_of(record: TrialRecord) -> dict[str, Attribute]:
    """The trial's columns: scalars under names that never change their type."""
    failure = record.failure or {}
    found: dict[str, Attribute | None] = {
        "outcome": "measured" if record.state == COMPLETE else str(failure.get("kind", record.state)),
        "role": record.role,
        "label": record.label,
        "gain_pct": _rounded(record.gain, 2, scale=100),
        "feasible": not record.infeasible if record.state == COMPLETE else None,
        "infeasible_because": "; ".join(record.infeasible) or None,
        "failure_kind": failure.get("kind"),
        "failure_cause": failure.get("cause"),
        "failure_phase": failure.get("phase"),
        "failure_line": _telling_line(failure),
        "failure_summary": failure.get("summary"),
        "ready_s": _rounded(record.ready_s, 1),
        "took_s": _rounded(record.took_s, 1),
        "kv_tokens": record.server.get("kv_tokens"),
        "max_running_requests": record.server.get("max_running_requests"),
        "sglang_version": record.server.get("version"),
        "fallbacks": "; ".join(map(shown_fallback, record.fallbacks)) or None,
        "repair_of": record.repair_of,
        "repeat_of": record.repeat_of,
        "same_as": record.same_as,
        "launches": 1 + len(record.attempts),
    }
    for level in record.levels if not record.fidelity else ():
        at = f"c{level['concurrency']}"
        found[f"decode_tok_s_{at}"] = _rounded(level["decode_tok_s"], 2)
        found[f"ttft_p50_ms_{at}"] = _rounded(level["ttft_p50_ms"], 1)
        found[f"itl_p99_ms_{at}"] = _rounded(level["itl_p99_ms"], 1)
        found[f"accept_length_{at}"] = _rounded(level["accept_length"], 3)
    return {name: value for name, value in found.items() if value is not None}


def publish(
    trial: optuna.trial.Trial,
    record: TrialRecord,
    folder: Path,
    store: FileSystemArtifactStore,
    storage: optuna.storages.BaseStorage,
) -> None:
    """Hang the record on the trial: attributes, note, and the files of its launches in `folder`."""
    for name, value in attributes_of(record).items():
        trial.set_user_attr(name, value)
    save_note(trial, trial_note(record))
    for place in (folder, *sorted(folder.glob("attempt-*"))):
        for name, mimetype in _ARTIFACTS:
            path = place / name
            if path.is_file() and 0 < path.stat().st_size <= _LARGEST_BYTES:
                upload_artifact(
                    artifact_store=store,
                    file_path=str(path),
                    study_or_trial=trial,
                    storage=storage,
                    mimetype=mimetype,
                )


def _rounded(value: float | None, digits: int, *, scale: float = 1.0) -> float | None:
    return round(value * scale, digits) if value is not None else None


def _telling_line(failure: dict[str, Any]) -> str | None:
    evidence = failure.get("evidence")
    return str(evidence[0]["text"])[:1000] if evidence else None
