"""The table of the search, on fewer studies than the benchmark takes."""

from __future__ import annotations

import pytest

from benchmarks.efficiency_boxes import SCENARIOS
from benchmarks.search_efficiency import HOURS, QUICK_HOURS, Truth, main, studies_of


def test_the_default_sampler_finds_more_than_chance_and_loses_little_time() -> None:
    streams_32 = SCENARIOS[1]
    found = dict(studies_of(streams_32, ("surrogate", "random"), (0,), QUICK_HOURS))

    (ours,), (chance,) = found["surrogate"], found["random"]
    assert len(ours.shares) == len(HOURS)
    assert ours.shares[-1] > max(0.95, chance.shares[-1])
    assert ours.lost_share < min(0.10, chance.lost_share)


def test_the_optimum_is_not_below_what_is_known_to_be_good() -> None:
    evaluator, definition = SCENARIOS[0].evaluator()
    truth = Truth(evaluator, definition)

    best = truth.optimum()

    assert best >= max(truth.of(known.values) for known in evaluator.space.known_good)


def test_every_box_of_the_benchmark_can_be_built() -> None:
    for scenario in SCENARIOS:
        evaluator, definition = scenario.evaluator()
        assert evaluator.space.parameters
        assert definition.budget.hours == 12


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--samplers", "random"]) == 0

    printed = capsys.readouterr().out
    assert "time lost" in printed and "single stream" in printed and "all" in printed


def test_studies_with_looks_stand_beside_studies_without(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--quick", "--samplers", "surrogate", "--looks", "off", "auto", "--hours", "1", "4"]
    assert main(words) == 0

    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[2:6] == ["1", "h", "4", "h"]
    rows = [line for line in lines if line.startswith("single stream ")]
    assert ["looks off" in rows[0], "looks auto" in rows[1], len(rows)] == [True, True, 2]
    assert any("seed 0: " in line and "rank agreement" in line for line in lines)
