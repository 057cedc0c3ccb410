"""What an earlier study is worth to a new one, and what a misleading one costs: in virtual time.

`python -m benchmarks.warm_start [--boxes …] [--seeds N] [--hours H]`. The earlier study was on a sibling of
the box: another SGLang release, other coefficients. `cold` knows nothing of it, `warm` learns from it, and
`misled` learns from one whose scores and memory were dealt out anew, as if nothing in it were true. A cell
is the true value of the best configuration at that hour as a share of the best possible, the median over
seeds.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import optuna

from benchmarks.efficiency_boxes import KIMI_12, KIMI_23, SCENARIOS, Scenario
from benchmarks.search_efficiency import Studied, Truth, study
from benchmarks.searching import search_of
from tuner.results.record import COMPLETE, TrialRecord
from tuner.search.past import PastStudy
from tuner.simulator.box import Box

HOURS = (1.0, 2.0, 4.0)
_EARLIER_HOURS = 8.0
_NEW_HOURS = 6.0


def _older(box: Box) -> Box:
    """Slower as a whole, and not in proportion: other kernels, links and memory."""
    reduce = box.all_reduce
    return replace(
        box,
        step=replace(
            box.step,
            fixed_ms=box.step.fixed_ms * 1.3,
            large_graph_ms=box.step.large_graph_ms * 0.5,
            overlap_off_ms=box.step.overlap_off_ms * 2,
        ),
        experts=replace(box.experts, ms_per_gb=box.experts.ms_per_gb * 1.25) if box.experts else None,
        all_reduce=replace(
            reduce,
            scale=reduce.scale * 1.4,
            custom_works=False,
            many_channels_factor=0.5 * (1 + reduce.many_channels_factor),
        )
        if reduce
        else None,
        attention=replace(box.attention, ms_per_gb=box.attention.ms_per_gb * 1.3),
        memory=replace(box.memory, workspace_gib=box.memory.workspace_gib + 0.8),
    )


@dataclass(frozen=True)
class Pair:
    """A box of `benchmarks.efficiency_boxes`, and its sibling on which the earlier study ran."""

    now: Scenario
    before: Scenario

    @classmethod
    def of(cls, now: Scenario) -> Pair:
        """The sibling has the other release, and other coefficients."""
        other = KIMI_12 if now.box == KIMI_23 else KIMI_23
        return cls(
            now,
            replace(now, name=f"before {now.name}", box=other, change=lambda box: _older(now.change(box))),
        )


PAIRS = tuple(Pair.of(scenario) for scenario in SCENARIOS if scenario.box in (KIMI_12, KIMI_23))


def earlier_study(scenario: Scenario, seed: int, hours: float = _EARLIER_HOURS) -> PastStudy:
    """A study as it would have been read from its folder."""
    evaluator, definition = scenario.evaluator(hours)
    launched = evaluator.with_seed(1000 + seed)
    end = search_of(launched, definition, 1000 + seed).run()
    return PastStudy(scenario.name, end.records, launched.space, same_cards=True)


def shuffled(past: PastStudy, seed: int) -> PastStudy:
    """The same launches, with each other's scores and memory."""
    measured = [record for record in past.records if record.state == COMPLETE]
    dealt = [(record.score, record.scores, record.accept_length, record.server) for record in measured]
    random.Random(seed).shuffle(dealt)
    by_trial = {
        record.trial: replace(
            record,
            score=score,
            scores=scores,
            accept_length=accept_length,
            server={**record.server, "memory": server.get("memory")},
        )
        for record, (score, scores, accept_length, server) in zip(measured, dealt, strict=True)
    }

    def anew(record: TrialRecord) -> TrialRecord:
        return by_trial.get(record.trial, record)

    return replace(past, records=tuple(map(anew, past.records)))


def ways_of(past: PastStudy, seed: int) -> dict[str, tuple[PastStudy, ...]]:
    """What the new study is given to learn from."""
    return {"cold": (), "warm": (past,), "misled": (shuffled(past, seed),)}


def studies_of(pair: Pair, seeds: Sequence[int], hours: float = _NEW_HOURS) -> dict[str, list[Studied]]:
    """For each way the studies of one box."""
    evaluator, definition = pair.now.evaluator(hours)
    truth = Truth(evaluator, definition)
    best = truth.optimum()
    found: dict[str, list[Studied]] = {}
    for seed in seeds:
        past = earlier_study(pair.before, seed)
        for way, taught in ways_of(past, seed).items():
            studied = study(
                evaluator, definition, truth, best, definition.sampler, seed, past=taught, hours=HOURS
            )
            found.setdefault(way, []).append(studied)
    return found


_HEAD = ("box", "start", *(f"{hours:g} h" for hours in HOURS), "worst 2 h", "crashes", "time lost")
_WIDTHS = (18, 8, 7, 7, 7, 10, 8, 9)


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _row(box: str, way: str, studies: Sequence[Studied]) -> str:
    count = len(studies)
    return _line(
        (
            box,
            way,
            *(f"{median(one.shares[at] for one in studies):.1%}" for at in range(len(HOURS))),
            f"{min(one.shares[1] for one in studies):.1%}",
            f"{sum(one.crash_share for one in studies) / count:.1%}",
            f"{sum(one.lost_share for one in studies) / count:.1%}",
        )
    )


def main(words: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_start", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=_NEW_HOURS, help="of the new study")
    parser.add_argument("--boxes", nargs="+", help="names of boxes, or parts of them")
    arguments = parser.parse_args(words)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    chosen = PAIRS
    if arguments.boxes:
        chosen = tuple(pair for pair in PAIRS if any(part in pair.now.name for part in arguments.boxes))
    print(_line(_HEAD))
    everything: dict[str, list[Studied]] = {}
    for pair in chosen:
        for way, studies in studies_of(pair, range(arguments.seeds), arguments.hours).items():
            everything.setdefault(way, []).extend(studies)
            print(_row(pair.now.name, way, studies), flush=True)
    for way, studies in everything.items():
        print(_row("all", way, studies))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
