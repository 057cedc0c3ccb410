"""Earlier studies of the same model, from which a new one learns before its first launch.

Another box, another version or another day is faster or slower as a whole, so of an earlier study's scores
only the differences within it are taken (`tuner.learn.additive`). Its best are tried early; what died there
is suspected here, and no more. What its launches took of a card's memory is learnt where the cards are alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.diagnosis.failure import Cause
from tuner.errors import InputError, TunerError
from tuner.learn.observation import Observation
from tuner.learn.promise import Lesson
from tuner.results.record import COMPLETE, PRUNED, TrialRecord, read_records
from tuner.results.standings import standings
from tuner.search.equivalence import canonical, equivalences_of
from tuner.search.identity import IDENTITY_FILE, baseline_in, read_identity
from tuner.search.lesson import expected_scores, taught_by
from tuner.search.roles import BASELINE
from tuner.space.configuration import Configuration, Value
from tuner.space.cutting import cut_to
from tuner.space.restoring import restored_space
from tuner.space.space import KnownGood, SearchSpace
from tuner.study.definition import ENGINE_DEFAULTS, Baseline, StudyDefinition
from tuner.telemetry.audit import PLATFORM_FILE, PlatformAudit

_BEST = 3
"""So many configurations of all earlier studies together are tried before the sampler is asked: one of each,
since the second best of a study mostly repeats the best, and costs a launch where the study misleads."""
_OF_THE_BOX = ("GPUs", "GPU memory", "driver", "topology", "peer-to-peer")
"""Findings of the audit in which two boxes that are alike do not differ."""

_OF_THE_CARD = "GPU memory"
_OF_THE_WEIGHTS = ("tp_size", "pp_size", "dtype", "quantization", "cpu_offload_gb")
"""Flags that decide how much of a card the weights take."""
_OF_THE_LOAD = ("kind", "input_tokens", "output_tokens")


@dataclass(frozen=True)
class PastStudy:
    """What an earlier study found out.

    `name` is what it is called here. `fixed` holds the flags and variables that all its launches had, and
    `gpus` on how many it ran. `counts` says whether it scored what is scored now; where it did not, only its
    deaths teach. `same_cards` says whether a launch took as much memory there as here: GPUs of the same
    memory, and as many of them. `baseline` was its reference. `remarks` say in what it is known to differ.
    """

    name: str
    records: tuple[TrialRecord, ...]
    space: SearchSpace
    fixed: Mapping[str, Value] = field(default_factory=dict)
    counts: bool = True
    same_cards: bool = False
    baseline: Baseline = ENGINE_DEFAULTS
    remarks: tuple[str, ...] = ()

    @property
    def launches(self) -> tuple[TrialRecord, ...]:
        """What teaches: launches that were measured, and those that died of their configuration."""
        return tuple(
            record for record in self.records if (record.state == COMPLETE and self.counts) or _died(record)
        )

    def observations(self, space: SearchSpace, directions: Sequence[str]) -> tuple[Observation, ...]:
        """Its launches as points of `space`."""
        taught = self._taught(directions)
        return tuple(self._moved(one, self._in(space, one.configuration)) for one in taught)

    def best(self, space: SearchSpace, definition: StudyDefinition) -> list[Configuration]:
        """Its best as points of `space`, the best first: what beat its reference and keeps all rules here."""
        if not self.counts:
            return []
        equivalences = equivalences_of(self.records, self.space)
        directions = definition.objective.directions
        lesson = Lesson(self._taught(directions), lambda given: canonical(given, equivalences))
        expected = {}
        if len(directions) == 1:
            expected = expected_scores(lesson, self.space, definition.objective)
        found: list[Configuration] = []
        for standing in standings(self.records, expected):
            if standing.record.role == BASELINE:
                break
            configuration = self._in(space, standing.record.configuration)
            if space.broken_rule(configuration) is None and configuration not in found:
                found.append(configuration)
        return found

    def _taught(self, directions: Sequence[str]) -> tuple[Observation, ...]:
        return taught_by(self.launches, self.space, directions, self.baseline)

    def _moved(self, one: Observation, configuration: Configuration) -> Observation:
        """What counts of a launch elsewhere: its speed, or its death; and its memory, on the same cards."""
        moved = Observation(one.trial, configuration, one.log_scores, one.death)
        is_known = self.same_cards and self.counts
        return replace(moved, memory=one.memory, resolved=one.resolved) if is_known else moved

    def _in(self, space: SearchSpace, values: Mapping[str, Value]) -> Configuration:
        return cut_to(space, {**self.fixed, **values})


def best_of_past(
    past: Sequence[PastStudy], space: SearchSpace, definition: StudyDefinition
) -> tuple[KnownGood, ...]:
    """The best of each earlier study, to be tried early.

    None that the space names already, and not the defaults: the next best takes its place.
    """
    seen = {known.values for known in space.known_good} | {space.configuration(space.assignment({}))}
    found: list[KnownGood] = []
    for study in past[:_BEST]:
        fresh = next((one for one in study.best(space, definition) if one not in seen), None)
        if fresh is not None:
            seen.add(fresh)
            found.append(KnownGood(f"best of {study.name}", fresh))
    return tuple(found)


# --- reading ----------------------------------------------------------------------------------------------


def read_past(definition: StudyDefinition, platform: PlatformAudit | None) -> tuple[PastStudy, ...]:
    """The earlier studies that `warm_start` names; `platform` is what this box is like, where that is known.

    Raises `InputError` for one that cannot be read, is of another model, or has nothing to teach.
    """
    return tuple(_read(folder, definition, platform) for folder in definition.warm_start)


def told(past: Sequence[PastStudy]) -> list[str]:
    """A line for each study that is learnt from, and one for each thing in which it is known to differ."""
    lines = []
    for study in past:
        count = len(study.launches)
        also = ", and what memory they took" if study.counts and study.same_cards else ""
        lines.append(f"learns from {count} launch{'' if count == 1 else 'es'} of {study.name}{also}")
        lines += [f"warning  {study.name}: {remark}" for remark in study.remarks]
    return lines


def _read(folder: Path, definition: StudyDefinition, platform: PlatformAudit | None) -> PastStudy:
    identity = read_identity(folder)
    file = folder / IDENTITY_FILE
    server = _mapping(identity.get("server"))
    model = str(server.get("model", ""))
    if _name_of(model) != _name_of(definition.server.model):
        raise InputError(
            f"warm_start: {file}: server.model: that study was of {model or 'an unknown model'}, this one is "
            f"of {definition.server.model}",
            hint="a warm start takes studies of the same model only",
        )
    try:
        records = tuple(read_records(folder))
    except TunerError as error:
        raise InputError(f"warm_start: {error.message}", hint=error.hint) from error
    objective = str(identity.get("objective", "")).partition(" with ")[0]
    counts = objective == " and ".join(definition.objective.names)
    study = PastStudy(
        name=str(folder),
        records=records,
        space=restored_space(identity["space"], folder.name, str(file)),
        fixed=_fixed(server),
        counts=counts,
        same_cards=_same_cards(folder, server, definition, platform),
        baseline=baseline_in(identity),
        remarks=(
            *_remarks(identity, definition),
            *([] if counts else [f"it scored {objective}; only what died there teaches"]),
            *_box_remarks(folder, platform),
        ),
    )
    if not study.launches:
        raise InputError(
            f"warm_start: {folder}: none of its {len(records)} trials teaches anything",
            hint="name a study of which launches were measured",
        )
    return study


def _remarks(identity: Mapping[str, Any], definition: StudyDefinition) -> list[str]:
    gpus = len(_mapping(identity.get("server")).get("gpus") or ())
    here = len(definition.server.gpus)
    remarks = [f"it ran on {gpus or 'unnamed'} GPUs, this one on {here or 'unnamed'}"] if gpus != here else []
    then = _mapping(identity.get("workload"))
    now = _mapping(json.loads(json.dumps(definition.workload.to_json())))
    differing = [name for name in _OF_THE_LOAD if then.get(name) != now.get(name)]
    remarks += [f"{name} was {then.get(name)}, is {now.get(name)}" for name in differing]
    return remarks


def _box_remarks(folder: Path, platform: PlatformAudit | None) -> list[str]:
    """In what the boxes differ, as far as both studies kept it."""
    if platform is None:
        return []
    try:
        then = _box(folder)
    except InputError as error:
        return [f"{error.message}; whether the boxes are alike is not known"]
    if not then:
        return []
    now = _values(platform)
    return [
        f"{what}: was {then.get(what, 'unknown')}, is {now.get(what, 'unknown')}"
        for what in _OF_THE_BOX
        if then.get(what) != now.get(what)
    ]


def _same_cards(
    folder: Path, server: Mapping[str, Any], definition: StudyDefinition, platform: PlatformAudit | None
) -> bool:
    """Whether both studies are known to share the same weights among as many cards of the same memory."""
    if platform is None or len(server.get("gpus") or ()) != len(definition.server.gpus):
        return False
    try:
        then = _box(folder).get(_OF_THE_CARD)
    except InputError:
        return False
    before, now = _mapping(server.get("flags")), definition.server.flags
    alike = all(before.get(name) == now.get(name) for name in _OF_THE_WEIGHTS)
    return alike and then is not None and then == _values(platform).get(_OF_THE_CARD)


def _box(folder: Path) -> dict[str, str]:
    """What the audit of an earlier study found; empty where it kept none. Raises `InputError`."""
    file = folder / PLATFORM_FILE
    if not file.is_file():
        return {}
    try:
        return _values(PlatformAudit.from_json(json.loads(file.read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{file} cannot be read ({error})") from error


def _values(audit: PlatformAudit) -> dict[str, str]:
    return {finding.what: finding.value for finding in audit.findings}


def _died(record: TrialRecord) -> bool:
    failure = record.failure or {}
    return record.state == PRUNED and failure.get("cause") == str(Cause.CONFIG)


def _fixed(server: Mapping[str, Any]) -> dict[str, Value]:
    """The flags and variables that all launches had; what has several values is no choice of a space."""
    both = {**_mapping(server.get("flags")), **_mapping(server.get("environment"))}
    return {name: value for name, value in both.items() if isinstance(value, (bool, int, float, str))}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _name_of(model: str) -> str:
    """A model is the same under a local path and under its owner's name."""
    return model.rstrip("/").rpartition("/")[2].casefold()
