"""How the configurations of a study stand: all launches of one, however many there were, taken together.

They are ranked by what another launch is expected to score, not by what was seen: the best of many scores
was lucky, too. A search that has learnt from all launches says what to expect; without it, it is the mean of
the launches with drafts that are accepted as usual (`tuner.results.luck`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.results.luck import lucks
from tuner.results.record import COMPLETE, EXPLAIN, TrialRecord

MINIMIZE = "minimize"
_TOLD = 0.01
"""A difference (relative) between what was seen and what is expected that is worth a word."""

Expected = Mapping[int, float]
"""Trial → what another launch of its configuration is expected to score, in the objective's unit."""


@dataclass(frozen=True)
class Standing:
    """A configuration: the trial that first measured it, the scores of all its measured launches, and what
    another launch is expected to score (None: as much as these on average)."""

    record: TrialRecord
    scores: tuple[float, ...]
    told: float | None = None

    @property
    def score(self) -> float:
        """Their geometric mean, in the objective's unit."""
        return math.exp(math.fsum(map(math.log, self.scores)) / len(self.scores))

    @property
    def expected(self) -> float:
        """What another launch is expected to score."""
        return self.score if self.told is None else self.told

    @property
    def merit(self) -> float:
        """Larger is better, whatever the objective's direction."""
        return -self.expected if self.record.direction == MINIMIZE else self.expected

    @property
    def shown(self) -> str:
        """`109.21 tok/s (mean of 3 launches)`, and what is expected where that is something else."""
        launches = "one launch" if len(self.scores) == 1 else f"mean of {len(self.scores)} launches"
        if abs(self.expected / self.score - 1.0) >= _TOLD:
            launches += f"; {self.expected:.2f} expected of another"
        return f"{self.score:.2f} {self.record.unit}".rstrip() + f" ({launches})"


def standings(records: Sequence[TrialRecord], expected: Expected | None = None) -> list[Standing]:
    """All measured configurations that meet what was asked for, the best first.

    Deliberate repeats count for the trial that they repeat. Launches that only explain the best are left
    out: it was confirmed, and one lucky launch must not take its place.
    """
    luck = lucks(records)
    launches: dict[int, list[TrialRecord]] = {}
    for record in records:
        if record.state == COMPLETE and record.score:
            first = record.repeat_of if record.repeat_of is not None else record.trial
            launches.setdefault(first, []).append(record)
    by_trial = {record.trial: record for record in records}
    found = []
    for trial, same in launches.items():
        if trial not in by_trial or by_trial[trial].infeasible or by_trial[trial].role == EXPLAIN:
            continue
        scores = tuple(record.score or 0.0 for record in same)
        lucky = math.fsum(luck.get(record.trial, 0.0) for record in same) / len(same)
        usual = Standing(by_trial[trial], scores).score * math.exp(-lucky)
        found.append(Standing(by_trial[trial], scores, (expected or {}).get(trial, usual)))
    return sorted(found, key=lambda standing: -standing.merit)


def best_standing(records: Sequence[TrialRecord], expected: Expected | None = None) -> Standing | None:
    """The best, or None where nothing was measured that meets what was asked for."""
    return next(iter(standings(records, expected)), None)


def front(records: Sequence[TrialRecord], directions: Sequence[str]) -> list[TrialRecord]:
    """The Pareto front of a trade-off: records that no other beats in one goal without losing in another."""
    measured = [standing.record for standing in standings(records)]
    signs = [-1.0 if direction == MINIMIZE else 1.0 for direction in directions]

    def beats(other: TrialRecord, record: TrialRecord) -> bool:
        pairs = [(sign * a, sign * b) for sign, a, b in zip(signs, other.scores, record.scores, strict=True)]
        return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)

    return [record for record in measured if not any(beats(other, record) for other in measured)]
