"""The Optuna study: opened or resumed, asked for proposals, told what became of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard import save_note

from tuner.errors import TunerError
from tuner.evaluate.protocol import Fidelity, Listener
from tuner.learn.observation import Observation
from tuner.learn.promise import Lesson
from tuner.learn.ruled_out import RuledOut, ruled_out
from tuner.results import dashboard
from tuner.results.note import study_note
from tuner.results.record import TrialRecord
from tuner.results.standings import Expected, Standing
from tuner.search.admission import Admission
from tuner.search.equivalence import Equivalences, canonical, equivalences_of
from tuner.search.lesson import expected_scores, load_of, looks_of, observations_of
from tuner.search.opening import experimental_allowed, open_artifacts, open_study
from tuner.search.past import PastStudy, best_of_past
from tuner.search.repair import Repair
from tuner.search.roles import BASELINE, KNOWN_GOOD, LOOK, REPAIR, REPEAT, SEARCH
from tuner.search.sampler import Assignment, FreshSampler, distributions_of
from tuner.search.samplers import sampler_of
from tuner.search.surrogate import SurrogateSampler
from tuner.space.configuration import Configuration, Value
from tuner.space.space import KnownGood, SearchSpace
from tuner.study.definition import StudyDefinition

_RACES = 5
"""How often another proposal is asked for where workers were given the same."""

PROMISED = "promised"
_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Proposal:
    """What to try next. `role` is one of `tuner.search.roles`; `source` says where it is from.

    `fidelity` is that of a look.
    """

    trial: optuna.trial.Trial
    configuration: Configuration
    role: str
    source: str = ""
    repeat_of: int | None = None
    repair_of: int | None = None
    as_baseline: bool = False
    fidelity: Fidelity | None = None

    @property
    def number(self) -> int:
        """The trial's number in the study."""
        return self.trial.number


class StudyStore:
    """The study of a definition in its Optuna storage.

    `owner` names this process so that a trial left RUNNING by a dead one can be told from one that another
    worker is busy with (`is_alive`). `past` are earlier studies to learn from, `prior` is what else is to be
    tried early. `remarks` about the box are shown with the study, as is what is `looks_told`;
    `believes_looks` says whether looks teach the sampler. `admission` decides whether what the rules allow is
    launched.
    """

    def __init__(
        self,
        definition: StudyDefinition,
        space: SearchSpace,
        *,
        owner: str,
        is_alive: Callable[[str], bool],
        inner: optuna.samplers.BaseSampler | None = None,
        past: Sequence[PastStudy] = (),
        prior: Sequence[KnownGood] = (),
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._definition = definition
        self._space = space
        self._owner = owner
        self._is_alive = is_alive
        self.remarks: tuple[str, ...] = ()
        self.looks_told, self.believes_looks = "", True
        self.admission = Admission(None, Listener())
        self._equivalences: Equivalences = {}
        self._ruled_out: tuple[RuledOut, ...] = ()
        self._known: set[str] = set()
        directions = definition.objective.directions
        self._past = tuple(study.observations(space, directions) for study in past)
        self._tried_early = (*best_of_past(past, space, definition), *prior)
        self._study = open_study(definition, space)
        self._artifacts = open_artifacts(definition)
        seed = definition.seed + len(self._study.get_trials(deepcopy=False))
        self._inner = inner if inner is not None else sampler_of(definition.sampler, seed)
        if isinstance(self._inner, SurrogateSampler):
            self._inner.join(space, self._admits)
        self._sampler = FreshSampler(self._inner, space, self._admits, seed=seed)
        self._study.sampler = self._sampler

    @property
    def study(self) -> optuna.Study:
        """Optuna's own view."""
        return self._study

    def abandoned_owners(self) -> list[str]:
        """The processes that died and left a trial RUNNING; a server of theirs may still be there."""
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        owners = {str(frozen.user_attrs.get("owner", "")) for frozen in running}
        return sorted(owner for owner in owners if not self._is_alive(owner))

    @property
    def space(self) -> SearchSpace:
        """What is searched."""
        return self._space

    def recover(self) -> list[int]:
        """Trials that a dead process left RUNNING: told as failed, their configurations queued again."""
        recovered = []
        for frozen in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if self._is_alive(str(frozen.user_attrs.get("owner", ""))):
                continue
            self._study.tell(frozen.number, state=TrialState.FAIL)
            self._queue_again(frozen, f"trial {frozen.number} was left unfinished")
            recovered.append(frozen.number)
        return recovered

    def learn(self, records: Sequence[TrialRecord]) -> None:
        """All records so far: what the sampler goes by.

        Choices that come down to the same running server are one choice from now on, and what surely dies is
        off the list.
        """
        self._equivalences = equivalences_of(records, self._space)
        self._ruled_out = ruled_out(self._space, self.observations(records))
        if isinstance(self._inner, SurrogateSampler):
            self._inner.learn(self.lesson(records))

    @property
    def ruled_out(self) -> tuple[RuledOut, ...]:
        """What is off the list, and never proposed again by any sampler."""
        return self._ruled_out

    def lesson(self, records: Sequence[TrialRecord]) -> Lesson:
        """What there is to learn from these records."""
        equivalences = equivalences_of(records, self._space)
        looks = looks_of(records, self._definition.objective.directions) if self.believes_looks else ()
        return Lesson(
            self.observations(records),
            lambda given: canonical(given, equivalences),
            load_of(self._definition),
            (*self._past, looks) if looks else self._past,
        )

    def observations(self, records: Sequence[TrialRecord]) -> tuple[Observation, ...]:
        """What the launches of these records teach."""
        return observations_of(records, self._definition, self._space)

    def expected(self, records: Sequence[TrialRecord]) -> Expected:
        """What another launch of each measured trial is expected to score, by all launches together."""
        if len(self._definition.objective.goals) > 1:
            return {}
        return expected_scores(self.lesson(records), self._space, self._definition.objective)

    def promises(self) -> list[float | None]:
        """What the sampler expected each of its proposals to gain (logarithm of the speed), the latest last.

        None where it did not say, as Optuna's own samplers never do. Kept with the trials, over all runs.
        """
        proposed = [one for one in self._trials(*_DONE) if one.user_attrs.get("role") == SEARCH]
        return [frozen.user_attrs.get(PROMISED) for frozen in proposed]

    def next(self) -> Proposal | None:
        """The next proposal: what is queued, the baseline, what is known to be good, then the sampler's.

        Returns None where every configuration that the rules allow is known, or is not admitted.
        """
        self._known = self._fingerprints_known()
        if isinstance(self._inner, SurrogateSampler):
            self._inner.promised = None
        if not self._waiting():
            self._queue_next_given()
        if not self._waiting() and self._sampler.find_fresh() is None:
            return None
        trial = self._ask()
        trial.set_user_attr("owner", self._owner)
        role = str(trial.user_attrs.get("role", SEARCH))
        as_baseline = role == BASELINE or bool(trial.user_attrs.get("as_baseline"))
        configuration = Configuration() if as_baseline else self._space.configuration(trial.params)
        trial.set_user_attr("role", role)
        if role == SEARCH and isinstance(self._inner, SurrogateSampler):
            trial.set_user_attr(PROMISED, self._inner.promised)
        attributes = trial.user_attrs
        return Proposal(
            trial,
            configuration,
            role,
            str(attributes.get("source", "")),
            repeat_of=attributes.get("repeat_of"),
            repair_of=attributes.get("repair_of"),
            as_baseline=as_baseline,
        )

    def foreseen(self) -> Configuration | None:
        """What the program's own sampler would propose now; None where something else comes first."""
        self._known = self._fingerprints_known()
        if not self._waiting():
            self._queue_next_given()
        if self._waiting() or not isinstance(self._inner, SurrogateSampler):
            return None
        found = self._inner.propose(())
        return self._space.configuration(found) if found is not None else None

    def allows(self, configuration: Configuration) -> bool:
        """Whether nothing is against launching this: no rule, no witness, no refusal."""
        if self._space.broken_rule(configuration) is not None or self._is_ruled_out(configuration):
            return False
        return self.admission.admits(configuration)

    def _ask(self) -> optuna.trial.Trial:
        """Ask Optuna; ask again where another worker was given the same in the same moment."""
        for _ in range(_RACES):
            trial = self._study.ask(fixed_distributions=distributions_of(self._space))
            if "role" in trial.user_attrs or not self._is_taken(trial):
                break
            self._study.tell(trial, state=TrialState.FAIL)
            self._known = self._fingerprints_known()
        return trial

    def _is_taken(self, trial: optuna.trial.Trial) -> bool:
        complete = [
            frozen
            for frozen in self._trials(TrialState.RUNNING)
            if frozen.number != trial.number and len(frozen.params) == len(trial.params)
        ]
        mine = self._fingerprint(self._space.configuration(trial.params))
        return any(self._fingerprint(self._space.configuration(other.params)) == mine for other in complete)

    def next_repeat(self, number: int, why: str, *, role: str) -> Proposal:
        """A deliberate repeat of a measured trial, to be run now; what is queued already comes first."""
        if not self._waiting():
            self.queue_repeat(number, why, role=role)
        return self._queued()

    def next_given(self, configuration: Configuration, why: str, *, role: str) -> Proposal:
        """This configuration, to be run now; what is queued already comes first."""
        if not self._waiting():
            self._enqueue(self._space.assignment(configuration), {"role": role, "source": why})
        return self._queued()

    def _queued(self) -> Proposal:
        proposal = self.next()
        if proposal is None:
            raise TunerError("what was queued was not proposed; this is an error of the tuner")
        return proposal

    def tell_measured(
        self, proposal: Proposal, scores: Sequence[float], excesses: Mapping[str, float]
    ) -> None:
        """A score for each goal, and for each limit how far it is missed (relative; 0 or less is met)."""
        for name, excess in excesses.items():
            proposal.trial.set_constraint(name, excess)
        self._study.tell(proposal.trial, list(scores))

    def tell_pruned(self, proposal: Proposal) -> None:
        """The configuration cannot run; the sampler learns from it."""
        self._study.tell(proposal.trial, state=TrialState.PRUNED)

    def tell_failed(self, proposal: Proposal, *, queue_again: bool, why: str = "") -> None:
        """Nothing was learnt of the configuration; with `queue_again` it is the first to be tried next."""
        self._study.tell(proposal.trial, state=TrialState.FAIL)
        if queue_again:
            self._queue_again(self._frozen(proposal.number), why)

    def queue_again(self, number: int, why: str) -> None:
        """Try a finished trial's configuration once more, in the same role."""
        self._queue_again(self._frozen(number), why)

    def queue_repeat(self, number: int, why: str, *, role: str = REPEAT) -> None:
        """A deliberate repeat of a measured trial, linked to it, or a launch that confirms it."""
        frozen = self._frozen(number)
        attributes = {"role": role, "source": why, "repeat_of": number}
        if frozen.user_attrs.get("role") == BASELINE:
            attributes["as_baseline"] = True
        self._study.enqueue_trial(frozen.params, user_attrs=attributes)

    def queue_repair(self, number: int, repair: Repair) -> bool:
        """The mended configuration of a failed trial, linked to it; False where it is not to be launched."""
        if self._fingerprint(repair.configuration) in self._fingerprints_known():
            return False
        if self._is_ruled_out(repair.configuration) or not self.admission.admits(repair.configuration):
            return False
        self._enqueue(
            self._space.assignment(repair.configuration),
            {"role": REPAIR, "source": f"trial {number} with {repair.change}", "repair_of": number},
        )
        return True

    def publish(self, proposal: Proposal, record: TrialRecord, folder: Path) -> None:
        """Show the record in the dashboard. To be called before the trial is told."""
        if self._artifacts is None:
            return
        with experimental_allowed():
            dashboard.publish(proposal.trial, record, folder, self._artifacts, self._study._storage)

    def publish_study(
        self, records: list[TrialRecord], best: Standing | None, reference: str, verdict: str = ""
    ) -> None:
        """Show how the study stands."""
        if self._artifacts is None:
            return
        with experimental_allowed():
            label = self._definition.server.label
            told = [one.shown for one in self._ruled_out]
            refused, looks = self.admission.refused, self.looks_told
            note = study_note(records, best, label, reference, verdict, self.remarks, refused, told, looks)
            save_note(self._study, note)

    # --- what is queued -----------------------------------------------------------------------------

    def _queue_next_given(self) -> None:
        """Queue the baseline, or the next known-good configuration that is not known yet."""
        tried = self._trials(*_DONE, TrialState.RUNNING)
        if not any(frozen.user_attrs.get("role") == BASELINE for frozen in tried):
            source = (
                "the command you run today" if self._definition.baseline.command else "the engine's defaults"
            )
            self._enqueue(self._space.assignment({}), {"role": BASELINE, "source": source})
            return
        fresh = [
            known
            for known in (*self._space.known_good, *self._tried_early)
            if self._fingerprint(known.values) not in self._known and not self._is_ruled_out(known.values)
        ]
        # All at once: to ask SGLang takes a start of its own.
        self.admission.refusals([known.values for known in fresh])
        for known in fresh:
            if self._admits_given(known):
                self._enqueue(
                    self._space.assignment(known.values), {"role": KNOWN_GOOD, "source": known.name}
                )
                return

    def _admits_given(self, known: KnownGood) -> bool:
        """What is said to run here is launched even against a rule; what ran elsewhere is not."""
        if known in self._space.known_good:
            return self.admission.admits_known_good(known)
        return self.admission.admits(known.values)

    def _enqueue(self, assignment: Assignment, attributes: dict[str, Any]) -> None:
        self._study.enqueue_trial(assignment, user_attrs=attributes)

    def _queue_again(self, frozen: FrozenTrial, why: str) -> None:
        if frozen.user_attrs.get("role") == LOOK:
            return  # whether it is still worth making is decided anew
        kept: dict[str, Any] = {
            name: frozen.user_attrs[name]
            for name in ("role", "repeat_of", "repair_of", "as_baseline")
            if name in frozen.user_attrs
        }
        source = str(frozen.user_attrs.get("source", "")).partition("; queued again")[0]
        again = f"{source}; queued again: {why}" if source else f"queued again: {why}"
        self._study.enqueue_trial(frozen.params, user_attrs={**kept, "source": again})

    def _waiting(self) -> bool:
        return bool(self._trials(TrialState.WAITING))

    def _admits(self, assignment: Mapping[str, Value]) -> bool:
        configuration = self._space.configuration(assignment)
        return self._fingerprint(configuration) not in self._known and self.allows(configuration)

    def _is_ruled_out(self, configuration: Configuration) -> bool:
        return any(one.forbids(configuration) for one in self._ruled_out)

    def _fingerprint(self, configuration: Configuration) -> str:
        return canonical(configuration, self._equivalences).fingerprint

    def _fingerprints_known(self) -> set[str]:
        """Of all configurations that were measured, failed, or are being tried by somebody."""
        return {
            self._fingerprint(self._space.configuration(frozen.params))
            for frozen in self._trials(*_DONE, TrialState.RUNNING)
            if frozen.user_attrs.get("role", BASELINE) != BASELINE
            and not frozen.user_attrs.get("as_baseline")
        }

    def _trials(self, *states: TrialState) -> Sequence[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states)

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]
