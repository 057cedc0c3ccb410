"""A level that a server never runs at once: virtual time scores it as the load on a process does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.client_bias import Quiet, read_journal, simulated
from tests.simulator.boxes import KIMI, KIMI_12
from tests.simulator.virtual_studies import configured, evaluated, virtual
from tuner.measure.lengths import Lengths
from tuner.measure.measurement import LevelSummary, Workload
from tuner.measure.session import measure

LEVEL, INPUT, OUTPUT = 8, 128, 24
ROOMY = {"mem_fraction_static": 0.88, "cuda_graph_max_bs": 128}


def measured(folder: Path, most: int) -> LevelSummary:
    """The level on the process of the box."""
    words = [word for name, value in ROOMY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    box = ("--box", KIMI_12, *KIMI, *words, "--max-running-requests", str(most))
    workload = Workload(
        Lengths.fixed(INPUT), Lengths.fixed(OUTPUT), (LEVEL,), batches=1, repeat_limit_s=0.0, warmup_s=0.0
    )
    with simulated(folder / "journal.jsonl", box) as server:
        return measure(server, workload, "queue", Quiet())[0].level(LEVEL)


@pytest.mark.serial
@pytest.mark.parametrize("most", [1, 3, 4, 8])
def test_a_level_that_does_not_fit_is_as_fast_as_on_the_process(tmp_path: Path, most: int) -> None:
    evaluator = virtual(tmp_path, concurrency=[LEVEL], input_tokens=INPUT, output_tokens=OUTPUT)
    truth = evaluator.truth(configured(max_running_requests=most, **ROOMY))
    level = measured(tmp_path, most)
    assert (level.running, level.whole) == (most, most == LEVEL)
    assert level.decode_tok_s == pytest.approx(truth, rel=0.02)
    # What it made is what the server emitted at that many, and no prefill is in it.
    full = [step for step in read_journal(tmp_path / "journal.jsonl") if step.tokens == most]
    rate = sum(step.tokens for step in full) / sum(step.took_s for step in full)
    assert level.decode_tok_s == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize(("most", "counted"), [(32, 32), (16, 32), (10, 30), (1, 32)])
def test_every_answer_counts_that_was_made_while_the_server_was_full(
    tmp_path: Path, most: int, counted: int
) -> None:
    evaluator = virtual(tmp_path, concurrency=[32], output_tokens=64)
    outcome = evaluated(evaluator, configured(max_running_requests=most, **ROOMY))
    assert outcome.measurement is not None
    level = outcome.measurement.level(32)
    assert level.decode_tok_s * level.window_s == pytest.approx(level.rounds * counted * 64)
