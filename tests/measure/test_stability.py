from __future__ import annotations

import random

import pytest

from tests.measure.test_estimate import autoregressive
from tuner.measure.stability import drift_of, is_bimodal, slow_beginning


def noisy(mean: float, count: int, share: float = 0.005, seed: int = 1) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss(mean, mean * share) for _ in range(count)]


def test_a_step_and_a_slope_are_drift() -> None:
    assert drift_of(noisy(100, 20) + noisy(105, 20)) == pytest.approx(0.05, abs=0.005)
    sloping = [value * (1 - 0.002 * index) for index, value in enumerate(noisy(100, 40))]
    assert drift_of(sloping) == pytest.approx(-0.04, abs=0.01)


def test_small_changes_few_values_and_chance_are_no_drift() -> None:
    assert drift_of(noisy(100, 20) + noisy(100.5, 20)) == 0.0
    assert drift_of([100, 100, 100, 150, 150, 150]) == 0.0
    generator = random.Random(4)
    found = [drift_of([value * 5 for value in autoregressive(60, 0.5, generator)]) != 0.0 for _ in range(500)]
    assert sum(found) <= 5


def test_a_cold_beginning_is_dropped_up_to_half() -> None:
    assert slow_beginning([66, 67, 100, 101, 99, 100], 0.005) == 2
    assert slow_beginning([66, 100], 0.005) == 1
    assert slow_beginning([50, 70, 100, 101, 100, 70], 0.005) == 0
    assert slow_beginning([50, 70, 100, 101], 0.005) == 2


def test_noise_a_fast_beginning_and_a_single_round_are_kept() -> None:
    assert slow_beginning([99, 100, 101, 100], 0.005) == 0
    assert slow_beginning([150, 100, 100, 100], 0.005) == 0
    assert slow_beginning([80, 120, 90, 110, 100], 0.02) == 0
    assert slow_beginning([100], 0.0) == 0


def test_two_speeds_are_told_from_one() -> None:
    assert is_bimodal(noisy(100, 92) + noisy(12, 8))
    assert is_bimodal(noisy(100, 20) + noisy(110, 20))
    assert not is_bimodal(noisy(100, 400))
    assert not is_bimodal([float(value) for value in range(100, 200)])  # an even spread is one group
    assert not is_bimodal([*noisy(100, 99), 500.0])  # one outlier is no mode
    assert not is_bimodal(noisy(100, 20) + noisy(102, 20))  # too close to matter
    assert not is_bimodal([1.0, 2.0])


def test_normal_series_are_almost_never_bimodal() -> None:
    generator = random.Random(9)
    found = sum(is_bimodal([generator.gauss(100, 10) for _ in range(30)]) for _ in range(1000))
    assert found <= 10
