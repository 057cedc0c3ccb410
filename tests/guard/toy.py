"""A toy language model with the traits that matter to the guard, and the faults that real servers have.

Each place has a likeliest token and four others; how far the likeliest is ahead is drawn as real models have
it: seldom a near tie, mostly several nats. Another kernel is noise on the logits: it turns near ties only.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tuner.guard.answers import Answer, AnswerSet, Choice, Reference, take_answers
from tuner.guard.prompts import Prompt, read_prompts

PROMPTS = read_prompts()

Fault = Callable[[Answer], Answer]


@cache
def logits(weights: int, prompt: str, context: tuple[int, ...]) -> tuple[Choice, ...]:
    draw = random.Random(zlib.crc32(f"{weights}|{prompt}|{context}".encode()))
    tokens = [draw.randrange(10_000) * 5 + rank for rank in range(5)]
    value, found = 0.0, []
    for token in tokens:
        found.append((token, value))
        value -= draw.expovariate(1 / 4)
    return tuple(found)


@dataclass
class Toy:
    """An `AnswerSource`. `noise_nats` is what another kernel does; `fault` is applied to what comes out."""

    weights: int = 1
    noise_nats: float = 0.0
    seed: int = 0
    fault: Fault = lambda answer: answer
    fault_under_load: Fault = lambda answer: answer
    with_logprobs: bool = True
    with_ids: bool = True

    def answer(self, prompts: Sequence[Prompt], *, at_once: int) -> list[Answer]:
        answers = [self._answer(prompt, at_once) for prompt in prompts]
        return [self.fault_under_load(answer) for answer in answers] if at_once > 1 else answers

    def _answer(self, prompt: Prompt, at_once: int) -> Answer:
        rounding = random.Random(zlib.crc32(f"{self.seed}|{at_once}|{prompt.name}".encode()))
        ids: list[int] = []
        values: list[float] = []
        choices: list[tuple[Choice, ...]] = []
        while len(ids) < prompt.output_tokens:
            context = (len(ids), *ids[-3:])
            noisy = [
                (token, value + rounding.gauss(0, self.noise_nats))
                for token, value in logits(self.weights, prompt.text, context)
            ]
            total = math.log(sum(math.exp(value) for _, value in noisy))
            place = tuple(
                sorted(((token, value - total) for token, value in noisy), key=lambda choice: -choice[1])
            )
            ids.append(place[0][0])
            values.append(place[0][1])
            choices.append(place)
        answer = Answer(
            prompt.name,
            "",
            tuple(ids),
            tuple(values),
            tuple(choices),
            len(ids),
            prompt.output_tokens,
            "length",
        )
        answer = self.fault(with_text(answer))
        if not self.with_logprobs:
            answer = replace(answer, logprobs=(), choices=())
        return answer if self.with_ids else replace(answer, token_ids=(), logprobs=(), choices=())


def with_text(answer: Answer) -> Answer:
    return replace(answer, text=" ".join(f"w{token}" for token in answer.token_ids))


def taken(source: Toy, concurrency: int = 32) -> AnswerSet:
    return take_answers(source, PROMPTS, concurrency=concurrency)


def reference(noise_nats: float = 0.0, default: Toy | None = None) -> Reference:
    """Two sets of the default server, whose kernels round differently from one batch to the next."""
    server = default or Toy()
    return Reference(
        tuple(taken(replace(server, noise_nats=noise_nats, seed=100 + number)) for number in range(2))
    )


# --- faults -------------------------------------------------------------------------------------------


def with_ids(answer: Answer, ids: Sequence[int], *, keep: int) -> Answer:
    """Other tokens from place `keep` on; the log-probabilities that the broken server believes in."""
    ids = list(ids)
    values = [*answer.logprobs[:keep], *([-0.5] * max(0, len(ids) - keep))][: len(ids)]
    return with_text(replace(answer, token_ids=tuple(ids), logprobs=tuple(values), tokens=len(ids)))


def garbled(after: int) -> Fault:
    def fault(answer: Answer) -> Answer:
        draw = random.Random(answer.prompt)
        ids = [*answer.token_ids[:after], *(draw.randrange(50_000) for _ in answer.token_ids[after:])]
        return with_ids(answer, ids, keep=after)

    return fault


def drops_every(nth: int) -> Fault:
    """The text lacks tokens that the count still has, as when chunks get lost."""

    def fault(answer: Answer) -> Answer:
        ids = [token for place, token in enumerate(answer.token_ids) if place % nth != nth - 1]
        return replace(with_ids(answer, ids, keep=nth - 1), tokens=answer.tokens)

    return fault


def skips(answer: Answer) -> Answer:
    """Every fifth token is left out and the model goes on: as many tokens as were asked for."""
    ids = [token for place, token in enumerate(answer.token_ids) if place % 5 != 4]
    return with_ids(answer, [*ids, *range(len(answer.token_ids) - len(ids))], keep=4)


def stops_after(count: int) -> Fault:
    def fault(answer: Answer) -> Answer:
        return replace(with_ids(answer, answer.token_ids[:count], keep=count), finish="stop")

    return fault


def loops(answer: Answer) -> Answer:
    start = list(answer.token_ids[:6])
    return with_ids(answer, (start * 100)[: len(answer.token_ids)], keep=6)


def exclaims(answer: Answer) -> Answer:
    return replace(with_ids(answer, [0] * len(answer.token_ids), keep=0), text="!" * len(answer.token_ids))


def is_not_a_number(answer: Answer) -> Answer:
    return replace(answer, logprobs=tuple(math.nan for _ in answer.logprobs))


def empties(answer: Answer) -> Answer:
    return replace(answer, text="", token_ids=(), logprobs=(), choices=(), tokens=0, finish="stop")


def undecodable(answer: Answer) -> Answer:
    return replace(answer, text="\ufffd\x00" * 30 + "end")


def fails(answer: Answer) -> Answer:
    return Answer(answer.prompt, asked=answer.asked, error="answered HTTP 500")
