"""What a server answered, and what the default server answered: the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from tuner.errors import TunerError
from tuner.guard.prompts import ALONE, Prompt

REFERENCE_VERSION = 1

Choice = tuple[int, float]
"""A token that could have come at a place, and its log-probability."""


@dataclass(frozen=True)
class Answer:
    """The answer to one prompt, as it came.

    `token_ids` are empty where the server does not tell them. `logprobs` are of the tokens that came (NaN
    where the server says so), `choices` the likeliest tokens at each place; both are empty where they were
    not asked for. `tokens` is the server's own count, `finish` its reason ("stop", "length"). `verify_steps`
    counts steps of speculation. `error` says why there is no answer.
    """

    prompt: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    choices: tuple[tuple[Choice, ...], ...] = ()
    tokens: int = 0
    asked: int = 0
    finish: str = ""
    verify_steps: int = 0
    error: str = ""


class AnswerSource(Protocol):
    """Whoever answers prompts greedily."""

    def answer(self, prompts: Sequence[Prompt], *, at_once: int) -> list[Answer]:
        """The answers in the order of the prompts, at most `at_once` of them asked at the same time.

        A prompt that gets no answer has one with an `error`.
        """


@dataclass(frozen=True)
class AnswerSet:
    """What a server answered: alone (one request at a time) and under load (as many as will be measured)."""

    alone: tuple[Answer, ...]
    under_load: tuple[Answer, ...]

    @property
    def accept_length(self) -> float | None:
        """Tokens for each step of speculation over all answers; None without speculation."""
        told = [answer for answer in (*self.alone, *self.under_load) if answer.verify_steps]
        steps = sum(answer.verify_steps for answer in told)
        return sum(answer.tokens for answer in told) / steps if steps else None


@dataclass(frozen=True)
class Reference:
    """What the default server answered, more than once: two of its answers differ too.

    Kept in the study's folder, so that every later run compares with the same.
    """

    sets: tuple[AnswerSet, ...]

    @property
    def accept_length(self) -> float | None:
        """The largest of the sets'; None without speculation."""
        return max((length for item in self.sets if (length := item.accept_length) is not None), default=None)

    def answers_to(self, prompt: str) -> tuple[Answer, ...]:
        """All answers to a prompt, however they came; without those that are errors."""
        return tuple(
            answer
            for item in self.sets
            for answer in (*item.alone, *item.under_load)
            if answer.prompt == prompt and not answer.error
        )

    def without(self, index: int) -> Reference:
        """All sets but one."""
        return Reference(tuple(item for place, item in enumerate(self.sets) if place != index))

    def to_json(self) -> dict[str, Any]:
        """The reference for a file. NaN is written as null."""
        return {"version": REFERENCE_VERSION, "sets": [set_to_json(item) for item in self.sets]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Reference:
        """The inverse of `to_json`. Raises `TunerError` for anything else."""
        try:
            if data["version"] != REFERENCE_VERSION:
                raise TunerError(
                    f"the guard's reference is of version {data['version']}, this program reads version "
                    f"{REFERENCE_VERSION}",
                    hint="use the version of tuner that wrote it, or move the study's folder away",
                )
            return cls(tuple(_set_from_json(item) for item in data["sets"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TunerError(
                f"the guard's reference cannot be read ({type(error).__name__}: {error})",
                hint="move the study's folder away, or restore the file",
            ) from error


def take_answers(source: AnswerSource, prompts: Sequence[Prompt], *, concurrency: int) -> AnswerSet:
    """Ask the first prompts alone, then all of them among so many others that `concurrency` run at once.

    The others end one after the other, so that the batch shrinks around the prompts: some faults show only
    then.
    """
    alone = source.answer(prompts[:ALONE], at_once=1)
    others = _others(prompts, max(0, concurrency - len(prompts)))
    answers = source.answer([*others, *prompts], at_once=max(1, concurrency))
    return AnswerSet(tuple(alone), tuple(answers[len(others) :]))


def set_to_json(item: AnswerSet) -> dict[str, Any]:
    """Both kinds of answers, NaN as null."""
    return {
        "alone": [_answer_to_json(answer) for answer in item.alone],
        "under_load": [_answer_to_json(answer) for answer in item.under_load],
    }


def _others(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    found = []
    for number in range(count):
        model = prompts[number % len(prompts)]
        # Shorter and shorter, down to an eighth, then from the start again.
        tokens = max(4, model.output_tokens * (8 - number % 8) // 8)
        found.append(Prompt(f"other-{number}", f"({number}) {model.text}", tokens))
    return found


def _answer_to_json(answer: Answer) -> dict[str, Any]:
    data = asdict(answer)
    data["logprobs"] = [_or_null(value) for value in answer.logprobs]
    data["choices"] = [[[token, _or_null(value)] for token, value in place] for place in answer.choices]
    return data


def _set_from_json(data: dict[str, Any]) -> AnswerSet:
    return AnswerSet(
        tuple(_answer_from_json(answer) for answer in data["alone"]),
        tuple(_answer_from_json(answer) for answer in data["under_load"]),
    )


def _answer_from_json(data: dict[str, Any]) -> Answer:
    known = {item.name for item in fields(Answer)}
    values = {name: value for name, value in data.items() if name in known}
    values["token_ids"] = tuple(int(token) for token in data["token_ids"])
    values["logprobs"] = tuple(_or_nan(value) for value in data["logprobs"])
    values["choices"] = tuple(
        tuple((int(token), _or_nan(value)) for token, value in place) for place in data["choices"]
    )
    return Answer(**values)


def _or_null(value: float) -> float | None:
    return None if math.isnan(value) else value


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
