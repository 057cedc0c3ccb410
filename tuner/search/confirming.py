"""From the records of a study to its confirmation: what is launched again, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.measure.objective import MINIMIZE, Objective
from tuner.results.record import COMPLETE, PRUNED, TrialRecord
from tuner.results.standings import Expected
from tuner.search.reference import reference_of
from tuner.search.roles import BASELINE, CONFIRM, KNOWN_GOOD, REPAIR, REPEAT, SEARCH
from tuner.verdict.confirmation import DEFAULT, Candidate, ConfirmationPlan, FreshLaunch, plan_confirmation
from tuner.verdict.noise import Noise, noise_of

_CANDIDATES = (BASELINE, KNOWN_GOOD, SEARCH, REPAIR)


def study_noise(records: Sequence[TrialRecord], objective: Objective) -> Noise:
    """The noise that all deliberate repeats of the study show, the confirming launches left out."""
    return noise_of(scores for _, scores in _groups(records, objective))


def plan_of(
    records: Sequence[TrialRecord], objective: Objective, launches: int, expected: Expected | None = None
) -> ConfirmationPlan | None:
    """What to confirm, from the launches of the search alone; None where nothing was measured.

    Candidates are named by the number of their trial, and ranked by what is `expected` of them.
    """
    reference = reference_of([record for record in records if record.role != CONFIRM])
    if reference is None:
        return None
    groups = {record.trial: (record, scores) for record, scores in _groups(records, objective)}
    candidates = [
        Candidate(str(trial), scores, _log(expected.get(trial) if expected else None, objective))
        for trial, (record, scores) in groups.items()
        if trial != reference.trial and not record.infeasible and record.same_as is None
    ]
    told = expected.get(reference.trial) if expected else None
    default = Candidate(DEFAULT, groups[reference.trial][1], _log(told, objective))
    return plan_confirmation(default, candidates, study_noise(records, objective), launches)


def launches_of(records: Sequence[TrialRecord], objective: Objective) -> list[FreshLaunch]:
    """The confirming launches that were done, in order."""
    reference = reference_of([record for record in records if record.role != CONFIRM])
    return [
        FreshLaunch(
            DEFAULT
            if reference is not None and record.repeat_of == reference.trial
            else str(record.repeat_of),
            _log_score(record, objective) if record.state == COMPLETE else None,
        )
        for record in records
        if record.role == CONFIRM and record.state in (COMPLETE, PRUNED)
    ]


def _groups(
    records: Sequence[TrialRecord], objective: Objective
) -> list[tuple[TrialRecord, tuple[float, ...]]]:
    """Each configuration's first record, with the log-scores of its launches before the confirmation."""
    measured = [record for record in records if record.state == COMPLETE and record.score]
    return [
        (
            first,
            tuple(
                _log_score(record, objective)
                for record in measured
                if record is first or (record.role == REPEAT and record.repeat_of == first.trial)
            ),
        )
        for first in measured
        if first.role in _CANDIDATES
    ]


def _log_score(record: TrialRecord, objective: Objective) -> float:
    return _log(record.score or 1.0, objective) or 0.0


def _log(score: float | None, objective: Objective) -> float | None:
    """The logarithm; more is better, also where the objective is to be small."""
    sign = -1.0 if objective.directions[0] == MINIMIZE else 1.0
    return sign * math.log(score) if score else None
