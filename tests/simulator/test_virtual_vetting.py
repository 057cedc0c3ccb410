"""The preflight of a simulated box in virtual time: what it refuses would have died, and costs no launch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.simulator.boxes import KIMI_12, KIMI_23
from tests.simulator.virtual_studies import configured, evaluated, virtual
from tuner.evaluate.protocol import Listener, Vetter
from tuner.preflight.refusal import Refusal
from tuner.search.sampler import distributions_of
from tuner.simulator.virtual import VirtualEvaluator
from tuner.simulator.virtual_vetting import VETTING_S
from tuner.space.configuration import Configuration


def refusal(evaluator: VirtualEvaluator, configuration: Configuration) -> Refusal | None:
    (found,) = evaluator.vet([configuration], Listener())
    return found


def test_the_check_of_arguments_refuses_with_its_text(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path)
    assert isinstance(evaluator, Vetter)
    found = refusal(evaluator, configured(page_size=3))
    assert found == Refusal("chunked_prefill_size must be divisible by page_size")
    assert refusal(evaluator, configured(page_size=64)) is None


def test_the_rules_know_the_box(tmp_path: Path) -> None:
    found = refusal(virtual(tmp_path), configured(attention_backend="fa3", page_size=1))
    assert found is not None and (found.by, found.sure) == ("attention-without-kernels", False)


@pytest.mark.parametrize("name", [KIMI_12, KIMI_23])
def test_nothing_that_runs_is_refused(tmp_path: Path, name: str) -> None:
    evaluator, source = virtual(tmp_path, name=name), random.Random(5)
    refused = 0
    for _ in range(150):
        assignment = {
            name: source.choice(getattr(item, "choices", [getattr(item, "low", 0), getattr(item, "high", 0)]))
            for name, item in distributions_of(evaluator.space).items()
        }
        configuration = evaluator.space.configuration(assignment)
        if refusal(evaluator, configuration) is not None:
            refused += 1
            assert evaluator.truth(configuration) is None, configuration
    assert refused > 20


def test_vetting_takes_the_time_of_one_start_between_two_launches(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path)
    for size in (1, 3, 64):
        refusal(evaluator, configured(page_size=size))
    assert evaluator.clock.monotonic_s() == VETTING_S
    evaluated(evaluator)
    before_s = evaluator.clock.monotonic_s()
    refusal(evaluator, configured(page_size=1))
    assert evaluator.clock.monotonic_s() == before_s + VETTING_S
