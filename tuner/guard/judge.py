"""Whether answers are those of the same model, within what the default server itself varies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.guard.answers import AnswerSet, Reference
from tuner.guard.compare import Score, score, units_of

TIE_NATS = 1.0
"""A fork with a smaller gap is a near tie: another kernel, batch or parallelism rounds it the other way.
In bf16 a logit between 16 and 32 is stored in steps of 0.125."""

_TIE_NATS_MOST = 2.0
_FORKED_MORE = 0.25
_AGREEMENT_PART = 0.3
"""Rounding by 0.3 nats at each place can more than halve the agreement of free texts; garbling leaves a
tenth of it, and forks where the default was sure."""

_AGREEMENT_PART_OF_TIES = 0.1
"""The same where all forks are known and are near ties."""

_SHIFT_NATS = 0.3
_SHIFT_TIMES = 3.0
_LENGTH_FACTOR = 2.0
_LOOPING_MORE = 0.25
_SHORT_MORE = 0.25
_BLIND_AGREEMENT = 0.1
_BLIND_GAP_NATS = 0.05
_BLIND_SHARE = 0.9
_DRAFTS_PART = 0.3

ALONE = "alone"
UNDER_LOAD = "under load"


@dataclass(frozen=True)
class OutputVerdict:
    """What the guard says of a configuration.

    `reasons` are why its output is wrong; none while it is `ok`. `blind` is why the guard cannot see
    anything, and then it is ok. `agreement` is the lower of the two rounds', `scores` are by round.
    """

    ok: bool
    reasons: tuple[str, ...] = ()
    blind: str = ""
    agreement: float | None = None
    accept_length: float | None = None
    scores: Mapping[str, Score] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The verdict for a record. What is infinite is null."""
        return {
            "ok": self.ok,
            "reasons": list(self.reasons),
            "blind": self.blind,
            "agreement": _shown(self.agreement),
            "accept_length": _shown(self.accept_length),
            "scores": {
                name: {key: _shown(value) for key, value in asdict(found).items()}
                for name, found in self.scores.items()
            },
        }


@dataclass(frozen=True)
class Limits:
    """How far a configuration may be from the default server; `own` is the worst that it did itself."""

    own: Score
    tie_nats: float
    forked_most: float
    shift_most: float


def limits_of(reference: Reference) -> Limits:
    """The limits, from how far each set of the reference is from the others.

    With a single set nothing is known of the default's own variation, and only the margins count.
    """
    gaps = [found.largest_gap for found in _own_scores(reference, TIE_NATS)]
    largest = max((gap for gap in gaps if math.isfinite(gap)), default=0.0)
    tie_nats = min(_TIE_NATS_MOST, max(TIE_NATS, 1.5 * largest))
    own = _worst(_own_scores(reference, tie_nats))
    return Limits(
        own=own,
        tie_nats=tie_nats,
        forked_most=(own.forked or 0.0) + _FORKED_MORE,
        shift_most=max(_SHIFT_NATS, _SHIFT_TIMES * (own.shift or 0.0)),
    )


def judge(
    reference: Reference, answers: AnswerSet, *, accept_length_expected: float | None = None
) -> OutputVerdict:
    """Compare a configuration's answers with the reference, both rounds by the same rules.

    Token forks are judged by how sure the reference was, so that a different but correct kernel passes;
    texts that cannot be answers, loops, missing tokens and failed requests count only as far as the
    reference does not have them too. `accept_length_expected` is what comparable configurations reach,
    by default the reference's own.
    """
    why_blind = blind_because(reference)
    limits = limits_of(reference)
    scores = {
        name: score(reference, found, limits.tie_nats)
        for name, found in ((ALONE, answers.alone), (UNDER_LOAD, answers.under_load))
    }
    reasons: list[str] = []
    if not why_blind:
        for name, round_ in ((ALONE, answers.alone), (UNDER_LOAD, answers.under_load)):
            error = next((answer.error for answer in round_ if answer.error), "")
            reasons += [f"{name}: {reason}" for reason in _reasons(scores[name], limits, error)]
        expected = reference.accept_length if accept_length_expected is None else accept_length_expected
        collapsed = accept_collapse(answers.accept_length, expected)
        reasons += [collapsed] if collapsed else []
    return OutputVerdict(
        ok=not reasons,
        reasons=tuple(reasons),
        blind=why_blind,
        agreement=min((found.agreement for found in scores.values() if found.prompts), default=None),
        accept_length=answers.accept_length,
        scores=scores,
    )


def blind_because(reference: Reference) -> str:
    """Why nothing can be told with this reference, or the empty string.

    So it is with dummy weights: all tokens are equally likely, every prompt gets the same answer, and
    rounding decides.
    """
    answers = [answer for item in reference.sets for answer in (*item.alone, *item.under_load)]
    given = [answer for answer in answers if not answer.error]
    if not given:
        error = next((answer.error for answer in answers if answer.error), "nothing was asked")
        return f"the default server answered no prompt: {error}"
    if len({answer.prompt for answer in given}) > 1 and len({units_of(answer) for answer in given}) == 1:
        return "the default server answers every prompt alike; are the weights real?"
    values = [value for answer in given for value in answer.logprobs]
    if len(values) > 1 and max(values) - min(values) < 1e-4:
        return "the default server finds all tokens equally likely; are the weights real?"
    margins = [
        margin for answer in given for place in answer.choices if (margin := _margin(place)) is not None
    ]
    if margins and sum(margin < _BLIND_GAP_NATS for margin in margins) > _BLIND_SHARE * len(margins):
        return "the default server hardly prefers any token to the next; are the weights real?"
    own = [found.agreement for found in _own_scores(reference, TIE_NATS) if found.prompts]
    if own and min(own) < _BLIND_AGREEMENT:
        return f"two answers of the default server agree in only {min(own):.0%} of their first tokens"
    return ""


def accept_collapse(accept_length: float | None, expected: float | None) -> str:
    """Why the accepted drafts are too few to be right, or the empty string.

    Of the tokens of a step one is the target's own, so that the length never falls below 1: it is the
    drafts beyond that which collapse when the verification is broken. Known faults left a tenth of them;
    a poorer choice of steps leaves a half.
    """
    if accept_length is None or expected is None or expected <= 1.0:
        return ""
    part = (accept_length - 1.0) / (expected - 1.0)
    if part >= _DRAFTS_PART:
        return ""
    return (
        f"speculation accepts {accept_length:.2f} tokens for each step where {expected:.2f} were expected: "
        f"{max(0.0, part):.0%} of the drafts"
    )


def _reasons(found: Score, limits: Limits, error: str) -> list[str]:
    """Why the answers of a round are wrong; `error` is that of the first prompt without an answer."""
    answered = found.prompts - found.unanswered
    reasons = []
    for count, own, more, what in (
        (found.unanswered, limits.own.unanswered, 0.0, f"prompts got no answer ({error})"),
        (found.undefined, limits.own.undefined, 0.0, "answers have probabilities that are no numbers"),
        (found.dropped, limits.own.dropped, 0.0, "answers lack tokens that they claim to have"),
        (found.strange, limits.own.strange, 0.0, "answers are no text"),
        (found.empty, limits.own.empty, 1 / max(1, found.prompts), "answers are empty"),
        (found.looping, limits.own.looping, _LOOPING_MORE, "answers end in a loop"),
        (found.short, limits.own.short, _SHORT_MORE, "answers stop far too early"),
    ):
        allowed = own / max(1, limits.own.prompts) + more
        if count > allowed * found.prompts + 1e-9:
            reasons.append(f"{count} of {found.prompts} {what}")
    if not answered:
        return reasons
    if found.forked is not None and found.forked > limits.forked_most:
        reasons.append(
            f"{found.forked:.0%} of the answers part from the default's where it was sure of its token "
            f"by more than {limits.tie_nats:.1f} nats (the default itself: {limits.own.forked or 0.0:.0%})"
        )
    part = _AGREEMENT_PART if found.forked is None else _AGREEMENT_PART_OF_TIES
    if found.agreement < part * limits.own.agreement:
        reasons.append(
            f"the answers agree with the default's in {found.agreement:.0%} of their first tokens "
            f"(the default with itself: {limits.own.agreement:.0%})"
        )
    if found.shift is not None and found.shift > limits.shift_most:
        reasons.append(
            f"the same tokens have log-probabilities {found.shift:.2f} nats apart "
            f"(the default itself: {limits.own.shift or 0.0:.2f})"
        )
    if not 1 / _LENGTH_FACTOR <= found.length <= _LENGTH_FACTOR:
        reasons.append(f"the answers are {found.length:.2f} times as long as the default's")
    return reasons


def _own_scores(reference: Reference, tie_nats: float) -> list[Score]:
    """Each set of the reference against all others."""
    if len(reference.sets) < 2:
        return []
    return [
        score(reference.without(index), answers, tie_nats)
        for index, item in enumerate(reference.sets)
        for answers in (item.alone, item.under_load)
    ]


def _worst(scores: list[Score]) -> Score:
    """The worst of each kind; counts are carried over as shares of the largest round."""
    if not scores:
        return Score(prompts=0)
    prompts = max(found.prompts for found in scores)

    def most(name: str) -> int:
        shares = [float(getattr(found, name)) / found.prompts for found in scores if found.prompts]
        return math.ceil(max(shares, default=0.0) * prompts)

    counted = ("unanswered", "empty", "strange", "looping", "short", "dropped", "undefined")
    return Score(
        prompts=prompts,
        agreement=min(found.agreement for found in scores),
        forked=max((found.forked for found in scores if found.forked is not None), default=None),
        largest_gap=max(found.largest_gap for found in scores),
        shift=max((found.shift for found in scores if found.shift is not None), default=None),
        **{name: most(name) for name in counted},
    )


def _margin(place: tuple[tuple[int, float], ...]) -> float | None:
    """By how much the likeliest token is ahead of the next."""
    values = sorted((value for _, value in place), reverse=True)
    return values[0] - values[1] if len(values) > 1 else None


def _shown(value: float | None) -> float | None:
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    return value
