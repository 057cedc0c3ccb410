"""Studies in virtual time for the tests of this room."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulator.boxes import KIMI_12
from tuner.clock import ManualClock
from tuner.document import parse_document
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import LaunchShown, Listener, PhaseNews, Request
from tuner.measure.measurement import LevelSample, LevelSummary
from tuner.simulator.box import Box
from tuner.simulator.profile import read_box
from tuner.simulator.virtual import VirtualEvaluator
from tuner.space.configuration import Configuration
from tuner.space.reading import parse_space
from tuner.study.definition import StudyDefinition, parse_definition

SPACE = """
parameters:
  cuda_graph_max_bs: {type: integer, low: 8, high: 512, log: true, auto: true, default: 512}
  mem_fraction_static: {type: float, low: 0.5, high: 0.99, step: 0.01, auto: true, default: 0.81}
  max_running_requests: {type: integer, low: 1, high: 256, log: true, auto: true}
  kv_cache_dtype: {type: choice, choices: [auto, fp8_e4m3, fp8_e5m2]}
  attention_backend: {type: choice, choices: [auto, flashinfer, fa3]}
  speculative: {type: composite, choices: [off, eagle3]}
  speculative_num_steps: {type: integer, low: 1, high: 5, default: 3, when: speculative != off}
  page_size: {type: choice, choices: [1, 3, 64], default: 1}
"""

STUDY = """
search_space: given
server:
  command: ["{{python}}", -m, tuner.simulator, --box, {box}]
  model: {model}
  flags: {{tp_size: {tp}, speculative_draft_model_path: some/kimi-k2.5-eagle3}}
workload: {{input_tokens: {input_tokens}, output_tokens: {output_tokens}, concurrency: {concurrency}}}
budget: {{launches: 6}}
seed: {seed}
"""


def definition(
    folder: Path,
    *,
    name: str = KIMI_12,
    model: str = "moonshotai/Kimi-K2.5",
    tp: int = 8,
    input_tokens: int = 512,
    output_tokens: int = 256,
    concurrency: list[int] | None = None,
    seed: int = 3,
) -> StudyDefinition:
    text = STUDY.format(
        box=name,
        model=model,
        tp=tp,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency or [1],
        seed=seed,
    )
    space = parse_space(parse_document(SPACE, "space.yaml"), "given")
    return parse_definition(parse_document(text, "study.yaml"), name="v", folder=folder / "v", space=space)


def virtual(folder: Path, box: Box | None = None, **study: Any) -> VirtualEvaluator:
    where = box or read_box(study.get("name", KIMI_12))
    return VirtualEvaluator(where, definition(folder, **study), ManualClock())


def configured(**values: Any) -> Configuration:
    return Configuration(values)


def request(configuration: Configuration | None = None, *, trial: int = 0, attempt: int = 1) -> Request:
    """A request for a configuration, or for the baseline."""
    return Request(
        trial=trial,
        configuration=configuration or Configuration(),
        folder=Path("nowhere"),
        nonce="n",
        as_baseline=configuration is None,
        attempt=attempt,
    )


def evaluated(evaluator: VirtualEvaluator, configuration: Configuration | None = None, **how: int) -> Outcome:
    return evaluator.evaluate(request(configuration, **how), Listener())


@dataclass
class Heard(Listener):
    """Keeps the names of what it hears, and the time of the clock at each."""

    clock: ManualClock
    events: list[tuple[str, float]] = field(default_factory=list)

    def _keep(self, name: str) -> None:
        self.events.append((name, self.clock.monotonic_s()))

    def on_launch(self, request: Request, launch: LaunchShown) -> None:
        self._keep("launch")

    def on_phase(self, request: Request, news: PhaseNews) -> None:
        self._keep(str(news.phase))

    def on_level(self, request: Request, sample: LevelSample, summary: LevelSummary | None) -> None:
        self._keep(f"level {sample.concurrency}")

    def on_outcome(self, request: Request, outcome: Outcome) -> None:
        self._keep("outcome")
