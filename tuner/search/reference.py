"""What gains are measured against, and whether a configuration offers the capacities that were asked for."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.evaluate.outcome import ServerFacts
from tuner.results.record import COMPLETE, TrialRecord
from tuner.search.roles import BASELINE, KNOWN_GOOD
from tuner.study.definition import Capacities


def reference_of(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The baseline where it ran; else the first known-good one that ran; else the first that did."""
    measured = [record for record in records if record.state == COMPLETE and record.score]
    for role in (BASELINE, KNOWN_GOOD):
        for record in measured:
            if record.role == role:
                return record
    return measured[0] if measured else None


def describe_reference(records: Sequence[TrialRecord]) -> str:
    """What the reference is, in words that stand behind every gain; why, where it is not the baseline."""
    reference = reference_of(records)
    if reference is None:
        return ""
    if reference.role == BASELINE:
        return f"{reference.source or 'the baseline'} (trial {reference.trial})"
    name = (
        f"known-good '{reference.source}'"
        if reference.role == KNOWN_GOOD
        else "the first configuration that ran"
    )
    failed = [record.failure for record in records if record.role == BASELINE and record.failure]
    why = (
        f": the baseline could not start, {failed[0]['kind']}"
        if failed
        else ": the baseline was not measured"
    )
    return f"{name} (trial {reference.trial}{why})"


def shortfalls(capacities: Capacities, facts: ServerFacts) -> dict[str, float]:
    """For each capacity asked for, how far it is missed: above 0 is too small, 0 or less is enough.

    A capacity that the server does not report counts as met: nothing is known against it.
    """
    pairs = (
        ("kv_tokens", capacities.min_kv_tokens, facts.kv_tokens),
        ("context_len", capacities.min_context_len, facts.context_len),
        ("running_requests", capacities.min_running_requests, facts.max_running_requests),
    )
    return {
        name: 0.0 if actual is None else (least - actual) / least
        for name, least, actual in pairs
        if least is not None
    }


def shown_shortfalls(capacities: Capacities, facts: ServerFacts) -> tuple[str, ...]:
    """The missed capacities in words."""
    named = {
        "kv_tokens": ("KV tokens", capacities.min_kv_tokens, facts.kv_tokens),
        "context_len": ("context length", capacities.min_context_len, facts.context_len),
        "running_requests": ("running requests", capacities.min_running_requests, facts.max_running_requests),
    }
    missed = [name for name, shortfall in shortfalls(capacities, facts).items() if shortfall > 0]
    return tuple(f"{named[name][0]} {named[name][2]}, at least {named[name][1]} asked" for name in missed)
