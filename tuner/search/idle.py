"""Whether the search may end before its budget: nothing that is left promises more than noise."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.learn.promise import LOSSES
from tuner.measure.objective import Objective
from tuner.results.record import COMPLETE, PRUNED, TrialRecord
from tuner.search.confirming import study_noise
from tuner.search.roles import SEARCH
from tuner.space.space import SearchSpace

_LEAST_LAUNCHES = 12
"""Measured proposals before anything is believed of what is left."""
_PATIENCE = 4
"""Proposals in a row that promised next to nothing: one of them may be wrong, and each taught more."""
_OF_NOISE = 0.75
"""Of what launches of the same differ by: a gain below that cannot be told from luck without many of them."""
_MOST = 0.01
"""On a noisy box, too, one per cent is worth a launch."""


def nothing_left(
    promises: Sequence[float | None], records: Sequence[TrialRecord], objective: Objective, space: SearchSpace
) -> str:
    """Why the search is over although the budget is not, or the empty string.

    `promises` are what the sampler expected each of its proposals to gain on the best (logarithm of the
    speed), None where it did not say; the latest stands last. A trade-off of goals never ends so, since a
    promise is about one weighing of them; and no search does while launches that died have taken more than
    their share of the time, since what promises more is then passed over for what is sure to run.
    """
    proposed = [record for record in records if record.role == SEARCH and record.state == COMPLETE]
    least = max(_LEAST_LAUNCHES, len(space.parameters))
    if len(objective.goals) > 1 or len(proposed) < least or len(promises) < _PATIENCE:
        return ""
    taken_s = sum(record.took_s or 0.0 for record in records)
    if sum(record.took_s or 0.0 for record in records if record.state == PRUNED) > LOSSES * taken_s:
        return ""
    noise = study_noise(records, objective)
    enough = min(_MOST, _OF_NOISE * noise.sd)
    latest = [promise for promise in promises[-_PATIENCE:] if promise is not None and promise < enough]
    if len(latest) < _PATIENCE:
        return ""
    return (
        f"nothing that is left promises more than {max(latest):.2%}, "
        f"which is under what launches differ by ({noise.sd:.1%})"
    )
