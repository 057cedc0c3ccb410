"""Another program is asked what to try early, as a user starts it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.run import tuner


def test_where_it_cannot_be_asked_a_sentence_says_so_and_the_study_goes_on(tmp_path: Path) -> None:
    virtual = ("--evaluator", "tuner.simulator.virtual:from_study")

    done = tuner("optimize", "--folder", str(tmp_path), "--prior", "aiconfigurator", "--dry-run", *virtual)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning  prior: how many GPUs there are is not known" in done.stdout
