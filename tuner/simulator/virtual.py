"""The simulated boxes in virtual time: an `Evaluator` without processes, for studies by the thousand.

A launch takes some tens of microseconds and moves a `ManualClock` by the minutes that it would have taken.
`--evaluator tuner.simulator.virtual:from_study` plugs it into a study whose server is a simulated box.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

from tuner.clock import Clock, ManualClock
from tuner.diagnosis.failure import Cause, Failure, Kind
from tuner.diagnosis.fallbacks import Fallback, read_fallbacks
from tuner.errors import InputError
from tuner.evaluate.facts import facts_of
from tuner.evaluate.failures import failure_of_exit, failure_of_start
from tuner.evaluate.fitting import Fitted, fit_to_installation
from tuner.evaluate.looks import fidelities_of
from tuner.evaluate.outcome import Outcome, ServerFacts
from tuner.evaluate.protocol import Fidelity, LaunchShown, Listener, PhaseNews, Request
from tuner.evaluate.vetting import Preflight
from tuner.measure.highest import next_level
from tuner.measure.measurement import LevelSummary, Measurement
from tuner.preflight.refusal import Refusal
from tuner.preflight.rules import read_rules
from tuner.sglang.phases import Phase
from tuner.sglang.plan import LaunchPlan
from tuner.simulator.box import Box, Rule
from tuner.simulator.deaths import traceback_in
from tuner.simulator.profile import read_box
from tuner.simulator.virtual_load import (
    Level,
    OutOfMemory,
    TooLong,
    VirtualLoad,
    check_workload,
    level_of,
    sample_of,
    summary_of,
)
from tuner.simulator.virtual_start import Standing, VirtualStart, VirtualStarts, quiet, with_serving_failure
from tuner.simulator.virtual_vetting import VETTING_S, VirtualCheck, facts_of_box
from tuner.space.configuration import Configuration
from tuner.space.parameters import AUTO
from tuner.space.space import SearchSpace
from tuner.startup.follow import Ready
from tuner.study.definition import StudyDefinition

_SIGKILL = -9
_BASELINE = "baseline"


def from_study(definition: StudyDefinition, clock: Clock) -> VirtualEvaluator:
    """The box that the study's command names with `--box`, in virtual time from now on.

    Raises `InputError` where the study's server is no simulated box.
    """
    words = definition.server.argv
    if "--box" not in words[:-1]:
        raise InputError(
            "virtual time needs a simulated box, and server.command names none",
            hint="set server.command to [{python}, -m, tuner.simulator, --box, NAME]",
        )
    box = read_box(words[words.index("--box") + 1])
    return VirtualEvaluator(box, definition, ManualClock(wall_start_s=clock.wall_s()))


class VirtualEvaluator:
    """Implements `Evaluator`, `Vetter` and `Looker` on a box profile, at time scale 1 whatever it says.

    The flags of a configuration reach the box as they reach a process: through the launch plan, the
    simulator's parser and its checks. What starts, dies and how long it takes follow from the box; the luck
    of a launch follows from the study's seed, the trial and the attempt, and from nothing else, so a study
    repeats itself to the last digit, on any machine. Output is not written, so nothing can be said of its
    text but where a rule of the box garbles it.
    """

    def __init__(self, box: Box, definition: StudyDefinition, clock: ManualClock) -> None:
        check_workload(definition.workload)
        self.box = replace(box, time_scale=1.0)
        self.clock = clock
        self._definition = definition
        self._starts = VirtualStarts(self.box)
        self.fitted: Fitted = fit_to_installation(
            definition, self._starts.installation(definition.server.argv)
        )
        self._seed = definition.seed
        self._launches: dict[tuple[str, str], _Launch] = {}
        self._preflight = Preflight(
            self.fitted,
            rules=read_rules(),
            facts=facts_of_box(self.box),
            validator=VirtualCheck(self._starts),
        )
        self._refusals: dict[Configuration, Refusal | None] = {}
        self._vets = False

    @property
    def space(self) -> SearchSpace:
        """What can be searched on the box's release of SGLang."""
        return self.fitted.space

    def preflight(self) -> tuple[str, ...]:
        """What the release made of the study's flags and space, worth telling the user."""
        return self.fitted.notes

    def with_seed(self, seed: int) -> VirtualEvaluator:
        """The same box with other luck, from a clock at 0. What is known of its launches is shared."""
        other = copy(self)
        other._seed, other.clock = seed, ManualClock()
        return other

    def vet(self, configurations: Sequence[Configuration], listener: Listener) -> Sequence[Refusal | None]:
        """See `Vetter`. Between two launches it takes the time of one start of what vets."""
        if not self._vets:
            self._vets = True
            self.clock.advance(VETTING_S)
        for configuration in configurations:
            if configuration not in self._refusals:
                (self._refusals[configuration],) = self._preflight.vet([configuration], listener.on_note)
        return [self._refusals[configuration] for configuration in configurations]

    def fidelities(self) -> Sequence[Fidelity]:
        """See `Looker`."""
        names = [parameter.name for parameter in self.space.parameters]
        return fidelities_of(names, self._definition.server.launch_flags, facts_of_box(self.box))

    def evaluate(self, request: Request, listener: Listener) -> Outcome:
        """See `Evaluator`. Returns at once; the clock moves on as if the launch had taken place."""
        self._vets = False
        launch = self._launch(
            request.configuration, as_baseline=request.as_baseline, fidelity=request.fidelity
        )
        listener.on_launch(request, launch.shown)
        for span in launch.start.end.phases:
            listener.on_phase(request, PhaseNews(span.phase, None, "", span.start_s))
            self.clock.advance(span.seconds)
        outcome = launch.failed or self._serve(launch, request, listener)
        self.clock.advance(outcome.took_s - launch.start.end.seconds)
        listener.on_outcome(request, outcome)
        return outcome

    def truth(self, configuration: Configuration, *, as_baseline: bool = False) -> float | None:
        """What the objective says of a configuration without noise, in its unit; None where it cannot run.

        A launch that noise alone may kill (memory that fragments with time) counts as one that runs.
        """
        launch = self._launch(configuration, as_baseline=as_baseline)
        if launch.failed is not None:
            return None
        load = VirtualLoad(quiet(self.box), launch.standing, "")
        summaries: list[LevelSummary] = []
        while (level := self._next_level(launch, summaries)) is not None:
            try:
                summaries.append(summary_of(load.run(level), self._definition.objective.limits))
            except OutOfMemory:
                return None
        return self._definition.objective.score(Measurement(tuple(summaries)))

    # --- one launch -------------------------------------------------------------------------------------

    def _launch(
        self, configuration: Configuration, *, as_baseline: bool, fidelity: Fidelity | None = None
    ) -> _Launch:
        key = (_BASELINE if as_baseline else configuration.fingerprint, fidelity.name if fidelity else "")
        if key not in self._launches:
            plan = self.fitted.plan_baseline() if as_baseline else self.fitted.plan(configuration)
            if fidelity is not None:
                plan = self.fitted.look(plan, fidelity)
            self._launches[key] = self._prepare(plan, Configuration() if as_baseline else configuration)
        return self._launches[key]

    def _prepare(self, plan: LaunchPlan, configuration: Configuration) -> _Launch:
        """All of a launch that is the same whenever it is repeated."""
        start = self._starts.start(plan.at(port=1).argv[len(plan.command) :], plan.environment)
        asked = self.fitted.asked(configuration)
        fallbacks = read_fallbacks(start.log, {name: value for name, value in asked.items() if value != AUTO})
        info = start.standing.server_info(self.box) if start.standing is not None else {}
        facts = facts_of(start.log, info, asked, fallbacks)
        launch = _Launch(self.fitted.shown(plan), start, facts, tuple(fallbacks))
        if not isinstance(start.end, Ready):
            return launch.failing(failure_of_start(start.end, start.log))
        standing, workload = launch.standing, self._definition.workload
        try:
            level_of(self.box, standing, workload, 1)
        except TooLong as error:
            return launch.failing(_void(str(error)), self.box.warmup.seconds)
        for rule in self.box.rules:
            if rule.phase == "serving" and rule.applies(standing.settings.arguments, plan.environment):
                return self._under_rule(launch, rule)
        return launch

    def _under_rule(self, launch: _Launch, rule: Rule) -> _Launch:
        """What a rule of the box does to a server under load."""
        if rule.effect == "death":
            return launch.failing(_died(launch, traceback_in("serving", rule.text)), self.box.warmup.seconds)
        if rule.effect == "hang":
            limit_s = self._definition.workload.level_limit_s
            void = _void(f"not finished within the limit of {limit_s:g} s")
            return launch.failing(void, 2 * limit_s)
        if rule.effect == "garbled":
            summary = "the server writes text that has no meaning"
            wrong = Failure(Kind.WRONG_OUTPUT, Cause.CONFIG, Phase.SERVING, summary, certainty=0.9)
            return launch.failing(wrong, self.box.warmup.seconds)
        return launch

    def _serve(self, launch: _Launch, request: Request, listener: Listener) -> Outcome:
        listener.on_phase(request, PhaseNews(Phase.SERVING, None, "under load", launch.start.end.seconds))
        seed = f"{self._seed}/{request.trial}/{request.attempt}"
        load = VirtualLoad(self.box, launch.standing, seed)
        load.warm_up(self._definition.workload.warmup_s)
        summaries: list[LevelSummary] = []
        while (level := self._next_level(launch, summaries)) is not None:
            try:
                run = load.run(level)
            except OutOfMemory as death:
                return launch.outcome(failure=_died(launch, str(death)), served_s=load.busy_s)
            summaries.append(summary_of(run, self._definition.objective.limits))
            listener.on_level(request, sample_of(run), summaries[-1])
        served_s = load.busy_s + self.box.startup.shutdown_s
        return launch.outcome(measurement=Measurement(tuple(summaries)), served_s=served_s)

    def _next_level(self, launch: _Launch, measured: Sequence[LevelSummary]) -> Level | None:
        """The workload's levels in turn, or those of the bisection where the highest load is sought."""
        workload, objective = self._definition.workload, self._definition.objective
        if objective.seeks_highest:
            wanted = next_level(workload, measured, objective.limits)
        else:
            wanted = workload.levels[len(measured)] if len(measured) < len(workload.levels) else None
        return None if wanted is None else level_of(self.box, launch.standing, workload, int(wanted))


@dataclass(frozen=True)
class _Launch:
    """What every launch of a plan has in common; `failed` where none of them can be measured."""

    shown: LaunchShown
    start: VirtualStart
    facts: ServerFacts
    fallbacks: tuple[Fallback, ...]
    failed: Outcome | None = None

    @property
    def standing(self) -> Standing:
        """The server that is up."""
        if self.start.standing is None:
            raise ValueError("this launch does not get ready")
        return self.start.standing

    def outcome(
        self,
        *,
        measurement: Measurement | None = None,
        failure: Failure | None = None,
        served_s: float = 0.0,
    ) -> Outcome:
        """What becomes of one launch that served for so long."""
        end = self.start.end
        return Outcome(
            measurement=measurement,
            failure=failure,
            phases=end.phases,
            ready_s=end.seconds if isinstance(end, Ready) else None,
            took_s=end.seconds + served_s,
            facts=self.facts,
            fallbacks=self.fallbacks,
        )

    def failing(self, failure: Failure, served_s: float = 0.0) -> _Launch:
        """The same launch, of which is known that it always fails so."""
        return replace(self, failed=self.outcome(failure=failure, served_s=served_s))


def _died(launch: _Launch, failure: str) -> Failure:
    log = with_serving_failure(launch.start, failure, launch.standing.settings.tp)
    return failure_of_exit(log, _SIGKILL, Phase.SERVING)


def _void(reason: str) -> Failure:
    summary = f"the load gave no result twice: {reason}"
    return Failure(Kind.MEASUREMENT_VOID, Cause.UNKNOWN, Phase.SERVING, summary, certainty=0.9)
