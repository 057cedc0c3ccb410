"""Synthetic studies: launches drawn from normal log-scores, confirmed and judged as a real study is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tuner.verdict.confirmation import (
    DEFAULT,
    Candidate,
    ConfirmationPlan,
    FreshLaunch,
    next_arm,
    plan_confirmation,
)
from tuner.verdict.noise import Noise, noise_of
from tuner.verdict.verdict import Verdict, VerdictKind, judge

Launch = Callable[[str], float | None]


def percent(gain: float) -> float:
    """A relative gain of so many per cent as a difference of log-scores."""
    return math.log1p(gain / 100)


def candidate(name: str, *gains: float) -> Candidate:
    """A candidate that the search saw so many per cent faster than a default at log-score 0."""
    return Candidate(name, tuple(percent(gain) for gain in gains))


def quiet(sd: float = 0.013, freedom: int = 1) -> Noise:
    return Noise(sd, sd if freedom else None, freedom)


def confirm(plan: ConfirmationPlan, launch: Launch) -> list[FreshLaunch]:
    """Launch what the plan asks for until it asks for no more."""
    done: list[FreshLaunch] = []
    while (arm := next_arm(plan, done)) is not None:
        done.append(FreshLaunch(arm, launch(arm)))
        assert len(done) <= plan.launches
    return done


@dataclass(frozen=True)
class Rates:
    """Over many studies: shares of verdicts, coverage of intervals, mean error of the gain, mean launches."""

    faster: float
    slower: float
    coverage: float
    bias: float
    search_bias: float
    launches: float

    @property
    def named(self) -> float:
        return self.faster + self.slower


def rates(
    studies: int,
    *,
    gain: float = 0.0,
    share: float = 0.5,
    sd: float = 0.013,
    winner_sd: float | None = None,
    searched: int = 14,
    launches: int = 6,
    dies: float = 0.0,
    seed: int = 1,
) -> Rates:
    """Studies in which `share` of the candidates are truly faster by `gain` (0.05 is 5 %), the rest not at
    all.

    `winner_sd` is the noise of all candidates where it differs from the default's; `dies` how often a
    finalist fails to start.
    """
    generator = random.Random(seed)
    found = list(_studies(generator, studies, gain, share, sd, winner_sd or sd, searched, launches, dies))
    judged = [(verdict, truth) for verdict, truth in found if verdict.gain is not None]
    kinds = [verdict.kind for verdict, _ in found]
    return Rates(
        faster=kinds.count(VerdictKind.FASTER) / studies,
        slower=kinds.count(VerdictKind.SLOWER) / studies,
        coverage=sum((v.low or 0) <= truth <= (v.high or 0) for v, truth in judged) / len(judged),
        bias=sum((v.gain or 0) - truth for v, truth in judged) / len(judged),
        search_bias=sum((v.search_gain or 0) - truth for v, truth in judged) / len(judged),
        launches=sum(verdict.launches for verdict, _ in found) / studies,
    )


def _studies(
    generator: random.Random,
    studies: int,
    gain: float,
    share: float,
    sd: float,
    winner_sd: float,
    searched: int,
    launches: int,
    dies: float,
) -> Iterator[tuple[Verdict, float]]:
    for _ in range(studies):
        default = Candidate(DEFAULT, (generator.gauss(0, sd), generator.gauss(0, sd)))
        truths = {
            str(number): math.log1p(gain) if generator.random() < share else 0.0 for number in range(searched)
        }
        candidates = [
            Candidate(name, (truth + generator.gauss(0, winner_sd),)) for name, truth in truths.items()
        ]
        plan = plan_confirmation(default, candidates, noise_of([default.log_scores]), launches)

        def launch(arm: str, truths: dict[str, float] = truths) -> float | None:
            if arm == DEFAULT:
                return generator.gauss(0, sd)
            if generator.random() < dies:
                return None
            return truths[arm] + generator.gauss(0, winner_sd)

        verdict = judge(plan, confirm(plan, launch))
        yield verdict, math.expm1(truths.get(verdict.finalist or "", 0.0))


def arms(done: Sequence[FreshLaunch]) -> str:
    """The order of the launches in letters, D for the default."""
    return " ".join("D" if launch.arm == DEFAULT else launch.arm for launch in done)
