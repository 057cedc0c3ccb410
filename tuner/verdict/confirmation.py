"""Which launches confirm the best of a search: planned from the noise, then decided launch by launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import pvariance

from tuner.verdict.comparison import Comparison, Sample, compare
from tuner.verdict.noise import CONFIDENCE, Noise, detectable_gain

DEFAULT = "default"
"""The name of the arm that everything is held against."""

MOST_TOGETHER = 3
_EARLY_CONFIDENCE = 0.995
"""For stopping before the launches are used up. Each further look at the data is a further chance to be
wrong; at this level the looks together add half a per cent to the 5 % of the last one."""

_DEFAULT_DEATHS = 2
_LEAST_ROUNDS = 2
"""Launches of each before anything is decided."""

_ROUNDS_TOGETHER = 3
"""Launches of each that several finalists at once have to be worth: two of each leave Welch's t with one or
two degrees of freedom, which tells a gain of four standard errors in half of the studies only."""


def reserve(launches: int) -> int:
    """How many launches of a study's budget to keep for the confirmation.

    Six: three of each tell +5 % at 1.3 % noise in nine of ten studies, two of each in half of them. More in
    long studies, so that two or three finalists can be confirmed; four, or none, in short ones.
    """
    if launches < 14:
        return 4 if launches >= 9 else 0
    return min(12, max(6, launches // 6))


@dataclass(frozen=True)
class Candidate:
    """A configuration that the search has measured: the log-scores of its launches, all equally weighted.

    `expected` is what the search expects of another launch, where it knows better than their mean.
    """

    name: str
    log_scores: tuple[float, ...]
    expected: float | None = None

    @property
    def log_score(self) -> float:
        """Their mean."""
        return math.fsum(self.log_scores) / len(self.log_scores)

    @property
    def rank(self) -> float:
        """What it is chosen by: what is expected of it."""
        return self.log_score if self.expected is None else self.expected


@dataclass(frozen=True)
class FreshLaunch:
    """A confirming launch: the arm's name and its log-score, None where it could not be measured."""

    arm: str
    log_score: float | None


@dataclass(frozen=True)
class ConfirmationPlan:
    """Up to `launches` fresh launches of the default and `together` finalists in turn.

    `ranked` are the candidates that may become finalists, best first: where one dies the next takes its
    place.
    `default` holds the launches of the default before the confirmation (A/A).
    """

    default: Candidate
    ranked: tuple[Candidate, ...]
    together: int
    launches: int
    noise: Noise


def plan_confirmation(
    default: Candidate, candidates: Sequence[Candidate], noise: Noise, launches: int
) -> ConfirmationPlan:
    """What to confirm with at most this many launches.

    Candidates that the search saw no faster than the default are left out. One finalist gets all the launches
    unless they are enough to tell the expected gain of two or three at once, and only those run beside the
    first that the noise cannot tell from it. The expected gain is the search's, shrunk by the part of the
    spread of all scores that noise explains: the best of many launches was lucky, too.
    """
    ranked = tuple(
        sorted(
            (candidate for candidate in candidates if candidate.rank > default.rank),
            key=lambda candidate: -candidate.rank,
        )
    )
    if not ranked or launches < 2:
        return ConfirmationPlan(default, (), 0, 0, noise)
    best = ranked[0].rank
    told_apart = 2 * noise.sd * math.sqrt(2)
    alike = sum(best - candidate.rank <= told_apart for candidate in ranked)
    expected = math.expm1(max(0.0, _shrunk(candidates, noise) - default.log_score))
    together = 1
    for count in range(2, min(alike, MOST_TOGETHER) + 1):
        each = launches // (count + 1)
        if each >= _ROUNDS_TOGETHER and detectable_gain(noise, each) <= expected:
            together = count
    return ConfirmationPlan(default, ranked, together, launches, noise)


def _shrunk(candidates: Sequence[Candidate], noise: Noise) -> float:
    """The log-score that the best candidate is expected to repeat."""
    scores = [candidate.log_score for candidate in candidates]
    if len(scores) < 2:
        return scores[0]
    spread, mean = pvariance(scores), math.fsum(scores) / len(scores)
    kept = max(0.0, 1 - noise.sd**2 / spread) if spread > 0 else 0.0
    return mean + kept * (max(scores) - mean)


def next_arm(plan: ConfirmationPlan, done: Sequence[FreshLaunch]) -> str | None:
    """The arm to launch next, or None where the confirmation is over.

    The arms take turns, the default first. A finalist that dies is out and the next candidate takes its
    place; the default may die once. After two rounds only the leading finalist goes on, and the confirmation
    ends before its launches are used up where the difference is clear beyond doubt. Deterministic: an
    interrupted confirmation goes on from the launches that were done.
    """
    if len(done) >= plan.launches or _default_deaths(done) >= _DEFAULT_DEATHS:
        return None
    finalists = finalists_of(plan, done)
    if not finalists:
        return None
    counts = {arm: len(scores_of(done, arm)) for arm in (DEFAULT, *finalists)}
    if min(counts.values()) >= _LEAST_ROUNDS:
        leader = leader_of(plan, done)
        counts = {DEFAULT: counts[DEFAULT], leader: counts[leader]}
        if counts[DEFAULT] == counts[leader] and comparison_of(plan, done, leader).is_clear(
            _EARLY_CONFIDENCE
        ):
            return None
    return min(counts, key=lambda arm: counts[arm])


def leader_of(plan: ConfirmationPlan, done: Sequence[FreshLaunch]) -> str:
    """The finalist that is judged: of those with most fresh launches the one with the best mean.

    Counting launches first keeps to the one that went on after the others were dropped: what was dropped for
    its low mean must not come back by the luck of few launches. One finalist at least has to be in.
    """

    def rank(name: str) -> tuple[int, float]:
        scores = scores_of(done, name)
        return len(scores), math.fsum(scores) / len(scores) if scores else -math.inf

    return max(finalists_of(plan, done), key=rank)


def finalists_of(plan: ConfirmationPlan, done: Sequence[FreshLaunch]) -> tuple[str, ...]:
    """The finalists that are still in, best of the search first."""
    dead = {launch.arm for launch in done if launch.log_score is None}
    return tuple(candidate.name for candidate in plan.ranked if candidate.name not in dead)[: plan.together]


def scores_of(done: Sequence[FreshLaunch], arm: str) -> tuple[float, ...]:
    """The log-scores of an arm's confirming launches."""
    return tuple(launch.log_score for launch in done if launch.arm == arm and launch.log_score is not None)


def comparison_of(plan: ConfirmationPlan, done: Sequence[FreshLaunch], finalist: str) -> Comparison:
    """A finalist held against the default. Both need a fresh launch that was measured."""
    searched = next(candidate for candidate in plan.ranked if candidate.name == finalist)
    return compare(
        Sample(scores_of(done, DEFAULT), (plan.default.log_scores,)),
        Sample(scores_of(done, finalist), (searched.log_scores,)),
        plan.noise,
    )


def confidence_for(compared: int) -> float:
    """The level of the interval so that the best of `compared` finalists is wrongly called faster in at most
    5 % of studies: 95 % for one or two, whose lower ends err in 2.5 % each, more for three."""
    return 1 - 2 * (1 - CONFIDENCE) / max(2, compared)


def _default_deaths(done: Sequence[FreshLaunch]) -> int:
    return sum(launch.arm == DEFAULT and launch.log_score is None for launch in done)
