from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.estimate import Estimate, estimate, independent_estimate


def autoregressive(count: int, coefficient: float, generator: random.Random) -> list[float]:
    """A stationary AR(1) series around 100."""
    value = generator.gauss(0, 1) / math.sqrt(1 - coefficient**2)
    found = []
    for _ in range(count):
        found.append(100 + value)
        value = coefficient * value + generator.gauss(0, 1)
    return found


@pytest.mark.parametrize("coefficient", [0.0, 0.4, 0.8])
@pytest.mark.parametrize(("count", "series"), [(60, 1600), (150, 1200), (600, 800)])
def test_intervals_cover_the_truth_as_often_as_they_say(coefficient: float, count: int, series: int) -> None:
    generator = random.Random(20)
    covered = 0
    for _ in range(series):
        found = estimate(autoregressive(count, coefficient, generator))
        assert found.low is not None and found.high is not None
        covered += found.low <= 100 <= found.high
    assert 0.93 <= covered / series <= 0.97


def test_dependence_makes_the_interval_wider() -> None:
    generator = random.Random(1)
    halves = [estimate(autoregressive(400, coefficient, generator)).half_width for coefficient in (0.0, 0.9)]
    assert halves[0] is not None and halves[1] is not None
    assert halves[1] > 5 * halves[0]


def test_few_values_have_no_interval_and_equal_ones_an_empty_one() -> None:
    assert estimate([1.0, 2.0, 3.0]) == Estimate(2.0, None, None, 3)
    assert estimate([5.0] * 10) == Estimate(5.0, 5.0, 5.0, 10)
    assert estimate([1.0, 2.0, 3.0]).half_width is None
    with pytest.raises(ValueError):
        estimate([])
    with pytest.raises(ValueError):
        independent_estimate([])


def test_independent_values_have_students_interval() -> None:
    found = independent_estimate([9.0, 11.0])
    assert found.low == pytest.approx(10 - 12.7062, rel=1e-4)
    assert found.high == pytest.approx(10 + 12.7062, rel=1e-4)
    assert independent_estimate([7.0]) == Estimate(7.0, n=1)


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=200))
def test_the_mean_lies_in_its_interval(values: list[float]) -> None:
    found = estimate(values)
    assert min(values) * 0.999 <= found.mean <= max(values) * 1.001
    if found.low is not None and found.high is not None:
        assert found.low <= found.mean <= found.high


def test_the_same_relative_interval_around_another_mean() -> None:
    assert Estimate(16.0, 12.0, 20.0, 8).around(128.0) == Estimate(128.0, 96.0, 160.0, 8)
    assert Estimate(10.0, n=2).around(100.0) == Estimate(100.0, n=2)
