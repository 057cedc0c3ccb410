"""The step times: the anchors of the box, the shape of speculation, and what no coefficient may break."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.boxes import EAGLE, KIMI_23, box, fp8_cache, model, settings, settings_of
from tuner.simulator.box import Box
from tuner.simulator.physics import expected_tokens, interpolate, links_of

BOX = box()
WIDE_POOL = ("--mem-fraction-static", "0.88", "--max-running-requests", "128", "--cuda-graph-max-bs", "128")


def test_one_stream_reproduces_what_was_measured_by_hand() -> None:
    assert model(BOX, "--cuda-graph-max-bs", "128").tokens_per_s(1, 512) == pytest.approx(89.5, rel=0.01)
    assert model(BOX).tokens_per_s(1, 512) == pytest.approx(82.0, rel=0.01)


def test_an_fp8_cache_ruins_this_checkpoint() -> None:
    assert model(BOX, "--kv-cache-dtype", "fp8_e4m3").tokens_per_s(1, 512) == pytest.approx(16, rel=0.02)


@pytest.mark.parametrize(("rows", "ms"), [(1, 3.12), (2, 3.40), (4, 3.89), (8, 4.79)])
def test_nccl_costs_what_its_microbenchmark_says(rows: int, ms: float) -> None:
    assert BOX.all_reduce is not None
    assert BOX.experts is not None
    with_links = model(BOX).step_ms(rows, 0)
    without = model(replace(BOX, all_reduce=replace(BOX.all_reduce, scale=0))).step_ms(rows, 0)
    assert with_links - without == pytest.approx(ms, abs=0.02)


@pytest.mark.parametrize(("rows", "ms"), [(1, 7.5), (4, 7.7), (16, 8.8), (32, 12.0), (128, 30.7)])
def test_a_bad_nccl_graph_costs_more_and_a_graph_file_mends_it(rows: int, ms: float) -> None:
    assert BOX.all_reduce is not None
    bad = replace(BOX, all_reduce=replace(BOX.all_reduce, bad_graph=True))
    free = replace(BOX, all_reduce=replace(BOX.all_reduce, scale=0))
    assert model(bad).step_ms(rows, 0) - model(free).step_ms(rows, 0) == pytest.approx(ms, rel=0.01)
    mended = model(bad, NCCL_GRAPH_FILE="/etc/graph.xml").step_ms(rows, 0)
    assert mended == pytest.approx(model(BOX).step_ms(rows, 0))


def published_box() -> Box:
    """The constants fitted to published matrices: another engine, an fp8 cache, one-shot up to 56 KiB."""
    base = fp8_cache(box(KIMI_23))
    assert base.all_reduce is not None
    return replace(
        base,
        step=replace(base.step, fixed_ms=7.73),
        all_reduce=replace(base.all_reduce, nccl_default=base.all_reduce.nccl_all_protocols),
    )


PREDICTED = {
    1: (90, 117, 121, 116, 113, 106),
    4: (237, 295, 306, 303, 293, 280),
    16: (584, 741, 802, 818, 805, 776),
    32: (921, 1227, 1319, 1319, 1266, 1183),
    64: (1515, 1961, 1981, 1894, 1726, 1527),
}


@pytest.mark.parametrize("running", PREDICTED)
def test_the_best_number_of_drafts_moves_with_concurrency_as_predicted(running: int) -> None:
    where = published_box()
    flags = (
        "--mem-fraction-static",
        "0.88",
        "--max-running-requests",
        "128",
        "--cuda-graph-max-bs-decode",
        "128",
    )
    got = [model(where, *flags, SGLANG_ENABLE_PCIE_IPC_ALLREDUCE="1").tokens_per_s(running, 1700)]
    for steps in range(1, 6):
        drafts = (*EAGLE, "--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1")
        launch = model(where, *flags, *drafts, SGLANG_ENABLE_PCIE_IPC_ALLREDUCE="1")
        got.append(launch.tokens_per_s(running, 1700))
    assert got == pytest.approx(PREDICTED[running], rel=0.05)


def test_pcie_ipc_needs_its_release_and_helps_small_messages_only() -> None:
    new = box(KIMI_23)
    on = {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}
    assert model(new, **on).step_ms(1, 0) < model(new).step_ms(1, 0) - 1
    assert model(new, **on).step_ms(64, 0) == model(new).step_ms(64, 0)
    assert model(new, **on, SGLANG_PCIE_IPC_MAX_NUMEL="1000").step_ms(1, 0) == model(new).step_ms(1, 0)
    assert model(BOX, **on).step_ms(1, 0) == model(BOX).step_ms(1, 0)


def test_custom_all_reduce_runs_only_on_a_patched_build_and_is_slower() -> None:
    assert BOX.all_reduce is not None
    patched = replace(BOX, all_reduce=replace(BOX.all_reduce, custom_works=True))
    assert model(patched).step_ms(1, 0) > model(BOX).step_ms(1, 0)
    assert model(patched).step_ms(16, 0) > 1.15 * model(BOX).step_ms(16, 0) * 0.99
    off = model(patched, "--disable-custom-all-reduce").step_ms(16, 0)
    assert off == model(BOX, "--disable-custom-all-reduce").step_ms(16, 0) == model(BOX).step_ms(16, 0)


def test_fused_and_symmetric_all_reduce_change_nothing_on_the_old_release() -> None:
    for flag in ("--enable-flashinfer-allreduce-fusion", "--enable-torch-symm-mem"):
        assert model(BOX, flag).step_ms(4, 4000) == model(BOX).step_ms(4, 4000)


def test_nccl_protocols_matter_for_large_messages() -> None:
    assert model(BOX, NCCL_PROTO="LL,LL128,Simple").step_ms(32, 0) < model(BOX).step_ms(32, 0)
    assert model(BOX, NCCL_PROTO="LL").step_ms(32, 0) == model(BOX).step_ms(32, 0)
    assert model(BOX, NCCL_PROTO="LL128").step_ms(1, 0) == model(BOX).step_ms(1, 0)
    assert model(BOX, NCCL_P2P_DISABLE="1").step_ms(1, 0) > model(BOX).step_ms(1, 0) + 3


def test_batches_above_the_largest_graph_run_eager() -> None:
    small = model(BOX, "--cuda-graph-max-bs", "16")
    large = model(BOX, "--cuda-graph-max-bs", "128")
    assert small.step_ms(16, 0) == large.step_ms(16, 0)
    assert small.step_ms(17, 0) == pytest.approx(large.step_ms(17, 0) + BOX.step.eager_ms)


def test_flashinfer_shares_the_reading_of_the_cache_between_drafts() -> None:
    flash = model(BOX, *EAGLE, *WIDE_POOL, "--attention-backend", "flashinfer")
    triton = model(BOX, *EAGLE, *WIDE_POOL)
    assert flash.step_ms(8, 8 * 16000) < triton.step_ms(8, 8 * 16000)


@given(running=st.integers(1, 512), more=st.integers(1, 64), context=st.integers(1, 60_000))
def test_more_rows_and_more_context_never_make_a_step_shorter(running: int, more: int, context: int) -> None:
    launch = model(BOX, "--cuda-graph-max-bs", "512")
    assert launch.step_ms(running, 0) < launch.step_ms(running + more, 0)
    assert launch.step_ms(running, context) <= launch.step_ms(running, context + more)


@given(before=st.integers(0, 100_000), first=st.integers(1, 20_000), second=st.integers(1, 20_000))
def test_chunks_of_a_prompt_cost_what_the_prompt_costs(before: int, first: int, second: int) -> None:
    launch = model(BOX)
    batch = BOX.prefill.batch_s
    whole = launch.prefill_s([(first + second, before)])
    parts = launch.prefill_s([(first, before)]) + launch.prefill_s([(second, before + first)])
    assert parts == pytest.approx(whole + batch)


@given(steps=st.integers(1, 10), topk=st.integers(1, 8))
def test_more_drafts_never_give_fewer_tokens(steps: int, topk: int) -> None:
    assert BOX.draft is not None
    accepted = BOX.draft.accepted
    shares = expected_tokens(accepted, steps, topk, 64)
    assert all(0 < share <= 1 for share in shares)
    assert list(shares) == sorted(shares, reverse=True)
    assert sum(expected_tokens(accepted, steps, topk + 1, 64)) >= sum(shares)
    assert sum(expected_tokens(accepted, steps + 1, topk, 64)) >= sum(shares)


def test_a_changed_coefficient_changes_the_speed() -> None:
    slower = replace(BOX, step=replace(BOX.step, fixed_ms=BOX.step.fixed_ms + 1))
    assert model(slower).step_ms(1, 0) == pytest.approx(model(BOX).step_ms(1, 0) + 1)


def test_a_power_limit_costs_most_at_high_concurrency() -> None:
    limited = replace(BOX, step=replace(BOX.step, power=((1, 0.96), (16, 0.86), (64, 0.77))))
    assert model(limited).tokens_per_s(1, 500) == pytest.approx(0.96 * model(BOX).tokens_per_s(1, 500))
    assert model(limited).tokens_per_s(64, 500) == pytest.approx(0.77 * model(BOX).tokens_per_s(64, 500))


def test_tables_are_constant_outside_and_straight_inside() -> None:
    table = ((1.0, 10.0), (3.0, 20.0))
    assert [interpolate(table, x) for x in (0, 1, 2, 3, 9)] == [10, 10, 15, 20, 20]
    assert interpolate(table, 6, logarithmic=True) == 40


def test_one_card_needs_no_links() -> None:
    where = box("dense-small")
    assert links_of(where, settings_of(where, "--model-path", "Qwen/Qwen3-32B"), {}).path == "none"


@pytest.mark.parametrize(
    ("value", "every"),
    [
        ("", False),
        ("LL", False),
        ("LL128", True),
        ("simple", True),
        ("LL,LL128,Simple", True),
        ("^LL", True),
        ("^LL128", False),
    ],
)
def test_which_protocols_nccl_may_take(value: str, every: bool) -> None:
    chosen = links_of(BOX, settings(BOX), {"NCCL_PROTO": value} if value else {})
    assert chosen.path == ("nccl-all-protocols" if every else "nccl")


def test_more_splits_help_long_contexts_and_hurt_short_ones() -> None:
    few, many = (model(BOX, "--triton-attention-num-kv-splits", splits) for splits in ("8", "32"))
    assert many.step_ms(1, 60_000) < few.step_ms(1, 60_000)
    assert many.step_ms(16, 16 * 100) > few.step_ms(16, 16 * 100)


def test_many_channels_speed_up_large_messages_only() -> None:
    assert model(BOX, NCCL_MIN_NCHANNELS="8").step_ms(64, 0) < model(BOX).step_ms(64, 0)
    assert model(BOX, NCCL_MIN_NCHANNELS="8").step_ms(8, 0) == model(BOX).step_ms(8, 0)
    assert model(BOX, NCCL_MIN_NCHANNELS="4").step_ms(64, 0) == model(BOX).step_ms(64, 0)


def test_context_parallel_decode_reads_less_of_the_cache() -> None:
    new = box(KIMI_23)
    assert model(new, "--dcp-size", "8").step_ms(1, 200_000) < model(new).step_ms(1, 200_000)
    assert model(new, "--dcp-size", "8").step_ms(1, 100) > model(new).step_ms(1, 100)
