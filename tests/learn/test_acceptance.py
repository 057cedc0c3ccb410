from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.learn.acceptance import Acceptance

THREE = {"speculative": "eagle3", "speculative_num_steps": 3}
TWO = {"speculative": "eagle3", "speculative_num_steps": 2}


def length(odds: float, steps: int) -> float:
    return 1 + sum(odds**position for position in range(1, steps + 1))


@pytest.mark.parametrize("values", [{}, {"speculative": "off"}, {"attention_backend": "triton"}])
def test_without_drafts_there_is_nothing_to_accept(values: dict[str, str]) -> None:
    acceptance = Acceptance([(THREE, 2.2)])

    assert (acceptance.usual(values), acceptance.excess(values), acceptance.doubt(values)) == (0.0, 0.0, 0.0)


def test_the_luck_of_single_launches_averages_out() -> None:
    source = random.Random(1)
    launches = [(THREE, 2.2 * math.exp(source.gauss(0, 0.06))) for _ in range(40)]

    assert abs(Acceptance(launches).usual(THREE) - math.log(2.2)) < 0.03


@given(odds=st.floats(0.45, 0.85), launches=st.integers(6, 30))
def test_launches_with_three_steps_tell_what_two_would_give(odds: float, launches: int) -> None:
    acceptance = Acceptance([(THREE, length(odds, 3))] * launches)

    assert abs(acceptance.usual(TWO) - math.log(length(odds, 2))) < 0.06
    assert acceptance.usual(TWO) < acceptance.usual(THREE)
    assert acceptance.doubt(TWO) > acceptance.doubt(THREE)


def test_one_unlucky_launch_does_not_condemn_its_number_of_steps() -> None:
    steady = [(THREE, 2.2 * factor) for factor in (0.94, 1.06, 0.93, 1.07, 0.95, 1.05)]
    usual = Acceptance(steady).usual(TWO)

    moved = Acceptance([*steady, (TWO, math.exp(usual) * 0.82)]).usual(TWO)

    assert usual - 0.08 < moved < usual


def test_other_drafts_are_not_taken_together() -> None:
    acceptance = Acceptance([({"speculative": "ngram"}, 1.2)] * 10)

    assert acceptance.excess({"speculative": "ngram"}) < -0.3
    assert acceptance.excess(THREE) == 0.0
