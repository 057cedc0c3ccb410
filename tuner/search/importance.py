"""How much Optuna takes each parameter to matter, from a study's records alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from tuner.results.record import COMPLETE, TrialRecord
from tuner.search.roles import BASELINE
from tuner.search.sampler import distributions_of
from tuner.space.space import SearchSpace

_LEAST_MEASURED = 10
"""Below so many launches the best of them say nothing."""
_TOP_LAUNCHES = 5
_TOP_SHARE = 0.1
"""The top that is compared with the rest: a tenth, but five launches at least, as Optuna advises."""


def importances_of(records: Sequence[TrialRecord], space: SearchSpace) -> dict[str, float]:
    """Parameter → its share of what sets the best launches apart, the largest first.

    By PED-ANOVA, which needs nothing but Optuna. The shares add up to 1 over the whole space; a number that
    may be left out counts with the choice of leaving it out. Empty where too little was measured.
    """
    measured = [record for record in records if record.state == COMPLETE and record.score]
    if len(measured) < _LEAST_MEASURED:
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction=StudyDirection[measured[0].direction.upper()])
    distributions = distributions_of(space)
    baselines = {record.trial for record in records if record.role == BASELINE}
    for record in measured:
        as_baseline = record.trial in baselines or record.repeat_of in baselines
        params = space.assignment({} if as_baseline else record.configuration, strict=False)
        if params is not None:
            study.add_trial(
                create_trial(
                    state=TrialState.COMPLETE, params=params, distributions=distributions, value=record.score
                )
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        top = max(_TOP_SHARE, _TOP_LAUNCHES / len(study.trials))
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=top))
    shares: dict[str, float] = {parameter.name: 0.0 for parameter in space.parameters}
    for dimension, share in found.items():
        shares[dimension.partition(".")[0]] += share
    total = sum(shares.values())
    if not total > 0:
        return {}
    return {name: share / total for name, share in sorted(shares.items(), key=lambda item: -item[1])}
