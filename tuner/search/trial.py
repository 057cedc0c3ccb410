"""One trial, from a proposal to its final record."""

from __future__ import annotations

import traceback
from dataclasses import replace
from datetime import datetime, timezone

from tuner import __version__
from tuner.clock import Clock
from tuner.diagnosis.failure import Cause, Evidence, Failure, Kind
from tuner.errors import TunerError
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Evaluator, LaunchShown, Listener, PhaseNews, Request
from tuner.measure.measurement import LevelSample, LevelSummary, Measurement
from tuner.results.record import COMPLETE, LOOKED, PRUNED, RUNNING, TrialRecord
from tuner.results.recorder import Recorder
from tuner.search.reference import excesses, shown_excesses
from tuner.search.store import Proposal
from tuner.sglang.phases import Phase
from tuner.study.definition import StudyDefinition

_COLD_S = 20.0
_ATTEMPTS = 2
"""Launches of one trial at most: a transient failure is tried once more."""


class TrialRunner:
    """Evaluates proposals, so that every trial ends in a record and none in an exception of its own."""

    def __init__(self, definition: StudyDefinition, evaluator: Evaluator, clock: Clock) -> None:
        self._definition = definition
        self._evaluator = evaluator
        self._clock = clock

    def new_record(self, proposal: Proposal) -> TrialRecord:
        """The record of a trial that begins."""
        definition = self._definition
        return TrialRecord(
            trial=proposal.number,
            study=definition.name,
            label=definition.server.label,
            role=proposal.role,
            state=RUNNING,
            started=datetime.fromtimestamp(self._clock.wall_s(), timezone.utc).isoformat(timespec="seconds"),
            configuration=proposal.configuration.to_json(),
            fingerprint=proposal.configuration.fingerprint,
            source=proposal.source,
            repeat_of=proposal.repeat_of,
            repair_of=proposal.repair_of,
            objective=definition.objective.name,
            unit=definition.objective.units[0],
            direction=definition.objective.directions[0],
            gpus=definition.server.gpus,
            fidelity=proposal.fidelity.name if proposal.fidelity is not None else "",
            blind_to=tuple(sorted(proposal.fidelity.blind_to)) if proposal.fidelity is not None else (),
            tuner_version=__version__,
        )

    def run(self, proposal: Proposal, recorder: Recorder, listener: Listener, *, is_first: bool) -> Outcome:
        """Launch, and launch once more where the failure may pass.

        The first launch of a study (`is_first`) is repeated too where it had to compile kernels: a cold
        start is not scored. Raises what no configuration could change (`TunerError`) and `KeyboardInterrupt`.
        """
        both = _Both(recorder, listener)
        for attempt in range(1, _ATTEMPTS + 1):
            request = Request(
                trial=proposal.number,
                configuration=proposal.configuration,
                folder=recorder.folder_of(attempt),
                nonce=f"{self._definition.seed}/{proposal.number}/{attempt}",
                as_baseline=proposal.as_baseline,
                attempt=attempt,
                fidelity=proposal.fidelity,
            )
            outcome = self._evaluate(request, both)
            transient = outcome.failure is not None and outcome.failure.cause is Cause.TRANSIENT
            cold_s = _compiled_s(outcome) if is_first and outcome.failure is None else 0.0
            if not (transient or cold_s) or not outcome.clean or attempt == _ATTEMPTS:
                break
            recorder.retry(f"a cold start: {cold_s:.0f} s of compiling; it is not scored" if cold_s else "")
        return outcome

    def concluded(self, record: TrialRecord, outcome: Outcome) -> TrialRecord:
        """The record with what the outcome amounts to; gains are added by whoever knows the reference."""
        if record.fidelity:
            looked = outcome.measurement
            scores = self._definition.objective.scores(looked) if looked is not None else ()
            return replace(record, state=LOOKED, looked=scores)
        if outcome.measurement is None:
            return replace(record, state=PRUNED)
        return self._scored(record, outcome, outcome.measurement)

    def _scored(self, record: TrialRecord, outcome: Outcome, measurement: Measurement) -> TrialRecord:
        definition = self._definition
        scores = definition.objective.scores(measurement)
        found = excesses(definition, outcome.facts, measurement)
        return replace(
            record,
            state=COMPLETE,
            score=scores[0],
            scores=scores,
            accept_length=definition.objective.accept_length(measurement),
            excesses=found,
            infeasible=shown_excesses(definition, outcome.facts, measurement),
        )

    def _evaluate(self, request: Request, listener: _Both) -> Outcome:
        """The one place where an unexpected exception becomes an outcome: no trial may end the study.

        An evaluator need not tell anything on the way, nor how long it took: its outcome is heard and timed
        here where it was not.
        """
        started_s = self._clock.monotonic_s()
        listener.heard = False
        outcome = self._outcome(request, listener)
        if not outcome.took_s:
            outcome = replace(outcome, took_s=self._clock.monotonic_s() - started_s)
        if not listener.heard:
            listener.on_outcome(request, outcome)
        return outcome

    def _outcome(self, request: Request, listener: _Both) -> Outcome:
        try:
            return _an_outcome(self._evaluator.evaluate(request, listener))
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
            listener.heard = False  # whatever it said of an outcome, this is what became of it
            return Outcome(failure=failure)


def _an_outcome(found: object) -> Outcome:
    if not isinstance(found, Outcome):
        raise TypeError(f"the evaluator returned {type(found).__name__}, which is no Outcome")
    return found


def _compiled_s(outcome: Outcome) -> float:
    """Seconds that a start spent compiling kernels, where they are worth mentioning."""
    seconds = sum(span.seconds for span in outcome.phases if span.phase is Phase.JIT_COMPILE)
    return seconds if seconds >= _COLD_S else 0.0


class _Both(Listener):
    """Passes everything on to two listeners, the record first; `heard` says whether of an outcome."""

    def __init__(self, first: Listener, second: Listener) -> None:
        self._listeners = (first, second)
        self.heard = False

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
        self.heard = True
        for listener in self._listeners:
            listener.on_outcome(request, outcome)
