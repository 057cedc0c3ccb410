"""What is launched to confirm the best of a search, in which order, and when that ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verdict.studies import arms, candidate, confirm, percent, quiet
from tuner.verdict.confirmation import (
    DEFAULT,
    ConfirmationPlan,
    FreshLaunch,
    finalists_of,
    next_arm,
    plan_confirmation,
    reserve,
)

AA = candidate(DEFAULT, 0.4, -0.4)


def plan(*gains: float, launches: int = 6, sd: float = 0.013) -> ConfirmationPlan:
    """Candidates a, b, c … that the search saw faster by these gains in per cent."""
    names = "abcdefgh"
    return plan_confirmation(
        AA, [candidate(names[place], gain) for place, gain in enumerate(gains)], quiet(sd), launches
    )


def even(arm: str) -> float:
    return 0.0


def test_the_best_and_the_default_are_launched_in_turn() -> None:
    assert arms(confirm(plan(1.0, 5.0, 2.0), even)) == "D b D b D b"


def test_a_quiet_box_confirms_several_at_once_and_goes_on_with_the_leader() -> None:
    several = plan(8.9, 9.0, 8.8, 2.0, launches=12, sd=0.003)
    assert several.together == 3

    def launch(arm: str) -> float:
        return {DEFAULT: 0.0, "a": 0.001, "b": 0.0005, "c": 0.0}[arm]

    assert arms(confirm(several, launch)) == "D b a c D b a c D a D a"


def test_one_finalist_gets_all_launches_where_the_noise_leaves_no_room_for_two() -> None:
    assert plan(5.0, 4.9, 4.8).together == 1
    assert plan(5.0, 4.9, launches=30).together == 2
    assert plan(9.0, 3.0, launches=30, sd=0.003).together == 1  # the second is told apart already


def test_what_the_search_saw_no_faster_is_not_confirmed() -> None:
    nothing = plan(-1.0, -5.0, -0.1)
    assert nothing.ranked == ()
    assert confirm(nothing, even) == []
    assert [item.name for item in plan(-1.0, 2.0).ranked] == ["b"]


def test_too_few_launches_confirm_nothing() -> None:
    assert confirm(plan(9.0, launches=1), even) == []
    assert confirm(plan(9.0, launches=0), even) == []


def test_a_finalist_that_dies_is_out_and_the_next_one_is_in() -> None:
    def launch(arm: str) -> float | None:
        return None if arm == "b" else 0.0

    done = confirm(plan(4.0, 5.0, 3.0), launch)
    assert arms(done) == "D b a D a D"
    assert finalists_of(plan(4.0, 5.0, 3.0), done) == ("a",)


def test_it_ends_when_no_finalist_is_left() -> None:
    assert arms(confirm(plan(4.0, 5.0), lambda arm: 0.0 if arm == DEFAULT else None)) == "D b a"


def test_the_default_may_die_once() -> None:
    assert arms(confirm(plan(5.0), lambda arm: None if arm == DEFAULT else 0.0)) == "D D"
    lost = [FreshLaunch(DEFAULT, None)]
    assert next_arm(plan(5.0), lost) == DEFAULT


def test_it_ends_early_only_where_the_difference_is_beyond_doubt() -> None:
    def launch(gain: float) -> str:
        scores = iter((0.0, gain, 0.013, gain + 0.013, 0.006, gain + 0.006))
        return arms(confirm(plan(9.0), lambda arm: next(scores)))

    assert launch(percent(40)) == "D a D a"
    assert launch(percent(-40)) == "D a D a"
    assert launch(percent(5)) == "D a D a D a"


@given(
    st.lists(st.floats(-3, 12), min_size=1, max_size=8),
    st.integers(0, 14),
    st.floats(0.001, 0.04),
    st.lists(st.floats(-0.1, 0.1), min_size=14, max_size=14),
)
def test_an_interrupted_confirmation_goes_on_where_it_was(
    gains: list[float], launches: int, sd: float, luck: list[float]
) -> None:
    planned = plan(*gains, launches=launches, sd=sd)
    scores = iter(luck)
    done = confirm(planned, lambda arm: next(scores))
    for count in range(len(done)):
        assert next_arm(planned, done[:count]) == done[count].arm
    assert next_arm(planned, done) is None


@pytest.mark.parametrize(("budget", "kept"), [(5, 0), (9, 4), (13, 4), (14, 6), (40, 6), (60, 10), (200, 12)])
def test_a_part_of_the_budget_is_kept(budget: int, kept: int) -> None:
    assert reserve(budget) == kept
    assert kept < budget
