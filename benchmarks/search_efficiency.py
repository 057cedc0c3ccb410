"""How fast the search finds what a box can do: the real search in virtual time, on boxes whose truth is
known.

`python -m benchmarks.search_efficiency [--quick] [--held-out] [--samplers tpe random …] [--seeds N]` prints a
table for each box, and the medians over boxes and seeds. A study has 12 hours; every launch counts, the A/A
pair included, and the launches that confirm the best are left out. A cell is the true value of the best
configuration so far, as a share of the best possible. `--looks off auto` runs each study without and with
cheap looks (docs/searching.md), and `--hours` sets the columns.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import optuna

from benchmarks.efficiency_boxes import SCENARIOS, STUDY_HOURS, Scenario
from benchmarks.searching import search_of
from tuner.evaluate.protocol import Listener, Request
from tuner.measure.objective import MINIMIZE
from tuner.results.record import COMPLETE, LOOKED, TrialRecord
from tuner.results.standings import Standing
from tuner.search.loop import SearchListener
from tuner.search.past import PastStudy
from tuner.search.reference import excesses
from tuner.search.roles import CONFIRM, EXPLAIN
from tuner.search.sampler import levels_of
from tuner.search.samplers import sampler_of
from tuner.simulator.virtual import VirtualEvaluator
from tuner.space.configuration import Configuration, Value
from tuner.study.definition import LOOKS, SAMPLERS, StudyDefinition
from tuner.verdict.verdict import VerdictKind

HOURS = (2.0, 4.0, 8.0)
QUICK_HOURS = 5.0
_DRAWS = 600
_STARTS = 4
_LEVELS = 24


# --- the truth ----------------------------------------------------------------------------------------


class Truth:
    """What configurations are worth without noise; 0 for those that do not run or miss what was asked for."""

    def __init__(self, evaluator: VirtualEvaluator, definition: StudyDefinition) -> None:
        self._evaluator = evaluator.with_seed(0)
        self._definition = definition
        self._known: dict[str, float] = {}
        self._sign = -1.0 if definition.objective.directions[0] == MINIMIZE else 1.0

    def of(self, configuration: Configuration, *, as_baseline: bool = False) -> float:
        """Larger is better; what is to be small is inverted."""
        key = "baseline" if as_baseline else configuration.fingerprint
        if key not in self._known:
            self._known[key] = self._compute(configuration, as_baseline)
        return self._known[key]

    def _compute(self, configuration: Configuration, as_baseline: bool) -> float:
        score = self._evaluator.truth(configuration, as_baseline=as_baseline)
        if not score:
            return 0.0
        request = Request(0, configuration, Path("nowhere"), "", as_baseline)
        outcome = self._evaluator.evaluate(request, Listener())
        if outcome.measurement is not None:
            missed = excesses(self._definition, outcome.facts, outcome.measurement)
            if any(value > 0 for value in missed.values()):
                return 0.0
        return float(score**self._sign)

    def optimum(self) -> float:
        """The best that a large search finds: random points, then one parameter at a time from the best."""
        space, source = self._evaluator.space, random.Random(7)
        levels = levels_of(space, most=_LEVELS)

        def worth(assignment: Mapping[str, Value]) -> float:
            configuration = space.configuration(assignment)
            return 0.0 if space.broken_rule(configuration) else self.of(configuration)

        drawn = [{name: source.choice(values) for name, values in levels.items()} for _ in range(_DRAWS)] + [
            dict(space.assignment(known.values)) for known in space.known_good
        ]
        drawn.append(dict(space.assignment({})))
        return max(_climbed(start, levels, worth) for start in sorted(drawn, key=worth)[-_STARTS:])


def _climbed(
    start: Mapping[str, Value],
    levels: Mapping[str, Sequence[Value]],
    worth: Callable[[Mapping[str, Value]], float],
) -> float:
    best, value = dict(start), worth(start)
    while True:
        before = value
        for name, values in levels.items():
            for level in values:
                trial = {**best, name: level}
                found = worth(trial)
                if found > value:
                    best, value = trial, found
        if value <= before:
            return value


# --- one study ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Studied:
    """One study: shares of the optimum at the hours, and what the search and its confirmation came to."""

    shares: tuple[float, ...]
    launches: int
    crash_share: float
    lost_share: float
    lost_hours: float
    hours: float
    confirmed: str
    final_share: float
    ask_s: float
    looks: int = 0
    agreement: str = ""


@dataclass
class _Watch(SearchListener):
    """Notes when the best changed, in virtual hours."""

    evaluator: VirtualEvaluator
    truth: Truth
    curve: list[tuple[float, float]] = field(default_factory=list)

    def on_record(self, record: TrialRecord, best: Standing | None) -> None:
        if record.role in (CONFIRM, EXPLAIN):
            return
        value = 0.0
        if best is not None:
            as_baseline = best.record.role == "baseline"
            value = self.truth.of(Configuration(best.record.configuration), as_baseline=as_baseline)
        self.curve.append((self.evaluator.clock.monotonic_s() / 3600, value))


def study(
    evaluator: VirtualEvaluator,
    definition: StudyDefinition,
    truth: Truth,
    best: float,
    sampler: str,
    seed: int,
    past: Sequence[PastStudy] = (),
    hours: Sequence[float] = HOURS,
) -> Studied:
    """One study with the sampler of this name, which may learn from earlier ones; shares at these hours."""
    launched = evaluator.with_seed(seed)
    watch = _Watch(launched, truth)
    inner = sampler_of(sampler, seed)
    search = search_of(launched, definition, seed, inner=inner, listener=watch, past=past)
    began_s = time.perf_counter()
    end = search.run()
    took_s = time.perf_counter() - began_s
    searched = [record for record in end.records if record.role not in (CONFIRM, EXPLAIN) and record.took_s]
    seconds = sum(record.took_s or 0.0 for record in searched)
    looks = [record for record in searched if record.state == LOOKED]
    dead = [record for record in searched if record.state != COMPLETE and not record.looked]
    lost_s = sum(record.took_s or 0.0 for record in dead)
    by_trial = {str(record.trial): Configuration(record.configuration) for record in end.records}
    finalist = by_trial.get((end.verdict.finalist if end.verdict is not None else None) or "")
    return Studied(
        shares=tuple(_at(watch.curve, at) / best for at in hours),
        launches=len(searched) - len(looks),
        crash_share=len(dead) / max(1, len(searched)),
        lost_share=lost_s / max(1.0, seconds),
        lost_hours=lost_s / 3600,
        hours=seconds / 3600,
        confirmed=str(end.verdict.kind) if end.verdict is not None else "none",
        final_share=truth.of(finalist) / best if finalist is not None else 0.0,
        ask_s=took_s / max(1, len(end.records)),
        looks=len(looks),
        agreement=end.looks,
    )


def _at(curve: Sequence[tuple[float, float]], hours: float) -> float:
    return next((value for at, value in reversed(curve) if at <= hours), 0.0)


# --- the table ------------------------------------------------------------------------------------------

_BEFORE = {"box": 18, "sampler": 21}
_SHARE = 6
_BEHIND = {
    "crashes": 8, "time lost": 9, "hours lost": 10, "launches": 8, "looks": 5, "confirmed": 10, "finalist": 8,
    "s/trial": 7,
}  # fmt: skip


def _head(hours: Sequence[float]) -> str:
    return _line([*_BEFORE, *(f"{each:g} h" for each in hours), *_BEHIND])


def _line(cells: Sequence[str]) -> str:
    shares = len(cells) - len(_BEFORE) - len(_BEHIND)
    widths = [*_BEFORE.values(), *[_SHARE] * shares, *_BEHIND.values()]
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))


def _row(box: str, sampler: str, studies: Sequence[Studied]) -> str:
    faster = sum(one.confirmed == str(VerdictKind.FASTER) for one in studies)
    mean = len(studies)
    return _line(
        (
            box,
            sampler,
            *(f"{median(one.shares[at] for one in studies):.1%}" for at in range(len(studies[0].shares))),
            f"{sum(one.crash_share for one in studies) / mean:.1%}",
            f"{sum(one.lost_share for one in studies) / mean:.1%}",
            f"{sum(one.lost_hours for one in studies) / mean:.2f}",
            f"{sum(one.launches for one in studies) / mean:.0f}",
            f"{sum(one.looks for one in studies) / mean:.0f}",
            f"{faster}/{mean}",
            f"{median(one.final_share for one in studies):.1%}",
            f"{sum(one.ask_s for one in studies) / mean:.3f}",
        )
    )


def studies_of(
    scenario: Scenario,
    samplers: Sequence[str],
    seeds: Sequence[int],
    hours: float = STUDY_HOURS,
    *,
    looks: Sequence[str] = (),
    at: Sequence[float] = HOURS,
) -> Iterator[tuple[str, list[Studied]]]:
    """For each sampler, and each of `looks`, the studies of one box, with their shares `at` these hours."""
    evaluator, definition = scenario.evaluator(hours)
    truth = Truth(evaluator, definition)
    best = truth.optimum()
    default = truth.of(Configuration(), as_baseline=True)
    unit = definition.objective.units[0]
    about = "does not meet what is asked" if not default else f"is {default / best:.1%} of it"
    print(f"{scenario.name}: the best is {best:.4g} {unit}, the default {about}")
    for sampler in samplers:
        for way in looks or (definition.budget.looks,):
            asked = replace(definition, budget=replace(definition.budget, looks=way))
            name = f"{sampler}, looks {way}" if looks else sampler
            yield name, [study(evaluator, asked, truth, best, sampler, seed, hours=at) for seed in seeds]


def main(words: list[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_efficiency", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--samplers", nargs="+", default=["surrogate", "tpe", "random"], choices=SAMPLERS)
    parser.add_argument("--boxes", nargs="+", help="names of boxes, or parts of them")
    parser.add_argument("--looks", nargs="+", default=[], choices=LOOKS, help="with looks, without, or both")
    parser.add_argument("--hours", nargs="+", type=float, default=HOURS, help="the columns")
    parser.add_argument("--held-out", action="store_true", help="the boxes that were kept aside")
    parser.add_argument("--quick", action="store_true", help="one box, one seed, a study of five hours")
    arguments = parser.parse_args(words)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    chosen = [scenario for scenario in SCENARIOS if scenario.held_out == arguments.held_out]
    if arguments.boxes:
        chosen = [one for one in SCENARIOS if any(part in one.name for part in arguments.boxes)]
    seeds = range(arguments.first_seed, arguments.first_seed + (1 if arguments.quick else arguments.seeds))
    hours = STUDY_HOURS
    if arguments.quick:
        chosen, hours = chosen[:1], QUICK_HOURS
    print(_head(arguments.hours))
    everything: dict[str, list[Studied]] = {}
    for scenario in chosen:
        found = studies_of(
            scenario, arguments.samplers, seeds, hours, looks=arguments.looks, at=arguments.hours
        )
        for sampler, studies in found:
            everything.setdefault(sampler, []).extend(studies)
            print(_row(scenario.name, sampler, studies), flush=True)
            for seed, one in zip(seeds, studies, strict=True):
                if one.agreement:
                    print(f"  seed {seed}: {one.agreement}")
    for sampler, studies in everything.items():
        print(_row("all", sampler, studies))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
