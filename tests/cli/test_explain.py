"""`explain` and `export --minimal` on a study that has run, in virtual time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.run import tuner

VIRTUAL = ("--evaluator", "tuner.simulator.virtual:from_study", "--concurrency", "32")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A study of the embedded default: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("virtual") / "night"
    done = tuner("optimize", "--folder", str(folder), "--launches", "24", "--explain", "0", *VIRTUAL)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_it_tells_what_each_value_gives(study: tuple[Path, str]) -> None:
    folder, printed = study
    done = tuner("explain", str(folder))
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "speculative=eagle3  +" in done.stdout and "95% interval" in done.stdout
    assert "smallest configuration that is as good" in done.stdout
    assert "importance by Optuna" in done.stdout
    assert "what its values give: " in printed and "speculative=eagle3 +" in printed


def test_programs_get_json(study: tuple[Path, str]) -> None:
    done = tuner("explain", str(study[0]), "--json")
    told = json.loads(done.stdout)
    gains = [one["gain"] for one in told["contributions"] if one["gain"] is not None]
    assert gains == sorted(gains, reverse=True) and gains[0] > 0.1
    assert set(told["minimal"]) >= {"configuration", "left_out", "measured", "loss"}
    assert sum(told["importances"].values()) == pytest.approx(1.0)


def test_a_minimal_export_says_that_it_was_not_measured(study: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = study
    best = yaml.safe_load((folder / "best.yaml").read_text())
    told = json.loads(tuner("explain", str(folder), "--json").stdout)["minimal"]
    assert told["left_out"] and not told["measured"]

    done = tuner("export", str(folder), "--minimal", "-o", str(tmp_path / "small.yaml"))

    assert done.returncode == 0, done.stderr
    text = (tmp_path / "small.yaml").read_text()
    assert "Changed:" in text and "predicted, not measured" in text
    assert "Confirmed:   no: predicted, not measured" in text
    small = yaml.safe_load(text)
    assert small != best or "export" in (tmp_path / "small.sh").read_text()
    assert small.keys() <= best.keys()
    assert (folder / "best.yaml").read_text() and yaml.safe_load((folder / "best.yaml").read_text()) == best


def test_launches_for_it_can_be_asked_for_afterwards(study: tuple[Path, str], tmp_path: Path) -> None:
    folder = tmp_path / "night"
    shutil.copytree(study[0], folder)
    again = tuner("optimize", "--folder", str(folder), "--launches", "24", "--explain", "2",
                  "--storage", f"sqlite:///{folder / 'study.db'}", *VIRTUAL)  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
    assert "explaining the best" in again.stdout
    roles = [json.loads(path.read_text())["role"] for path in sorted(folder.glob("trial-*/record.json"))]
    assert roles[-2:] == ["explain", "explain"]


def test_a_folder_that_does_not_say_what_was_searched_is_refused(tmp_path: Path) -> None:
    (tmp_path / "night" / "trial-0000").mkdir(parents=True)
    done = tuner("explain", str(tmp_path / "night"))
    assert done.returncode == 2 and "study.json" in done.stderr
    (tmp_path / "night" / "study.json").write_text("[]")
    assert tuner("explain", str(tmp_path / "night")).returncode == 2
