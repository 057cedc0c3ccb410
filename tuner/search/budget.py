"""How much may still be spent: launches, hours of work, and the time of day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from tuner.clock import Clock
from tuner.results.record import COMPLETE, LOOKED, PRUNED, TrialRecord
from tuner.search.roles import EXPLAIN
from tuner.study.definition import Budget, StudyDefinition
from tuner.verdict.confirmation import reserve

_LAUNCHED = (COMPLETE, PRUNED)
_MOST_EXPLAINING = 6
"""Launches that explain the best where the study does not say how many: what matters is then mostly known."""
_KEPT_TO_EXPLAIN = 4
_LONG = 30
"""From so many launches on, one of ten is kept to explain, at most four: the last ones find little."""


@dataclass(frozen=True)
class Spent:
    """What a study has cost so far, over all its runs: launches and seconds of trials."""

    launches: int
    seconds: float

    @classmethod
    def of(cls, records: Sequence[TrialRecord]) -> Spent:
        """Added up from the records; a trial that was launched twice counts twice.

        A trial that was interrupted, or that the box could not run at all, costs nothing of the budget. One
        that has an outcome does, whether or not its evaluator showed a launch. A look costs its time.
        """
        launched = [record for record in records if record.state in _LAUNCHED]
        looks = [record for record in records if record.state == LOOKED]
        return cls(
            launches=sum(1 + len(record.attempts) for record in launched),
            seconds=sum(record.took_s or 0.0 for record in [*launched, *looks]),
        )


class BudgetKeeper:
    """Says when the budget is used up, and how long it is likely to last."""

    def __init__(self, budget: Budget, clock: Clock) -> None:
        self._budget = budget
        self._clock = clock
        deadline = budget.deadline(datetime.fromtimestamp(clock.wall_s()))
        self._deadline_s = deadline.timestamp() if deadline is not None else None

    def kept(self, records: Sequence[TrialRecord]) -> int:
        """How many launches are kept for the confirmation."""
        if self._budget.confirm is not None:
            return self._budget.confirm
        return reserve(self._launches_in_all(records))

    def search_is_over(self, records: Sequence[TrialRecord]) -> str:
        """Why the search ends and the confirmation begins, or the empty string."""
        return self._reason(records, self.kept(records), self._kept_to_explain(records))

    def _kept_to_explain(self, records: Sequence[TrialRecord]) -> int:
        launches = self._launches_in_all(records)
        if self._budget.explain is not None or not self.kept(records) or launches < _LONG:
            return 0
        return min(_KEPT_TO_EXPLAIN, launches // 10)

    def is_used_up(self, records: Sequence[TrialRecord]) -> bool:
        """Whether nothing more can be launched, not even to confirm."""
        return bool(self._reason(records, 0))

    def may_explain(self, records: Sequence[TrialRecord]) -> bool:
        """Whether one more launch may be spent on explaining the best.

        As many may as the study asks for; else some, as far as its budget allows: what the search and the
        confirmation left of it.
        """
        explained = sum(record.role == EXPLAIN and record.state in _LAUNCHED for record in records)
        if self._budget.explain is not None:
            return explained < self._budget.explain and not self._deadline_reason(
                _typical_s(records), 0.0, ""
            )
        return explained < _MOST_EXPLAINING and not self.is_used_up(records)

    def _reason(self, records: Sequence[TrialRecord], to_confirm: int, to_explain: int = 0) -> str:
        spent, typical_s = Spent.of(records), _typical_s(records)
        but = f", less {to_confirm} to confirm the best" if to_confirm else ""
        but += f" and {to_explain} to explain it" if to_explain else ""
        kept = to_confirm + to_explain
        kept_s = kept * (typical_s or 0.0)
        if self._budget.launches is not None and spent.launches >= self._budget.launches - kept:
            return f"the budget of {self._budget.launches} launches{but} is used up"
        if self._budget.hours is not None and spent.seconds >= self._budget.hours * 3600 - kept_s:
            return f"the budget of {self._budget.hours:g} hours{but} is used up"
        return self._deadline_reason(typical_s, kept_s, but)

    def _deadline_reason(self, typical_s: float | None, kept_s: float, but: str) -> str:
        """Why there is no time for another trial before the deadline, or the empty string."""
        if self._deadline_s is None:
            return ""
        left_s = self._deadline_s - self._clock.wall_s()
        if left_s <= 0:
            return f"it is {self._budget.until}"
        if typical_s is not None and left_s < typical_s + kept_s:
            took, left = _minutes(typical_s), _minutes(left_s)
            return f"a trial takes {took} and there are {left} left until {self._budget.until}{but}"
        return ""

    def _launches_in_all(self, records: Sequence[TrialRecord]) -> int:
        """How many launches the whole study has, judged by its limits and by how long a trial takes."""
        counts: list[float] = []
        if self._budget.launches is not None:
            counts.append(self._budget.launches)
        typical_s, spent = _typical_s(records), Spent.of(records)
        if typical_s and self._budget.hours is not None:
            counts.append(self._budget.hours * 3600 / typical_s)
        if typical_s and self._deadline_s is not None:
            counts.append(spent.launches + (self._deadline_s - self._clock.wall_s()) / typical_s)
        return int(min(counts, default=0))

    def estimate(self, definition: StudyDefinition, records: Sequence[TrialRecord]) -> str:
        """A sentence with the hours that the rest of the study is likely to take."""
        typical_s = _typical_s(records)
        basis = "as the trials so far did"
        if typical_s is None:
            levels = len(definition.workload.concurrency)
            typical_s = definition.server.expected_start_s + definition.workload.expected_level_s * levels
            basis = "as the study expects (server.expected_start_s, workload.expected_level_s)"
        limits = []
        if self._budget.launches is not None:
            limits.append(max(0, self._budget.launches - Spent.of(records).launches) * typical_s)
        if self._budget.hours is not None:
            limits.append(max(0.0, self._budget.hours * 3600 - Spent.of(records).seconds))
        if self._deadline_s is not None:
            limits.append(max(0.0, self._deadline_s - self._clock.wall_s()))
        hours = min(limits) / 3600
        count = min(limits) / typical_s
        return f"about {_hours(hours)} for {count:.0f} launches of {_minutes(typical_s)} each, {basis}"


def _typical_s(records: Sequence[TrialRecord]) -> float | None:
    times = [record.took_s for record in records if record.took_s is not None and record.score is not None]
    return median(times) if times else None


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
