from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InputError
from tuner.measure.prompts import SAFE_TOKEN_IDS, fresh_prompts


@given(count=st.integers(1, 300), tokens=st.integers(1, 40), seed=st.text(max_size=8))
def test_prompts_have_the_asked_size_and_safe_ids_and_never_begin_alike(
    count: int, tokens: int, seed: str
) -> None:
    prompts = fresh_prompts("random", count, tokens, seed)
    assert len(prompts) == count
    assert all(len(prompt) == tokens for prompt in prompts)
    assert all(token in SAFE_TOKEN_IDS for prompt in prompts for token in prompt)
    assert len({prompt[0] for prompt in prompts}) == count


def test_the_same_seed_gives_the_same_prompts_and_another_one_shares_none() -> None:
    again = fresh_prompts("random", 32, 64, "study/C=32/attempt 1")
    assert again == fresh_prompts("random", 32, 64, "study/C=32/attempt 1")
    others = fresh_prompts("random", 32, 64, "study/C=32/attempt 2")
    assert not {prompt[:8] for prompt in again} & {prompt[:8] for prompt in others}


def test_more_prompts_than_ids_differ_in_their_first_two_tokens() -> None:
    prompts = fresh_prompts("random", 50, 4, "seed", range(10, 20))
    assert len({prompt[:2] for prompt in prompts}) == 50


def test_too_short_prompts_and_unknown_datasets_are_refused() -> None:
    with pytest.raises(InputError, match="cannot all begin differently"):
        fresh_prompts("random", 50, 1, "seed", range(10, 20))
    with pytest.raises(InputError, match="did you mean 'random'"):
        fresh_prompts("randm", 1, 1, "seed")
