"""The search ends where nothing promises more, and never before it has seen enough."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from tests.search.scripted import STUDY, Run, definition, measured, speed
from tests.search.test_explain import records_of
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.results.record import TrialRecord
from tuner.search.idle import nothing_left

STUDY_60 = STUDY.replace("launches: 6, confirm: 0", "launches: 60, confirm: 0")
HERE = definition(Path("nowhere"))


def records(proposed: int) -> list[TrialRecord]:
    rows: list[tuple[dict[str, object], float | str]] = [
        ({"bs": 64, "backend": "triton", "n": number}, 100.0 + 0.1 * number) for number in range(proposed)
    ]
    return records_of(({}, 80.0), *rows)


@pytest.mark.parametrize(
    ("promises", "proposed", "ends"),
    [
        ([0.001] * 4, 20, True),
        ([0.05, 0.02, 0.001, 0.001, 0.001, 0.001], 20, True),
        ([0.001] * 4, 11, False),  # too little is known to believe it
        ([0.001, 0.001, 0.02, 0.001], 20, False),
        ([0.001] * 3, 20, False),
        ([0.01] * 10, 20, False),
        ([None] * 20, 20, False),  # a sampler that promises nothing runs its budget out
        ([0.001, 0.001, None, 0.001], 20, False),
        ([], 0, False),
    ],
)
def test_when_it_ends(promises: list[float | None], proposed: int, ends: bool) -> None:
    reason = nothing_left(promises, records(proposed), HERE.objective, HERE.space)
    assert bool(reason) is ends
    if ends:
        assert "promises more than 0.10%" in reason and "launches differ by (1.2%)" in reason


def test_it_does_not_end_while_it_proposes_only_what_is_sure_to_run() -> None:
    """After a hang of hours a promise says what is left of the safe, not what is left."""
    hung = [*records(20)]
    hung[-1] = replace(hung[-1], state="pruned", took_s=7200.0)
    assert not nothing_left([0.001] * 9, hung, HERE.objective, HERE.space)
    hung[-1] = replace(hung[-1], took_s=60.0)
    assert nothing_left([0.001] * 9, hung, HERE.objective, HERE.space)


def test_a_trade_off_never_ends_so() -> None:
    objective = replace(HERE.objective, goals=HERE.objective.goals * 2)
    assert not nothing_left([0.001] * 9, records(20), objective, HERE.space)


WIDE = """
parameters:
  bs: {type: integer, low: 8, high: 512, default: 512}
  backend: {type: choice, choices: [triton, flashinfer]}
  page: {type: choice, choices: [1, 16, 64]}
  speculative: {type: composite, choices: [off, eagle3]}
"""


def flat(request: Request) -> Outcome:
    """Only the backend matters."""
    return measured(90.0 if request.configuration.get("backend") == "flashinfer" else 80.0)


@pytest.mark.parametrize("more", ["", ", stop_when_idle: false"])
def test_a_study_of_which_nothing_is_left_ends_early_unless_told_otherwise(tmp_path: Path, more: str) -> None:
    study = STUDY.replace("launches: 6, confirm: 0", f"launches: 70, confirm: 0, explain: 0{more}")
    end = Run(tmp_path, flat, study=study, space=WIDE).search.run()
    ended_early = end.reason.startswith("nothing that is left promises")
    assert ended_early is not bool(more)
    assert (len(end.records) < 70) is ended_early
    if ended_early:
        again = Run(tmp_path, flat, study=study, space=WIDE).search.run()
        assert len(again.records) == len(end.records)  # what was promised is remembered


def test_other_samplers_run_their_budget_out(tmp_path: Path) -> None:
    study = STUDY.replace("launches: 6, confirm: 0", "launches: 18, confirm: 0") + "sampler: random\n"
    end = Run(tmp_path, speed, study=study).search.run()
    assert end.reason == "the budget of 18 launches is used up"


# --- the time of day ---------------------------------------------------------------------------------


def test_the_search_ends_early_enough_to_confirm_before_the_time_of_day(tmp_path: Path) -> None:
    """11 minutes a launch, and six launches are kept: the search ends 77 minutes before, all is over in time."""
    more = 'until: "2023-11-15T05:00", confirm: 6, explain: 0, stop_when_idle: false'
    run = Run(tmp_path, flat, study=STUDY.replace("launches: 6, confirm: 0", more), space=WIDE)

    end = run.search.run()

    over_s = datetime(2023, 11, 15, 5).timestamp()
    took_s = 660.0 * len(end.records)
    searched = [record for record in end.records if record.role not in ("confirm", "explain")]
    began_s = run.clock.wall_s() - took_s
    assert "until 2023-11-15T05:00, less 6 to confirm the best" in end.reason
    assert over_s - 9 * 660.0 < began_s + 660.0 * len(searched) <= over_s - 6 * 660.0
    assert run.clock.wall_s() <= over_s
    assert sum(record.role == "confirm" for record in end.records) >= 4
    assert end.verdict is not None
