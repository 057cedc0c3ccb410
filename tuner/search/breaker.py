"""When failures end a study: because nobody could ever win, not because a trial was bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.diagnosis.failure import Cause, Kind
from tuner.results.record import TrialRecord
from tuner.search.roles import BASELINE
from tuner.sglang.phases import BEFORE_WEIGHTS

_EARLY = {str(phase) for phase in BEFORE_WEIGHTS}
_EARLY_DEATHS = 2
"""Launches that die before weights load, with no success yet, until the study stops: one may be a bad
choice, two are a broken installation, and each costs little."""


def is_of_the_box(failure: Mapping[str, Any], *, any_success: bool) -> bool:
    """Whether a failure is one that no other configuration would be spared.

    Kernels that were not built for this GPU stop a study in which nothing has run; where something has, they
    are those of a choice (an attention backend), and other choices have theirs.
    """
    if failure["cause"] != str(Cause.ENVIRONMENT):
        return False
    return not (any_success and failure["kind"] == str(Kind.ARCH_UNSUPPORTED))


def reason_to_stop(records: Sequence[TrialRecord], *, any_success: bool, give_up_after: int) -> str:
    """What has to be mended before any trial can succeed, or the empty string.

    `records` are the trials of this run alone, so that a study goes on once the box was mended;
    `any_success` says whether any trial of the study was ever measured; `give_up_after` launches without
    one are enough.
    """
    failures = [(record, record.failure) for record in records if record.failure]
    if failures and failures[-1][0] is records[-1]:
        record, failure = failures[-1]
        if is_of_the_box(failure, any_success=any_success):
            return f"trial {record.trial}: {failure['summary']}"
        if record.role == BASELINE and failure["cause"] == str(Cause.TRANSIENT):
            return f"the first launch failed twice, and not for its configuration: {failure['summary']}"
    if any_success:
        return ""
    early = [(record, failure) for record, failure in failures if failure["phase"] in _EARLY]
    if len(early) >= _EARLY_DEATHS:
        return (
            f"{len(early)} launches died before the weights were loaded and none has succeeded {_told(early)}"
        )
    if len(failures) >= give_up_after:
        return f"{len(failures)} launches failed and none has succeeded {_told(failures)}"
    return ""


def _told(failures: Sequence[tuple[TrialRecord, dict[str, Any]]]) -> str:
    """What they had in common, else what each died of."""
    kinds = Counter(f"{failure['kind']} in {failure['phase']}" for _, failure in failures)
    lines = Counter(failure["evidence"][0]["text"][:200] for _, failure in failures if failure["evidence"])
    (kind, count), *_ = kinds.most_common(1)
    if count == len(failures):
        line, same = lines.most_common(1)[0] if lines else ("", 0)
        shared = f": {line}" if same == len(failures) else ""
        return f"(all of them: {kind}{shared})"
    told = "; ".join(f"trial {record.trial}: {failure['kind']}" for record, failure in failures)
    return f"({told})"
