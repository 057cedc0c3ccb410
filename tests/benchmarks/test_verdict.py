"""The judged figures, on fewer studies than the benchmark takes."""

from __future__ import annotations

import pytest

from benchmarks.verdict import SCENARIOS, Scenario, figures_of, main, studies_of

JUDGED = [scenario for scenario in SCENARIOS if scenario.noise == 0.013]


@pytest.mark.parametrize("scenario", JUDGED, ids=lambda scenario: scenario.name)
def test_the_figures_keep_their_limits(scenario: Scenario) -> None:
    found = figures_of(scenario, 200, seed=7)
    # A share of 200 studies has a standard error of 1.5 % at 5 %: so much is allowed on top.
    assert found.named <= scenario.most_named + 0.015
    assert found.faster >= scenario.least_named
    assert 0.92 <= found.coverage <= 0.98
    assert abs(found.bias) <= 0.01
    assert found.launches <= 6


def test_studies_repeat_themselves_and_differ_by_seed() -> None:
    first, again, other = (
        [study.verdict for study in studies_of(SCENARIOS[0], 3, seed=seed)] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_study_takes_hours_of_virtual_time() -> None:
    (study,) = studies_of(SCENARIOS[1], 1)
    assert 3 < study.hours < 5  # 22 launches of some eleven minutes


def test_the_program_prints_a_line_for_each_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--studies", "5"]) in (0, 1)
    printed = capsys.readouterr().out
    assert all(scenario.name in printed for scenario in SCENARIOS)
