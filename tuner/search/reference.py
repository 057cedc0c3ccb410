"""What gains are measured against, and whether a configuration meets what was asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tuner.evaluate.outcome import ServerFacts
from tuner.measure.measurement import LevelSummary, Measurement
from tuner.measure.objective import Objective, nearest_to_limits
from tuner.results.record import COMPLETE, TrialRecord
from tuner.results.standings import MINIMIZE, standings
from tuner.search.roles import BASELINE, KNOWN_GOOD
from tuner.study.definition import StudyDefinition


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
    known = f"known-good '{reference.source}'"
    name = known if reference.role == KNOWN_GOOD else "the first configuration that ran"
    failed = [record.failure for record in records if record.role == BASELINE and record.failure]
    why = f"the baseline could not start, {failed[0]['kind']}" if failed else "the baseline was not measured"
    return f"{name} (trial {reference.trial}: {why})"


def with_gain(record: TrialRecord, records: Sequence[TrialRecord]) -> TrialRecord:
    """The record with how much better it is than the reference among `records`."""
    reference = reference_of(records)
    if reference is None or not record.score or not reference.score:
        return record
    ratio = record.score / reference.score
    gain = (1 / ratio if record.direction == MINIMIZE else ratio) - 1.0
    return replace(record, gain=gain, reference=describe_reference(records))


def excesses(definition: StudyDefinition, facts: ServerFacts, measurement: Measurement) -> dict[str, float]:
    """For each least capacity and each limit how far it is missed, relatively: 0 or less is met.

    A capacity that the server does not report counts as met: nothing is known against it.
    """
    found = {
        name: 0.0 if actual is None else (least - actual) / least
        for name, _, least, actual in _capacities(definition, facts)
    }
    return {**found, **definition.objective.excesses(measurement)}


def shown_excesses(
    definition: StudyDefinition, facts: ServerFacts, measurement: Measurement
) -> tuple[str, ...]:
    """What is missed, in words."""
    small = tuple(
        f"{words} {actual}, at least {least} asked"
        for _, words, least, actual in _capacities(definition, facts)
        if actual is not None and actual < least
    )
    limits = {limit.name: limit for limit in definition.objective.limits}
    large = tuple(
        f"{limits[name].shown} exceeded by {excess:.0%}"
        for name, excess in definition.objective.excesses(measurement).items()
        if excess > 0
    )
    return small + large


def nearest_miss(records: Sequence[TrialRecord], objective: Objective) -> str:
    """Where nothing that ran meets what was asked for: which trial comes nearest. Empty where one does."""
    measured = [record for record in records if record.state == COMPLETE]
    if not measured or standings(records):
        return ""
    told = nearest_to_limits(
        [(f"trial {record.trial}", _measurement(record)) for record in measured], objective
    )
    if told:
        return told
    nearest = min(measured, key=lambda record: max(record.excesses.values(), default=math.inf))
    missed = "; ".join(nearest.infeasible) or "its score is 0"
    return f"no configuration meets what was asked for; trial {nearest.trial} misses it least: {missed}"


def _measurement(record: TrialRecord) -> Measurement:
    """The levels as they were summarised; what they are made of in detail is left out."""
    detail = {"steps": None, "accepted": None}
    return Measurement(tuple(LevelSummary(**{**level, **detail}) for level in record.levels))


def _capacities(definition: StudyDefinition, facts: ServerFacts) -> list[tuple[str, str, int, int | None]]:
    least = definition.capacities
    rows = (
        ("kv_tokens", "KV tokens", least.min_kv_tokens, facts.kv_tokens),
        ("context_len", "context length", least.min_context_len, facts.context_len),
        ("running_requests", "running requests", least.min_running_requests, facts.max_running_requests),
    )
    return [(name, words, asked, actual) for name, words, asked, actual in rows if asked is not None]
