from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tuner.measure.measurement import RequestSample
from tuner.measure.statistics import median, percentile
from tuner.measure.window import NoWindow, decode_window, slices_of


def request(arrivals_s: list[float], tokens: list[int] | None = None, sent_s: float = 0.0) -> RequestSample:
    counts = tokens if tokens is not None else list(range(1, len(arrivals_s) + 1))
    return RequestSample(sent_s, tuple(arrivals_s), tuple(counts))


def steady(first_s: float, tok_s: float, chunks: int, per_chunk: int = 1) -> RequestSample:
    """One token first, then chunks of `per_chunk` tokens, at a constant rate."""
    arrivals_s = [first_s + index * per_chunk / tok_s for index in range(chunks)]
    return request(arrivals_s, [1 + index * per_chunk for index in range(chunks)])


@given(
    starts_s=st.lists(st.floats(0, 0.5), min_size=1, max_size=40),
    tok_s=st.floats(5, 500),
    per_chunk=st.integers(1, 5),
    chunks=st.integers(60, 200),
)
def test_requests_of_a_constant_rate_add_up(
    starts_s: list[float], tok_s: float, per_chunk: int, chunks: int
) -> None:
    requests = [steady(start_s, tok_s, chunks, per_chunk) for start_s in starts_s]
    assume((chunks - 1) * per_chunk / tok_s > max(starts_s) - min(starts_s) + 5 * per_chunk / tok_s)
    window = decode_window(requests)
    assert window.whole
    assert window.running == len(requests)
    assert window.start_s == max(starts_s)
    assert window.tok_s == pytest.approx(len(requests) * tok_s, rel=0.005)


@pytest.mark.parametrize("requests", [1, 8, 32])
@pytest.mark.parametrize("jitter_s", [0.0, 0.001])
def test_prefills_one_after_another_do_not_count(requests: int, jitter_s: float) -> None:
    """As SGLang runs a batch: all prefills first, 50 ms each, then steps of 10 ms for all."""
    noise = random.Random(1)
    last_prefill_s = 0.05 * requests
    samples = [
        request(
            [0.05 * (number + 1)]
            + [last_prefill_s + 0.01 * step + noise.uniform(0, jitter_s) for step in range(1, 64)]
        )
        for number in range(requests)
    ]
    assert decode_window(samples).tok_s == pytest.approx(requests / 0.01, rel=0.005)


def test_only_the_time_of_all_counts() -> None:
    """Two requests of 10 tok/s; while only one runs it makes 40 tok/s, which must not show."""
    early = request([0.0, 0.025, 0.05, 0.075, 0.1] + [0.1 + 0.1 * step for step in range(1, 11)])
    late = request([0.1 + 0.1 * step for step in range(11)] + [1.1 + 0.025 * step for step in range(1, 5)])
    window = decode_window([early, late])
    assert window.start_s == 0.1
    assert window.end_s == pytest.approx(1.1)
    assert window.tok_s == pytest.approx(20)


def test_chunks_that_were_read_together_keep_all_their_tokens() -> None:
    window = decode_window([request([0.0, 0.1, 0.1, 0.1, 0.2, 0.3]), request([0.05, 0.15, 0.25, 0.35])])
    assert window.tokens == pytest.approx((6 - 2.5) + (3.5 - 1))


def test_a_level_that_never_runs_at_once_is_scored_over_the_time_it_is_outstanding() -> None:
    """Two of four run, 100 tok/s each; the others begin when the first two are done."""
    first = [steady(0.5, 100, 51) for _ in range(2)]
    second = [steady(1.2, 100, 51) for _ in range(2)]
    window = decode_window(first + second)
    assert not window.whole
    assert window.running == 2
    assert (window.start_s, window.end_s) == (0.0, 1.0)
    assert window.tok_s == pytest.approx(102)


def test_queued_requests_that_begin_before_the_first_finish_count() -> None:
    """A third request begins while two run; its tokens are part of the span."""
    samples = [steady(0.5, 100, 51), steady(0.6, 100, 51), steady(0.8, 100, 51), steady(2.0, 100, 51)]
    window = decode_window(samples)
    assert (window.whole, window.running) == (False, 3)
    assert window.tok_s == pytest.approx(51 + 41 + 21)


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ([], "not every request returned tokens"),
        ([steady(0, 10, 50), request([])], "not every request returned tokens"),
        ([request([1.0])], "no time lies between the last first token and the first finish"),
        ([request([1.0, 1.1, 1.2])], "only 2.0 tokens lie between the last first token and the first finish"),
        ([steady(0.5, 10, 50), steady(5.39, 10, 50)], "only 0.2 tokens lie between the last first token"),
        (
            [request([1.0, 1.2], sent_s=0.0), request([3.0, 3.2], sent_s=2.0)],
            "no time lies between the last send and the first finish",
        ),
        (
            [request([2.0] * 40), request([2.0] * 40), request([3.0, 3.1, 3.2])],
            "all that came between the last send and the first finish was read at one moment",
        ),
    ],
)
def test_what_is_too_little_to_divide_is_said(requests: list[RequestSample], reason: str) -> None:
    with pytest.raises(NoWindow, match=f"^{reason}"):
        decode_window(requests)


@given(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=8), min_size=1, max_size=8))
def test_any_arrivals_give_a_finite_rate_or_a_reason(arrivals: list[list[float]]) -> None:
    try:
        window = decode_window([request(sorted(times)) for times in arrivals])
    except NoWindow:
        return
    total = sum(len(times) for times in arrivals)
    assert len(slices_of([request(sorted(times)) for times in arrivals], window)) <= total
    assert window.length_s > 0
    assert 0 < window.tokens <= total
    assert 1 <= window.running <= len(arrivals)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([3.0], 99, 3.0),
        ([4, 1, 3, 2], 50, 2.5),
        ([1, 2, 3, 4, 5], 0, 1),
        ([1, 2, 3, 4, 5], 100, 5),
        ([1, 2, 3, 4, 5], 90, 4.6),
        (list(range(101)), 99, 99),
    ],
)
def test_percentile(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100))
def test_percentiles_stay_within_the_values(values: list[float], percent: float) -> None:
    assert min(values) <= percentile(values, percent) <= max(values)


def test_no_percentile_of_nothing_or_beyond_all() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])
    with pytest.raises(ValueError, match="no percentage"):
        percentile([1.0], 101)
