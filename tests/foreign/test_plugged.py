"""Studies with evaluators that tell nothing but outcomes, and bring spaces that have nothing to do with SGLang."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.run import tuner
from tests.foreign.evaluators import store_truth
from tuner.results.record import read_records

BEST = 1961.2
"""What the space has to offer, by a large search without noise."""


@pytest.mark.parametrize("name", ["strange", "knowing"])
def test_a_bare_evaluator_uses_up_its_budget_and_its_best_is_exported(tmp_path: Path, name: str) -> None:
    study = tmp_path / "plugged.yaml"
    study.write_text(
        "search_space: generic\n"
        "server: {command: [nothing], model: m, label: plugged}\n"
        "workload: {input_tokens: 8, output_tokens: 8, concurrency: 8}\n"
        "budget: {launches: 30}\n"
    )
    done = tuner("optimize", str(study), "--evaluator", f"tests.foreign.evaluators:{name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: faster by" in done.stdout
    records = read_records(tmp_path / "plugged")
    assert len(records) <= 30 and all(record.took_s for record in records)
    died_s = sum(record.took_s or 0.0 for record in records if record.state == "pruned")
    assert died_s < 0.2 * sum(record.took_s or 0.0 for record in records)
    exported = yaml.safe_load((tmp_path / "plugged" / "best.yaml").read_text())
    assert store_truth(exported) > 0.55 * BEST
    assert not (tmp_path / "plugged" / "best.sh").exists()
    minimal = tuner("export", str(tmp_path / "plugged"), "--minimal")
    assert minimal.returncode == 0, minimal.stderr
    refused = [
        one
        for one in records
        if (one.configuration.get("layout"), one.configuration.get("shards")) == ("striped", 1)
    ]
    assert not refused or name == "strange"
