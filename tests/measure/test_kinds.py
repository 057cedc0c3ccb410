"""The kinds of load: when requests are sent, and which part of a round is its steady window."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.measure.fake_server import Exchange, FakeServer
from tests.measure.test_window import steady
from tuner.measure.lengths import Lengths
from tuner.measure.load import Schedule, run_round, schedule_of
from tuner.measure.measurement import RequestSample, Workload
from tuner.measure.prompts import Prompt
from tuner.measure.window import decode_window, slices_of

pytestmark = pytest.mark.serial


def workload(kind: str, **more: object) -> Workload:
    levels = {"rates": (4.0,)} if kind == "open" else {"concurrency": (4,)}
    return Workload(Lengths.fixed(8), Lengths.fixed(8), kind=kind, **{**levels, **more})  # type: ignore[arg-type]


def prompts(count: int, tokens: int = 6) -> list[Prompt]:
    return [Prompt(tokens, ids=(10 + number, 9)) for number in range(count)]


# --- schedules ---------------------------------------------------------------------------------------------


def test_an_open_load_is_poisson_at_its_rate_and_another_one_for_another_seed() -> None:
    due_s = schedule_of(workload("open", requests=4000), 4.0, "seed").due_s
    gaps_s = [later - earlier for earlier, later in pairwise(due_s)]
    mean = sum(gaps_s) / len(gaps_s)
    assert mean == pytest.approx(1 / 4, rel=0.05)
    deviation = (sum((gap - mean) ** 2 for gap in gaps_s) / len(gaps_s)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.06)  # as long as the mean: exponential
    assert due_s != schedule_of(workload("open", requests=4000), 4.0, "other").due_s


def test_bursts_and_closed_loops_and_batches() -> None:
    assert schedule_of(workload("burst", requests=8, burst_every_s=0.5), 4, "").due_s == (0,) * 4 + (0.5,) * 4
    assert schedule_of(workload("closed"), 4, "") == Schedule(4)
    assert workload("closed").round_requests(4) == 16
    assert workload("waves").round_requests(4) == workload("batch").round_requests(4) == 4


# --- on the wire -------------------------------------------------------------------------------------------


class Crowd:
    """Counts how many requests are answered at the same time."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.began_s: list[float] = []

    async def answer(self, exchange: Exchange) -> None:
        self.began_s.append(time.monotonic())
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await exchange.answer()
        finally:
            self.now -= 1


def test_a_closed_loop_keeps_its_concurrency_and_answers_everyone_once() -> None:
    crowd = Crowd()
    with FakeServer(crowd.answer) as server:
        samples, effort = run_round(server.url, prompts(13), Schedule(4), limit_s=20, alive=lambda: True)
        sent = sorted(exchange.body["input_ids"][0] for exchange in server.exchanges)
    assert crowd.most == 4
    assert sent == [10 + number for number in range(13)]
    assert [(sample.error, sample.tokens[-1], sample.asked_tokens) for sample in samples] == [("", 6, 6)] * 13
    first_finish_s = min(sample.arrivals_s[-1] for sample in samples)
    assert sum(sample.sent_s < first_finish_s for sample in samples) == 4
    assert effort.seconds > 0.1
    assert 0 < effort.cpu_share < 1


def test_requests_with_moments_are_sent_at_them_whatever_happens_to_the_others() -> None:
    due_s = (0.0, 0.05, 0.05, 0.3)

    async def answer(exchange: Exchange) -> None:
        if exchange.body["input_ids"][0] == 11:
            exchange.writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")
        else:
            await exchange.answer()

    with FakeServer(answer) as server:
        samples, _ = run_round(server.url, prompts(4, 20), Schedule(4, due_s), limit_s=20, alive=lambda: True)
    assert [bool(sample.error) for sample in samples] == [False, True, False, False]
    for sample, due in zip(samples, due_s, strict=True):
        assert sample.sent_s - samples[0].sent_s == pytest.approx(due, abs=0.04)


def test_what_was_never_sent_says_why() -> None:
    async def hang(exchange: Exchange) -> None:
        await exchange.begin()
        await asyncio.sleep(60)

    with FakeServer(hang) as server:
        samples, _ = run_round(server.url, prompts(3), Schedule(1), limit_s=0.3, alive=lambda: True)
    assert {sample.error for sample in samples} == {"not finished within the limit of 0.3 s"}


def test_a_busy_client_is_found_out() -> None:
    def busy() -> bool:
        """Asked within the loop that times the tokens: stands in for work that the client cannot afford."""
        until_s = time.monotonic() + 0.5
        while time.monotonic() < until_s:
            pass
        return True

    with FakeServer(Exchange.answer) as server:
        _, effort = run_round(server.url, prompts(1, 80), Schedule(1), limit_s=20, alive=busy)
    assert effort.late_share > 0.25
    assert effort.lag_p99_ms > 100


def test_messages_go_to_the_chat_endpoint_and_count_tokens_by_its_usage() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chat(None, role="assistant")
        for count in (1, 3, 6):
            await exchange.chat(count)
            await asyncio.sleep(0.01)
        await exchange.chat(None, finish="length")
        await exchange.chat_end(6, prompt=5, cached=2)

    prompt = Prompt(6, messages=(("system", "be brief"), ("user", 'what is "completion_tokens":99 about?')))
    with FakeServer(answer) as server:
        (sample,), _ = run_round(server.url, [prompt], Schedule(1), limit_s=20, alive=lambda: True)
        (exchange,) = server.exchanges
    assert exchange.path == "/v1/chat/completions"
    assert exchange.body["messages"][0] == {"role": "system", "content": "be brief"}
    assert exchange.body["max_tokens"] == 6 and exchange.body["ignore_eos"]
    assert (sample.error, sample.tokens) == ("", (1, 3, 6))
    assert (sample.prompt_tokens, sample.cached_tokens) == (5, 2)


def test_a_chat_that_ends_without_a_reason_is_an_error() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chat(4)
        await exchange.chat_end(4, prompt=5, cached=0)

    prompt = Prompt(6, messages=(("user", "hello"),))
    with FakeServer(answer) as server:
        (sample,), _ = run_round(server.url, [prompt], Schedule(1), limit_s=20, alive=lambda: True)
    assert sample.error == "the stream is done, but its last event has no finish reason"


# --- windows -----------------------------------------------------------------------------------------------


def closed_loop(concurrency: int, rounds: int, prefill_s: float = 0.1) -> list[RequestSample]:
    """An engine that decodes in steps of 10 ms and stops decoding while it prefills, as SGLang does.

    Every request wants 100 tokens; the first ones want fewer, so that they end one after another.
    """
    now_s, waiting = 0.0, list(range(concurrency * rounds))
    running: dict[int, list[float]] = {}
    sent_s: dict[int, float] = {}
    done: list[RequestSample] = []
    wanted = {number: 100 - (60 * number // concurrency if number < concurrency else 0) for number in waiting}
    while waiting or running:
        while waiting and len(running) < concurrency:
            number = waiting.pop(0)
            sent_s[number] = now_s
            now_s += prefill_s
            running[number] = [now_s]
        now_s += 0.01
        for number, arrivals_s in list(running.items()):
            arrivals_s.append(now_s)
            if len(arrivals_s) == wanted[number]:
                done.append(
                    RequestSample(sent_s[number], tuple(arrivals_s), tuple(range(1, len(arrivals_s) + 1)))
                )
                del running[number]
    return done


@pytest.mark.parametrize(("concurrency", "prefill_s"), [(2, 0.1), (8, 0.1), (32, 0.02)])
def test_a_closed_loop_is_scored_without_the_prefills_of_the_requests_that_follow(
    concurrency: int, prefill_s: float
) -> None:
    requests = closed_loop(concurrency, 4, prefill_s)
    window = decode_window(requests, "closed", concurrency)
    assert window.clean and window.whole
    assert window.running == concurrency
    assert len(window.pieces) > 2
    assert window.tok_s == pytest.approx(concurrency / 0.01, rel=0.005)
    assert window.mean_running == pytest.approx(concurrency, rel=0.01)
    parts = slices_of(requests, window)
    assert sum(part.tokens for part in parts) == pytest.approx(window.tokens, rel=0.02)
    assert max(part.tokens / part.seconds for part in parts) < 1.05 * concurrency / 0.01


def test_a_closed_loop_that_prefills_all_the_time_is_taken_as_a_whole_and_says_so() -> None:
    requests = closed_loop(8, 4, prefill_s=1.5)
    window = decode_window(requests, "closed", 8)
    assert not window.clean
    assert window.tok_s < 0.6 * 800


def test_waves_are_scored_to_their_end() -> None:
    """Two requests of 100 tok/s; one ends after 1 s, the other after 2 s."""
    requests = [steady(0.5, 100, 101), steady(0.5, 100, 201)]
    window = decode_window(requests, "waves", 2)
    assert (window.start_s, window.end_s) == (0.5, 2.5)
    assert window.tok_s == pytest.approx(150, rel=0.01)
    assert window.mean_running == pytest.approx(1.5)


def test_an_open_load_is_scored_from_the_first_token_to_the_last_send() -> None:
    requests = [replace(steady(0.5 + index, 100, 51), sent_s=float(index)) for index in range(5)]
    window = decode_window(requests, "open")
    assert (window.start_s, window.end_s, window.whole) == (0.5, 4.0, True)
    assert window.tok_s == pytest.approx(4 * 51 / 3.5, rel=0.05)


def test_slices_add_up_to_the_window_and_are_even() -> None:
    requests = [steady(0.1 + index * 0.003, 100, 200) for index in range(8)]
    window = decode_window(requests)
    parts = slices_of(requests, window)
    assert len(parts) == 25
    assert sum(part.seconds for part in parts) == pytest.approx(window.length_s)
    assert sum(part.tokens for part in parts) == pytest.approx(window.tokens)
    assert all(part.tokens / part.seconds == pytest.approx(800, rel=0.01) for part in parts)
