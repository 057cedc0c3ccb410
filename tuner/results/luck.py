"""How lucky the drafts of a launch were: what is taken out of a score before configurations are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.learn.acceptance import Acceptance
from tuner.results.record import COMPLETE, TrialRecord


def lucks(records: Sequence[TrialRecord]) -> dict[int, float]:
    """Trial → logarithm of how much faster it was than usual because its drafts were accepted more often.

    Only of launches with speculation whose score counts tokens.
    """
    told = {
        record.trial: (record.configuration, record.accept_length)
        for record in records
        if record.state == COMPLETE and record.accept_length and record.accept_length > 1
    }
    acceptance = Acceptance(told.values())
    return {trial: math.log(length) - acceptance.usual(values) for trial, (values, length) in told.items()}
