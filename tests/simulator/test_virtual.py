"""The boxes in virtual time: the same launches as a process makes, without one."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulator.boxes import DENSE, KIMI, KIMI_12, KIMI_23, box
from tests.simulator.running import ended
from tests.simulator.virtual_studies import Heard, configured, definition, evaluated, request, virtual
from tuner.clock import ManualClock
from tuner.diagnosis.failure import Cause, Kind
from tuner.errors import InputError
from tuner.evaluate.failures import failure_of_exit
from tuner.evaluate.outcome import Outcome
from tuner.sglang.phases import Phase
from tuner.simulator.box import Box, Rule
from tuner.simulator.virtual import VirtualEvaluator, from_study
from tuner.space.configuration import Configuration

SPECULATIVE = {"speculative": "eagle3", "speculative_num_steps": 3}
ROOMY = {"mem_fraction_static": 0.88, "cuda_graph_max_bs": 128}


def tok_s(outcome: Outcome, concurrency: int = 1) -> float:
    assert outcome.measurement is not None, outcome.failure
    return outcome.measurement.level(concurrency).decode_tok_s


def with_rule(rule: Rule) -> Box:
    return replace(box(), rules=(rule,))


# --- speed ---------------------------------------------------------------------------------------------


def test_the_truth_is_the_anchors_of_the_box(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path)
    assert evaluator.truth(Configuration(), as_baseline=True) == pytest.approx(82.0, rel=0.01)
    assert evaluator.truth(configured(cuda_graph_max_bs=128)) == pytest.approx(89.5, rel=0.01)
    drafted = evaluator.truth(configured(**SPECULATIVE, **ROOMY))
    assert drafted is not None
    assert drafted > 110


def test_the_truth_of_several_levels_is_what_the_objective_says(tmp_path: Path) -> None:
    together = virtual(tmp_path, concurrency=[1, 16]).truth(configured(**ROOMY))
    one, many = (virtual(tmp_path, concurrency=[level]).truth(configured(**ROOMY)) for level in (1, 16))
    assert one is not None
    assert many is not None
    assert together == pytest.approx(math.sqrt(one * many))


@pytest.mark.parametrize(
    ("values", "level"), [(ROOMY, 1), ({**SPECULATIVE, **ROOMY}, 1), (ROOMY, 16)], ids=["1", "drafts", "16"]
)
def test_launches_scatter_around_the_truth_as_the_box_says(
    tmp_path: Path, values: dict[str, object], level: int
) -> None:
    evaluator, chosen = virtual(tmp_path, concurrency=[level]), configured(**values)
    logs = [math.log(tok_s(evaluated(evaluator, chosen, trial=trial), level)) for trial in range(1500)]
    truth = evaluator.truth(chosen)
    assert truth is not None
    spread = {1: 0.013, 16: 0.010}[level]
    if "speculative" in values:  # acceptance over some ten seconds of one stream comes on top
        assert statistics.stdev(logs) > 1.5 * spread
    else:
        assert statistics.stdev(logs) == pytest.approx(spread, rel=0.1)
    assert statistics.mean(logs) == pytest.approx(math.log(truth), abs=0.004)


def test_luck_follows_from_seed_configuration_trial_and_attempt_alone(tmp_path: Path) -> None:
    chosen = configured(**ROOMY)
    first, other_process = virtual(tmp_path), virtual(tmp_path)
    evaluated(other_process, trial=7)  # what was launched before plays no part
    assert evaluated(first, chosen, trial=1) == evaluated(other_process, chosen, trial=1)
    scores = {
        tok_s(evaluated(first, chosen, trial=1)),
        tok_s(evaluated(first, chosen, trial=2)),
        tok_s(evaluated(first, chosen, trial=1, attempt=2)),
        tok_s(evaluated(first.with_seed(99), chosen, trial=1)),
        tok_s(evaluated(virtual(tmp_path, seed=4), chosen, trial=1)),
    }
    assert len(scores) == 5


def test_a_level_says_what_ran_and_how_sure_it_is(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path, concurrency=[16])
    outcome = evaluated(evaluator, configured(max_running_requests=4, **SPECULATIVE, **ROOMY))
    assert outcome.measurement is not None
    level = outcome.measurement.level(16)
    assert (level.running, level.whole) == (4, False)
    assert level.low is not None
    assert level.high is not None
    assert level.low < level.decode_tok_s < level.high
    assert level.steps is not None
    assert level.accepted is not None
    assert level.steps.mean * level.accepted.mean * 4 == pytest.approx(level.decode_tok_s)
    assert level.accept_length == pytest.approx(2.3, abs=0.3)
    assert level.ttft_p50_ms < level.ttft_p99_ms


def test_thousands_of_launches_take_seconds(tmp_path: Path) -> None:
    evaluator, chosen = virtual(tmp_path), configured(**ROOMY)
    began_s = time.process_time()
    for trial in range(2000):
        evaluated(evaluator, chosen, trial=trial)
    for size in range(8, 208):
        evaluator.truth(configured(cuda_graph_max_bs=size))
    assert time.process_time() - began_s < 15  # 2,000 repeats and 200 new configurations: some 2 s


# --- start, phases, facts --------------------------------------------------------------------------------


def test_a_launch_takes_the_minutes_of_the_box_whatever_its_time_scale(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path)
    outcome = evaluated(evaluator)
    assert outcome.ready_s is not None
    assert 600 < outcome.ready_s < 900
    assert evaluator.clock.monotonic_s() == pytest.approx(outcome.took_s)
    assert outcome.took_s > outcome.ready_s + 20
    quick = evaluated(evaluator, configured(cuda_graph_max_bs=8))
    assert quick.ready_s is not None
    assert quick.ready_s < outcome.ready_s - 100  # 32 graphs fewer of 3.5 s each
    seconds = {span.phase: span.seconds for span in outcome.phases}
    assert seconds[Phase.WEIGHT_LOAD] == pytest.approx(595 / 1.4, rel=0.01)
    assert seconds[Phase.GRAPH_CAPTURE] == pytest.approx(52 * 3.5, rel=0.01)
    assert list(seconds)[-2:] == [Phase.WARMUP, Phase.READY]


def test_a_listener_hears_it_in_order_as_the_clock_moves_on(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path, concurrency=[1, 4])
    heard = Heard(evaluator.clock)
    evaluator.evaluate(request(), heard)
    names, times = zip(*heard.events, strict=True)
    assert names[0] == "launch"
    assert names[-4:] == ("serving", "level 1", "level 4", "outcome")
    assert list(times) == sorted(times)
    assert times[-1] > times[names.index("graph-capture")] > times[names.index("weight-load")]


def test_the_facts_are_those_of_the_log_and_the_resolved_flags(tmp_path: Path) -> None:
    outcome = evaluated(virtual(tmp_path), configured(max_running_requests=32, **SPECULATIVE, **ROOMY))
    facts = outcome.facts
    assert facts.version == "0.5.12"
    assert facts.kv_tokens == pytest.approx(134_000, rel=0.02)
    assert facts.max_running_requests == 32
    assert facts.context_len == 262144
    assert (facts.resolved["speculative"], facts.resolved["speculative_num_steps"]) == ("eagle3", 3)
    assert facts.memory["weights_gib"] == pytest.approx(72.33, abs=0.01)


def test_what_the_server_did_not_honour_is_a_fallback(tmp_path: Path) -> None:
    space_with = definition(tmp_path, name=KIMI_23)
    evaluator = VirtualEvaluator(box(KIMI_23), space_with, ManualClock())
    outcome = evaluated(evaluator, configured(max_running_requests=256, mem_fraction_static=0.79))
    reduced = [fallback for fallback in outcome.fallbacks if fallback.param == "max_running_requests"]
    assert reduced or outcome.facts.max_running_requests == 256


# --- deaths ----------------------------------------------------------------------------------------------

DEATHS: list[tuple[dict[str, object], Phase | None]] = [
    # Values, and the phase in which the start ends.
    ({"mem_fraction_static": 0.7}, Phase.KV_CACHE_ALLOC),
    ({"mem_fraction_static": 0.97, "cuda_graph_max_bs": 512}, Phase.GRAPH_CAPTURE),
    ({"attention_backend": "fa3"}, Phase.GRAPH_CAPTURE),
    ({"page_size": 3}, Phase.ARGUMENTS),
]


@pytest.mark.parametrize(("values", "phase"), DEATHS)
def test_what_cannot_run_dies_of_the_same_as_a_process(
    tmp_path: Path, values: dict[str, object], phase: Phase
) -> None:
    evaluator, chosen = virtual(tmp_path), configured(**values)
    outcome = evaluated(evaluator, chosen)
    assert outcome.failure is not None
    assert outcome.phases[-1].phase is phase
    words = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    code, log = ended(tmp_path, KIMI_12, *KIMI, *words)
    real = failure_of_exit(log.encode(), code, phase)
    kept, expected = outcome.failure.to_json(), real.to_json()
    assert [line["text"] for line in kept.pop("evidence")] == [
        line["text"] for line in expected.pop("evidence")
    ]
    assert kept == expected
    assert evaluator.truth(chosen) is None
    assert evaluator.clock.monotonic_s() == pytest.approx(outcome.took_s)


def test_a_failure_names_what_was_missing(tmp_path: Path) -> None:
    outcome = evaluated(virtual(tmp_path), configured(mem_fraction_static=0.7))
    assert outcome.failure is not None
    assert outcome.failure.kind is Kind.MEM_FRACTION_TOO_LOW
    assert outcome.failure.cause is Cause.CONFIG
    assert outcome.failure.hints


def test_a_late_death_costs_most_of_a_start_and_an_early_one_little(tmp_path: Path) -> None:
    late = evaluated(virtual(tmp_path), configured(attention_backend="fa3"))
    early = evaluated(virtual(tmp_path), configured(page_size=3))
    assert late.took_s > 450
    assert early.took_s < 30
    assert late.ready_s is None


def test_a_collective_that_hangs_is_given_up_when_its_phase_is_silent_for_too_long(tmp_path: Path) -> None:
    hang = Rule("distributed-init", "hang", "it hangs", flag="page_size", values=("64",))
    outcome = evaluated(virtual(tmp_path, with_rule(hang)), configured(page_size=64))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.phase) == (Kind.HANG, Phase.DISTRIBUTED_INIT)
    assert 180 < outcome.took_s < 300


@pytest.mark.parametrize(
    ("effect", "kind"),
    [
        ("death", Kind.KERNEL_FAULT),
        ("hang", Kind.MEASUREMENT_VOID),
        ("garbled", Kind.WRONG_OUTPUT),
    ],
)
def test_rules_of_serving_are_noticed_under_load(tmp_path: Path, effect: str, kind: Kind) -> None:
    text = "RuntimeError: CUDA error: an illegal memory access was encountered"
    rule = Rule("serving", effect, text, flag="page_size", values=("64",))
    evaluator = virtual(tmp_path, with_rule(rule))
    outcome = evaluated(evaluator, configured(page_size=64))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.phase) == (kind, Phase.SERVING)
    assert outcome.ready_s is not None
    assert outcome.took_s > outcome.ready_s
    assert evaluator.truth(configured(page_size=64)) is None
    assert evaluated(evaluator, configured(page_size=1)).measurement is not None


def test_a_box_with_little_memory_left_dies_under_load_now_and_then(tmp_path: Path) -> None:
    """Fragmentation takes 1.5 GiB in half of the launches that serve long enough."""
    memory = replace(box().memory, fragmentation_after_s=(0.0, 30.0))
    evaluator = virtual(tmp_path, replace(box(), memory=memory), input_tokens=4096)
    tight = configured(mem_fraction_static=0.96, cuda_graph_max_bs=8)
    outcomes = [evaluated(evaluator, tight, trial=trial) for trial in range(200)]
    died = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    assert 60 < len(died) < 140
    assert {failure.kind for failure in died} == {Kind.OOM_SERVING}
    assert all(failure.shortage_gib is not None for failure in died)
    assert evaluator.truth(tight) is not None


def test_requests_that_the_server_does_not_take_are_void(tmp_path: Path) -> None:
    evaluator = virtual(tmp_path, input_tokens=300_000)
    outcome = evaluated(evaluator, configured(**ROOMY))
    assert outcome.failure is not None
    assert outcome.failure.kind is Kind.MEASUREMENT_VOID
    assert "longer than the server takes" in outcome.failure.summary


# --- plugging it in ---------------------------------------------------------------------------------------


def test_a_study_names_its_box_in_its_command(tmp_path: Path) -> None:
    study = definition(tmp_path, name=DENSE, model="Qwen/Qwen3-32B-FP8", tp=1)
    evaluator = from_study(study, ManualClock())
    assert evaluator.box.name == DENSE
    assert evaluator.fitted.installation.version == "0.5.23"
    assert evaluator.space is evaluator.fitted.space
    assert evaluator.preflight() == evaluator.fitted.notes
    assert evaluated(evaluator).measurement is not None
    assert evaluator.clock.monotonic_s() > 60


def test_a_study_of_a_real_server_is_refused(tmp_path: Path) -> None:
    study = definition(tmp_path)
    real = replace(study, server=replace(study.server, command=("python", "-m", "sglang.launch_server")))
    with pytest.raises(InputError, match="needs a simulated box"):
        from_study(real, ManualClock())


def test_flags_that_the_release_lacks_are_refused_as_for_a_process(tmp_path: Path) -> None:
    study = definition(tmp_path)
    server = replace(study.server, flags={**study.server.flags, "no_such_flag": 1})
    with pytest.raises(InputError, match="no_such_flag"):
        from_study(replace(study, server=server), ManualClock())
