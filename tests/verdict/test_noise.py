"""The noise of a study: what is pooled, and what it allows to be told."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.verdict.noise import LEAST_SD, detectable_gain, noise_of, repeats_needed

SCORES = st.lists(st.floats(-1, 1), min_size=2, max_size=5)


def test_repeats_of_different_configurations_are_pooled_around_their_own_means() -> None:
    slow, fast = (1.00, 1.02), (3.00, 3.02, 3.04)
    noise = noise_of([slow, fast])
    assert noise.freedom == 3
    assert noise.measured_sd == pytest.approx(math.sqrt((2 * 0.01**2 + 2 * 0.02**2) / 3))


def test_one_launch_of_each_says_nothing_and_the_published_figures_are_taken() -> None:
    noise = noise_of([(1.0,), (2.0,), ()])
    assert (noise.measured_sd, noise.freedom) == (None, 0)
    assert noise.sd == pytest.approx(0.012)
    assert "expected" in noise.shown()


@pytest.mark.parametrize("apart", [0.0, 0.0001, 0.018, 0.10])
def test_two_launches_alone_do_not_make_a_plan_run_away(apart: float) -> None:
    noise = noise_of([(1.0, 1.0 + apart)])
    assert 0.009 < noise.sd < 0.05
    assert noise.measured_sd == pytest.approx(apart / math.sqrt(2))


def test_many_repeats_outweigh_what_is_published() -> None:
    generator = random.Random(1)
    noise = noise_of([[generator.gauss(0, 0.06) for _ in range(5)] for _ in range(40)])
    assert noise.sd == pytest.approx(0.06, rel=0.1)
    assert noise_of([[2.0] * 5] * 4000).sd == LEAST_SD


@given(st.lists(SCORES, min_size=1, max_size=4), st.floats(-3, 3))
def test_the_speed_of_a_box_is_no_part_of_its_noise(groups: list[list[float]], shift: float) -> None:
    shifted = [[score + shift for score in group] for group in groups]
    assert noise_of(shifted).sd == pytest.approx(noise_of(groups).sd, abs=1e-9)


def test_more_launches_and_less_noise_tell_smaller_gains() -> None:
    noisy, quiet = noise_of([(0.0, 0.05)] * 4), noise_of([(0.0, 0.005)] * 4)
    told = [detectable_gain(noisy, count) for count in (1, 2, 3, 6, 20)]
    assert told == sorted(told, reverse=True)
    assert all(detectable_gain(quiet, count) < detectable_gain(noisy, count) for count in (2, 3, 6))


def test_three_of_each_tell_four_per_cent_at_the_usual_noise() -> None:
    assert detectable_gain(noise_of([(0.0, 0.0195)]), 3) == pytest.approx(0.04, abs=0.005)


@given(st.floats(0.005, 0.5), st.floats(0.001, 0.05))
def test_the_repeats_that_are_needed_tell_the_gain_and_one_less_does_not(gain: float, apart: float) -> None:
    noise = noise_of([(0.0, apart), (0.0, apart)])
    needed = repeats_needed(noise, gain)
    if needed is None:
        assert detectable_gain(noise, 100) > gain
    else:
        assert detectable_gain(noise, needed) <= gain
        assert needed == 2 or detectable_gain(noise, needed - 1) > gain


def test_nothing_is_told_without_launches_or_of_no_gain() -> None:
    with pytest.raises(ValueError, match="without a launch"):
        detectable_gain(noise_of([]), 0)
    with pytest.raises(ValueError, match="above 0"):
        repeats_needed(noise_of([]), 0.0)


def test_people_are_told_the_noise_and_where_it_is_from() -> None:
    assert noise_of([(0.0, 0.0184), (1.0, 1.0184)]).shown() == "launches differ by 1.3% (sd, from 2 repeats)"
    assert noise_of([(0.0, 0.0184)]).shown().endswith("from 1 repeat)")
