"""The verdict on a study: is its best configuration faster than the default, by how much, how sure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from tuner.verdict.confirmation import (
    DEFAULT,
    Candidate,
    ConfirmationPlan,
    FreshLaunch,
    comparison_of,
    confidence_for,
    finalists_of,
    leader_of,
    scores_of,
)
from tuner.verdict.noise import detectable_gain, repeats_needed


class VerdictKind(str, Enum):
    """What can be said of the best configuration against the default."""

    FASTER = "faster"
    NO_CLEAR_WINNER = "no clear winner"
    SLOWER = "slower"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Verdict:
    """What the confirming launches say. Gains are relative to the default: 0.09 is 9 % faster.

    `finalist` is the candidate that was judged; it is the winner where `kind` is faster. `low` to `high` is
    the 95 % interval of `gain`. `search_gain` is what the search had said, `shrinkage` by how much the
    confirmation said less. `launches` are all confirming launches, `launches_each` those of default and
    finalist that were measured; `detectable_gain` is what so many tell in 4 of 5 studies, `repeats_needed`
    the launches of each that would tell the gain that was seen. `drift` is by how much the default itself
    has become faster since it was launched before the search. `dead` are finalists that failed to start
    again. Where there was nothing to compare, `gain` is None and `reason` says why.
    """

    kind: VerdictKind
    finalist: str | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    search_gain: float | None = None
    shrinkage: float | None = None
    launches: int = 0
    launches_each: tuple[int, int] = (0, 0)
    noise_sd: float | None = None
    detectable_gain: float | None = None
    repeats_needed: int | None = None
    drift: float | None = None
    dead: tuple[str, ...] = ()
    reason: str = ""

    @property
    def winner(self) -> str | None:
        """The candidate that is faster than the default, or None."""
        return self.finalist if self.kind is VerdictKind.FASTER else None

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        return {**asdict(self), "kind": str(self.kind), "winner": self.winner, "sentence": self.shown()}

    def shown(self) -> str:
        """One or two sentences for people."""
        if self.gain is None or self.low is None or self.high is None or self.search_gain is None:
            return f"{self.kind}: {self.reason}"
        interval = f"(95% interval {self.low:+.1%} to {self.high:+.1%})"
        said = f"search said {self.search_gain:+.1%}, confirmed {self.gain:+.1%}"
        counts = f"in {self.launches} launches"
        if self.kind is VerdictKind.NO_CLEAR_WINNER:
            return f"{self.kind}: {self.gain:+.1%} {interval} {counts}; {said}.{self._what_could_be_told()}"
        return f"{self.kind} by {abs(self.gain):.1%} {interval}: {said}, {counts}."

    def _what_could_be_told(self) -> str:
        told = f" So many launches tell a gain of {self.detectable_gain:.1%}"
        if self.gain is None or self.gain <= 0:
            return f"{told}."
        needed = str(self.repeats_needed) if self.repeats_needed is not None else "more than 100"
        return f"{told}; {self.gain:+.1%} would need {needed} of each."


def judge(plan: ConfirmationPlan, done: Sequence[FreshLaunch]) -> Verdict:
    """The verdict after these confirming launches.

    Only they make the gain: the launches of the search chose the finalists, so their luck is left out. Of
    several finalists `leader_of` is judged.
    """
    dead = tuple(dict.fromkeys(item.arm for item in done if item.log_score is None and item.arm != DEFAULT))
    reference = scores_of(done, DEFAULT)
    compared = [
        candidate
        for candidate in plan.ranked
        if candidate.name in finalists_of(plan, done) and scores_of(done, candidate.name)
    ]
    if not compared or not reference:
        reason = _why_nothing(plan, reference, dead)
        return Verdict(VerdictKind.NO_CLEAR_WINNER, launches=len(done), dead=dead, reason=reason)
    leader = leader_of(plan, done)
    best = next(candidate for candidate in compared if candidate.name == leader)
    comparison = comparison_of(plan, done, best.name)
    low, high = comparison.interval(confidence_for(len(compared)))
    kind = VerdictKind.FASTER if low > 0 else VerdictKind.SLOWER if high < 0 else VerdictKind.NO_CLEAR_WINNER
    gain, search_gain = math.expm1(comparison.log_gain), _search_gain(plan, best)
    each = (len(reference), len(scores_of(done, best.name)))
    return Verdict(
        kind,
        finalist=best.name,
        gain=gain,
        low=math.expm1(low),
        high=math.expm1(high),
        search_gain=search_gain,
        shrinkage=search_gain - gain,
        launches=len(done),
        launches_each=each,
        noise_sd=plan.noise.sd,
        detectable_gain=detectable_gain(plan.noise, min(each)),
        repeats_needed=repeats_needed(plan.noise, gain) if gain > 0 else None,
        drift=math.expm1(math.fsum(reference) / len(reference) - plan.default.log_score),
        dead=dead,
    )


def _search_gain(plan: ConfirmationPlan, candidate: Candidate) -> float:
    return math.expm1(candidate.log_score - plan.default.log_score)


def _why_nothing(plan: ConfirmationPlan, reference: Sequence[float], dead: tuple[str, ...]) -> str:
    if not plan.ranked:
        return "the search saw nothing faster than the default, so there was nothing to confirm"
    if dead and not reference:
        return "neither the default nor a finalist could be launched again"
    if dead:
        return f"no finalist could be launched again ({', '.join(dead)} failed)"
    return "no confirming launch was measured" if reference else "the default could not be launched again"
