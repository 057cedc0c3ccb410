"""Evaluators that somebody else wrote, for `--evaluator tests.foreign.evaluators:NAME`: they tell little.

`bare` measures the study's own space on the foreign box; `strange` and `knowing` bring spaces without a single
flag of SGLang, `knowing` with known-good configurations and a `vet`. All live in virtual time, and `truth` is
what a configuration is worth without noise, 0 where it does not run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

from tests.foreign.box import Launch
from tuner.clock import Clock, ManualClock
from tuner.diagnosis.failure import Cause, Failure, Kind
from tuner.document import parse_document
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Listener, Request
from tuner.measure.measurement import LevelSummary, Measurement
from tuner.preflight.refusal import Refusal
from tuner.space.configuration import Configuration, Value
from tuner.space.reading import parse_space
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition

Truth = Callable[[Mapping[str, Value]], float]
LAUNCH_S, DEATH_S = 700.0, 450.0
NOISE = 0.012


class Bare:
    """Scores and plain failures, and nothing else."""

    def __init__(self, definition: StudyDefinition, truth: Truth, concurrency: int) -> None:
        self.clock = ManualClock()
        self.truth = truth
        self._concurrency = concurrency
        self._luck = random.Random(definition.seed)

    def evaluate(self, request: Request, listener: Listener) -> Outcome:
        value = self.truth({} if request.as_baseline else request.configuration)
        took_s = LAUNCH_S if value else DEATH_S
        self.clock.advance(took_s)
        if not value:
            return Outcome(failure=Failure(Kind.UNKNOWN, Cause.UNKNOWN, None, "it died"), took_s=took_s)
        return Outcome(measurement=Measurement((self._level(value),)), took_s=took_s)

    def _level(self, value: float) -> LevelSummary:
        tok_s = value * math.exp(self._luck.gauss(0.0, NOISE))
        return LevelSummary(
            concurrency=self._concurrency, decode_tok_s=tok_s, window_s=10.0, running=self._concurrency, whole=True,
            ttft_p50_ms=1.0, ttft_p99_ms=1.0, itl_p50_ms=1.0, itl_p99_ms=1.0, tpot_mean_ms=1.0, output_tokens=1,
            cached_tokens=0, server_tok_s=None, accept_length=None, retractions=0,
        )  # fmt: skip


class Bringing(Bare):
    """The same with a space of its own."""

    def __init__(
        self, definition: StudyDefinition, truth: Truth, concurrency: int, space: SearchSpace
    ) -> None:
        super().__init__(definition, truth, concurrency)
        self.space = space


class Vetting(Bringing):
    """The same, and it says beforehand what it knows not to run."""

    def vet(self, configurations: Sequence[Configuration], listener: Listener) -> Sequence[Refusal | None]:
        return [
            Refusal("the planner cannot stripe so few shards", by="planner")
            if one.get("shards", 8) == 1 and one.get("layout") == "striped"
            else None
            for one in configurations
        ]


# --- the foreign box, without a word of explanation ---------------------------------------------------------


def launch_of(values: Mapping[str, Value]) -> Launch:
    """SGLang's parameters as the box sees them."""
    said = dict(values)
    reduce = str(said.get("all_reduce", "custom"))
    steps = said.get("speculative_num_steps", 3) if said.get("speculative", "off") != "off" else 0
    return Launch(
        graph_batch=int(said.get("cuda_graph_max_bs", 512)),
        memory_fraction=float(said["mem_fraction_static"]) if "mem_fraction_static" in said else None,
        requests=int(said["max_running_requests"]) if "max_running_requests" in said else None,
        chunk=int(said.get("chunked_prefill_size", 8192)),
        fp8=said.get("kv_cache_dtype") == "fp8_e4m3",
        all_reduce="ipc" if reduce == "pcie-ipc" else reduce,
        protocol=str(said.get("NCCL_PROTO", "")),
        algorithm=str(said.get("NCCL_ALGO", "")),
        channels=int(said.get("NCCL_MIN_NCHANNELS", 0)),
        steps=int(steps),
        attention=str(said.get("attention_backend", "triton")),
        moe=str(said.get("moe_runner_backend", "marlin")),
        experts=int(said.get("ep_size", 1)),
        decode_steps=int(said.get("num_continuous_decode_steps", 1)),
    )


def box_truth(concurrency: int) -> Truth:
    def truth(values: Mapping[str, Value]) -> float:
        box = launch_of(values)
        dies = box.experts > 1 or box.pool_gib < 0.3 or box.rest_gib - box.chunk / 8192 * 1.2 < 0
        dies = dies or values.get("all_reduce") in ("flashinfer-fusion", "torch-symm-mem")
        dies = dies or values.get("NCCL_P2P_LEVEL") == "SYS"
        return 0.0 if dies else box.tok_s(concurrency)

    return truth


def bare(definition: StudyDefinition, clock: Clock) -> Bare:
    """The study's own space on the foreign box."""
    concurrency = int(definition.workload.concurrency[-1])
    return Bare(definition, box_truth(concurrency), concurrency)


# --- something else altogether -----------------------------------------------------------------------------

SPACE = """
name: strange
description: a store with shards
parameters:
  shards: {type: integer, low: 1, high: 64, log: true, default: 4}
  cache_gb: {type: float, low: 0.5, high: 24, step: 0.5, default: 4}
  layout: {type: choice, choices: [rows, columns, striped, tiled], default: rows}
  codec: {type: choice, choices: [none, lz4, zstd, brotli], default: none}
  io_depth: {type: integer, low: 1, high: 256, log: true, auto: true}
  pinned: {type: boolean, default: false}
  flush_ms: {type: choice, choices: [1, 5, 20, 100], ordered: true, default: 20}
  scheduler: {type: choice, choices: [fair, greedy, deadline]}
  prefetch: {type: integer, low: 0, high: 16, default: 0, when: layout != rows}
  MALLOC_ARENAS: {type: choice, choices: [auto, 1, 4, 16], ordered: true}
"""
KNOWN = """
known_good:
  - {name: as the vendor ships it, values: {shards: 8, layout: columns, codec: lz4}}
  - {name: large, values: {shards: 16, cache_gb: 12, layout: columns, prefetch: 4}}
"""


def store_truth(values: Mapping[str, Value]) -> float:
    """Six things matter, two of them only together; memory and two pairs kill."""
    said = dict(values)
    shards, cache_gb = int(said.get("shards", 4)), float(said.get("cache_gb", 4))
    layout, codec = said.get("layout", "rows"), said.get("codec", "none")
    depth, prefetch = int(said.get("io_depth", 32)), int(said.get("prefetch", 0))
    if cache_gb + 0.35 * shards + (3 if codec == "zstd" else 0) > 25 or (layout, codec) == (
        "tiled",
        "brotli",
    ):
        return 0.0
    if (said.get("pinned") and depth > 128) or (layout == "striped" and shards == 1):
        return 0.0
    log_speed = -0.16 * (math.log2(shards / 20)) ** 2 / 4
    log_speed += 0.10 * (1 - math.exp(-cache_gb / 6))
    log_speed += {"rows": 0.0, "columns": 0.10, "striped": 0.13, "tiled": 0.05}[str(layout)]
    log_speed += {"none": 0.0, "lz4": 0.06, "zstd": 0.09, "brotli": -0.05}[str(codec)]
    log_speed += 0.12 * math.exp(-((math.log2(depth / 64)) ** 2) / 4) * (1.6 if layout == "striped" else 0.6)
    log_speed += (0.05 if said.get("pinned") else 0.0) - 0.02 * {1: 2, 5: 0, 20: 1, 100: 3}[
        int(said.get("flush_ms", 20))
    ]
    log_speed += {"fair": 0.0, "greedy": 0.03, "deadline": -0.04}[str(said.get("scheduler", "fair"))]
    log_speed += 0.09 * math.exp(-((prefetch - 6) ** 2) / 18) if layout in ("striped", "tiled") else 0.0
    return 1000.0 * math.exp(log_speed)


def strange(definition: StudyDefinition, clock: Clock) -> Bringing:
    """A space of other names, and nothing known of it."""
    space = parse_space(parse_document(SPACE, "strange.yaml"), "strange")
    return Bringing(definition, store_truth, int(definition.workload.concurrency[-1]), space)


def knowing(definition: StudyDefinition, clock: Clock) -> Vetting:
    """The same with known-good configurations and a `vet`."""
    space = parse_space(parse_document(SPACE + KNOWN, "knowing.yaml"), "knowing")
    return Vetting(definition, store_truth, int(definition.workload.concurrency[-1]), space)
