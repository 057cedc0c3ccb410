"""The Optuna study: opened or resumed, asked for proposals, told what became of them."""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.artifacts import FileSystemArtifactStore
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard import save_note

from tuner.errors import InputError, TunerError
from tuner.evaluate.protocol import Listener
from tuner.results import dashboard
from tuner.results.note import study_note
from tuner.results.record import TrialRecord
from tuner.results.standings import Standing
from tuner.search.admission import Admission
from tuner.search.equivalence import Equivalences, canonical
from tuner.search.identity import differences
from tuner.search.repair import Repair
from tuner.search.roles import BASELINE, KNOWN_GOOD, REPAIR, REPEAT, SEARCH
from tuner.search.sampler import Assignment, FreshSampler, distributions_of
from tuner.space.configuration import Configuration, Value
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition

IDENTITY_FILE = "study.json"
MEMORY = "memory"
"""As `storage`: nothing is kept, shown or resumed; for studies in virtual time."""

_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Proposal:
    """What to try next. `role` is one of `tuner.search.roles`; `source` says where it is from."""

    trial: optuna.trial.Trial
    configuration: Configuration
    role: str
    source: str = ""
    repeat_of: int | None = None
    repair_of: int | None = None
    as_baseline: bool = False

    @property
    def number(self) -> int:
        """The trial's number in the study."""
        return self.trial.number


class StudyStore:
    """The study of a definition in its Optuna storage.

    `owner` names this process so that a trial left RUNNING by a dead one can be told from one that another
    worker is busy with (`is_alive`). `remarks` about the box are shown with the study; `admission` decides
    whether what the rules allow is launched.
    """

    def __init__(
        self,
        definition: StudyDefinition,
        space: SearchSpace,
        *,
        owner: str,
        is_alive: Callable[[str], bool],
        inner: optuna.samplers.BaseSampler | None = None,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._definition = definition
        self._space = space
        self._owner = owner
        self._is_alive = is_alive
        self.remarks: tuple[str, ...] = ()
        self.admission = Admission(None, Listener())
        self._equivalences: Equivalences = {}
        self._known: set[str] = set()
        self._artifacts: FileSystemArtifactStore | None = None
        if definition.storage == MEMORY:
            self._study = optuna.create_study(directions=_directions(definition))
        else:
            definition.folder.mkdir(parents=True, exist_ok=True)
            self._artifacts = _artifact_store(definition.folder / "artifacts")
            self._study = _open(definition)
            self._check_identity()
        seed = definition.seed + len(self._study.get_trials(deepcopy=False))
        self._sampler = FreshSampler(
            inner or optuna.samplers.TPESampler(seed=seed), space, self._admits, seed=seed
        )
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

    def learn(self, equivalences: Equivalences) -> None:
        """Take choices that come down to the same running server for one choice from now on."""
        self._equivalences = equivalences

    def next(self) -> Proposal | None:
        """The next proposal: what is queued, the baseline, the known-good ones, then the sampler's.

        Returns None where every configuration that the rules allow is known, or is not admitted.
        """
        self._known = self._fingerprints_known()
        if not self._waiting():
            self._queue_next_given()
        if not self._waiting() and self._sampler.find_fresh() is None:
            return None
        trial = self._study.ask(fixed_distributions=distributions_of(self._space))
        trial.set_user_attr("owner", self._owner)
        role = str(trial.user_attrs.get("role", SEARCH))
        as_baseline = role == BASELINE or bool(trial.user_attrs.get("as_baseline"))
        configuration = Configuration() if as_baseline else self._space.configuration(trial.params)
        trial.set_user_attr("role", role)
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

    def next_repeat(self, number: int, why: str, *, role: str) -> Proposal:
        """A deliberate repeat of a measured trial, to be run now; what is queued already comes first."""
        if not self._waiting():
            self.queue_repeat(number, why, role=role)
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
        """The mended configuration of a failed trial, linked to it; False where it is known or refused."""
        if self._fingerprint(repair.configuration) in self._fingerprints_known():
            return False
        if not self.admission.admits(repair.configuration):
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
        with _experimental_allowed():
            dashboard.publish(proposal.trial, record, folder, self._artifacts, self._study._storage)

    def publish_study(
        self, records: list[TrialRecord], best: Standing | None, reference: str, verdict: str = ""
    ) -> None:
        """Show how the study stands."""
        if self._artifacts is None:
            return
        with _experimental_allowed():
            label = self._definition.server.label
            note = study_note(records, best, label, reference, verdict, self.remarks, self.admission.refused)
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
            known for known in self._space.known_good if self._fingerprint(known.values) not in self._known
        ]
        # All at once: to ask SGLang takes a start of its own.
        self.admission.refusals([known.values for known in fresh])
        for known in fresh:
            if self.admission.admits_known_good(known):
                self._enqueue(
                    self._space.assignment(known.values), {"role": KNOWN_GOOD, "source": known.name}
                )
                return

    def _enqueue(self, assignment: Assignment, attributes: dict[str, Any]) -> None:
        self._study.enqueue_trial(assignment, user_attrs=attributes)

    def _queue_again(self, frozen: FrozenTrial, why: str) -> None:
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
        if self._space.broken_rule(configuration) is not None:
            return False
        if self._fingerprint(configuration) in self._known:
            return False
        return self.admission.admits(configuration)

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

    # --- identity -----------------------------------------------------------------------------------

    def _check_identity(self) -> None:
        """Refuse to go on with a study whose results would not be comparable.

        The study holds the identity's fingerprint, `study.json` beside the results all of it.
        """
        identity = {**self._definition.identity(), "space": self._space.canonical()}
        text = json.dumps(identity, sort_keys=True)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
        file = self._definition.folder / IDENTITY_FILE
        stored = self._study.user_attrs.get("definition")
        if stored is None:
            file.write_text(json.dumps(identity, indent=1) + "\n", encoding="utf-8")
            self._study.set_user_attr("definition", fingerprint)
            self._study.set_user_attr("label", self._definition.server.label)
            with _experimental_allowed():
                self._study.set_metric_names(list(self._definition.objective.names))
            return
        if stored != fingerprint:
            raise InputError(
                f"study '{self._definition.name}' cannot be resumed: what it measured before is not "
                f"comparable with what it would measure now\n  {_told_differences(file, identity)}",
                hint="give the study another name (--name), or undo the change; the old results stay",
            )


def _told_differences(file: Path, identity: dict[str, Any]) -> str:
    try:
        old = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"(what it was is not known: {file} cannot be read)"
    return "\n  ".join(differences(old, identity))


def _directions(definition: StudyDefinition) -> list[StudyDirection]:
    return [StudyDirection[direction.upper()] for direction in definition.objective.directions]


def _open(definition: StudyDefinition) -> optuna.Study:
    try:
        return optuna.create_study(
            study_name=definition.name,
            storage=definition.storage,
            directions=_directions(definition),
            load_if_exists=True,
        )
    except Exception as error:  # whatever a database driver raises: the URL is the user's
        told = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"storage {definition.storage}: the study cannot be opened: {told}",
            hint="give an Optuna storage URL, such as sqlite:///studies/NAME/study.db",
        ) from error


def _artifact_store(folder: Path) -> FileSystemArtifactStore:
    folder.mkdir(parents=True, exist_ok=True)
    with _experimental_allowed():
        return FileSystemArtifactStore(str(folder))


@contextmanager
def _experimental_allowed() -> Iterator[None]:
    """Optuna marks metric names and artifacts as experimental; we know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
