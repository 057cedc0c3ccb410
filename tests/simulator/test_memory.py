"""GPU memory: the automatic fraction, the pools, and which launches do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.boxes import DENSE, EAGLE, KIMI_23, box, plan, settings, settings_of
from tuner.simulator.memory import capture_sizes, plan_memory

BOX = box()
G128 = ("--cuda-graph-max-bs", "128")


@pytest.mark.parametrize(
    ("words", "fraction", "pool_gib"),
    [
        ((), 0.806, 3.3),
        (G128, 0.813, 4.0),
        (EAGLE, 0.786, None),
        ((*EAGLE, *G128), 0.793, None),
    ],
    ids=["512", "128", "eagle 512", "eagle 128"],
)
def test_the_automatic_fraction_and_its_pool(
    words: tuple[str, ...], fraction: float, pool_gib: float | None
) -> None:
    assert settings(BOX, *words).mem_fraction == pytest.approx(fraction, abs=0.0006)
    if pool_gib is not None:
        assert plan(BOX, *words).kv_gib == pytest.approx(pool_gib, abs=0.06)


def test_the_pool_in_tokens() -> None:
    assert plan(BOX).kv_tokens == pytest.approx(51_000, rel=0.01)
    assert plan(BOX, *G128).kv_tokens == pytest.approx(62_000, rel=0.01)
    assert plan(BOX, *EAGLE, *G128, "--mem-fraction-static", "0.88").kv_tokens == pytest.approx(
        134_000, rel=0.01
    )
    assert plan(BOX, "--mem-fraction-static", "0.94").kv_tokens == pytest.approx(243_000, rel=0.01)


def test_since_0_5_14_the_fraction_sets_nothing_aside_for_a_draft_model() -> None:
    new = box(KIMI_23)
    assert settings(new, *EAGLE).mem_fraction == settings(new).mem_fraction
    no_prefill_graph = settings(new, "--disable-prefill-cuda-graph", "--cuda-graph-max-bs-decode", "128")
    assert no_prefill_graph.mem_fraction == pytest.approx(settings(BOX, *G128).mem_fraction)
    assert settings(new).mem_fraction == pytest.approx(0.95 * 0.833, abs=0.0006)


@pytest.mark.parametrize(
    ("name", "words", "verdict"),
    [
        ("12", (), "fits"),
        ("12", EAGLE, "draft-pool"),
        ("12", (*EAGLE, *G128), "draft-pool"),
        ("12", (*EAGLE, *G128, "--mem-fraction-static", "0.88"), "fits"),
        ("12", ("--mem-fraction-static", "0.75"), "pool"),
        ("12", ("--mem-fraction-static", "0.97"), "capture"),
        ("12", ("--mem-fraction-static", "0.97", "--disable-cuda-graph"), "fits"),
        ("12", (*EAGLE, *G128, "--mem-fraction-static", "0.97"), "draft-capture"),
        ("12", ("--speculative-algorithm", "EAGLE3"), "draft-weights"),
        ("12", ("--tp", "4"), "weights"),
        ("12", ("--max-total-tokens", "4096"), "fits"),
        ("12", ("--mem-fraction-static", "1.5"), "pool-memory"),
        ("23", ("--mem-fraction-static", "1.5"), "pool-memory"),
        ("23", EAGLE, "fits"),
        ("23", ("--mem-fraction-static", "0.75"), "pool"),
        ("23", ("--speculative-algorithm", "EAGLE3"), "draft-weights"),
    ],
)
def test_what_runs_out_first(name: str, words: tuple[str, ...], verdict: str) -> None:
    assert plan(BOX if name == "12" else box(KIMI_23), *words).verdict == verdict


@given(low=st.floats(0.6, 0.99), high=st.floats(0.6, 0.99))
def test_a_larger_fraction_gives_a_larger_pool_and_less_to_spare(low: float, high: float) -> None:
    low, high = sorted((low, high))
    small, large = plan(BOX, "--mem-fraction-static", str(low)), plan(BOX, "--mem-fraction-static", str(high))
    assert small.kv_tokens <= large.kv_tokens
    assert small.spare_gib >= large.spare_gib


@given(fraction=st.floats(0.8, 0.93))
def test_an_fp8_cache_holds_twice_as_many_tokens(fraction: float) -> None:
    bf16 = plan(BOX, "--mem-fraction-static", str(fraction)).kv_tokens
    fp8 = plan(BOX, "--mem-fraction-static", str(fraction), "--kv-cache-dtype", "fp8_e4m3").kv_tokens
    assert fp8 == pytest.approx(2 * bf16, abs=2)


@pytest.mark.parametrize(
    ("largest", "speculative", "count"),
    [(128, False, 20), (512, False, 52), (128, True, 35), (512, True, 67)],
)
def test_how_many_graphs_are_captured(largest: int, speculative: bool, count: int) -> None:
    sizes = capture_sizes(largest, speculative=speculative)
    assert len(sizes) == count
    assert sizes[-1] == largest
    assert list(sizes) == sorted(sizes)


def test_no_graph_is_captured_beyond_the_requests_that_may_run() -> None:
    assert settings(BOX, "--max-running-requests", "20").graph_sizes[-1] == 20
    assert settings(BOX, *EAGLE).largest_graph == 48
    assert settings(BOX, "--cuda-graph-bs", "4", "2", "1").graph_sizes == (1, 2, 4)
    assert settings(BOX, "--disable-cuda-graph").graph_sizes == ()


def test_the_cap_on_tokens_counts() -> None:
    assert plan(BOX, "--max-total-tokens", "20000").kv_tokens == 20_000
    assert plan(BOX, "--max-total-tokens", "20000").max_running == 2048
    assert plan(BOX, "--max-total-tokens", "2000", "--max-running-requests", "4000").max_running == 1000


def test_a_dense_model_on_one_card_keeps_its_cache_beside_its_weights() -> None:
    where = box(DENSE)
    chosen = settings_of(where, "--model-path", "Qwen/Qwen3-32B-FP8")
    got = plan_memory(where, chosen)
    assert got.verdict == "fits"
    assert got.kv_gib + got.weights_gib == pytest.approx(chosen.mem_fraction * where.gpus.free_gib, abs=0.01)


def test_heavier_weights_leave_less() -> None:
    heavier = replace(BOX, model=replace(BOX.model, weights_gib=73.33))
    assert plan(heavier).kv_gib == pytest.approx(plan(BOX).kv_gib - 1, abs=0.01)
