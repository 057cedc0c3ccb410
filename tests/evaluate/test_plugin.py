"""An evaluator from outside, and how one that cannot be meant is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.run import tuner
from tests.search.scripted import definition, measured
from tuner.clock import ManualClock, SystemClock
from tuner.errors import InputError
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.plugin import load_evaluator
from tuner.evaluate.protocol import Listener, Request


class Mine:
    """Brings a clock and something to say."""

    def __init__(self, *_: object) -> None:
        self.clock = ManualClock()

    def preflight(self) -> tuple[str, ...]:
        return ("all is well",)

    def evaluate(self, request: Request, listener: Listener) -> Outcome:
        return measured(1.0)


def no_evaluator(*_: object) -> object:
    return object()


def test_what_it_brings_along_is_found(tmp_path: Path) -> None:
    plugged = load_evaluator("tests.evaluate.test_plugin:Mine", definition(tmp_path), SystemClock())
    assert isinstance(plugged.clock, ManualClock)
    assert plugged.notes == ("all is well",) and plugged.space is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tests.evaluate.test_plugin", "a module and an object are needed"),
        ("tests.evaluate.no_such:Mine", "No module named"),
        ("tests.evaluate.test_plugin:Mien", "has no 'Mien'"),
        ("tests.evaluate.test_plugin:no_evaluator", "has no evaluate"),
    ],
)
def test_one_that_cannot_be_meant_is_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        load_evaluator(name, definition(tmp_path), SystemClock())


def test_a_night_in_virtual_time_takes_seconds_and_ends_with_a_verdict(tmp_path: Path) -> None:
    evaluator = ("--evaluator", "tuner.simulator.virtual:from_study")
    done = tuner("optimize", "--folder", str(tmp_path / "night"), *evaluator, "--launches", "24")
    assert done.returncode == 0, done.stderr
    assert "verdict: faster by" in done.stdout
    started = [int(minutes) for minutes in re.findall(r"ready after (\d+):\d\d", done.stdout)]
    assert len(started) > 6 and min(started) >= 8  # minutes of a start, as on the real box
    assert re.search(r"refused before launch: torch's symmetric memory needs .* on SM120", done.stdout)
    unknown = tuner("optimize", "--folder", str(tmp_path / "no"), "--evaluator", "no.such:thing")
    assert unknown.returncode == 2 and not (tmp_path / "no").exists()
