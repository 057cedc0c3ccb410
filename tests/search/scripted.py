"""A study small enough to read, and an evaluator that does what a test tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna

from tuner.clock import ManualClock
from tuner.diagnosis.failure import Cause, Failure, Kind
from tuner.document import parse_document
from tuner.evaluate.outcome import Outcome, ServerFacts
from tuner.evaluate.protocol import Fidelity, LaunchShown, Listener, Request
from tuner.measure.measurement import LevelSummary, Measurement
from tuner.search.loop import Search, SearchListener
from tuner.search.past import PastStudy
from tuner.search.store import StudyStore
from tuner.sglang.phases import Phase
from tuner.space.configuration import Configuration
from tuner.space.reading import parse_space
from tuner.space.space import KnownGood
from tuner.study.definition import StudyDefinition, parse_definition

SPACE = """
parameters:
  bs: {type: choice, choices: [8, 64, 128, 512], ordered: true, default: 512}
  backend: {type: choice, choices: [triton, flashinfer]}
  speculative: {type: composite, choices: [off, eagle3]}
  speculative_num_steps: {type: integer, low: 1, high: 3, when: speculative != off}
rules:
  - {forbid: bs == 8 and backend == triton, because: too small}
known_good:
  - {name: small, values: {bs: 128, backend: triton}}
  - {name: spec, values: {bs: 128, backend: flashinfer, speculative: eagle3, speculative_num_steps: 2}}
"""

STUDY = """
search_space: given
server: {command: [server], model: m, label: a labelled box}
workload: {input_tokens: 8, output_tokens: 8, concurrency: 1}
budget: {launches: 6, confirm: 0}
"""


LOOK = Fidelity(
    "without weights", {"load_format": "dummy"}, frozenset({"speculative", "speculative_num_steps"})
)


def definition(folder: Path, study: str = STUDY, space: str = SPACE) -> StudyDefinition:
    parsed = parse_space(parse_document(space, "space.yaml"), "given")
    return parse_definition(parse_document(study, "study.yaml"), name="s", folder=folder / "s", space=parsed)


def summary(tok_s: float, concurrency: int = 1) -> LevelSummary:
    return LevelSummary(
        concurrency=concurrency,
        decode_tok_s=tok_s,
        window_s=3.0,
        running=concurrency,
        whole=True,
        ttft_p50_ms=20.0,
        ttft_p99_ms=30.0,
        itl_p50_ms=10.0,
        itl_p99_ms=12.0,
        tpot_mean_ms=10.0,
        output_tokens=8,
        cached_tokens=0,
        server_tok_s=tok_s,
        accept_length=None,
        retractions=0,
    )


def measured(tok_s: float, **facts: Any) -> Outcome:
    return Outcome(
        measurement=Measurement((summary(tok_s),)), ready_s=600.0, took_s=660.0, facts=ServerFacts(**facts)
    )


def failed(
    kind: Kind = Kind.OOM_GRAPH_CAPTURE, cause: Cause = Cause.CONFIG, phase: Phase = Phase.GRAPH_CAPTURE
) -> Outcome:
    return Outcome(failure=Failure(kind, cause, phase, f"it died of {kind}"), took_s=500.0)


Script = Callable[[Request], Outcome]


class ScriptedEvaluator:
    """Answers each request as the script says, and keeps what was asked."""

    def __init__(self, script: Script, clock: ManualClock) -> None:
        self.script = script
        self.clock = clock
        self.requests: list[Request] = []

    def evaluate(self, request: Request, listener: Listener) -> Outcome:
        self.requests.append(request)
        listener.on_launch(
            request, LaunchShown("server --port 1", ("server",), {}, "f", ("server",), {"bs": 1}, [])
        )
        outcome = self.script(request)
        self.clock.advance(outcome.took_s)
        listener.on_outcome(request, outcome)
        return outcome


class ScriptedLooker(ScriptedEvaluator):
    """One that makes looks as well."""

    def fidelities(self) -> Sequence[Fidelity]:
        return (LOOK,)


class Run:
    """One run of the search over a folder, as one process would do it."""

    def __init__(
        self,
        folder: Path,
        script: Script,
        *,
        study: str = STUDY,
        space: str = SPACE,
        owner: str = "me",
        alive: Callable[[str], bool] = lambda _: False,
        past: Sequence[PastStudy] = (),
        prior: Sequence[KnownGood] = (),
        looks: bool = False,
        listener: SearchListener | None = None,
    ) -> None:
        self.definition = definition(folder, study, space)
        self.clock = ManualClock()
        self.evaluator = (ScriptedLooker if looks else ScriptedEvaluator)(script, self.clock)
        self.store = StudyStore(
            self.definition, self.definition.space, owner=owner, is_alive=alive, past=past, prior=prior
        )
        self.search = Search(
            self.definition, self.store, self.evaluator, self.clock, listener or SearchListener()
        )

    @property
    def trials(self) -> list[optuna.trial.FrozenTrial]:
        return self.store.study.get_trials()

    def asked(self) -> list[Configuration]:
        return [request.configuration for request in self.evaluator.requests]


def speed(request: Request) -> Outcome:
    """A box on which 128 is best, speculation helps and one backend dies with it."""
    values = request.configuration
    if request.as_baseline:
        return measured(82.0)
    if values.get("speculative") == "eagle3" and values["backend"] == "triton":
        return failed()
    tok_s = {8: 60.0, 64: 85.0, 128: 89.5, 512: 82.0}[int(values["bs"])]
    return measured(tok_s + 10.0 * int(values.get("speculative_num_steps", 0)))


def with_launches(count: int) -> str:
    return STUDY.replace("launches: 6", f"launches: {count}")


def renamed(outcome: Outcome, **changes: Any) -> Outcome:
    return replace(outcome, **changes)
