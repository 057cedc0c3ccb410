from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.document import Node, parse_document
from tuner.errors import InputError
from tuner.measure.latency import Limit
from tuner.measure.lengths import Lengths
from tuner.measure.measurement import Workload
from tuner.measure.objective import Goal, Objective
from tuner.measure.reading import parse_objective, parse_workload

PLAIN = "input_tokens: 64, output_tokens: 32, concurrency: [1, 8]"


def read(text: str) -> Workload:
    return parse_workload(node(text, "workload"))


def node(text: str, key: str) -> Node:
    found = parse_document(f"{key}: {{{text}}}", "study.yaml").value[key]
    assert isinstance(found, Node)
    return found


def test_the_short_form_and_its_defaults() -> None:
    found = read(PLAIN)
    assert found == Workload(
        Lengths.fixed(64), Lengths.fixed(32), concurrency=(1, 8), warmup_output_tokens=32
    )
    assert (found.kind, found.dataset, found.precision, found.levels) == ("batch", "random", 0.01, (1, 8))


def test_the_expected_duration_bounds_warm_up_and_repeats_unless_they_are_given() -> None:
    quick = read(f"{PLAIN}, expected_level_s: 5")
    assert (quick.warmup_s, quick.repeat_limit_s) == (2.5, 5)
    assert read(f"{PLAIN}, expected_level_s: 500").warmup_s == 20
    given = read(f"{PLAIN}, expected_level_s: 5, warmup_s: 0, repeat_limit_s: 90, warmup_limit_s: 7")
    assert (given.warmup_s, given.repeat_limit_s, given.warmup_limit_s) == (0, 90, 7)


def test_everything_can_be_said() -> None:
    found = read(
        "kind: burst, concurrency: 16, requests: 64, burst_every_s: 2.5, dataset: shared-prefix, prefix_tokens: 256,"
        "prefix_groups: 4, input_tokens: {low: 300, high: 500}, output_tokens: {median: 100, sigma: 0.6, high: 900},"
        "precision: 0.02, batches: 1, max_batches: 3, level_limit_s: 60, warmup_output_tokens: 16"
    )
    assert found.input_tokens == Lengths(300, 500)
    assert found.output_tokens == Lengths(8, 900, 100, 0.6)
    assert (found.prefix_tokens, found.prefix_groups, found.burst_every_s) == (256, 4, 2.5)
    assert (found.precision, found.batches, found.max_batches, found.round_requests(16)) == (0.02, 1, 3, 64)


def test_an_open_load_has_rates() -> None:
    found = read("kind: open, rate: [0.5, 8], input_tokens: 64, output_tokens: 32")
    assert (found.levels, found.concurrency) == ((0.5, 8), ())
    assert [found.round_requests(level) for level in found.levels] == [20, 80]


def test_a_file_is_read_and_must_hold_enough(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"{index}?", "output_tokens": 9}) for index in range(8)))
    found = read(f"dataset: jsonl, dataset_file: {path}, concurrency: 8")
    assert found.dataset_file == path
    with pytest.raises(InputError, match=r"workload.dataset_file: .*has 8 prompts that differ.*needs 9"):
        read(f"dataset: jsonl, dataset_file: {path}, concurrency: [1, 9]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input_tokens: 64, output_tokens: 32", "workload: the key 'concurrency' is missing"),
        ("output_tokens: 32, concurrency: 1", "workload: the key 'input_tokens' is missing"),
        (f"{PLAIN}, kind: opened", "workload.kind: 'opened' is not possible here"),
        (f"{PLAIN}, kind: open", "workload.concurrency: a load of the kind 'open' comes at a rate"),
        (f"{PLAIN}, rate: 4", "workload.rate: a load of the kind 'batch' has a concurrency"),
        (f"{PLAIN}, kind: waves", "workload.output_tokens: in waves the answers end at different times"),
        (f"{PLAIN}, dataset: rndom", "workload.dataset: 'rndom' is not possible here"),
        (
            f"{PLAIN}, dataset: shared-prefix",
            "workload: the dataset 'shared-prefix' needs the key 'prefix_tokens'",
        ),
        (
            f"{PLAIN}, dataset: shared-prefix, prefix_tokens: 64",
            "workload.dataset: prompts of 64 tokens have no room",
        ),
        (f"{PLAIN}, prefix_tokens: 9", "workload.prefix_tokens: only the dataset 'shared-prefix'"),
        (f"{PLAIN}, dataset_file: a.json", "workload.dataset_file: the dataset 'random' reads no file"),
        ("dataset: jsonl, concurrency: 1", "workload: the dataset 'jsonl' needs the key 'dataset_file'"),
        (
            "dataset: jsonl, concurrency: 1, input_tokens: 9",
            "workload.input_tokens: prompts of a file are as long",
        ),
        (
            "dataset: jsonl, concurrency: 1, dataset_file: /nowhere/own",
            "workload.dataset_file: /nowhere/own: cannot",
        ),
        (
            f"{PLAIN}, load: bench-serving, kind: closed",
            "workload.load: sglang.bench_serving can stand in for batches",
        ),
        (f"{PLAIN}, load: other", "workload.load: 'other' is not possible here"),
        (f"{PLAIN}, batches: 9, max_batches: 3", "workload.max_batches: 3 is below the least possible, 9"),
        (f"{PLAIN}, precison: 0.01", "workload.precison: unknown key"),
        (
            "input_tokens: {high: 9, median: 4}, output_tokens: 32, concurrency: 1",
            "median and sigma belong together",
        ),
        (
            "input_tokens: 64, output_tokens: 7, concurrency: 1",
            "workload.output_tokens: 7 is below the least",
        ),
        (
            "input_tokens: 64, output_tokens: 32, concurrency: [8, 8]",
            "workload.concurrency: a level stands here twice",
        ),
    ],
)
def test_what_is_wrong_with_a_workload_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(text)
    assert "study.yaml:1" in error.value.message
    assert message in error.value.message


def objective(text: str, workload: str = PLAIN) -> Objective:
    return parse_objective(node(text, "objective"), read(workload))


def test_without_an_objective_all_levels_are_scored() -> None:
    assert parse_objective(None, read(PLAIN)) == Objective((Goal((1, 8)),))
    assert objective("concurrency: 8") == Objective((Goal((8,)),))


def test_goals_and_limits() -> None:
    assert objective(
        "goal: goodput, concurrency: 8, limits: {ttft_p99_ms: 500, tpot_p95_ms: 40}"
    ) == Objective((Goal((8,), "goodput"),), (Limit("ttft_p99_ms", 500), Limit("tpot_p95_ms", 40)))
    assert objective("goal: highest-load, limits: {itl_p99_ms: 50}").seeks_highest
    assert objective(
        "goals: [{concurrency: 8}, {goal: latency, of: ttft_p50_ms, concurrency: 1}]"
    ) == Objective((Goal((8,)), Goal((1,), "latency", "ttft_p50_ms")))
    open_load = "kind: open, rate: [2, 4], input_tokens: 64, output_tokens: 32"
    assert objective("rate: 4", open_load) == Objective((Goal((4,), by_rate=True),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("concurrency: 2", "objective.concurrency: the workload does not measure concurrency 2"),
        ("rate: 2", "objective.rate: the workload has no rate"),
        ("goal: goodput", "objective.goal: 'goodput' needs limits"),
        ("goal: latency", "objective.goal: the key 'of' is missing"),
        ("goal: latency, of: ttft_p98_ms", "objective.of: 'ttft_p98_ms' is not possible here"),
        ("of: ttft_p99_ms", "objective.of: only the goal 'latency' is of something"),
        ("limits: {ttft_ms: 4}", "objective.limits.ttft_ms: unknown key"),
        ("limits: {ttft_p99_ms: 0}", "objective.limits.ttft_p99_ms: 0 is below"),
        ("goals: [{}, {}]", "objective.goals: the two goals are the same"),
        ("goals: [{}], concurrency: 1", "objective.concurrency: cannot stand beside 'goals'"),
        (
            "goals: [{}, {concurrency: 1}, {concurrency: 8}]",
            "objective.goals: an objective has at most two goals",
        ),
        ("concurrency: [8, 8]", "objective.concurrency: a level stands here twice"),
        ("gaol: decode", "objective.gaol: unknown key"),
    ],
)
def test_what_is_wrong_with_an_objective_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        objective(text)
    assert "study.yaml:1" in error.value.message
    assert message in error.value.message


def test_the_highest_load_needs_a_range() -> None:
    with pytest.raises(InputError, match="searches between two levels"):
        objective(
            "goal: highest-load, limits: {itl_p99_ms: 50}",
            "input_tokens: 8, output_tokens: 8, concurrency: 8",
        )


def test_two_workloads_are_the_same_exactly_when_they_send_the_same() -> None:
    same = read(PLAIN).to_json()
    assert same == read(f"{PLAIN}, precision: 0.5, batches: 7, repeat_limit_s: 1").to_json()
    for other in ("load: bench-serving", "kind: closed", "dataset: builtin", "warmup_output_tokens: 9"):
        assert read(f"{PLAIN}, {other}").to_json() != same
    assert json.loads(json.dumps(same)) == same
