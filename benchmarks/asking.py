"""How long the default sampler takes to propose a launch, by how many there were.

`python -m benchmarks.asking [--trials 50 500]` prints the seconds of a proposal, on a box in
virtual time whose launches were drawn at random.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from pathlib import Path

from benchmarks.efficiency_boxes import SCENARIOS
from tuner.evaluate.protocol import Listener, Request
from tuner.learn.observation import Death, Observation
from tuner.learn.promise import Lesson
from tuner.search.sampler import levels_of
from tuner.search.surrogate import SurrogateSampler
from tuner.simulator.virtual import VirtualEvaluator
from tuner.space.configuration import Configuration

_LEVELS = 24
_ASKED = 3


def launches(evaluator: VirtualEvaluator, count: int) -> tuple[Observation, ...]:
    """What launches of random configurations teach."""
    source, space = random.Random(3), evaluator.space
    levels = levels_of(space, most=_LEVELS)
    found: list[Observation] = []
    while len(found) < count:
        drawn = space.configuration({name: source.choice(values) for name, values in levels.items()})
        if space.broken_rule(drawn) is None:
            found.append(_launch(evaluator, drawn, len(found)))
    return tuple(found)


def _launch(evaluator: VirtualEvaluator, configuration: Configuration, trial: int) -> Observation:
    outcome = evaluator.evaluate(Request(trial, configuration, Path("nowhere"), str(trial)), Listener())
    memory = {"available_gib": 5.0, "weights_gib": 72.0, "kv_cache_gib": 8.0}
    score = evaluator.truth(configuration)
    if outcome.failure is not None or not score:
        kind = str(outcome.failure.kind) if outcome.failure is not None else "unknown"
        return Observation(trial, configuration, death=Death(kind), took_s=outcome.took_s)
    return Observation(trial, configuration, (math.log(score),), memory=memory, took_s=outcome.took_s)


def seconds_of_a_proposal(trials: int) -> float:
    """The mean over a few proposals, each after one launch more."""
    evaluator, _ = SCENARIOS[0].evaluator()
    known = launches(evaluator, trials + _ASKED)
    sampler = SurrogateSampler(0)
    sampler.join(evaluator.space, lambda _: True)
    spent_s = 0.0
    for more in range(_ASKED):
        began_s = time.perf_counter()
        sampler.learn(Lesson(known[: trials + more], lambda given: given))
        if sampler.propose(()) is None:
            raise ValueError("nothing was proposed")
        spent_s += time.perf_counter() - began_s
    return spent_s / _ASKED


def main(words: list[str]) -> int:
    """Print a line for each number of launches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.asking", description=__doc__)
    parser.add_argument("--trials", type=int, nargs="+", default=[50, 500])
    for trials in parser.parse_args(words).trials:
        print(f"after {trials} launches: {seconds_of_a_proposal(trials):.2f} s for a proposal", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
