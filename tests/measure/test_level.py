from __future__ import annotations

from dataclasses import replace

import pytest

from tests.measure.test_window import request, steady
from tuner.errors import InputError
from tuner.measure.level import level_from_line, level_to_line, summarise, void_reason
from tuner.measure.measurement import LevelSample, LevelSummary, Measurement, RequestSample
from tuner.measure.objective import Objective


def level(*requests: RequestSample, output_tokens: int = 50, input_tokens: int = 100) -> LevelSample:
    return LevelSample(len(requests), input_tokens, output_tokens, requests)


GOOD = steady(0.25, 100, 50)


def test_a_good_level_counts_and_is_summed_up() -> None:
    found = summarise(
        replace(
            level(GOOD, replace(steady(0.35, 100, 50), cached_tokens=1)),
            server_tok_s=(190.0, 210.0, 198.0),
            retraction_lines=1,
        )
    )
    assert found.decode_tok_s == pytest.approx(200, rel=0.005)
    assert found.window_s == pytest.approx(0.39)
    assert (found.running, found.whole, found.running_shown) == (2, True, "")
    assert found.ttft_p50_ms == pytest.approx(300)
    assert found.ttft_p99_ms == pytest.approx(349)
    assert found.itl_p50_ms == found.itl_p99_ms == pytest.approx(10)
    assert found.tpot_mean_ms == pytest.approx(10)
    assert (found.output_tokens, found.cached_tokens, found.retractions) == (100, 1, 1)
    assert found.server_tok_s == 198.0
    assert found.accept_length is None


def test_speculation_shows_in_accept_length_and_in_the_gaps() -> None:
    spec = replace(steady(0.1, 100, 21, per_chunk=4), verify_steps=27)
    found = summarise(replace(level(spec, output_tokens=81), server_accept_lengths=(2.0,)))
    assert found.decode_tok_s == pytest.approx(100)
    assert found.itl_p50_ms == pytest.approx(40)
    assert found.tpot_mean_ms == pytest.approx(10)
    assert found.accept_length == pytest.approx(3.0)
    of_the_log = replace(level(GOOD), server_accept_lengths=(2.0, 4.0))
    assert summarise(of_the_log).accept_length == pytest.approx(3.0)


def test_a_level_that_never_ran_at_once_says_so() -> None:
    found = summarise(level(GOOD, steady(0.9, 100, 50)))
    assert found.running_shown == "running 1 of 2"


@pytest.mark.parametrize(
    ("void", "reason"),
    [
        (level(GOOD, replace(GOOD, error="HTTP 500: boom")), "1 of 2 requests failed: HTTP 500: boom"),
        (replace(level(GOOD), concurrency=2), "1 of 2 requests were sent"),
        (level(GOOD, steady(0.2, 100, 49)), "a request returned 49 of 50 tokens"),
        (level(request([])), "a request returned 0 of 50 tokens"),
        (level(replace(GOOD, cached_tokens=11)), "11 of 100 prompt tokens came from the prefix cache"),
        (level(request([1.0]), output_tokens=1), "no decode window: no time lies between"),
    ],
)
def test_void_levels(void: LevelSample, reason: str) -> None:
    assert void_reason(void).startswith(reason)


def test_levels_that_count() -> None:
    assert void_reason(level(GOOD)) == ""
    assert void_reason(level(replace(GOOD, cached_tokens=10))) == ""


def test_the_raw_record_survives_its_line() -> None:
    sample = LevelSample(
        concurrency=2,
        input_tokens=3,
        output_tokens=4,
        requests=(
            RequestSample(1.000001, (1.25, 1.5), (1, 4), 1, 3, 2, 5),
            RequestSample(1.0, (), (), error="HTTP 500: »\n«"),
        ),
        server_tok_s=(1.5, 2.5),
        server_accept_lengths=(3.25,),
        eager_decode_lines=1,
        retraction_lines=2,
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


def measured(**rates: float) -> Measurement:
    summary = summarise(level(GOOD))
    levels: list[LevelSummary] = [
        replace(summary, concurrency=int(name[1:]), decode_tok_s=rate) for name, rate in rates.items()
    ]
    return Measurement(tuple(levels))


def test_the_objective_is_one_level_or_the_geometric_mean() -> None:
    measurement = measured(c1=10.0, c8=40.0, c32=400.0)
    one = Objective((8,))
    both = Objective((1, 8))
    assert (one.name, one.score(measurement)) == ("decode tok/s at C=8", 40.0)
    assert both.name == "geometric mean decode tok/s at C=1,8"
    assert both.score(measurement) == pytest.approx(20.0)


@pytest.mark.parametrize("levels", [(), (8, 8)])
def test_an_objective_needs_different_levels(levels: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        Objective(levels)
