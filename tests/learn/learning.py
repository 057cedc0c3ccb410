"""A small space, and launches in it."""

from __future__ import annotations

from typing import Any

from tuner.document import parse_document
from tuner.learn.observation import Death, Observation
from tuner.space.configuration import Configuration
from tuner.space.reading import parse_space
from tuner.space.space import SearchSpace

SPACE = """
parameters:
  cuda_graph_max_bs: {type: integer, low: 8, high: 512, log: true, auto: true, default: 512}
  mem_fraction_static: {type: float, low: 0.7, high: 0.96, step: 0.01, auto: true}
  attention_backend: {type: choice, choices: [auto, triton, flashinfer, fa3]}
  ep_size: {type: choice, choices: [1, 8], default: 1}
  page_size: {type: choice, choices: [1, 3, 64], default: 1}
  speculative: {type: composite, choices: [off, eagle3], default: off}
  speculative_num_steps: {type: integer, low: 1, high: 5, default: 3, when: speculative != off}
"""


def space(text: str = SPACE) -> SearchSpace:
    return parse_space(parse_document(text, "space.yaml"), "given")


def ran(
    trial: int, log_score: float = 0.0, memory: dict[str, float] | None = None, **values: Any
) -> Observation:
    return Observation(
        trial=trial,
        configuration=configured(**values),
        log_scores=(log_score,),
        memory=memory or {},
        resolved={"mem_fraction_static": values.get("mem_fraction_static", 0.81)},
        took_s=700.0,
    )


def died(trial: int, death: Death, memory: dict[str, float] | None = None, **values: Any) -> Observation:
    return Observation(
        trial=trial, configuration=configured(**values), death=death, memory=memory or {}, took_s=500.0
    )


def configured(**values: Any) -> Configuration:
    """The configuration with everything else left unsaid."""
    where = space()
    return where.configuration(where.assignment(values))
