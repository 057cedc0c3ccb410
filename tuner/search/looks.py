"""Cheap looks before dear launches: when one is made, of what, and how far looks are believed.

A look (`tuner.evaluate.protocol.Fidelity`) is no launch of the study: it has no score, and is never the best.
The speed model takes looks as it takes launches of an earlier study, with a level of their own and a doubt
that is fitted (`tuner.learn.additive`); a choice that kills a look bears witness as in a full launch.

The first looks repeat what was launched in full, so that it is known whether both rank alike. From then on a
look comes before a full launch whose choices are in doubt, where a look can judge them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import NormalDist, median
from typing import Any

from tuner.evaluate.protocol import Evaluator, Fidelity, Looker
from tuner.learn.agreement import Agreement, agreement_of
from tuner.learn.axes import Axes
from tuner.learn.blame import Culprits
from tuner.learn.promise import Lesson
from tuner.learn.speed import Speed
from tuner.results.record import COMPLETE, FAILED, LOOKED, PRUNED, TrialRecord
from tuner.results.standings import best_standing
from tuner.search.lesson import looks_of, point_of
from tuner.search.roles import BASELINE, CONFIRM, LOOK
from tuner.search.store import Proposal, StudyStore
from tuner.space.configuration import Configuration, Value
from tuner.space.space import SearchSpace
from tuner.study.definition import Baseline, StudyDefinition

_DROPPED, _WHY, _MISLED = "looks_dropped", "why", "misled"
"""The study's attribute in Optuna, and its keys."""
_REPEATS = 3
"""Looks at what was launched in full before one decides anything: three pairs."""
_LEAST_PAIRS = 3
_LEAST_TAU = 0.5
"""Of four pairs that full launches are sure of, looks may have one the wrong way round."""
_MOST_OF_A_LAUNCH = 0.5
"""A look that costs more than this share of a full launch saves too little."""
_LIKELY_COST = 0.25
"""Of the first ones."""
_MOST_OF_THE_TIME = 0.25
"""Of the hours so far that may have gone into looks."""
_OF_A_DEATH = 0.6
"""What a launch that dies of its choices takes, as a share of a whole one; it teaches little else."""
_OF_A_SLOW_LAUNCH = 0.25
"""What a launch that is no better than the best is a loss, as a share of it: it teaches as well."""


class Looks:
    """Proposes the looks of one study. `tell` hears, once, why they were dropped.

    `told` is how they stand, in a sentence; empty where none was made.
    """

    def __init__(
        self,
        definition: StudyDefinition,
        store: StudyStore,
        evaluator: Evaluator,
        tell: Callable[[str], None],
    ) -> None:
        self._definition = definition
        self._store = store
        self._tell = tell
        self.fidelity = _fidelity_for(definition, evaluator)
        self.agreement = Agreement()
        self.told = ""

    def learn(self, records: Sequence[TrialRecord]) -> None:
        """All records so far: whether looks are believed, and whether further ones are made."""
        looks = _looks_in(records)
        if not looks:
            return
        lesson = self._store.lesson(records)
        measured = [one for one in lesson.observations if one.death is None]
        self.agreement = agreement_of(
            looks_of(records, self._definition.objective.directions),
            measured,
            Axes(self._store.space, measured),
            canonical=lesson.canonical,
            load=lesson.load,
        )
        if not self._dropped:
            self._judge(looks, records)
        dropped, died = self._dropped, sum(one.failure is not None for one in looks)
        minutes = sum(one.took_s or 0.0 for one in looks) / 60
        count = f"{len(looks)} look{'' if len(looks) == 1 else 's'}"
        told = [f"{count} ({looks[-1].fidelity}) in {minutes:.0f} min"]
        told += [f"{died} died"] if died else []
        told += [] if dropped.get(_MISLED) else [self.agreement.shown]
        told += [f"no further ones: {dropped[_WHY]}"] if dropped else []
        self.told = self._store.looks_told = ", ".join(told)
        self._store.believes_looks = not dropped.get(_MISLED)

    def _judge(self, looks: Sequence[TrialRecord], records: Sequence[TrialRecord]) -> None:
        """Drop them for the rest of the study, over all its runs, where they mislead or save too little."""
        misled = self._why_misled(looks, records)
        why = misled or _why_too_dear(looks, records)
        if why:
            self._store.study.set_user_attr(_DROPPED, {_WHY: why, _MISLED: bool(misled)})
            self._tell(f"no further looks: {why}")

    @property
    def _dropped(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._store.study.user_attrs.get(_DROPPED, {})
        return found

    def next(self, records: Sequence[TrialRecord]) -> Proposal | None:
        """The look to be made now; None where what comes next is to be launched in full."""
        fidelity = self.fidelity
        if fidelity is None or self._dropped or not any(record.state == COMPLETE for record in records):
            return None
        proposed = self._store.foreseen()
        if proposed is None or self._is_time_up(records):
            return None
        found = self._wanted(records, fidelity, proposed)
        if found is None:
            return None
        configuration, why = found
        return self._store.next_given(configuration, why, role=LOOK)

    def _wanted(
        self, records: Sequence[TrialRecord], fidelity: Fidelity, proposed: Configuration
    ) -> tuple[Configuration, str] | None:
        look = self._seen(proposed, fidelity)
        lesson = self._store.lesson(records)
        looks = [one for one in records if one.role == LOOK and one.state != FAILED]
        seen = {lesson.canonical(Configuration(one.configuration)) for one in looks}
        if look is None or lesson.canonical(look) in seen or not self._store.allows(look):
            return None
        deaths, slowness = self._saved_by(look, proposed, records, fidelity, lesson)
        cost = _cost_of(_looks_in(records), records) or _LIKELY_COST
        if deaths + slowness <= cost:
            return None
        if len(looks) < _REPEATS:
            return self._repeat(records, fidelity, lesson, seen)
        # What a look taught of the speed is for a full launch to use, before there is another one.
        is_next = len(looks) > _REPEATS and records[-1].role == LOOK
        return None if is_next and deaths <= cost else (look, "before a full launch")

    def _repeat(
        self,
        records: Sequence[TrialRecord],
        fidelity: Fidelity,
        lesson: Lesson,
        seen: Collection[Configuration],
    ) -> tuple[Configuration, str] | None:
        """A look at what was launched in full; None before enough of that differs in what looks judge."""
        launched: dict[Configuration, tuple[Configuration, str]] = {}
        for trial, one in self._launched(records, fidelity):
            why = f"as trial {trial}, to see whether looks rank alike"
            launched.setdefault(lesson.canonical(one), (one, why))
        if len(launched) < _REPEATS:
            return None
        fresh = [found for same, found in launched.items() if same not in seen]
        return next((found for found in fresh if self._store.allows(found[0])), None)

    def _launched(
        self, records: Sequence[TrialRecord], fidelity: Fidelity
    ) -> list[tuple[int, Configuration]]:
        """What a look sees of the configurations that ran, by trial."""
        found = []
        for record in records:
            if record.state != COMPLETE or record.role == CONFIRM or record.repeat_of is not None:
                continue
            point = self._point(record)
            look = self._seen(point, fidelity) if point is not None else None
            if look is not None:
                found.append((record.trial, look))
        return found

    def _point(self, record: TrialRecord) -> Configuration | None:
        """What was launched, as a point of the space; None for a baseline that is none."""
        if record.role == BASELINE:
            return point_of(self._definition.baseline, self._store.space)
        return Configuration(record.configuration)

    def _seen(self, configuration: Configuration, fidelity: Fidelity) -> Configuration | None:
        return seen_by_a_look(configuration, self._store.space, fidelity, self._definition.baseline)

    def _saved_by(
        self,
        look: Configuration,
        proposed: Configuration,
        records: Sequence[TrialRecord],
        fidelity: Fidelity,
        lesson: Lesson,
    ) -> tuple[float, float]:
        """What the look is expected to save, as shares of a full launch: by deaths, and by slowness.

        Saved is what the launch would take where its choices kill it, and a part of it where it is slower
        than the best, as far as that is for choices that the look can judge.
        """
        space = self._store.space
        best = best_standing(records, self._store.expected(records))
        there = self._point(best.record) if best is not None else None
        looked_there = self._seen(there, fidelity) if there is not None else None
        if there is None or looked_there is None:
            return 0.0, 0.0
        looks = looks_of(records, self._definition.objective.directions)
        risk = Culprits(space, lesson.observations, looks).risk(look)
        measured = [one for one in lesson.observations if one.death is None]
        axes = Axes(space, measured)
        past = [looks] if len(looks) > 1 else []
        speed = Speed(axes, measured, canonical=lesson.canonical, load=lesson.load, past=past)
        (gain,), (sd,) = speed.gains(axes.rows([lesson.canonical(proposed)]), lesson.canonical(there))
        _, (sd_judged,) = speed.gains(axes.rows([lesson.canonical(look)]), lesson.canonical(looked_there))
        slower = NormalDist().cdf(-gain / sd)
        judged = min(1.0, sd_judged / sd) ** 2
        return risk * _OF_A_DEATH, (1.0 - risk) * slower * judged * _OF_A_SLOW_LAUNCH

    def _why_misled(self, looks: Sequence[TrialRecord], records: Sequence[TrialRecord]) -> str:
        tau = self.agreement.tau
        if tau is not None and self.agreement.pairs >= _LEAST_PAIRS and tau < _LEAST_TAU:
            return f"they mislead: {self.agreement.shown}"
        fidelity = self.fidelity
        if fidelity is None:
            return ""
        ran = {one: trial for trial, one in self._launched(records, fidelity)}
        for look in looks:
            trial = ran.get(Configuration(look.configuration))
            if look.failure is not None and trial is not None:
                return f"the look of trial {look.trial} died ({look.failure['kind']}), and trial {trial} runs"
        return ""

    def _is_time_up(self, records: Sequence[TrialRecord]) -> bool:
        spent_s = sum(one.took_s or 0.0 for one in records if one.state in (COMPLETE, PRUNED, LOOKED))
        return sum(one.took_s or 0.0 for one in _looks_in(records)) > _MOST_OF_THE_TIME * spent_s


def seen_by_a_look(
    configuration: Configuration, space: SearchSpace, fidelity: Fidelity, baseline: Baseline
) -> Configuration | None:
    """The configuration with everything that a look is blind to as in the baseline; None against a rule."""
    there: Mapping[str, Value] = point_of(baseline, space) or {}
    judged = {name: value for name, value in configuration.items() if name not in fidelity.blind_to}
    blind = {name: value for name, value in there.items() if name in fidelity.blind_to}
    assignment = space.assignment({**blind, **judged}, strict=False)
    if assignment is None:
        return None
    found = space.configuration(assignment)
    return found if space.broken_rule(found) is None else None


def _fidelity_for(definition: StudyDefinition, evaluator: Evaluator) -> Fidelity | None:
    """The look that is made in this study: none where it is not wanted, and none of a trade-off of goals."""
    objective = definition.objective
    if definition.budget.looks == "off" or len(objective.goals) > 1 or objective.seeks_highest:
        return None
    if not isinstance(evaluator, Looker):
        return None
    return next(iter(evaluator.fidelities()), None)


def _looks_in(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.state == LOOKED]


def _typical_s(records: Iterable[TrialRecord]) -> float:
    """What one takes that does not die; 0 where none is known."""
    return median([one.took_s for one in records if one.took_s and one.failure is None] or [0.0])


def _cost_of(looks: Sequence[TrialRecord], records: Sequence[TrialRecord]) -> float:
    """What a look costs, as a share of a full launch; 0 before any is known."""
    full_s = _typical_s(record for record in records if record.state == COMPLETE)
    return _typical_s(looks) / full_s if full_s else 0.0


def _why_too_dear(looks: Sequence[TrialRecord], records: Sequence[TrialRecord]) -> str:
    if _cost_of(looks, records) < _MOST_OF_A_LAUNCH:
        return ""
    full_s = _typical_s(record for record in records if record.state == COMPLETE)
    return f"one takes {_typical_s(looks):.0f} s, a full launch {full_s:.0f} s"
