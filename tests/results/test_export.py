"""What the exported files say, and what they never hold."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.errors import NothingRan, TunerError
from tuner.redact import REDACTED
from tuner.results.export import write_exports
from tuner.results.record import TrialRecord, best_record, read_records, trial_folder, write_record


def record(trial: int = 3, score: float | None = 109.0, **changes: Any) -> TrialRecord:
    launch = {
        "command": "NCCL_PROTO=LL128 python -m sglang.launch_server --model-path m",
        "argv": ["python"],
        "variables": {"NCCL_PROTO": "LL,LL128", "HF_TOKEN": REDACTED},
        "fingerprint": "f",
        "server_command": ["python", "-m", "sglang.launch_server"],
        "config": {"model-path": "m", "tp-size": 8, "trust-remote-code": True, "api-key": REDACTED},
        "config_left_out": [{"words": ["--enable-tf32-matmul"], "reason": "can be negated"}],
    }
    plain = TrialRecord(
        trial=trial, study="night", label="a box (simulated)", role="search", state="complete", started="2030-01-01T00:00:00+00:00",
        configuration={"page_size": 16}, fingerprint="f", objective="decode tok/s at C=1", score=score, gain=0.0915,
        reference="the engine's defaults (trial 0)", launch=launch, gpus=(0, 1), server={"version": "0.5.23"},
    )  # fmt: skip
    return replace(plain, **changes)


def test_the_head_says_what_it_is_and_that_it_is_unconfirmed(tmp_path: Path) -> None:
    write_exports([record()], tmp_path / "best.yaml")
    text = (tmp_path / "best.yaml").read_text()
    for told in (
        "night, trial 3", "a box (simulated)", "SGLang:      0.5.23", "GPUs:        0, 1", "109.00 tok/s",
        "+9.2% over the engine's defaults (trial 0)", "Confirmed:   no", "export NCCL_PROTO=LL,LL128", "--config best.yaml",
    ):  # fmt: skip
        assert told in text
    assert yaml.safe_load(text) == {"model-path": "m", "tp-size": 8, "trust-remote-code": True}


def test_no_secret_ever_goes_in_and_the_script_asks_for_it(tmp_path: Path) -> None:
    write_exports([record()], tmp_path / "best.yaml")
    assert "api-key" not in yaml.safe_load((tmp_path / "best.yaml").read_text())
    refused = subprocess.run(["sh", str(tmp_path / "best.sh")], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "HF_TOKEN is a secret and was not stored" in refused.stderr


def test_the_script_sets_the_environment_passes_refused_flags_and_its_own_arguments(tmp_path: Path) -> None:
    shown = tmp_path / "a b" / "shown"
    shown.parent.mkdir()
    shown.write_text('#!/bin/sh\necho "$NCCL_PROTO|$*"\n')
    shown.chmod(0o755)
    launch = {**record().launch, "server_command": [str(shown)], "variables": {"NCCL_PROTO": "it's; $(x)"}}
    launch["config"] = {"tp-size": 8}
    target = tmp_path / "c d" / "found.yaml"
    write_exports([record(launch=launch)], target)
    done = subprocess.run(
        ["sh", str(target.with_suffix(".sh")), "--port", "1"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"it's; $(x)|--config {target} --enable-tf32-matmul --port 1"


def test_the_best_is_the_fastest_that_offers_enough() -> None:
    slow, fast = record(1, 90.0), record(2, 120.0, infeasible=("KV tokens 1, at least 2 asked",))
    pruned = record(4, None, state="pruned")
    assert best_record([slow, fast, pruned]) == slow
    assert best_record([pruned]) is None


def test_nothing_measured_is_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(NothingRan):
        write_exports([record(score=None, state="pruned")], tmp_path / "best.yaml")
    assert list(tmp_path.iterdir()) == []


def test_records_survive_being_written_and_read_and_another_version_is_refused(tmp_path: Path) -> None:
    first, second = record(10), record(2)
    for item in (first, second):
        write_record(item, trial_folder(tmp_path, item.trial))
    assert read_records(tmp_path) == [second, first]
    path = trial_folder(tmp_path, 2) / "record.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(TunerError, match="a record of version 99"):
        read_records(tmp_path)


def test_the_shown_command_can_be_typed(tmp_path: Path) -> None:
    write_exports([record()], tmp_path / "best.yaml")
    line = next(item for item in (tmp_path / "best.yaml").read_text().splitlines() if "--config" in item)
    assert shlex.split(line.lstrip("# ")) == ["python", "-m", "sglang.launch_server", "--config", "best.yaml"]
