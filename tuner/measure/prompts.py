"""What one request asks, and prompts of random token ids that no earlier request has sent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.errors import InputError
from tuner.measure.lengths import Lengths

SAFE_TOKEN_IDS = range(10, 1000)
"""Token ids that every model has, above those that models commonly keep for special tokens."""


@dataclass(frozen=True)
class Prompt:
    """One request: token ids, or a text, or the messages of a chat (role and content each).

    `output_tokens` is how many tokens are asked for. `shared_tokens` of its leading tokens are meant to be
    in the server's prefix cache.
    """

    output_tokens: int
    ids: tuple[int, ...] = ()
    text: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    shared_tokens: int = 0

    @property
    def content(self) -> object:
        """What makes two prompts the same prompt."""
        return self.ids or self.text or self.messages


def distinct_share(prompts: Sequence[Prompt]) -> float:
    """The share of prompts that no earlier one of the same sequence equals; 1 where all differ."""
    return len({prompt.content for prompt in prompts}) / len(prompts) if prompts else 1.0


def random_prompts(
    count: int, inputs: Lengths, outputs: Lengths, seed: str, token_ids: range = SAFE_TOKEN_IDS
) -> list[Prompt]:
    """`count` prompts of token ids drawn evenly; the same arguments give the same prompts.

    No two of them begin alike. Whoever wants others, for another level or another try, passes another
    `seed`. Raises `InputError` where so many prompts cannot differ.
    """
    generator = random.Random(seed)
    heads = distinct_heads(count, inputs.low, generator, token_ids)
    prompts = []
    for head in heads:
        tokens = inputs.draw(generator)
        ids = (*head, *generator.choices(token_ids, k=tokens - len(head)))
        prompts.append(Prompt(outputs.draw(generator), ids=ids))
    return prompts


def distinct_heads(
    count: int, tokens: int, generator: random.Random, token_ids: range
) -> list[tuple[int, ...]]:
    """`count` different beginnings, as short as they can be.

    Raises `InputError` where `tokens` tokens are too few for that.
    """
    length = 1
    while len(token_ids) ** length < count:
        length += 1
    if tokens < length:
        raise InputError(
            f"{count} prompts of {tokens} tokens cannot all begin differently",
            hint=f"give the workload at least {length} input tokens",
        )
    return [
        _digits(number, length, token_ids)
        for number in generator.sample(range(len(token_ids) ** length), count)
    ]


def _digits(number: int, length: int, token_ids: range) -> tuple[int, ...]:
    """`number` written with `length` token ids as digits."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(token_ids))
        digits.append(token_ids[digit])
    return tuple(digits)
