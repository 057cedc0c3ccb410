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


# --- a round that the server never runs at once ------------------------------------------------------------


def served(
    answers: list[int], slots: int, *, prefill_s: float = 0.05, step_s: float = 0.01, together: bool = True
) -> list[RequestSample]:
    """As SGLang runs a round that was sent at once with room for `slots` requests.

    Whoever has room is prefilled first, all together or one by one, and nobody decodes meanwhile. A step
    takes `step_s` when all slots are taken, and less when fewer are, which must not show.
    """
    now_s, waiting = 0.0, list(enumerate(answers))
    running: dict[int, list[float]] = {}
    done: dict[int, RequestSample] = {}
    while waiting or running:
        room = min(slots - len(running), len(waiting))
        while room:
            admitted = room if together else 1
            now_s += prefill_s * admitted
            for _ in range(admitted):
                running[waiting.pop(0)[0]] = [now_s]
            room -= admitted
        now_s += step_s * (0.2 + 0.8 * len(running) / slots)
        for number, arrivals_s in list(running.items()):
            arrivals_s.append(now_s)
            if len(arrivals_s) == answers[number]:
                done[number] = request(running.pop(number))
    return [done[number] for number in range(len(answers))]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("prefill_s", [0.001, 0.05, 0.5])
@pytest.mark.parametrize(
    ("requests", "slots", "counted"),
    [
        (32, 1, 32),  # one at a time: each of them
        (32, 16, 32),
        (32, 10, 30),  # the last two run by themselves, which is not how the level runs
        (32, 31, 31),
        (8, 3, 6),
    ],
)
def test_a_round_that_does_not_fit_is_scored_while_the_server_is_full(
    requests: int, slots: int, counted: int, prefill_s: float, together: bool
) -> None:
    samples = served([50] * requests, slots, prefill_s=prefill_s, together=together)
    window = decode_window(samples)
    assert (window.whole, window.clean, window.running) == (False, True, slots)
    assert window.tok_s == pytest.approx(slots / 0.01, rel=1e-6)
    assert window.mean_running == pytest.approx(slots)
    assert window.tokens == pytest.approx(counted * 49)  # the first token of each comes from its prefill


@given(
    answers=st.lists(st.integers(12, 120), min_size=3, max_size=40),
    slots=st.integers(1, 12),
    prefill_s=st.floats(0.001, 0.3),
    together=st.booleans(),
)
def test_answers_of_any_length_are_scored_while_the_server_is_full(
    answers: list[int], slots: int, prefill_s: float, together: bool
) -> None:
    """Also where a slot is filled again while others decode: those prefills are not counted either."""
    assume(slots < len(answers))
    samples = served(answers, slots, prefill_s=prefill_s, together=together)
    try:
        window = decode_window(samples)
    except NoWindow:
        return
    assert not window.whole
    assert window.running == slots
    assume(window.clean)
    assert window.tok_s == pytest.approx(slots / 0.01, rel=0.005)


@given(
    answers=st.lists(st.integers(8, 60), min_size=1, max_size=20),
    prefill_s=st.floats(0.001, 0.3),
    together=st.booleans(),
)
def test_a_round_that_fits_is_scored_from_the_last_first_token_to_the_first_finish(
    answers: list[int], prefill_s: float, together: bool
) -> None:
    samples = served(answers, len(answers), prefill_s=prefill_s, together=together)
    try:
        window = decode_window(samples)
    except NoWindow:
        return
    assert window.whole and window.clean
    firsts_s = [sample.arrivals_s[0] for sample in samples]
    assert window.pieces == ((max(firsts_s), min(sample.arrivals_s[-1] for sample in samples)),)


def test_a_server_with_room_for_now_more_now_fewer_is_scored_as_long_as_one_waits() -> None:
    """Room for three short requests or two long ones: for how many there was at most tells nothing."""
    short, long = [steady(0.1, 100, 51) for _ in range(3)], [steady(0.7, 100, 101) for _ in range(2)]
    last = [steady(1.8, 100, 51)]
    window = decode_window(short + long + last)
    assert window.running == 3
    assert [moment_s for piece in window.pieces for moment_s in piece] == pytest.approx([0.1, 0.6, 0.7, 1.7])
    assert window.tok_s == pytest.approx((3 * 50 + 2 * 100) / 1.5)


def test_prefills_that_leave_no_stretch_of_decoding_are_counted_in_and_it_says_so() -> None:
    """Every step ends an answer, and the next request is prefilled."""
    samples = [
        request([0.1 * first + 0.05 * step for step in range(5)], sent_s=-1.0) for first in range(1, 41)
    ]
    window = decode_window(samples)
    assert not window.whole
    assert not window.clean
    assert len(window.pieces) == 1


def test_waves_that_do_not_fit_are_scored_to_their_end_without_prefills() -> None:
    samples = served([40] * 6, 3)
    window = decode_window(samples, "waves", 6)
    assert window.end_s == max(sample.arrivals_s[-1] for sample in samples)
    assert len(window.pieces) == 2
    assert window.tok_s == pytest.approx(300)


def test_a_closed_loop_that_never_reaches_its_level_is_scored_while_the_server_is_full() -> None:
    window = decode_window(served([40] * 24, 3), "closed", 6)
    assert (window.whole, window.clean, window.running) == (False, True, 3)
    assert window.tok_s == pytest.approx(300)


# --- what gives no window ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ([], "not every request returned tokens"),
        ([steady(0, 10, 50), request([])], "not every request returned tokens"),
        ([request([1.0])], "no time lies between the last first token and the first finish"),
        ([request([1.0, 1.1, 1.2])], "only 2.0 tokens lie between the last first token and the first finish"),
        ([steady(0.5, 10, 50), steady(5.39, 10, 50)], "only 0.2 tokens lie between the last first token"),
        (
            [request([1.0, 1.2], sent_s=0.0), request([3.0, 3.2], sent_s=0.0)],
            "only 3.0 tokens lie between the last first token before a finish and the end of the queue",
        ),
        (
            [request([2.0] * 40), request([2.5] * 40), request([3.0] * 40)],
            "all that came between the last first token before a finish and the end of the queue was read at",
        ),
    ],
)
def test_what_is_too_little_to_divide_is_said(requests: list[RequestSample], reason: str) -> None:
    with pytest.raises(NoWindow, match=f"^{reason}"):
        decode_window(requests)


@given(
    st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=8), min_size=1, max_size=8),
    st.sampled_from(["batch", "waves", "closed", "burst"]),
    st.none() | st.integers(1, 8),
)
def test_any_arrivals_give_a_finite_rate_or_a_reason(
    arrivals: list[list[float]], kind: str, concurrency: int | None
) -> None:
    samples = [request(sorted(times)) for times in arrivals]
    try:
        window = decode_window(samples, kind, concurrency)
    except NoWindow:
        return
    total = sum(len(times) for times in arrivals)
    assert len(slices_of(samples, window)) <= total
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
