"""When failures end a study: because nobody could ever win, not because a trial was bad."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.diagnosis.failure import Cause
from tuner.results.record import TrialRecord
from tuner.sglang.phases import BEFORE_WEIGHTS

_EARLY = {str(phase) for phase in BEFORE_WEIGHTS}
_EARLY_DEATHS = 2
"""Launches that die before weights load, with no success yet, until the study stops: one may be a bad
choice, two are a broken installation, and each costs little."""


def reason_to_stop(records: Sequence[TrialRecord], *, any_success: bool) -> str:
    """What has to be mended before any trial can succeed, or the empty string.

    `records` are the trials of this run alone, so that a study goes on once the box was mended;
    `any_success` says whether any trial of the study was ever measured.
    """
    failures = [(record, record.failure) for record in records if record.failure]
    if failures and failures[-1][0] is records[-1]:
        record, failure = failures[-1]
        if failure["cause"] == str(Cause.ENVIRONMENT):
            return f"trial {record.trial}: {failure['summary']}"
    if any_success:
        return ""
    early = [(record, failure) for record, failure in failures if failure["phase"] in _EARLY]
    if len(early) >= _EARLY_DEATHS:
        told = "; ".join(f"trial {record.trial}: {failure['summary']}" for record, failure in early)
        return f"{len(early)} launches died before the weights were loaded and none has succeeded ({told})"
    return ""
