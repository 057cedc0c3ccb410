from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InputError
from tuner.measure.lengths import Lengths
from tuner.measure.prompts import SAFE_TOKEN_IDS, Prompt, distinct_share, random_prompts

EIGHT = Lengths.fixed(8)


@given(count=st.integers(1, 300), low=st.integers(1, 40), more=st.integers(0, 40), seed=st.text(max_size=8))
def test_prompts_have_the_asked_size_and_safe_ids_and_never_begin_alike(
    count: int, low: int, more: int, seed: str
) -> None:
    prompts = random_prompts(count, Lengths(low, low + more), EIGHT, seed)
    assert len(prompts) == count
    assert all(low <= len(prompt.ids) <= low + more for prompt in prompts)
    assert all(token in SAFE_TOKEN_IDS for prompt in prompts for token in prompt.ids)
    assert len({prompt.ids[0] for prompt in prompts}) == count
    assert {prompt.output_tokens for prompt in prompts} == {8}


def test_the_same_seed_gives_the_same_prompts_and_another_one_shares_none() -> None:
    size = Lengths.fixed(64)
    again = random_prompts(32, size, EIGHT, "study/C=32/attempt 1")
    assert again == random_prompts(32, size, EIGHT, "study/C=32/attempt 1")
    others = random_prompts(32, size, EIGHT, "study/C=32/attempt 2")
    assert not {prompt.ids[:8] for prompt in again} & {prompt.ids[:8] for prompt in others}


def test_more_prompts_than_ids_differ_in_their_first_two_tokens() -> None:
    prompts = random_prompts(50, Lengths.fixed(4), EIGHT, "seed", range(10, 20))
    assert len({prompt.ids[:2] for prompt in prompts}) == 50


def test_too_short_prompts_are_refused() -> None:
    with pytest.raises(InputError, match="cannot all begin differently"):
        random_prompts(50, Lengths.fixed(1), EIGHT, "seed", range(10, 20))


def test_the_distinct_share() -> None:
    assert distinct_share([]) == 1.0
    assert distinct_share([Prompt(8, text="a"), Prompt(9, text="a"), Prompt(8, text="b")]) == pytest.approx(
        2 / 3
    )


@given(
    low=st.integers(1, 500),
    more=st.integers(0, 500),
    sigma=st.floats(0, 3),
    place=st.floats(0, 1),
    seed=st.integers(),
)
def test_lengths_stay_within_their_bounds(low: int, more: int, sigma: float, place: float, seed: int) -> None:
    lengths = Lengths(low, low + more, low + round(more * place) if sigma else 0, sigma)
    generator = random.Random(seed)
    drawn = [lengths.draw(generator) for _ in range(20)]
    assert all(low <= length <= low + more for length in drawn)
    assert lengths.is_fixed == (more == 0)


def test_lognormal_lengths_have_their_median_and_a_tail() -> None:
    lengths = Lengths(1, 100_000, 500, 0.8)
    generator = random.Random(3)
    drawn = sorted(lengths.draw(generator) for _ in range(4000))
    assert drawn[2000] == pytest.approx(500, rel=0.06)
    assert sum(drawn) / 4000 == pytest.approx(lengths.mean, rel=0.06)


def test_lengths_as_they_are_written() -> None:
    assert Lengths.fixed(7).to_json() == 7
    assert Lengths(1, 7).to_json() == {"low": 1, "high": 7}
    assert Lengths(1, 70, 9, 0.5).to_json() == {"median": 9, "sigma": 0.5, "low": 1, "high": 70}


@pytest.mark.parametrize("wrong", [(0, 5), (6, 5), (1, 5, 9, 0.5)])
def test_lengths_that_cannot_be(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Lengths(*wrong)
