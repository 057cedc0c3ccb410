from __future__ import annotations

from dataclasses import replace

import pytest

from tests.measure.test_window import request, steady
from tuner.measure.latency import Limit
from tuner.measure.level import level_from_line, level_to_line, void_reason
from tuner.measure.measurement import ClientEffort, LevelSample, RequestSample
from tuner.measure.summary import summarise


def level(*requests: RequestSample, asked: int = 50, prompt: int = 100) -> LevelSample:
    known = [replace(one, asked_tokens=asked, prompt_tokens=prompt) for one in requests]
    return LevelSample(concurrency=len(known), requests=tuple(known))


def rounds(*found: list[RequestSample], concurrency: int = 1) -> LevelSample:
    requests = [replace(one, round=number) for number, round_ in enumerate(found) for one in round_]
    return LevelSample(concurrency=concurrency, requests=tuple(requests))


GOOD = steady(0.25, 100, 50)
BUSY = ClientEffort(seconds=3.0, cpu_share=0.97, lag_p99_ms=9.0, late_share=0.1)
LATE = ClientEffort(seconds=3.0, cpu_share=0.7, lag_p99_ms=80.0, late_share=0.4)
STOPPED = ClientEffort(seconds=3.0, cpu_share=0.01, lag_p99_ms=400.0, late_share=0.4)
STARVED = ClientEffort(seconds=3.0, cpu_share=0.2, lag_p99_ms=80.0, late_share=0.4)
AT_EASE = ClientEffort(seconds=3.0, cpu_share=0.2, lag_p99_ms=2.0, late_share=0.0)
TOO_SHORT = ClientEffort(seconds=0.1, cpu_share=1.0, lag_p99_ms=0.0, late_share=0.0)


def test_a_good_level_counts_and_is_summed_up() -> None:
    found = summarise(
        replace(
            level(GOOD, replace(steady(0.35, 100, 50), cached_tokens=1)),
            server_tok_s=(190.0, 210.0, 206.0),
            retraction_lines=1,
            client=(AT_EASE,),
            energy_j=50.0,
        )
    )
    assert found.decode_tok_s == pytest.approx(200, rel=0.005)
    assert found.window_s == pytest.approx(0.39)
    assert (found.running, found.whole, found.running_shown, found.name) == (2, True, "", "C=2")
    assert found.ttft_p50_ms == pytest.approx(300)
    assert found.ttft_p99_ms == pytest.approx(349)
    assert found.itl_p50_ms == found.itl_p99_ms == pytest.approx(10)
    assert found.tpot_mean_ms == pytest.approx(10)
    assert found.latency_ms["e2e_p50_ms"] == pytest.approx(790)
    assert (found.output_tokens, found.cached_tokens, found.retractions) == (100, 1, 1)
    assert found.output_tok_s == pytest.approx(100 / 0.84)
    assert found.server_tok_s == pytest.approx(202)
    assert found.accept_length is None
    assert (found.energy_j, found.tok_per_j) == (50.0, 2.0)
    assert (found.client_cpu_share, found.client_lag_ms) == (0.2, 2.0)
    assert found.warnings == ()


def test_speculation_is_taken_apart_into_steps_and_tokens_per_step() -> None:
    """81 tokens in 20 verified steps of 4 tokens after the first, at 100 tok/s: 25 steps a second."""
    spec = replace(steady(0.1, 100, 21, per_chunk=4), verify_steps=20)
    found = summarise(replace(level(spec, asked=81), server_accept_lengths=(2.0,)))
    assert found.decode_tok_s == pytest.approx(100)
    assert found.itl_p50_ms == pytest.approx(40)
    assert found.tpot_mean_ms == pytest.approx(10)
    assert found.accept_length == pytest.approx(81 / 20)
    assert found.steps is not None and found.accepted is not None
    assert found.steps.mean == pytest.approx(25)
    assert found.accepted.mean == pytest.approx(4)
    of_the_log = replace(level(GOOD), server_accept_lengths=(2.0, 4.0))
    assert summarise(of_the_log).accept_length == pytest.approx(3.0)


def test_speed_is_the_product_of_steps_and_tokens_per_step_at_any_concurrency() -> None:
    requests = [
        replace(steady(0.1 + 0.01 * index, 90, 60, per_chunk=3), verify_steps=59) for index in range(8)
    ]
    found = summarise(level(*requests, asked=100))
    assert found.steps is not None and found.accepted is not None
    assert found.steps.mean == pytest.approx(30, rel=0.01)
    assert found.accepted.mean == pytest.approx(24, rel=0.01)
    assert found.decode_tok_s == pytest.approx(found.steps.mean * found.accepted.mean)


def test_steps_can_be_told_where_a_chunk_holds_several() -> None:
    """`--stream-interval 8`: 12 chunks, but the request says that it took 40 steps."""
    found = summarise(level(replace(steady(0.1, 100, 13, per_chunk=8), verify_steps=40), asked=97))
    assert found.steps is not None
    assert found.steps.mean == pytest.approx(100 / 2.4, rel=0.01)


def test_rounds_are_taken_together_and_have_an_interval() -> None:
    slow, fast = steady(0.1, 99, 200), steady(10.1, 101, 200)
    found = summarise(rounds([slow], [fast], [slow], [fast]))
    assert found.decode_tok_s == pytest.approx(100, rel=0.001)
    assert (found.rounds, found.n) == (4, 4)
    assert found.low is not None and found.high is not None
    assert 95 < found.low < 100 < found.high < 105


def test_a_cold_beginning_is_left_out_and_said() -> None:
    found = summarise(rounds([steady(0.1, 66, 200)], *[[steady(0.1, 100, 200)]] * 4))
    assert found.decode_tok_s == pytest.approx(100)
    assert found.dropped == 1
    assert "the server was not warm" in found.warnings[0]


def test_a_gap_to_the_servers_own_count_is_a_warning() -> None:
    said = replace(level(GOOD), server_tok_s=(105.9,) * 3)
    (warning,) = summarise(said).warnings
    assert warning == "client and server disagree by -5.6%: 100.0 tok/s were received, the server says 105.9"
    assert summarise(replace(said, server_tok_s=(104.0,) * 3)).warnings == ()
    assert summarise(replace(said, server_tok_s=(120.0,) * 2)).warnings == ()  # the luck of two lines


def test_the_servers_last_line_counts_only_for_a_whole_batch_of_many_steps() -> None:
    long = level(steady(0.25, 100, 200), asked=200)
    assert summarise(replace(long, server_last_tok_s=101.0)).server_tok_s == 101.0
    assert summarise(replace(long, server_last_tok_s=101.0, server_tok_s=(99.0,))).server_tok_s == 99.0
    assert summarise(replace(level(GOOD), server_last_tok_s=101.0)).server_tok_s is None
    broken = level(steady(0.25, 100, 200), steady(2.5, 100, 200), asked=200)
    assert summarise(replace(broken, server_last_tok_s=101.0)).server_tok_s is None


def test_goodput_counts_requests_that_meet_every_limit() -> None:
    early, late = steady(0.25, 100, 50), steady(0.35, 100, 50)
    limits = (Limit("ttft_p99_ms", 300.0), Limit("tpot_p50_ms", 11.0))
    found = summarise(level(early, late), limits)
    assert found.good_share == 0.5
    assert found.goodput_req_s == pytest.approx(1 / 0.84)
    assert summarise(level(early, late), (Limit("tpot_p50_ms", 9.0),)).goodput_req_s == 0.0
    assert summarise(level(early, late)).goodput_req_s is None


def test_a_level_that_never_ran_at_once_says_so() -> None:
    found = summarise(level(GOOD, steady(0.9, 100, 50)))
    assert found.running_shown == "running 1 of 2"


def test_missing_cache_hits_are_said() -> None:
    meant = replace(GOOD, shared_tokens=80, cached_tokens=3)
    assert summarise(level(meant)).warnings == (
        "80 prompt tokens were meant to come from the prefix cache, 3 did",
    )


@pytest.mark.parametrize(
    ("void", "reason"),
    [
        (level(), "no requests were sent"),
        (level(GOOD, replace(GOOD, error="HTTP 500: boom")), "1 of 2 requests failed: HTTP 500: boom"),
        (level(GOOD, steady(0.2, 100, 49)), "a request returned 49 of 50 tokens"),
        (level(request([])), "a request returned 0 of 50 tokens"),
        (level(replace(GOOD, cached_tokens=11)), "11 of 100 prompt tokens came from the prefix cache"),
        (
            level(replace(GOOD, cached_tokens=71, shared_tokens=60)),
            "11 of 100 prompt tokens more than meant came from the prefix cache",
        ),
        (level(request([1.0]), asked=1), "no decode window: no time lies between"),
        (
            replace(level(GOOD), client=(AT_EASE, BUSY)),
            "the load client was the limit: it needed 97% of a core",
        ),
        (
            replace(level(GOOD), client=(LATE,)),
            "the load client was the limit: it was late for 40% of the time",
        ),
        (
            replace(level(GOOD), client=(STOPPED,)),
            "the load client was the limit: it was late for 40% of the time (99 % of its timers within 400 ms)",
        ),
    ],
)
def test_void_levels(void: LevelSample, reason: str) -> None:
    assert void_reason(void).startswith(reason)


@pytest.mark.parametrize(
    "sample",
    [
        level(GOOD),
        level(replace(GOOD, cached_tokens=10)),
        level(replace(GOOD, cached_tokens=70, shared_tokens=60)),
        replace(level(GOOD), client=(AT_EASE, TOO_SHORT)),
        replace(level(GOOD), client=(AT_EASE, STARVED)),
    ],
)
def test_levels_that_count(sample: LevelSample) -> None:
    assert void_reason(sample) == ""


def test_a_client_that_others_kept_from_its_core_is_a_warning() -> None:
    at_ease, starved = (summarise(replace(level(GOOD), client=(one,))) for one in (AT_EASE, STARVED))
    assert at_ease.warnings == ()
    assert len(starved.warnings) == 1
    assert "kept the load client from its core" in starved.warnings[0]
    assert "late for 40% of the time" in starved.warnings[0]
    assert starved.decode_tok_s == at_ease.decode_tok_s


def test_the_raw_record_survives_its_line() -> None:
    sample = LevelSample(
        concurrency=2,
        requests=(
            RequestSample(
                1.000001, (1.25, 1.5), (1, 4), 1, 3, 2, 5, round=1, asked_tokens=4, shared_tokens=2
            ),
            RequestSample(1.0, (), (), error="HTTP 500: »\n«"),
        ),
        kind="open",
        rate=0.5,
        distinct_share=0.5,
        server_tok_s=(1.5, 2.5),
        server_accept_lengths=(3.25,),
        server_last_tok_s=2.0,
        eager_decode_lines=1,
        retraction_lines=2,
        client=(AT_EASE, BUSY),
        energy_j=12.5,
        telemetry={"throttled": False, "power_w": 300.0},
        attempt=2,
        void="1 of 2 requests failed",
    )
    line = level_to_line(sample)
    assert "\n" not in line
    assert level_from_line(line) == sample


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"requests":[{}]}', '{"requests":[],"speed":1}'])
def test_a_broken_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        level_from_line(line)


def test_a_cut_line_is_refused() -> None:
    line = level_to_line(level(GOOD))
    with pytest.raises(ValueError):
        level_from_line(line[:-10])


def test_loads_whose_speed_is_meant_to_change_are_neither_drifting_nor_jumping() -> None:
    waves = [[steady(0.5, 100, length) for length in (60, 120, 200)] for _ in range(3)]
    sample = replace(rounds(*waves, concurrency=3), kind="waves")
    found = summarise(sample)
    assert (found.drift, found.bimodal, found.warnings) == (0.0, False, ())
    assert found.n == 3
    assert found.low is not None and found.low >= 0
