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
from tuner.results.record import TrialRecord, read_records, trial_folder, write_record
from tuner.results.standings import best_standing, front


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
        configuration={"page_size": 16}, fingerprint="f", objective="decode tok/s at C=1", unit="tok/s", score=score, gain=0.0915,
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


def test_a_server_without_config_files_is_started_by_flags_alone(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.write_text('#!/bin/sh\necho "$*"\n')
    shown.chmod(0o755)
    left_out = [
        {"words": [f"--{name}", "8"], "reason": "it has no --config"} for name in ("tp-size", "page-size")
    ]
    launch = {**record().launch, "server_command": [str(shown)], "variables": {}}
    launch |= {"config": {}, "config_left_out": left_out}
    write_exports([record(launch=launch)], tmp_path / "best.yaml")
    done = subprocess.run(["sh", str(tmp_path / "best.sh")], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "--tp-size 8 --page-size 8"
    text = (tmp_path / "best.yaml").read_text()
    assert "Start it with best.sh" in text and "--config best.yaml" not in text
    assert text.count("it has no --config") == 1


def test_the_best_is_the_fastest_that_offers_enough() -> None:
    slow, fast = record(1, 90.0), record(2, 120.0, infeasible=("KV tokens 1, at least 2 asked",))
    pruned = record(4, None, state="pruned")
    best = best_standing([slow, fast, pruned])
    assert best is not None and best.record == slow
    assert best_standing([pruned]) is None


def test_repeats_count_for_the_trial_they_repeat() -> None:
    lucky, steady = record(1, 120.0), record(2, 110.0)
    repeats = [record(trial, 100.0, role="confirm", repeat_of=1) for trial in (3, 4)]
    best = best_standing([lucky, steady, *repeats])
    assert best is not None and best.record == steady
    alone = best_standing([lucky, *repeats])
    assert alone is not None and alone.shown == "106.27 tok/s (mean of 3 launches)"


def test_where_less_is_better_the_smallest_is_best() -> None:
    best = best_standing([record(1, 90.0, direction="minimize"), record(2, 120.0, direction="minimize")])
    assert best is not None and best.record.trial == 1


def test_the_front_of_a_trade_off() -> None:
    points = {1: (90.0, 10.0), 2: (120.0, 30.0), 3: (85.0, 12.0), 4: (120.0, 40.0)}
    records = [record(trial, scores[0], scores=scores) for trial, scores in points.items()]
    assert {item.trial for item in front(records, ("maximize", "minimize"))} == {1, 2}


def verdict(winner: str | None) -> dict[str, Any]:
    return {"winner": winner, "gain": 0.081, "sentence": "faster by 8.1% (95% interval +6.0% to +10.2%)"}


def test_the_confirmed_winner_is_exported_and_says_so(tmp_path: Path) -> None:
    records = [record(1, 120.0), record(2, 110.0)]
    choice = write_exports(records, tmp_path / "best.yaml", verdict("2"))
    assert choice.record.trial == 2 and choice.is_confirmed
    text = (tmp_path / "best.yaml").read_text()
    assert "Confirmed:   yes: faster by 8.1% (95% interval" in text
    assert "+8.1% over the engine's defaults (trial 0), confirmed" in text


def test_without_a_clear_winner_the_best_is_exported_as_unconfirmed(tmp_path: Path) -> None:
    choice = write_exports([record(1, 120.0), record(2, 110.0)], tmp_path / "best.yaml", verdict(None))
    assert choice.record.trial == 1 and not choice.is_confirmed
    assert "Confirmed:   no: faster" in (tmp_path / "best.yaml").read_text()


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
