"""Planted studies: what is true of them is exactly what was asked for."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from tests.simulator.virtual_studies import evaluated
from tuner.simulator.virtual_planted import planted
from tuner.space.configuration import Configuration

PLANTED = Configuration({"cuda_graph_max_bs": 128})


@pytest.mark.parametrize("gain", [0.0, 0.05, 0.09, 0.5])
def test_the_planted_value_is_faster_by_exactly_the_gain(gain: float) -> None:
    evaluator, _ = planted(gain, Path("nowhere"))
    default, winner = evaluator.truth(Configuration(), as_baseline=True), evaluator.truth(PLANTED)
    assert default is not None
    assert winner == pytest.approx(default * (1 + gain), rel=1e-9)


def test_nothing_else_matters() -> None:
    evaluator, definition = planted(0.09, Path("nowhere"))
    default = evaluator.truth(Configuration(), as_baseline=True)
    for parameter in definition.space.parameters:
        if parameter.name == "cuda_graph_max_bs":
            continue
        values = getattr(parameter, "choices", None) or (
            getattr(parameter, "low", 0),
            getattr(parameter, "high", 0),
        )
        for value in values:
            one = Configuration({"cuda_graph_max_bs": 512, parameter.name: value})
            assert evaluator.truth(one) == default, one


@pytest.mark.parametrize("noise", [0.004, 0.013, 0.03])
def test_launches_differ_by_the_noise_that_was_asked_for(noise: float) -> None:
    evaluator, definition = planted(0.05, Path("nowhere"), launch_noise=noise)
    outcomes = [evaluated(evaluator, trial=trial) for trial in range(1000)]
    scores = [
        definition.objective.score(outcome.measurement)
        for outcome in outcomes
        if outcome.measurement is not None
    ]
    assert len(scores) == 1000
    # What is measured varies a little within each launch, too; over 1,000 launches the sd is known to 2 %.
    assert statistics.stdev(map(math.log, scores)) == pytest.approx(noise, rel=0.12)


def test_the_seed_and_the_budget_are_the_study_s_own() -> None:
    evaluator, definition = planted(0.0, Path("nowhere"), launches=9, seed=5)
    other, _ = planted(0.0, Path("nowhere"), seed=6)
    assert (definition.budget.launches, definition.seed) == (9, 5)
    assert evaluated(evaluator) != evaluated(other)
