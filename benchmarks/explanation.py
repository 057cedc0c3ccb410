"""How right the explanation of a winner is: studies in virtual time on boxes whose truth is known.

`python -m benchmarks.explanation [--studies N] [--seed N] [--boxes]` prints the table; it exits with 1 where
a limit is missed. On the planted boxes one value is faster by a set gain and nothing else matters; with
`--boxes` the boxes of `benchmarks.search_efficiency` follow, on which many values matter and depend on each
other.

A parameter of the winner matters where leaving it out truly costs 3 % or more, and is irrelevant where that
costs less than 0.2 %.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import optuna

from benchmarks.efficiency_boxes import SCENARIOS as BOXES
from benchmarks.searching import search_of
from tuner.search.contributions import Contribution
from tuner.search.explain import explain
from tuner.search.samplers import sampler_of
from tuner.simulator.virtual import VirtualEvaluator
from tuner.simulator.virtual_planted import planted
from tuner.space.configuration import Configuration
from tuner.study.definition import StudyDefinition

MATTERS = 0.03
IRRELEVANT = 0.002
COVERAGE = 0.93
MOST_WRONGLY_NAMED = 0.05
MOST_LOSS = 0.01

Built = tuple[VirtualEvaluator, StudyDefinition]


@dataclass(frozen=True)
class Scenario:
    """A box, what proposes, and the limits that the figures have to keep."""

    name: str
    build: Callable[[], Built]
    sampler: str
    least_named: float = 0.0
    least_idle: float = 0.0


def _planted(gain: float, launches: int, noise: float = 0.013) -> Callable[[], Built]:
    return lambda: planted(gain, Path("nowhere"), launches=launches, launch_noise=noise)


def _box(name: str, launches: int) -> Callable[[], Built]:
    def build() -> Built:
        evaluator, definition = next(one for one in BOXES if one.name == name).evaluator()
        return evaluator, replace(
            definition, budget=replace(definition.budget, hours=None, launches=launches)
        )

    return build


SCENARIOS = (
    Scenario("planted +9 %, 22 launches", _planted(0.09, 22), "random", least_named=0.95),
    Scenario("planted +9 %, 40 launches", _planted(0.09, 40), "random", least_named=0.95, least_idle=0.7),
    Scenario("planted +5 %, 40 launches", _planted(0.05, 40), "random", least_named=0.9, least_idle=0.6),
    Scenario("nothing matters, 40 launches", _planted(0.0, 40), "random", least_idle=0.6),
    Scenario("quiet box, 22 launches", _planted(0.09, 22, 0.004), "random", least_named=0.95, least_idle=0.9),
    Scenario("noisy box, 40 launches", _planted(0.09, 40, 0.035), "random", least_named=0.5),
    Scenario("planted +9 %, the default sampler", _planted(0.09, 30), "surrogate", least_named=0.9),
)
REAL = tuple(Scenario(one.name, _box(one.name, 40), "surrogate") for one in BOXES if not one.held_out)


@dataclass(frozen=True)
class Told:
    """A contribution and its truth; None where the server dies without the value."""

    contribution: Contribution
    truth: float | None


@dataclass(frozen=True)
class Explained:
    """A study's contributions, and what leaving out what does nothing truly costs (1: it dies)."""

    told: tuple[Told, ...]
    left_out: int
    loss: float


@dataclass(frozen=True)
class Figures:
    """What a scenario's studies come to.

    `coverage` is the share of intervals that hold the truth. `named` is the share of parameters that matter
    of which is said that they gain, `wrongly_named` that of the irrelevant ones of which is said that they
    gain or cost, `idle` that of which is said that they do nothing. `width` is the median interval,
    `left_out` the parameters that are left out of a winner, `loss` what that truly costs, on average.
    `judged` counts the intervals.
    """

    coverage: float
    named: float
    wrongly_named: float
    idle: float
    width: float
    left_out: float
    loss: float
    judged: int

    def complaints(self, scenario: Scenario) -> list[str]:
        """The limits that are missed by more than the luck of so many studies can explain."""
        found = []
        luck = 2.5 * math.sqrt(COVERAGE * (1 - COVERAGE) / max(1, self.judged))
        if self.coverage < COVERAGE - luck:
            found.append(f"intervals cover in {self.coverage:.1%}, {COVERAGE:.0%} asked")
        if self.named < scenario.least_named - luck:
            found.append(f"names {self.named:.1%} of what matters, {scenario.least_named:.0%} asked")
        if self.idle < scenario.least_idle - 2 * luck:
            found.append(f"calls {self.idle:.1%} of the irrelevant idle, {scenario.least_idle:.0%} asked")
        if self.wrongly_named > MOST_WRONGLY_NAMED + luck:
            found.append(
                f"names {self.wrongly_named:.1%} of the irrelevant, {MOST_WRONGLY_NAMED:.0%} allowed"
            )
        if self.loss > MOST_LOSS:
            found.append(f"the minimal configuration loses {self.loss:.2%}, {MOST_LOSS:.0%} allowed")
        return found


def explained_of(scenario: Scenario, count: int, *, seed: int = 0) -> Iterator[Explained]:
    """The scenario's studies explained, each with a seed of its own."""
    evaluator, definition = scenario.build()
    for number in range(count):
        own_seed = seed * 1_000_003 + number
        launched = evaluator.with_seed(own_seed)
        inner = sampler_of(scenario.sampler, own_seed)
        end = search_of(launched, definition, own_seed, inner=inner).run()
        verdict = end.verdict.to_json() if end.verdict is not None else None
        found = explain(end.records, launched.space, verdict=verdict)
        winner = Configuration(found.choice.record.configuration)
        best = evaluator.truth(winner, as_baseline=not winner) or 0.0
        told = tuple(
            Told(one, _truth(evaluator, winner, one, best))
            for one in found.contributions
            if one.gain is not None
        )
        left = evaluator.truth(found.smaller.configuration, as_baseline=not winner)
        yield Explained(told, len(found.smaller.left_out), 1 - (left or 0.0) / best)


def _truth(
    evaluator: VirtualEvaluator, winner: Configuration, one: Contribution, best: float
) -> float | None:
    space = evaluator.space
    values = {name: value for name, value in winner.items() if name != one.parameter}
    unsaid = space.configuration(space.assignment({}))
    if one.parameter in unsaid:
        values[one.parameter] = unsaid[one.parameter]
    without = evaluator.truth(space.configuration(space.assignment(values)))
    return best / without - 1 if without else None


def figures_of(scenario: Scenario, count: int, *, seed: int = 0) -> Figures:
    """The figures of so many studies."""
    explained = list(explained_of(scenario, count, seed=seed))
    judged = [(one.contribution, one.truth) for study in explained for one in study.told]
    known = [(one, truth) for one, truth in judged if truth is not None]
    mattering = [one.effect for one, truth in known if truth >= MATTERS]
    irrelevant = [one.effect for one, truth in known if abs(truth) < IRRELEVANT]
    widths = sorted(one.high - one.low for one, _ in known)
    return Figures(
        coverage=_share([one.low <= truth + 1e-9 and truth - 1e-9 <= one.high for one, truth in known]),
        named=_share([effect == "gains" for effect in mattering]),
        wrongly_named=1 - _share([effect not in ("gains", "costs") for effect in irrelevant]),
        idle=_share([effect == "does nothing" for effect in irrelevant]),
        width=widths[len(widths) // 2] if widths else 0.0,
        left_out=sum(study.left_out for study in explained) / count,
        loss=sum(study.loss for study in explained) / count,
        judged=len(known),
    )


def _share(found: list[bool]) -> float:
    return sum(found) / len(found) if found else 1.0


_HEAD = ("scenario", "covered", "named", "wrongly", "idle", "width", "left out", "loss")
_WIDTHS = (34, 8, 7, 8, 7, 7, 9, 7)


def _line(cells: tuple[str, ...]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def main(words: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explanation", description=__doc__)
    parser.add_argument("--studies", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--boxes", action="store_true", help="the boxes of the search's benchmark as well")
    arguments = parser.parse_args(words)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(_line(_HEAD))
    missed, began_s = False, time.perf_counter()
    for scenario in (*SCENARIOS, *(REAL if arguments.boxes else ())):
        found = figures_of(scenario, arguments.studies, seed=arguments.seed)
        shares = (found.coverage, found.named, found.wrongly_named, found.idle, found.width)
        cells = (f"{share:.1%}" for share in shares)
        print(_line((scenario.name, *cells, f"{found.left_out:.1f}", f"{found.loss:.2%}")), flush=True)
        for complaint in found.complaints(scenario):
            missed = True
            print(f"  MISSED: {complaint}")
    print(f"{arguments.studies} studies each in {time.perf_counter() - began_s:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
