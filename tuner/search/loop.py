"""The search: what to try next, what became of it, when to stop, and whether the best is really better."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tuner.clock import Clock
from tuner.diagnosis.failure import Cause
from tuner.errors import BrokenEnvironment
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Evaluator, Listener
from tuner.learn.ruled_out import RuledOut
from tuner.results.record import COMPLETE, FAILED, LOOKED, PRUNED, RUNNING, TrialRecord
from tuner.results.recorder import Recorder
from tuner.results.standings import Expected, Standing, best_standing
from tuner.results.trial_log import FolderLog, TrialLog
from tuner.search import breaker
from tuner.search.admission import Admission
from tuner.search.budget import BudgetKeeper
from tuner.search.confirming import launches_of, plan_of
from tuner.search.equivalence import twin_of
from tuner.search.explain import Explainer
from tuner.search.idle import nothing_left
from tuner.search.looks import Looks
from tuner.search.reference import describe_reference, reference_of, with_gain
from tuner.search.repair import repair_of
from tuner.search.roles import CONFIRM, EXPLAIN, LOOK, REPAIR
from tuner.search.store import Proposal, StudyStore
from tuner.search.trial import TrialRunner
from tuner.space.configuration import Configuration
from tuner.study.definition import StudyDefinition
from tuner.verdict.confirmation import DEFAULT, next_arm
from tuner.verdict.verdict import Verdict, judge


class SearchListener(Listener):
    """Hears of the search as well as of each evaluation."""

    def on_begin(self, estimate: str, done: int) -> None:
        """The search begins; `done` trials are there already."""

    def on_trial(self, proposal: Proposal) -> None:
        """A trial begins."""

    def on_record(self, record: TrialRecord, best: Standing | None) -> None:
        """A trial is over; `best` is the best of the study now."""

    def on_ruled_out(self, ruled_out: RuledOut) -> None:
        """From now on this is not proposed any more."""

    def on_confirmation(self, reason: str, launches: int) -> None:
        """The search is over; the best is confirmed by up to so many fresh launches."""

    def on_explaining(self) -> None:
        """The best is known; further launches tell which of its values it owes that to."""


@dataclass(frozen=True)
class SearchEnd:
    """How a search ended: why, and what there is. Without confirming launches there is no verdict.

    `expected` is what other launches of the trials' configurations are expected to score, `ruled_out` what is
    off the list because it killed launches, `looks` how the looks stood, where there were any.
    """

    reason: str
    records: tuple[TrialRecord, ...]
    best: Standing | None
    reference: str
    verdict: Verdict | None = None
    expected: Expected = field(default_factory=dict)
    ruled_out: tuple[RuledOut, ...] = ()
    looks: str = ""


class Search:
    """Runs trials until the budget is used up, the space is exhausted or the box has to be mended."""

    def __init__(
        self,
        definition: StudyDefinition,
        store: StudyStore,
        evaluator: Evaluator,
        clock: Clock,
        listener: SearchListener,
        log: TrialLog | None = None,
    ) -> None:
        self._definition = definition
        self._store = store
        self._listener = listener
        self._log: TrialLog = log if log is not None else FolderLog(definition.folder)
        self._runner = TrialRunner(definition, evaluator, clock)
        store.admission = Admission(evaluator if definition.preflight else None, listener)
        self._budget = BudgetKeeper(definition.budget, clock)
        self._looks = Looks(definition, store, evaluator, listener.on_note)
        self._of_this_run: list[TrialRecord] = []
        self._told: set[str] = set()

    def run(self) -> SearchEnd:
        """Search, then confirm.

        Raises `BrokenEnvironment` where no trial can succeed and `KeyboardInterrupt` on Ctrl-C. Whatever it
        raises, the study is left so that the next run resumes it.
        """
        self._recover()
        records = self._log.records()
        self._listener.on_begin(self._budget.estimate(self._definition, records), len(records))
        self._learn(records)
        reason = self._search()
        verdict = self._confirm(reason)
        self._explain(verdict)
        return self._end(reason, self._log.records(), verdict)

    def _search(self) -> str:
        """Trials up to the confirmation; why it ends."""
        while True:
            records = self._log.records()
            self._queue_second_reference(records)
            reason = self._budget.search_is_over(records) or self._nothing_left(records)
            if reason:
                return reason
            proposal = self._looks.next(records) or self._store.next()
            if proposal is None:
                refused = sum(self._store.admission.refused.values())
                but = f", or was refused before launch ({refused})" if refused else ""
                return f"every configuration that the rules allow is known{but}"
            self._run_trial(proposal)

    def _nothing_left(self, records: list[TrialRecord]) -> str:
        if not self._definition.budget.stop_when_idle:
            return ""
        objective, space = self._definition.objective, self._store.space
        return nothing_left(self._store.promises(), records, objective, space)

    def _queue_second_reference(self, records: list[TrialRecord]) -> None:
        """The reference is launched twice, one after the other (A/A), where there will be a confirmation."""
        reference = reference_of(records)
        repeated = reference is not None and any(record.repeat_of == reference.trial for record in records)
        if reference is not None and not repeated and self._budget.kept(records):
            self._store.queue_repeat(reference.trial, "A/A: what two launches of the same differ by")

    def _confirm(self, reason: str) -> Verdict | None:
        """Launch the reference and the finalists in turn, then judge. Goes on from the records."""
        objective, announced = self._definition.objective, False
        while True:
            records = self._log.records()
            kept = self._budget.kept(records)
            plan = plan_of(records, objective, kept, self._store.expected(records))
            if plan is None or not kept or len(objective.goals) > 1:
                return None
            done = launches_of(records, objective)
            arm = next_arm(plan, done)
            if arm is None or self._budget.is_used_up(records):
                return judge(plan, done)
            if not announced:
                announced = True
                self._listener.on_confirmation(reason, plan.launches)
            reference = reference_of(records)
            number = reference.trial if arm == DEFAULT and reference is not None else int(arm)
            proposal = self._store.next_repeat(number, "confirmation", role=CONFIRM)
            self._run_trial(proposal)

    def _explain(self, verdict: Verdict | None) -> None:
        """Launch what the explanation of the best is not sure of, as far as launches are left for that."""
        asked_for = self._definition.budget.explain is not None
        if not asked_for and (verdict is None or verdict.winner is None):
            return
        announced = False
        while True:
            records = self._log.records()
            if best_standing(records) is None or not self._budget.may_explain(records):
                return
            wanted = Explainer(
                records,
                self._store.space,
                verdict=verdict.to_json() if verdict is not None else None,
                expected=self._store.expected(records),
                baseline=self._definition.baseline,
            ).wanted()
            if wanted is None:
                return
            if not announced:
                announced = True
                self._listener.on_explaining()
            self._run_trial(self._store.next_given(wanted, "what the best owes its speed to", role=EXPLAIN))

    def _recover(self) -> None:
        for number in self._store.recover():
            for record in self._log.records():
                if record.trial == number and record.state == RUNNING:
                    self._log.begin(replace(record, state=FAILED)).close(replace(record, state=FAILED))

    # --- one trial ----------------------------------------------------------------------------------

    def _run_trial(self, proposal: Proposal) -> None:
        if proposal.role == LOOK:
            if self._looks.fidelity is None:  # left by a run that made looks
                self._store.tell_failed(proposal, queue_again=False)
                return
            proposal = replace(proposal, fidelity=self._looks.fidelity)
        self._listener.on_trial(proposal)
        is_first = not any(record.ready_s is not None for record in self._log.records())
        recorder = self._log.begin(self._runner.new_record(proposal))
        try:
            outcome = self._runner.run(proposal, recorder, self._listener, is_first=is_first)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            why = "it was interrupted" if interrupted else str(error).partition("\n")[0]
            self._conclude_failed(proposal, recorder, why)
            raise
        if outcome.failure is not None and breaker.is_of_the_box(
            outcome.failure.to_json(), any_success=self._any_success()
        ):
            self._conclude_failed(proposal, recorder, "the box had to be mended")
        else:
            self._conclude(proposal, recorder, outcome)
        if not outcome.clean:
            raise BrokenEnvironment(
                f"trial {proposal.number}: the box is not as it was before the launch: "
                f"{'; '.join(outcome.leftovers)}",
                hint="end what is left there, then run the same command again: the study resumes",
            )
        self._check_breaker()

    def _conclude(self, proposal: Proposal, recorder: Recorder, outcome: Outcome) -> None:
        others = [known for known in self._log.records() if known.trial != proposal.number]
        record = self._runner.concluded(recorder.record, outcome)
        record = with_gain(record, [*others, record])
        if record.repeat_of is None and record.state != LOOKED:
            record = replace(record, same_as=twin_of(record, others))
        if record.failure is not None and record.failure["cause"] == str(Cause.ENVIRONMENT):
            record = replace(record, failure={**record.failure, "cause": str(Cause.CONFIG)})
        recorder.close(record)
        if not proposal.as_baseline and record.state != LOOKED:
            self._store.admission.heard(proposal.configuration, ran=record.state == COMPLETE)
        self._store.publish(proposal, record, recorder.folder)
        if record.state == LOOKED:
            self._store.tell_failed(proposal, queue_again=False)  # to Optuna it is no launch at all
        elif record.state == PRUNED:
            self._store.tell_pruned(proposal)
            self._repair(record, others)
        else:
            self._store.tell_measured(proposal, record.scores, record.excesses)
        self._announce(record)

    def _conclude_failed(self, proposal: Proposal, recorder: Recorder, why: str) -> None:
        """Nothing was learnt of the configuration: it is queued again and costs nothing of the budget."""
        record = replace(recorder.record, state=FAILED)
        recorder.close(record)
        self._store.publish(proposal, record, recorder.folder)
        self._store.tell_failed(proposal, queue_again=True, why=why)
        self._announce(record)

    def _repair(self, record: TrialRecord, others: list[TrialRecord]) -> None:
        """Queue the mended configuration, once for a trial and a few times for a study."""
        spent = sum(other.role == REPAIR for other in others)
        if (
            record.failure is None
            or record.role in (REPAIR, EXPLAIN)
            or record.repeat_of is not None
            or spent >= self._definition.budget.repairs
        ):
            return
        repair = repair_of(record.failure, Configuration(record.configuration), self._store.space)
        if repair is not None:
            self._store.queue_repair(record.trial, repair)

    def _announce(self, record: TrialRecord) -> None:
        self._of_this_run.append(record)
        records = self._log.records()
        expected = self._store.expected(records)
        best = best_standing(records, expected)
        if best is not None and record.state == COMPLETE:
            self._log.export(records, expected)
        self._listener.on_record(record, best)
        self._learn(records)
        self._store.publish_study(records, best, describe_reference(records))

    def _learn(self, records: list[TrialRecord]) -> None:
        """Let the store learn from all records, and say what is off the list since the last time."""
        self._looks.learn(records)
        self._store.learn(records)
        for ruled_out in self._store.ruled_out:
            if ruled_out.shown not in self._told:
                self._told.add(ruled_out.shown)
                self._listener.on_ruled_out(ruled_out)

    def _check_breaker(self) -> None:
        any_success = self._any_success()
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
            f"Logs: {self._definition.folder}/trial-*/server.log",
        )

    def _any_success(self) -> bool:
        return any(record.state == COMPLETE for record in self._log.records())

    def _end(self, reason: str, records: list[TrialRecord], verdict: Verdict | None) -> SearchEnd:
        expected = self._store.expected(records)
        best, reference = best_standing(records, expected), describe_reference(records)
        if verdict is not None:
            self._log.export(records, expected, verdict.to_json())
            self._store.publish_study(records, best, reference, verdict.shown())
        ruled_out, looks = self._store.ruled_out, self._looks.told
        return SearchEnd(reason, tuple(records), best, reference, verdict, expected, ruled_out, looks)
