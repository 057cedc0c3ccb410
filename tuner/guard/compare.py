"""How far two answers to one prompt agree, and what a whole set of answers amounts to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.guard.answers import Answer, Reference
from tuner.guard.text import is_looping, is_strange

PREFIX = 32
"""Agreement is over so many tokens: behind the first fork both go on, each in its own way."""

_SHORT = 0.25
_SHORT_LEAST = 8


@dataclass(frozen=True)
class Comparison:
    """An answer held against one of the reference.

    `same` tokens agree from the start. `agreement` is the share of the first 32 tokens of the reference that
    agree. `gap` is by how much (in nats) the reference preferred its own token where the two part: small for
    a near tie, which rounding alone can turn; infinite where the other token was not among its likeliest;
    None where they do not part or it cannot be told. `shifts` are the differences of the log-probabilities
    of the tokens that agree.
    """

    same: int
    agreement: float
    gap: float | None
    shifts: tuple[float, ...]


@dataclass(frozen=True)
class Score:
    """What the answers of one round amount to against a reference.

    Means and shares are over the prompts that were answered. `forked` is the share that parts from the
    reference where that was sure of its token; None where no answer has a known gap. `shift` is the mean
    absolute difference of log-probabilities, None where they are not known. `length` is the number of all
    tokens relative to the reference's. The rest are counts.
    """

    prompts: int
    agreement: float = 1.0
    forked: float | None = None
    largest_gap: float = 0.0
    shift: float | None = None
    length: float = 1.0
    unanswered: int = 0
    empty: int = 0
    strange: int = 0
    looping: int = 0
    short: int = 0
    dropped: int = 0
    undefined: int = 0


def units_of(answer: Answer, *, as_words: bool = False) -> tuple[object, ...]:
    """The tokens, or the words where the server does not tell its tokens."""
    return tuple(answer.text.split()) if as_words or not answer.token_ids else answer.token_ids


def compare(reference: Answer, answer: Answer) -> Comparison:
    """See `Comparison`."""
    as_words = not (reference.token_ids and answer.token_ids)
    ours, theirs = units_of(reference, as_words=as_words), units_of(answer, as_words=as_words)
    same = next(
        (place for place, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other),
        min(len(ours), len(theirs)),
    )
    looked_at = min(PREFIX, len(ours))
    shifts = (
        ()
        if as_words
        else tuple(
            theirs_value - ours_value
            for ours_value, theirs_value in zip(
                reference.logprobs[:same], answer.logprobs[:same], strict=False
            )
            if math.isfinite(ours_value) and math.isfinite(theirs_value)
        )
    )
    return Comparison(
        same=same,
        agreement=min(same, looked_at) / looked_at if looked_at else float(not theirs),
        gap=None if as_words else _gap(reference, answer, same),
        shifts=shifts,
    )


def closest(reference: Reference, answer: Answer) -> tuple[Answer, Comparison] | None:
    """The reference's answer that agrees longest with this one; None where it has none to that prompt."""
    found = [(other, compare(other, answer)) for other in reference.answers_to(answer.prompt)]
    return max(
        found, key=lambda pair: (pair[1].same, -_or_zero(pair[1].gap), pair[1].agreement), default=None
    )


def score(reference: Reference, answers: Sequence[Answer], tie_nats: float) -> Score:
    """What `answers` amount to. A fork with a gap above `tie_nats` counts as one that rounding cannot make.

    Prompts that the reference itself never answered are left out.
    """
    known = [answer for answer in answers if reference.answers_to(answer.prompt)]
    answered = [answer for answer in known if not answer.error]
    unanswered = len(known) - len(answered)
    if not answered:
        return Score(prompts=len(known), unanswered=unanswered)
    pairs = [pair for answer in answered if (pair := closest(reference, answer)) is not None]
    comparisons = [comparison for _, comparison in pairs]
    gaps = [comparison.gap for comparison in comparisons if comparison.gap is not None]
    with_choices = sum(bool(other.choices) for other, _ in pairs)
    shifts = [abs(shift) for comparison in comparisons for shift in comparison.shifts]
    lengths = [_length_of(reference, answer.prompt) for answer in answered]
    counted = [len(units_of(answer)) for answer in answered]
    return Score(
        prompts=len(known),
        agreement=sum(comparison.agreement for comparison in comparisons) / len(comparisons),
        forked=sum(gap > tie_nats for gap in gaps) / len(answered) if with_choices else None,
        largest_gap=max(gaps, default=0.0),
        shift=sum(shifts) / len(shifts) if shifts else None,
        length=sum(counted) / max(1.0, sum(lengths)),
        unanswered=unanswered,
        empty=sum(not units_of(answer) or not answer.text.strip() for answer in answered),
        strange=sum(is_strange(answer.text) for answer in answered),
        looping=sum(is_looping(units_of(answer)) for answer in answered),
        short=sum(
            length >= _SHORT_LEAST and count < _SHORT * length
            for count, length in zip(counted, lengths, strict=True)
        ),
        dropped=sum(_has_dropped(answer) for answer in answered),
        undefined=sum(not all(math.isfinite(value) for value in answer.logprobs) for answer in answered),
    )


def _gap(reference: Answer, answer: Answer, place: int) -> float | None:
    """None where one of the two just ends there, or the reference does not tell what else it thought of."""
    if place >= min(len(reference.token_ids), len(answer.token_ids), len(reference.choices)):
        return None
    choices = dict(reference.choices[place])
    own = choices.get(reference.token_ids[place])
    other = choices.get(answer.token_ids[place])
    if own is None or not choices:
        return None
    return math.inf if other is None else max(0.0, own - other)


def _has_dropped(answer: Answer) -> bool:
    """It says that it went on to the end of what was asked for, and there is less than that."""
    there = len(answer.token_ids) or answer.tokens
    return answer.finish == "length" and there < answer.asked


def _length_of(reference: Reference, prompt: str) -> float:
    lengths = [len(units_of(answer)) for answer in reference.answers_to(prompt)]
    return sum(lengths) / len(lengths)


def _or_zero(gap: float | None) -> float:
    return 0.0 if gap is None else gap
