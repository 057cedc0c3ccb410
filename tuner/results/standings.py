"""How the configurations of a study stand: all launches of one, however many there were, taken together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.results.record import COMPLETE, TrialRecord

MINIMIZE = "minimize"


@dataclass(frozen=True)
class Standing:
    """A configuration: the trial that first measured it, and the scores of all its measured launches."""

    record: TrialRecord
    scores: tuple[float, ...]

    @property
    def score(self) -> float:
        """Their geometric mean, in the objective's unit."""
        return math.exp(math.fsum(map(math.log, self.scores)) / len(self.scores))

    @property
    def merit(self) -> float:
        """Larger is better, whatever the objective's direction."""
        return -self.score if self.record.direction == MINIMIZE else self.score

    @property
    def shown(self) -> str:
        """`109.21 tok/s (mean of 3 launches)`."""
        launches = "one launch" if len(self.scores) == 1 else f"mean of {len(self.scores)} launches"
        return f"{self.score:.2f} {self.record.unit}".rstrip() + f" ({launches})"


def standings(records: Sequence[TrialRecord]) -> list[Standing]:
    """All measured configurations that meet what was asked for, the best first.

    Deliberate repeats count for the trial that they repeat.
    """
    scores: dict[int, list[float]] = {}
    for record in records:
        if record.state == COMPLETE and record.score:
            first = record.repeat_of if record.repeat_of is not None else record.trial
            scores.setdefault(first, []).append(record.score)
    by_trial = {record.trial: record for record in records}
    found = [
        Standing(by_trial[trial], tuple(values))
        for trial, values in scores.items()
        if trial in by_trial and not by_trial[trial].infeasible
    ]
    return sorted(found, key=lambda standing: -standing.merit)


def best_standing(records: Sequence[TrialRecord]) -> Standing | None:
    """The best, or None where nothing was measured that meets what was asked for."""
    return next(iter(standings(records)), None)


def front(records: Sequence[TrialRecord], directions: Sequence[str]) -> list[TrialRecord]:
    """The Pareto front of a trade-off: records that no other beats in one goal without losing in another."""
    measured = [standing.record for standing in standings(records)]
    signs = [-1.0 if direction == MINIMIZE else 1.0 for direction in directions]

    def beats(other: TrialRecord, record: TrialRecord) -> bool:
        pairs = [(sign * a, sign * b) for sign, a, b in zip(signs, other.scores, record.scores, strict=True)]
        return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)

    return [record for record in measured if not any(beats(other, record) for other in measured)]
