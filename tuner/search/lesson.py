"""From the records of a study to what its models learn from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from tuner.diagnosis.failure import Cause
from tuner.learn.axes import Axes
from tuner.learn.blame import tells_of_choices
from tuner.learn.observation import Death, Observation
from tuner.learn.promise import Lesson
from tuner.learn.speed import Speed
from tuner.measure.objective import MINIMIZE, Objective
from tuner.results.luck import lucks
from tuner.results.record import COMPLETE, LOOKED, PRUNED, TrialRecord
from tuner.search.roles import BASELINE, CONFIRM
from tuner.space.configuration import Configuration, Value
from tuner.space.space import SearchSpace
from tuner.study.definition import Baseline, StudyDefinition

_SWEEPS = 2


def observations_of(
    records: Sequence[TrialRecord], definition: StudyDefinition, space: SearchSpace
) -> tuple[Observation, ...]:
    """The launches of the search that taught something: measured, or died for a reason of their own."""
    searched = [record for record in records if record.role != CONFIRM]
    directions = definition.objective.directions
    return taught_by(searched, space, directions, definition.baseline)


def taught_by(
    records: Sequence[TrialRecord],
    space: SearchSpace,
    directions: Sequence[str],
    baseline: Baseline,
) -> tuple[Observation, ...]:
    """What these records teach. What the `baseline` launched teaches where it is a point of the space.

    A look that died is a witness against the choices that it judges, and against nothing else.
    """
    point = point_of(baseline, space)
    baselines = {record.trial for record in records if record.role == BASELINE}
    luck = lucks(records)
    found = []
    for record in records:
        configuration = Configuration(record.configuration)
        if record.trial in baselines or record.repeat_of in baselines:
            if point is None:
                continue
            configuration = point
        if _teaches(record):
            found.append(_observation(record, configuration, directions, luck.get(record.trial, 0.0)))
        elif record.state == LOOKED and record.failure is not None and tells_of_choices(_death(record)):
            judged = {name: value for name, value in configuration.items() if name not in record.blind_to}
            found.append(
                Observation(
                    record.trial, Configuration(judged), death=_death(record), took_s=record.took_s or 0.0
                )
            )
    return tuple(found)


def looks_of(records: Sequence[TrialRecord], directions: Sequence[str]) -> tuple[Observation, ...]:
    """What the looks of these records measured; their memory says nothing of a full launch."""
    return tuple(
        Observation(record.trial, Configuration(record.configuration), _logs(record.looked, directions))
        for record in records
        if record.state == LOOKED and record.looked and all(score > 0 for score in record.looked)
    )


def point_of(baseline: Baseline, space: SearchSpace) -> Configuration | None:
    """The point of the space that the baseline launches.

    The engine's defaults are the one in which everything is left unsaid but what their flags say. None for a
    command of the user's, and for flags with values that the space does not have.
    """
    if baseline.command is not None:
        return None
    names = {parameter.name for parameter in space.parameters}
    said = {name: value for name, value in baseline.flags.items() if name in names}
    if not all(isinstance(value, (bool, int, float, str)) for value in said.values()):
        return None
    assignment = space.assignment(cast("Mapping[str, Value]", said), strict=False)
    return space.configuration(assignment) if assignment is not None else None


def expected_scores(lesson: Lesson, space: SearchSpace, objective: Objective) -> dict[int, float]:
    """Trial → what another launch of it is expected to score, learnt from all launches together."""
    measured = [one for one in lesson.observations if one.death is None]
    if not measured:
        return {}
    axes = Axes(space, measured)
    speed = Speed(axes, measured, canonical=lesson.canonical, load=lesson.load, sweeps=_SWEEPS)
    sign = -1.0 if objective.directions[0] == MINIMIZE else 1.0
    means = speed.means([one.configuration for one in measured])
    return {one.trial: math.exp(sign * float(mean)) for one, mean in zip(measured, means, strict=True)}


def load_of(definition: StudyDefinition) -> int | None:
    """The largest number of requests at once that is scored; None for a load of requests per second."""
    levels = definition.workload.concurrency
    return max(levels) if levels else None


def _teaches(record: TrialRecord) -> bool:
    if record.state == COMPLETE:
        return _usable(record)
    return record.state == PRUNED and record.failure is not None


def _usable(record: TrialRecord) -> bool:
    return bool(record.scores) and all(score > 0 for score in record.scores)


def _observation(
    record: TrialRecord, configuration: Configuration, directions: Sequence[str], luck: float
) -> Observation:
    logs = _logs(record.scores if record.state == COMPLETE else (), directions)
    return Observation(
        trial=record.trial,
        configuration=configuration,
        log_scores=(logs[0] - luck, *logs[1:]) if logs else (),
        death=_death(record) if record.state == PRUNED else None,
        excesses=record.excesses,
        memory=record.server.get("memory") or {},
        resolved=record.server.get("resolved") or {},
        took_s=record.took_s or 0.0,
        accept_length=record.accept_length,
    )


def _logs(scores: Sequence[float], directions: Sequence[str]) -> tuple[float, ...]:
    """More is better, whatever the direction."""
    signs = [-1.0 if direction == MINIMIZE else 1.0 for direction in directions]
    return tuple(sign * math.log(score) for sign, score in zip(signs, scores, strict=False))


def _death(record: TrialRecord) -> Death:
    failure = record.failure or {}
    evidence = failure.get("evidence") or []
    telling = str(evidence[0].get("text", "")) if evidence else ""
    hints = failure.get("hints") or []
    return Death(
        kind=str(failure.get("kind", "unknown")),
        phase=str(failure.get("phase") or ""),
        text=f"{failure.get('summary', '')} {telling}",
        blamed=tuple(str(hint["param"]) for hint in hints if "param" in hint),
        shortage_gib=failure.get("shortage_gib"),
        passing=failure.get("cause") == str(Cause.TRANSIENT),
    )
