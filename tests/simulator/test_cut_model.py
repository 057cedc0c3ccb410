"""A launch without weights and with a part of the layers: sooner up, faster, and not the whole in small."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.boxes import KIMI, KIMI_23, QUIET, box
from tests.simulator.virtual_studies import configured, request, virtual
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Listener
from tuner.simulator.box import Box
from tuner.simulator.checks import ArgumentError
from tuner.simulator.cut_model import launched_box
from tuner.simulator.flags import build_parser
from tuner.simulator.memory import plan_memory
from tuner.simulator.physics import StepModel, links_of
from tuner.simulator.resolve import resolve
from tuner.simulator.virtual import VirtualEvaluator

WHOLE = box(KIMI_23)


def cut(*words: str) -> Box:
    return launched_box(WHOLE, vars(build_parser(WHOLE.sglang_version).parse_args([*KIMI, *words])))


def with_layers(layers: int, part: str = "") -> tuple[str, str]:
    override = {"num_hidden_layers": layers}
    return "--json-model-override-args", json.dumps({part: override} if part else override)


def step_ms(where: Box, *words: str, **variables: str) -> float:
    parsed = vars(build_parser(where.sglang_version).parse_args([*KIMI, *words]))
    settings = resolve(where, parsed)
    return StepModel(where, settings, links_of(where, settings, variables)).step_ms(8, 8 * 2048.0)


@given(st.integers(1, 60))
def test_fewer_layers_cost_less_and_never_in_proportion(layers: int) -> None:
    share = layers / 61
    part = cut(*with_layers(layers))

    assert share * step_ms(WHOLE) < step_ms(part) < step_ms(WHOLE)
    assert part.startup.capture_each_s < WHOLE.startup.capture_each_s
    assert part.model.weights_gib < WHOLE.model.weights_gib


def test_more_fits_into_the_memory_than_with_all_layers() -> None:
    part = cut(*with_layers(16))
    settings = resolve(part, vars(build_parser(part.sglang_version).parse_args(KIMI)))

    assert plan_memory(part, settings).kv_tokens > 5 * plan_memory(WHOLE, settings).kv_tokens


def test_the_layers_may_stand_in_the_language_part_and_all_of_them_are_the_model() -> None:
    assert cut(*with_layers(16, "text_config")) == cut(*with_layers(16))
    assert cut(*with_layers(61)) == WHOLE
    assert cut("--json-model-override-args", '{"index_topk": 3}') == WHOLE


def test_random_weights_are_filled_in_a_fraction_of_the_time_and_spread_over_more_experts() -> None:
    dummy = cut("--load-format", "dummy")

    assert dummy.experts is not None and WHOLE.experts is not None
    assert dummy.experts.pool > WHOLE.experts.pool
    assert step_ms(dummy) > step_ms(WHOLE)


@pytest.mark.parametrize("text", ["{layers", "[1]", '{"num_hidden_layers": 0}', '{"num_hidden_layers": "x"}'])
def test_an_override_that_cannot_be_read_ends_the_start(text: str) -> None:
    with pytest.raises(ArgumentError):
        cut("--json-model-override-args", text)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tuner.simulator",
            "--box",
            KIMI_23,
            *KIMI,
            "--json-model-override-args",
            text,
        ],
        env=QUIET,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1


def looked_at(evaluator: VirtualEvaluator, **values: object) -> Outcome:
    cheapest = evaluator.fidelities()[0]
    return evaluator.evaluate(replace(request(configured(**values)), fidelity=cheapest), Listener())


def test_a_look_takes_less_than_half_of_a_launch_and_never_drafts(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path)
    values = {"mem_fraction_static": 0.88, "cuda_graph_max_bs": 128, "speculative": "eagle3"}

    look = looked_at(evaluator, **values)
    full = evaluator.evaluate(request(configured(**values)), Listener())

    assert look.measurement is not None and full.measurement is not None
    assert look.took_s < 0.5 * full.took_s
    assert full.measurement.levels[0].accept_length is not None
    assert look.measurement.levels[0].accept_length is None


def test_a_backend_without_kernels_dies_in_a_look_too_and_sooner(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path)

    look = looked_at(evaluator, attention_backend="fa3")
    full = evaluator.evaluate(request(configured(attention_backend="fa3")), Listener())

    assert look.failure is not None and full.failure is not None
    assert look.failure.kind == full.failure.kind
    assert look.took_s < 0.25 * full.took_s
