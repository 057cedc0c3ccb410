"""Prompts that no earlier request has sent, so that no cache of prefixes can answer for them."""

from __future__ import annotations

import random
from collections.abc import Callable

from tuner.errors import InputError, did_you_mean

Prompt = tuple[int, ...]

SAFE_TOKEN_IDS = range(10, 1000)
"""Token ids that every model has, above those that models commonly keep for special tokens."""


def fresh_prompts(
    dataset: str, count: int, tokens: int, seed: str, token_ids: range = SAFE_TOKEN_IDS
) -> tuple[Prompt, ...]:
    """`count` prompts of exactly `tokens` token ids each; the same arguments give the same prompts.

    No two of them begin alike. Whoever wants others, for another level or another try, passes another
    `seed`. Raises `InputError` for an unknown dataset and where so many prompts cannot differ.
    """
    draw = _DATASETS.get(dataset)
    if draw is None:
        raise InputError(f"unknown dataset '{dataset}'", hint=did_you_mean(dataset, _DATASETS))
    return draw(count, tokens, seed, token_ids)


def _random_prompts(count: int, tokens: int, seed: str, token_ids: range) -> tuple[Prompt, ...]:
    """Ids drawn evenly; the first id is another one in every prompt as long as there are enough of them."""
    head_tokens = _head_tokens(count, len(token_ids))
    if tokens < head_tokens:
        raise InputError(
            f"{count} prompts of {tokens} tokens cannot all begin differently",
            hint=f"give the workload at least {head_tokens} input tokens",
        )
    generator = random.Random(seed)
    heads = generator.sample(range(len(token_ids) ** head_tokens), count)
    return tuple(
        (
            *_digits(head, head_tokens, token_ids),
            *generator.choices(token_ids, k=tokens - head_tokens),
        )
        for head in heads
    )


def _head_tokens(count: int, ids: int) -> int:
    """How many leading ids it takes to write `count` different heads."""
    length = 1
    while ids**length < count:
        length += 1
    return length


def _digits(number: int, length: int, token_ids: range) -> Prompt:
    """`number` written with `length` token ids as digits."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(token_ids))
        digits.append(token_ids[digit])
    return tuple(digits)


_DATASETS: dict[str, Callable[[int, int, str, range], tuple[Prompt, ...]]] = {"random": _random_prompts}
