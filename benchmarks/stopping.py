"""What ending a search in time saves, and what it costs: the same studies in virtual time with and without.

`python -m benchmarks.stopping [--seeds N] [--boxes NAME …]` prints a table; it exits with 1 where ending in
time costs more than half a per cent of the true value on average. A study has 12 hours and 60 launches. The
value is that of the best of the search, before the confirmation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import optuna

from benchmarks.efficiency_boxes import SCENARIOS, STUDY_HOURS
from benchmarks.searching import search_of
from tuner.results.standings import best_standing
from tuner.search.roles import CONFIRM, EXPLAIN
from tuner.search.samplers import sampler_of
from tuner.simulator.virtual import VirtualEvaluator
from tuner.simulator.virtual_planted import planted
from tuner.space.configuration import Configuration
from tuner.study.definition import StudyDefinition

MOST_LOSS = 0.005
LAUNCHES = 60


def _planted() -> tuple[VirtualEvaluator, StudyDefinition]:
    evaluator, definition = planted(0.09, Path("nowhere"))
    return evaluator, replace(definition, budget=replace(definition.budget, launches=None, hours=STUDY_HOURS))


BOXES: dict[str, Callable[[], tuple[VirtualEvaluator, StudyDefinition]]] = {
    "planted +9 %": _planted,
    **{one.name: one.evaluator for one in SCENARIOS if not one.held_out},
}


@dataclass(frozen=True)
class Ended:
    """A search that is over: its launches, its hours, and the true value of its best."""

    launches: int
    hours: float
    value: float
    in_time: bool


def searched(evaluator: VirtualEvaluator, definition: StudyDefinition, seed: int, *, stops: bool) -> Ended:
    """One study of the default sampler."""
    budget = replace(definition.budget, launches=LAUNCHES, stop_when_idle=stops, explain=0)
    inner = sampler_of("surrogate", seed)
    end = search_of(evaluator.with_seed(seed), replace(definition, budget=budget), seed, inner=inner).run()
    records = [record for record in end.records if record.role not in (CONFIRM, EXPLAIN)]
    best = best_standing(records)
    if best is None:
        raise AssertionError("the defaults of these boxes run")
    as_baseline = best.record.role == "baseline"
    value = evaluator.truth(Configuration(best.record.configuration), as_baseline=as_baseline)
    hours = sum(record.took_s or 0.0 for record in records) / 3600
    return Ended(len(records), hours, value or 0.0, end.reason.startswith("nothing that is left"))


def compared(name: str, seeds: Sequence[int]) -> list[tuple[Ended, Ended]]:
    """Studies of a box that end in time, and the same without."""
    evaluator, definition = BOXES[name]()
    return [
        (
            searched(evaluator, definition, seed, stops=True),
            searched(evaluator, definition, seed, stops=False),
        )
        for seed in seeds
    ]


_HEAD = ("box", "launches", "of", "saved", "hours", "of", "loss", "worst", "in time")
_WIDTHS = (16, 9, 6, 7, 7, 6, 8, 8, 8)


def _row(name: str, pairs: Sequence[tuple[Ended, Ended]]) -> str:
    count = len(pairs)
    launches, of = (sum(pair[at].launches for pair in pairs) / count for at in (0, 1))
    hours, of_hours = (sum(pair[at].hours for pair in pairs) / count for at in (0, 1))
    losses = losses_of(pairs)
    cells = (
        name, f"{launches:.1f}", f"{of:.1f}", f"{1 - launches / of:.0%}", f"{hours:.1f}", f"{of_hours:.1f}",
        f"{sum(losses) / count:.2%}", f"{max(losses):.2%}",
        f"{sum(early.in_time for early, _ in pairs)}/{count}",
    )  # fmt: skip
    return _line(cells)


def losses_of(pairs: Sequence[tuple[Ended, Ended]]) -> list[float]:
    """By how much less the best of each search that ended in time is worth."""
    return [1 - early.value / full.value for early, full in pairs]


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def main(words: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stopping", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--boxes", nargs="+", choices=sorted(BOXES), default=list(BOXES))
    arguments = parser.parse_args(words)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(_line(_HEAD))
    everything: list[tuple[Ended, Ended]] = []
    for name in arguments.boxes:
        pairs = compared(name, range(arguments.seeds))
        everything += pairs
        print(_row(name, pairs), flush=True)
    print(_row("all", everything))
    losses = losses_of(everything)
    return 1 if sum(losses) / len(losses) > MOST_LOSS else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
