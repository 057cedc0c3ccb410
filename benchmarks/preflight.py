"""How many random configurations of a study are refused before launch, by whom, and what that takes.

    python -m benchmarks.preflight STUDY [--draws N] [--command …] [--model …]

Takes the options of `optimize`. Nothing is launched; the study's folder is not touched.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping

from optuna.samplers import RandomSampler

from tuner.cli.assembly import assemble
from tuner.evaluate.protocol import Listener, Vetter
from tuner.launch.owner import this_owner
from tuner.preflight.refusal import Refusal
from tuner.search.sampler import FreshSampler
from tuner.space.configuration import Configuration, Value
from tuner.space.space import SearchSpace
from tuner.study.finding import load_study
from tuner.study.overrides import add_overrides


class _Notes(Listener):
    def on_note(self, text: str) -> None:
        print(f"note: {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("study")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--evaluator")
    add_overrides(parser)
    given = parser.parse_args()
    parts = assemble(load_study(given.study, given), given.evaluator, owner=this_owner())
    if not isinstance(parts.evaluator, Vetter):
        raise SystemExit("this evaluator does not vet")
    drawn = _draw(parts.space, given.draws)
    try:
        began_s = time.monotonic()
        first = parts.evaluator.vet(drawn[:1], _Notes())
        started_s = time.monotonic()
        answers = [*first, *parts.evaluator.vet(drawn[1:], _Notes())]
        ended_s = time.monotonic()
    finally:
        parts.close()
    _report(parts.server, answers)
    print(
        f"the first answer took {started_s - began_s:.1f} s, the others {ended_s - started_s:.1f} s together"
    )


def _draw(space: SearchSpace, count: int) -> list[Configuration]:
    """Different configurations at random that the space's own rules allow."""
    found: dict[str, Configuration] = {}

    def admit(assignment: Mapping[str, Value]) -> bool:
        configuration = space.configuration(assignment)
        return configuration.fingerprint not in found and space.broken_rule(configuration) is None

    sampler = FreshSampler(RandomSampler(), space, admit, seed=0)
    while len(found) < count and (assignment := sampler.find_fresh()) is not None:
        configuration = space.configuration(assignment)
        found[configuration.fingerprint] = configuration
    return list(found.values())


def _report(server: str, answers: list[Refusal | None]) -> None:
    refused = Counter(answer.by for answer in answers if answer is not None)
    print(f"{server}: {sum(refused.values())} of {len(answers)} random configurations are refused")
    for by, count in refused.most_common():
        example = next(answer.reason for answer in answers if answer is not None and answer.by == by)
        print(f"  {count:4d} by {by}: {example}")


if __name__ == "__main__":
    main()
