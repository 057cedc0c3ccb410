"""The evaluator that launches real servers: launch, follow, measure, stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.clock import Clock
from tuner.diagnosis.fallbacks import read_fallbacks
from tuner.errors import TunerError
from tuner.evaluate.facts import facts_of
from tuner.evaluate.failures import failure_of_start, failure_under_load, unanswered
from tuner.evaluate.fitting import Fitted, server_python
from tuner.evaluate.instruments import Instruments
from tuner.evaluate.looks import fidelities_of
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.output import OutputCheck, OutputGuard
from tuner.evaluate.protocol import Fidelity, Listener, PhaseNews, Request
from tuner.evaluate.under_load import RunningServer
from tuner.evaluate.vetting import Preflight
from tuner.launch.protocol import Executor, ServerHandle, StopReport
from tuner.measure.crosscheck import BenchServing
from tuner.measure.measurement import LevelSample, LevelSummary, Measurement
from tuner.measure.seams import RoundLoad
from tuner.measure.session import LevelVoid, ServerGone, measure
from tuner.preflight.refusal import Refusal
from tuner.sglang.endpoints import EndpointError, ServerClient
from tuner.sglang.phases import Phase
from tuner.space.configuration import Configuration
from tuner.space.parameters import AUTO
from tuner.startup.follow import NotStarted, Ready, Stalled, TimedOut, follow_start
from tuner.startup.ladder import StartupState
from tuner.startup.limits import DEFAULT_SILENCE_S, StallLimits

_EXIT_LIMIT_S = 15.0
"""SGLang's launcher follows a dead scheduler within 7 s; its exit code is waited for this long."""

_GPUS_FREE_LIMIT_S = 30.0
"""A driver gives memory back some seconds after a process has ended."""


class ServerEvaluator:
    """Implements `Evaluator`, `Vetter` and `Looker` with servers that an executor launches.

    `model_facts` are those of `tuner.preflight.facts`, for the looks that can be made.
    """

    def __init__(
        self,
        fitted: Fitted,
        executor: Executor,
        clock: Clock,
        *,
        instruments: Instruments | None = None,
        guard: OutputGuard | None = None,
        preflight: Preflight | None = None,
        model_facts: Mapping[str, object] | None = None,
    ) -> None:
        self._fitted = fitted
        self._model_facts = model_facts or {}
        self._definition = fitted.definition
        self._executor = executor
        self._clock = clock
        self._instruments = instruments
        self._guard = guard
        self._preflight = preflight

    def vet(self, configurations: Sequence[Configuration], listener: Listener) -> Sequence[Refusal | None]:
        """See `Vetter`. What is started for it goes on until the next launch, or until `close`."""
        if self._preflight is None:
            return [None] * len(configurations)
        return self._preflight.vet(configurations, listener.on_note)

    def fidelities(self) -> Sequence[Fidelity]:
        """See `Looker`."""
        names = [parameter.name for parameter in self._fitted.space.parameters]
        return fidelities_of(names, self._definition.server.launch_flags, self._model_facts)

    def close(self) -> None:
        """End what `vet` started; no server is running between two evaluations."""
        if self._preflight is None or not self._preflight.end():
            return
        deadline_s = self._clock.monotonic_s() + _GPUS_FREE_LIMIT_S
        while self._others_on_gpus() and self._clock.monotonic_s() < deadline_s:
            self._clock.sleep(0.2)

    def evaluate(self, request: Request, listener: Listener) -> Outcome:
        """See `Evaluator`. Whatever happens, the server is ended before this returns or raises."""
        self.close()
        began_s = self._clock.monotonic_s()
        plan = (
            self._fitted.plan_baseline() if request.as_baseline else self._fitted.plan(request.configuration)
        )
        if request.fidelity is not None:
            plan = self._fitted.look(plan, request.fidelity)
        lease = self._executor.lease(self._definition.server.gpus)
        plan = plan.at(port=lease.port, gpus=lease.gpus)
        listener.on_launch(request, self._fitted.shown(plan))
        handle = self._executor.launch(plan, request.folder)
        try:
            end = self._follow_and_measure(handle, request, listener)
        finally:
            report = handle.stop()
        outcome = self._outcome(request, handle, end, report, self._clock.monotonic_s() - began_s)
        listener.on_outcome(request, outcome)
        return outcome

    # --- one launch ---------------------------------------------------------------------------------

    def _follow_and_measure(self, handle: ServerHandle, request: Request, listener: Listener) -> _End:
        client = ServerClient(handle.url, self._api_key())
        server = self._definition.server
        limits = StallLimits(
            silence_s={**DEFAULT_SILENCE_S, **server.stall_limits_s}, ready_limit_s=server.ready_limit_s
        )
        start = follow_start(
            handle,
            client,
            clock=self._clock,
            limits=limits,
            on_change=lambda state: listener.on_phase(request, _news(state)),
        )
        if isinstance(start, (Stalled, TimedOut)):
            self._keep_snapshot(handle, request)
        if not isinstance(start, Ready):
            return _End(start)
        info = _server_info(client)
        listener.on_phase(request, PhaseNews(Phase.SERVING, None, "under load", start.seconds))
        try:
            measurement = self._measure(handle, client, request, listener)
        except (LevelVoid, ServerGone) as error:
            if isinstance(error, LevelVoid):
                self._keep_snapshot(handle, request)
            gone = isinstance(error, ServerGone)
            return _End(start, info, error=error, exit_code=self._exit_code(handle, wait=gone))
        try:
            # Without the weights a look writes nothing that means anything.
            output = self._check_output(client, request, info) if request.fidelity is None else OutputCheck()
        except EndpointError as error:
            code = self._exit_code(handle, wait=True)
            return _End(start, info, error=unanswered(error, self._definition.workload), exit_code=code)
        return _End(start, info, measurement=measurement, output=output)

    def _measure(
        self, handle: ServerHandle, client: ServerClient, request: Request, listener: Listener
    ) -> Measurement:
        gpus = self._definition.server.gpus
        watch = self._instruments.watch(handle, gpus, self._clock) if self._instruments is not None else None
        measurement, _ = measure(
            RunningServer(handle, client, self._clock),
            self._definition.workload,
            request.nonce,
            _Levels(request, listener),
            objective=self._definition.objective,
            load=self._load(),
            watch=watch,
            clock=self._clock,
        )
        return measurement

    def _load(self) -> RoundLoad | None:
        """What sends the requests in place of the tuner's own client, where the study asks for that."""
        server = self._definition.server
        if self._definition.workload.load == "own":
            return None
        return BenchServing(server_python(server.argv), server.model, server.environment)

    def _check_output(self, client: ServerClient, request: Request, info: Mapping[str, Any]) -> OutputCheck:
        if self._guard is None:
            return OutputCheck()
        workload = self._definition.workload
        busiest = max(workload.concurrency, default=1)
        speculative = str(info.get("speculative_algorithm") or "off").lower()
        return self._guard.check(client, request.folder, concurrency=busiest, speculative=speculative)

    def _keep_snapshot(self, handle: ServerHandle, request: Request) -> None:
        """What a server that hangs is doing, for whoever looks into it later."""
        for name, text in handle.snapshot().items():
            (request.folder / name).write_text(text, encoding="utf-8")

    def _exit_code(self, handle: ServerHandle, *, wait: bool) -> int | None:
        deadline_s = self._clock.monotonic_s() + _EXIT_LIMIT_S
        while wait and handle.poll() is None and self._clock.monotonic_s() < deadline_s:
            self._clock.sleep(0.1)
        return handle.poll()

    def _outcome(
        self, request: Request, handle: ServerHandle, end: _End, report: StopReport, took_s: float
    ) -> Outcome:
        log = handle.read_log(0)
        failure = None
        if not isinstance(end.start, Ready):
            failure = failure_of_start(end.start, log, others_on_gpus=self._others_on_gpus())
        elif end.error is not None:
            failure = failure_under_load(end.error, log, end.exit_code)
        else:
            failure = end.output.failure
        asked = self._fitted.asked(request.configuration)
        fallbacks = read_fallbacks(log, {name: value for name, value in asked.items() if value != AUTO})
        return Outcome(
            measurement=end.measurement if failure is None else None,
            failure=failure,
            phases=end.start.phases,
            ready_s=end.start.seconds if isinstance(end.start, Ready) else None,
            took_s=took_s,
            facts=facts_of(log, end.info, asked, fallbacks),
            fallbacks=tuple(fallbacks),
            output=end.output.facts,
            clean=report.clean,
            leftovers=report.leftovers,
        )

    def _others_on_gpus(self) -> bool | None:
        """Whether somebody uses the study's GPUs now that our server is gone; None without GPUs."""
        gpus = self._definition.server.gpus
        return bool(self._executor.complaints(gpus)) if gpus else None

    def _api_key(self) -> str | None:
        key = self._definition.server.flags.get("api_key")
        return str(key) if key is not None else None


@dataclass(frozen=True)
class _End:
    """How a launch went, before it was stopped."""

    start: Ready | NotStarted
    info: Mapping[str, Any] = field(default_factory=dict)
    measurement: Measurement | None = None
    output: OutputCheck = field(default_factory=OutputCheck)
    error: LevelVoid | ServerGone | None = None
    exit_code: int | None = None


class _Levels:
    """Passes the news of measuring on."""

    def __init__(self, request: Request, listener: Listener) -> None:
        self._request = request
        self._listener = listener

    def on_warmup(self, level: float) -> None:
        """The warm-up is not news."""

    def on_level(self, level: float, attempt: int) -> None:
        """Nor is that a level begins."""

    def on_level_done(self, sample: LevelSample, summary: LevelSummary) -> None:
        self._listener.on_level(self._request, sample, summary)

    def on_level_void(self, sample: LevelSample) -> None:
        self._listener.on_level(self._request, sample, None)


def _news(state: StartupState) -> PhaseNews:
    done, detail = None, ""
    if state.progress is not None and state.progress[1] > 0:
        done = state.progress[0] / state.progress[1]
        detail = f"{state.progress[0]}/{state.progress[1]}"
    return PhaseNews(state.phase, done, detail, state.seconds)


def _server_info(client: ServerClient) -> dict[str, Any]:
    """What the server reports; a server that reports nothing can still be measured."""
    try:
        return client.server_info()
    except TunerError:
        return {}
