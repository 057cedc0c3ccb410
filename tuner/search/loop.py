"""The search: what to try next, what became of it, when to stop."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from tuner import __version__
from tuner.clock import Clock
from tuner.diagnosis.failure import Cause, Evidence, Failure, Kind
from tuner.errors import BrokenEnvironment, TunerError
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Evaluator, LaunchShown, Listener, PhaseNews, Request
from tuner.measure.measurement import LevelSample, LevelSummary
from tuner.results.export import write_exports
from tuner.results.record import (
    COMPLETE,
    FAILED,
    PRUNED,
    RUNNING,
    TrialRecord,
    best_record,
    read_records,
    trial_folder,
)
from tuner.results.recorder import Recorder
from tuner.search import breaker
from tuner.search.budget import BudgetKeeper
from tuner.search.equivalence import equivalences_of, twin_of
from tuner.search.reference import describe_reference, reference_of, shortfalls, shown_shortfalls
from tuner.search.repair import repair_of
from tuner.search.roles import BASELINE, REPAIR
from tuner.search.store import Proposal, StudyStore
from tuner.space.configuration import Configuration
from tuner.study.definition import StudyDefinition

_ATTEMPTS = 2
"""Launches of one trial at most: a transient failure is tried once more."""


class SearchListener(Listener):
    """Hears of the search as well as of each evaluation."""

    def on_begin(self, estimate: str, done: int) -> None:
        """The search begins; `done` trials are there already."""

    def on_trial(self, proposal: Proposal) -> None:
        """A trial begins."""

    def on_record(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """A trial is over; `best` is the best of the study now."""


@dataclass(frozen=True)
class SearchEnd:
    """How a search ended: why, and what there is."""

    reason: str
    records: tuple[TrialRecord, ...]
    best: TrialRecord | None
    reference: str


class Search:
    """Runs trials until the budget is used up, the space is exhausted or the box has to be mended."""

    def __init__(
        self,
        definition: StudyDefinition,
        store: StudyStore,
        evaluator: Evaluator,
        clock: Clock,
        listener: SearchListener,
    ) -> None:
        self._definition = definition
        self._store = store
        self._evaluator = evaluator
        self._clock = clock
        self._listener = listener
        self._folder = definition.folder
        self._budget = BudgetKeeper(definition.budget, clock)
        self._of_this_run: list[TrialRecord] = []

    def run(self) -> SearchEnd:
        """Search. Raises `BrokenEnvironment` where no trial can succeed, `KeyboardInterrupt` on Ctrl-C.

        Whatever it raises, the study is left so that the next run resumes it.
        """
        self._recover()
        records = read_records(self._folder)
        self._listener.on_begin(self._budget.estimate(self._definition, records), len(records))
        while True:
            reason = self._budget.reason_to_stop(records)
            if reason:
                return self._end(reason, records)
            self._store.learn(equivalences_of(records, self._store.space))
            proposal = self._store.next()
            if proposal is None:
                return self._end("every configuration that the rules allow is known", records)
            self._run_trial(proposal)
            records = read_records(self._folder)
            self._check_breaker(records)

    def _recover(self) -> None:
        for number in self._store.recover():
            for record in read_records(self._folder):
                if record.trial == number and record.state == RUNNING:
                    Recorder(replace(record, state=FAILED), trial_folder(self._folder, number))

    def _run_trial(self, proposal: Proposal) -> None:
        self._listener.on_trial(proposal)
        recorder = Recorder(self._new_record(proposal), trial_folder(self._folder, proposal.number))
        try:
            outcome = self._evaluate(proposal, recorder)
        except BaseException as error:
            why = (
                "it was interrupted"
                if isinstance(error, KeyboardInterrupt)
                else str(error).partition("\n")[0]
            )
            self._conclude_failed(proposal, recorder, why)
            raise
        self._conclude(proposal, recorder, outcome)
        if not outcome.clean:
            raise BrokenEnvironment(
                f"trial {proposal.number}: the box is not as it was before the launch: "
                f"{'; '.join(outcome.leftovers)}",
                hint="end what is left there, then run the same command again: the study resumes",
            )

    def _evaluate(self, proposal: Proposal, recorder: Recorder) -> Outcome:
        listener = _Both(recorder, self._listener)
        for attempt in range(1, _ATTEMPTS + 1):
            folder = recorder.folder if attempt == 1 else recorder.folder / f"attempt-{attempt}"
            folder.mkdir(parents=True, exist_ok=True)
            request = Request(
                trial=proposal.number,
                configuration=proposal.configuration,
                folder=folder,
                nonce=f"{self._definition.seed}/{proposal.number}/{attempt}",
                as_baseline=proposal.role == BASELINE,
                attempt=attempt,
            )
            outcome = self._evaluate_once(request, listener)
            transient = (
                outcome.failure is not None and outcome.failure.cause is Cause.TRANSIENT and outcome.clean
            )
            if not transient or attempt == _ATTEMPTS:
                break
            recorder.retry()
        return outcome

    def _evaluate_once(self, request: Request, listener: Listener) -> Outcome:
        """The one place where an unexpected exception becomes an outcome: no trial may end the study."""
        started_s = self._clock.monotonic_s()
        try:
            return self._evaluator.evaluate(request, listener)
        except TunerError:
            raise
        except Exception as error:  # noqa: BLE001
            told = tuple(Evidence(0, line) for line in traceback.format_exc().splitlines()[-12:])
            failure = Failure(
                Kind.UNKNOWN,
                Cause.UNKNOWN,
                None,
                f"an error of the tuner itself: {type(error).__name__}: {error}",
                evidence=told,
            )
            outcome = Outcome(failure=failure, took_s=self._clock.monotonic_s() - started_s)
            listener.on_outcome(request, outcome)
            return outcome

    # --- conclusions --------------------------------------------------------------------------------

    def _conclude(self, proposal: Proposal, recorder: Recorder, outcome: Outcome) -> None:
        if outcome.failure is not None and outcome.failure.cause is Cause.ENVIRONMENT:
            self._conclude_failed(proposal, recorder, "the box had to be mended")
            return
        state = COMPLETE if outcome.measurement is not None else PRUNED
        score = (
            self._definition.objective.score(outcome.measurement) if outcome.measurement is not None else None
        )
        record = replace(
            recorder.record,
            state=state,
            score=score,
            infeasible=shown_shortfalls(self._definition.capacities, outcome.facts)
            if score is not None
            else (),
        )
        others = [known for known in read_records(self._folder) if known.trial != record.trial]
        record = replace(_with_gain(record, [*others, record]), same_as=twin_of(record, others))
        recorder.close(record)
        self._store.publish(proposal, record, recorder.folder)
        if score is None:
            self._store.tell_pruned(proposal)
            self._repair(record, others)
        else:
            self._store.tell_measured(proposal, score, shortfalls(self._definition.capacities, outcome.facts))
        self._announce(record)

    def _repair(self, record: TrialRecord, others: list[TrialRecord]) -> None:
        """Queue the mended configuration, once for a trial and a few times for a study."""
        spent = sum(other.role == REPAIR for other in others)
        if record.failure is None or record.role == REPAIR or spent >= self._definition.budget.repairs:
            return
        repair = repair_of(record.failure, Configuration(record.configuration), self._store.space)
        if repair is not None:
            self._store.queue_repair(record.trial, repair)

    def _conclude_failed(self, proposal: Proposal, recorder: Recorder, why: str) -> None:
        """Nothing was learnt of the configuration: it is queued again and costs nothing of the budget."""
        record = replace(recorder.record, state=FAILED)
        recorder.close(record)
        self._store.publish(proposal, record, recorder.folder)
        self._store.tell_failed(proposal, queue_again=True, why=why)
        self._announce(record)

    def _announce(self, record: TrialRecord) -> None:
        self._of_this_run.append(record)
        records = read_records(self._folder)
        best = best_record(records)
        if best is not None and best.trial == record.trial:
            write_exports(records, self._folder / "best.yaml")
        self._store.publish_study(records, best, describe_reference(records))
        self._listener.on_record(record, best)

    def _check_breaker(self, records: list[TrialRecord]) -> None:
        any_success = any(record.state == COMPLETE for record in records)
        reason = breaker.reason_to_stop(
            self._of_this_run, any_success=any_success, give_up_after=self._definition.budget.give_up_after
        )
        if not reason:
            return
        for record in self._of_this_run:
            if record.state == PRUNED and not any_success:
                self._store.queue_again(record.trial, "the box had to be mended")
        raise BrokenEnvironment(
            f"the study stops: {reason}",
            hint="mend that, then run the same command again: the study resumes. "
            f"Logs: {self._folder}/trial-*/server.log",
        )

    def _end(self, reason: str, records: list[TrialRecord]) -> SearchEnd:
        return SearchEnd(reason, tuple(records), best_record(records), describe_reference(records))

    def _new_record(self, proposal: Proposal) -> TrialRecord:
        return TrialRecord(
            trial=proposal.number,
            study=self._definition.name,
            label=self._definition.server.label,
            role=proposal.role,
            state=RUNNING,
            started=datetime.fromtimestamp(self._clock.wall_s(), timezone.utc).isoformat(timespec="seconds"),
            configuration=proposal.configuration.to_json(),
            fingerprint=proposal.configuration.fingerprint,
            source=proposal.source,
            repeat_of=proposal.repeat_of,
            repair_of=proposal.repair_of,
            objective=self._definition.objective.name,
            gpus=self._definition.server.gpus,
            tuner_version=__version__,
        )


def _with_gain(record: TrialRecord, records: list[TrialRecord]) -> TrialRecord:
    reference = reference_of(records)
    if reference is None or record.score is None or not reference.score:
        return record
    return replace(record, gain=record.score / reference.score - 1.0, reference=describe_reference(records))


class _Both(Listener):
    """Passes everything on to two listeners, the record first."""

    def __init__(self, first: Listener, second: Listener) -> None:
        self._listeners = (first, second)

    def on_launch(self, request: Request, launch: LaunchShown) -> None:
        for listener in self._listeners:
            listener.on_launch(request, launch)

    def on_phase(self, request: Request, news: PhaseNews) -> None:
        for listener in self._listeners:
            listener.on_phase(request, news)

    def on_level(self, request: Request, sample: LevelSample, summary: LevelSummary | None) -> None:
        for listener in self._listeners:
            listener.on_level(request, sample, summary)

    def on_outcome(self, request: Request, outcome: Outcome) -> None:
        for listener in self._listeners:
            listener.on_outcome(request, outcome)
