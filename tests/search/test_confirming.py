"""The reference twice, then the search, then fresh launches of the best and the reference in turn, then a verdict."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.search.scripted import STUDY, Run, Script, failed, measured, speed
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.results.export import choose
from tuner.results.trial_log import read_verdict
from tuner.verdict.verdict import VerdictKind


def with_budget(budget: str) -> str:
    return STUDY.replace("launches: 6, confirm: 0", budget)


def noisy(sd: float, gain: float = 1.0) -> Script:
    """Every launch differs by a little; 128 with speculation is `gain` times as fast as all else."""
    source = random.Random(7)

    def script(request: Request) -> Outcome:
        values = request.configuration
        fast = values.get("bs") == 128 and values.get("speculative") == "eagle3"
        return measured(100.0 * (gain if fast else 1.0) * math.exp(source.gauss(0, sd)))

    return script


def test_the_course_of_a_study(tmp_path: Path) -> None:
    run = Run(tmp_path, noisy(0.01, 1.3), study=with_budget("launches: 16, confirm: 6, explain: 0"))
    end = run.search.run()
    roles = [record.role for record in end.records]
    assert roles[:4] == ["baseline", "repeat", "known-good", "known-good"]
    assert end.records[1].repeat_of == 0 and run.evaluator.requests[1].as_baseline
    confirming = [record for record in end.records if record.role == "confirm"]
    assert 4 <= len(confirming) <= 6 and roles[-len(confirming) :] == ["confirm"] * len(confirming)
    assert [record.repeat_of for record in confirming][:2].count(0) == 1  # in turn
    assert end.verdict is not None and end.verdict.kind is VerdictKind.FASTER
    assert end.verdict.gain == pytest.approx(0.3, abs=0.05)
    assert "search said" in end.verdict.shown()
    stored = read_verdict(tmp_path / "s")
    assert stored is not None and stored["kind"] == "faster"
    choice = choose(end.records, stored)
    assert choice.is_confirmed and choice.record.configuration["speculative"] == "eagle3"
    assert "Confirmed:   yes: faster by" in (tmp_path / "s" / "best.yaml").read_text()
    assert all(trial.state is TrialState.COMPLETE for trial in run.trials)


def test_where_nothing_matters_there_is_no_clear_winner(tmp_path: Path) -> None:
    end = Run(tmp_path, noisy(0.02), study=with_budget("launches: 16, confirm: 6")).search.run()
    assert end.verdict is not None and end.verdict.kind is VerdictKind.NO_CLEAR_WINNER
    assert "Confirmed:   no: no clear winner" in (tmp_path / "s" / "best.yaml").read_text()


def test_the_reserve_is_taken_from_the_budget_and_short_studies_do_without(tmp_path: Path) -> None:
    long = Run(tmp_path / "long", speed, study=with_budget("launches: 16")).search.run()
    assert len(long.records) <= 16
    assert sum(record.role == "confirm" for record in long.records) >= 4
    short = Run(tmp_path / "short", speed, study=with_budget("launches: 6")).search.run()
    assert short.verdict is None and {record.role for record in short.records} == {
        "baseline",
        "known-good",
        "search",
    }


def test_hours_keep_time_for_the_confirmation(tmp_path: Path) -> None:
    end = Run(tmp_path, speed, study=with_budget("hours: 4")).search.run()  # 11 minutes a launch: some 21
    assert end.verdict is not None
    assert "less 6 to confirm the best" in end.reason
    assert sum(record.took_s or 0 for record in end.records) <= 4 * 3600 + 660


def test_an_interrupted_confirmation_goes_on(tmp_path: Path) -> None:
    budget = with_budget("launches: 16, confirm: 6")
    stopped: list[int] = []

    def interrupt(request: Request) -> Outcome:
        if request.trial == 12 and not stopped:
            stopped.append(request.trial)
            raise KeyboardInterrupt
        return speed(request)

    with pytest.raises(KeyboardInterrupt):
        Run(tmp_path, interrupt, study=budget).search.run()
    end = Run(tmp_path, speed, study=budget).search.run()
    assert end.verdict is not None
    finished = [record for record in end.records if record.state != "failed"]
    assert len(finished) <= 16
    again = Run(tmp_path, speed, study=budget)
    assert again.search.run().verdict == end.verdict
    assert again.evaluator.requests == []


def test_a_finalist_that_dies_in_the_confirmation_gives_way(tmp_path: Path) -> None:
    def script(request: Request) -> Outcome:
        record = json.loads((request.folder / "record.json").read_text())
        if record["role"] == "confirm" and request.configuration.get("speculative_num_steps") == 3:
            return failed()
        return speed(request)

    end = Run(tmp_path, script, study=with_budget("launches: 40, confirm: 6")).search.run()
    assert end.verdict is not None and end.verdict.dead
    winner = next(record for record in end.records if str(record.trial) == end.verdict.finalist)
    assert winner.configuration["speculative_num_steps"] == 2
