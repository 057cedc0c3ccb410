"""How often the verdict is right: studies in virtual time on boxes whose truth is known.

`python -m benchmarks.verdict [--studies N] [--seed N]` prints the table; it exits with 1 where a limit is
missed.
A study launches the default twice (A/A) and 14 random configurations, then confirms with at most six
launches.
In the space nothing matters, or one value does by the planted gain.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna

from benchmarks.searching import search_of
from tuner.simulator.virtual_planted import planted
from tuner.space.configuration import Configuration
from tuner.verdict.verdict import Verdict, VerdictKind

AA = 2
SEARCHED = 14
CONFIRMING = 6


@dataclass(frozen=True)
class Scenario:
    """A planted gain at a launch noise (sd of the logarithm), and the limits that the figures have to
    keep."""

    name: str
    gain: float
    noise: float
    most_named: float = 1.0
    least_named: float = 0.0


SCENARIOS = (
    Scenario("A/A, nothing matters", 0.0, 0.013, most_named=0.065),
    Scenario("planted +9 %", 0.09, 0.013, least_named=0.90),
    Scenario("planted +5 %", 0.05, 0.013, least_named=0.60),
    Scenario("A/A, quiet box", 0.0, 0.004, most_named=0.065),
    Scenario("A/A, noisy box", 0.0, 0.035, most_named=0.065),
    Scenario("planted +9 %, noisy box", 0.09, 0.035),
)
COVERAGE = (0.93, 0.97)
MOST_BIAS = 0.01


@dataclass(frozen=True)
class Studied:
    """A study's verdict, the true gain of the finalist, and what it cost in virtual hours."""

    verdict: Verdict
    true_gain: float
    hours: float


@dataclass(frozen=True)
class Figures:
    """What a scenario's studies come to; shares of all studies, coverage and bias of those with an
    interval."""

    studies: int
    faster: float
    slower: float
    coverage: float
    bias: float
    search_bias: float
    half_width: float
    launches: float
    hours: float

    @property
    def named(self) -> float:
        """The share in which the default and the finalist were told apart, in either direction."""
        return self.faster + self.slower

    def complaints(self, scenario: Scenario) -> list[str]:
        """The limits that are missed."""
        found = []
        if self.named > scenario.most_named:
            found.append(f"names a winner in {self.named:.1%}, at most {scenario.most_named:.1%} allowed")
        if self.faster < scenario.least_named:
            found.append(f"finds the winner in {self.faster:.1%}, at least {scenario.least_named:.0%} asked")
        if not COVERAGE[0] <= self.coverage <= COVERAGE[1]:
            found.append(
                f"intervals cover in {self.coverage:.1%}, {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%} asked"
            )
        if abs(self.bias) > MOST_BIAS:
            found.append(f"confirmed gains are off by {self.bias:+.2%} on average")
        return found


def studies_of(scenario: Scenario, count: int, *, seed: int = 0) -> Iterator[Studied]:
    """The scenario's studies, each with a seed of its own: the real search, with random proposals."""
    launches = AA + SEARCHED + CONFIRMING
    evaluator, definition = planted(
        scenario.gain, Path("nowhere"), launches=launches, launch_noise=scenario.noise
    )
    default = evaluator.truth(Configuration(), as_baseline=True)
    for number in range(count):
        own_seed = seed * 1_000_003 + number
        launched = evaluator.with_seed(own_seed)
        chance = optuna.samplers.RandomSampler(seed=own_seed)
        end = search_of(launched, definition, own_seed, inner=chance).run()
        if end.verdict is None or default is None:
            raise AssertionError("nothing dies on this box")
        by_trial = {str(record.trial): Configuration(record.configuration) for record in end.records}
        finalist = by_trial.get(end.verdict.finalist or "")
        truth = evaluator.truth(finalist) if finalist is not None else default
        yield Studied(end.verdict, (truth or 0.0) / default - 1, launched.clock.monotonic_s() / 3600)


def figures_of(scenario: Scenario, count: int, *, seed: int = 0) -> Figures:
    """The figures of so many studies."""
    studied = list(studies_of(scenario, count, seed=seed))
    judged = [
        (verdict.low, verdict.gain, verdict.high, verdict.search_gain, study.true_gain)
        for study in studied
        if (verdict := study.verdict).gain is not None
    ]
    kinds = [study.verdict.kind for study in studied]
    widths = sorted((high - low) / 2 for low, _, high, _, _ in judged if low is not None and high is not None)
    return Figures(
        studies=count,
        faster=kinds.count(VerdictKind.FASTER) / count,
        slower=kinds.count(VerdictKind.SLOWER) / count,
        coverage=sum((low or 0.0) <= truth <= (high or 0.0) for low, _, high, _, truth in judged)
        / len(judged),
        bias=sum((gain or 0.0) - truth for _, gain, _, _, truth in judged) / len(judged),
        search_bias=sum((said or 0.0) - truth for _, _, _, said, truth in judged) / len(judged),
        half_width=widths[len(widths) // 2],
        launches=sum(study.verdict.launches for study in studied) / count,
        hours=sum(study.hours for study in studied) / count,
    )


_HEAD = ("scenario", "noise", "faster", "slower", "covered", "bias", "search", "+-", "confirming", "hours")


def main(words: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict", description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    widths = (26, 6, 7, 7, 8, 7, 7, 6, 10, 6)
    print(" ".join(f"{name:<{width}}" for name, width in zip(_HEAD, widths, strict=True)))
    missed = False
    began_s = time.perf_counter()
    for scenario in SCENARIOS:
        found = figures_of(scenario, arguments.studies, seed=arguments.seed)
        cells = (
            scenario.name, f"{scenario.noise:.1%}", f"{found.faster:.1%}", f"{found.slower:.1%}",
            f"{found.coverage:.1%}", f"{found.bias:+.2%}", f"{found.search_bias:+.2%}",
            f"{found.half_width:.1%}", f"{found.launches:.1f}", f"{found.hours:.1f}",
        )  # fmt: skip
        print(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)))
        for complaint in found.complaints(scenario):
            missed = True
            print(f"  MISSED: {complaint}")
    took_s = time.perf_counter() - began_s
    launches = len(SCENARIOS) * arguments.studies * (AA + SEARCHED + CONFIRMING)
    print(f"{arguments.studies} studies each, up to {launches:,} launches in {took_s:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
