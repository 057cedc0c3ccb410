from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measure.fake_server import DONE, EVENTS_HEAD, Exchange, FakeServer, chunk, event, last_event
from tuner.errors import InputError
from tuner.measure.load import Schedule, run_round
from tuner.measure.measurement import RequestSample
from tuner.measure.prompts import Prompt
from tuner.measure.stream import Address, Call, TokenStream
from tuner.measure.window import decode_window

pytestmark = pytest.mark.serial

PROMPTS = tuple(Prompt(8, ids=ids) for ids in ((10, 11), (12, 13), (14, 15), (16, 17)))


def load(
    server: FakeServer, requests: int = 1, output_tokens: int = 8, limit_s: float = 20.0
) -> tuple[RequestSample, ...]:
    prompts = [replace(prompt, output_tokens=output_tokens) for prompt in PROMPTS[:requests]]
    return run_round(server.url, prompts, Schedule(requests), limit_s=limit_s, alive=lambda: True)[0]


def error_of(behaviour: object, **options: float) -> str:
    async def answer(exchange: Exchange) -> None:
        await behaviour(exchange)  # type: ignore[operator]

    with FakeServer(answer) as server:
        (sample,) = load(server, **options)  # type: ignore[arg-type]
        return sample.error


def test_the_request_is_what_sglang_wants() -> None:
    with FakeServer(Exchange.answer) as server:
        load(server, requests=3, output_tokens=5)
        bodies = sorted((exchange.body for exchange in server.exchanges), key=lambda body: body["input_ids"])
    assert bodies == [
        {
            "input_ids": list(prompt.ids),
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 5, "ignore_eos": True},
            "stream": True,
        }
        for prompt in PROMPTS[:3]
    ]


def test_samples_come_in_the_order_of_the_prompts_with_the_facts_of_the_last_event() -> None:
    async def answer(exchange: Exchange) -> None:
        cached = exchange.body["input_ids"][0]
        await exchange.answer(cached_tokens=cached, num_retractions=2, spec_verify_ct=3)

    with FakeServer(answer) as server:
        samples = load(server, requests=4, output_tokens=6)
    assert [sample.cached_tokens for sample in samples] == [10, 12, 14, 16]
    for sample in samples:
        assert sample.error == ""
        assert sample.tokens == (1, 2, 3, 4, 5, 6)
        assert list(sample.arrivals_s) == sorted(sample.arrivals_s)
        assert sample.sent_s <= sample.arrivals_s[0]
        assert (sample.prompt_tokens, sample.retractions, sample.verify_steps) == (7, 2, 3)


def test_a_chunk_of_several_tokens_counts_them_all_and_repeated_counts_none() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        for count in (1, 4, 4, 7):
            await exchange.emit(count)
        await exchange.finish(7)

    with FakeServer(answer) as server:
        (sample,) = load(server, output_tokens=7)
    assert sample.tokens == (1, 4, 7)


def test_arrival_times_are_those_of_the_server() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        for count in range(1, 20):
            await asyncio.sleep(0.01)
            await exchange.emit(count)
        await exchange.finish(20)

    with FakeServer(answer) as server:
        (sample,) = load(server, output_tokens=20)
        late_s = sorted(
            arrived - written
            for arrived, written in zip(sample.arrivals_s, server.exchanges[0].written_s, strict=True)
        )
    assert late_s[0] > -2e-6  # samples are rounded to the microsecond
    assert late_s[len(late_s) // 2] < 0.005


def test_throughput_is_that_of_the_schedule() -> None:
    """Four requests of 200 tok/s, each beginning 50 ms after the one before."""

    async def answer(exchange: Exchange) -> None:
        start_s = time.monotonic() + 0.05 * exchange.number
        await exchange.begin()
        for count in range(1, 121):
            await asyncio.sleep(start_s + count / 200 - time.monotonic())
            await (exchange.emit if count < 120 else exchange.finish)(count)

    with FakeServer(answer) as server:
        window = decode_window(load(server, requests=4, output_tokens=120))
    assert window.whole
    assert window.tok_s == pytest.approx(800, rel=0.05)
    assert window.length_s == pytest.approx(119 / 200 - 0.15, abs=0.06)


class InterruptedLevelError(Exception):
    pass


RESPONSE = (
    EVENTS_HEAD
    + chunk(event(1, text='"completion_tokens":77'))
    + chunk(event(2, spaced=True) + event(5))
    + chunk(last_event(8, cached_tokens=1))
    + chunk(DONE)
    + b"0\r\n\r\n"
)


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, len(RESPONSE) - 1), max_size=20))
def test_any_split_of_the_response_gives_the_same_sample(cuts: list[int]) -> None:
    stream = TokenStream(Address("127.0.0.1", 1), Call.of(PROMPTS[0]))
    edges = [0, *sorted(set(cuts)), len(RESPONSE)]
    for start, end in pairwise(edges):
        stream.received(RESPONSE[start:end], float(start))
    assert stream.ended
    sample = stream.sample()
    assert (sample.error, sample.tokens, sample.cached_tokens) == ("", (1, 2, 5, 8), 1)


async def _refuses(exchange: Exchange) -> None:
    body = json.dumps({"error": {"message": "max_new_tokens must be at least 0,\n got -1."}}).encode()
    exchange.writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


async def _is_starting(exchange: Exchange) -> None:
    exchange.writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")


async def _breaks_down(exchange: Exchange) -> None:
    exchange.writer.write(b"HTTP/1.1 500 Internal Server Error\r\n\r\n" + b"trace " * 1000)


async def _reports_an_error(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.emit(1)
    exchange.writer.write(chunk(b'data: {"error":{"message":"out of memory","code":400}}\n\n') + chunk(DONE))


async def _aborts(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.emit(1)
    reason = {"type": "abort", "message": "retracted for good"}
    exchange.writer.write(chunk(event(2, finish=reason)) + chunk(DONE) + b"0\r\n\r\n")


async def _dies(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.emit(1)
    await exchange.emit(2)


async def _resets(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.emit(1)
    exchange.writer.transport.abort()


async def _ends_without_finish(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.emit(3)
    exchange.writer.write(chunk(DONE) + b"0\r\n\r\n")


async def _ends_before_done(exchange: Exchange) -> None:
    await exchange.begin()
    exchange.writer.write(chunk(last_event(8)) + b"0\r\n\r\n")


async def _ends_empty(exchange: Exchange) -> None:
    await exchange.begin()
    exchange.writer.write(chunk(DONE) + b"0\r\n\r\n")


async def _does_not_stream(exchange: Exchange) -> None:
    body = b'{"text":"all at once"}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    exchange.writer.write(head % len(body) + body)


async def _speaks_no_http(exchange: Exchange) -> None:
    exchange.writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (_refuses, "HTTP 400: max_new_tokens must be at least 0, got -1."),
        (_is_starting, "HTTP 503: "),
        (_breaks_down, "HTTP 500: trace trace"),
        (_reports_an_error, "the server answered in the stream: out of memory"),
        (_aborts, "the server aborted the request after 2 tokens: retracted for good"),
        (_dies, "the stream ended without [DONE] after 2 tokens"),
        (_resets, "the stream ended without [DONE] after "),
        (_ends_without_finish, "the stream is done, but the request is not, after 3 tokens"),
        (_ends_before_done, "the stream ended without [DONE] after 8 tokens"),
        (_ends_empty, "the stream is done, but its last event has no finish reason"),
        (_does_not_stream, 'the answer is no event stream: {"text": "all at once"}'),
        (_speaks_no_http, "unreadable response: no HTTP status line"),
    ],
)
def test_every_way_to_fail_has_its_words(behaviour: object, error: str) -> None:
    found = error_of(behaviour)
    assert found.startswith(error.strip())
    assert len(found) <= 300


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    samples = run_round(f"http://127.0.0.1:{port}", PROMPTS, Schedule(4), limit_s=20, alive=lambda: True)[0]
    assert len(samples) == len(PROMPTS)
    for sample in samples:
        assert sample.error == f"no connection to 127.0.0.1:{port}: Connection refused"
        assert sample.arrivals_s == ()


def test_a_limit_ends_what_hangs_and_keeps_what_came() -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.body["input_ids"][0] == PROMPTS[0].ids[0]:
            await exchange.answer()
            return
        await exchange.begin()
        await exchange.emit(2)
        await asyncio.sleep(60)

    with FakeServer(answer) as server:
        began_s = time.monotonic()
        good, hung = load(server, requests=2, output_tokens=3, limit_s=0.5)
        assert time.monotonic() - began_s < 5
    assert (good.error, good.tokens) == ("", (1, 2, 3))
    assert (hung.error, hung.tokens) == ("not finished within the limit of 0.5 s", (2,))


def test_a_dead_server_ends_the_level_early() -> None:
    begun = threading.Event()

    async def hang(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.emit(1)
        begun.set()
        await asyncio.sleep(60)

    with FakeServer(hang) as server:
        began_s = time.monotonic()
        samples = run_round(server.url, PROMPTS, Schedule(4), limit_s=60, alive=lambda: not begun.is_set())[0]
        assert time.monotonic() - began_s < 5
    assert {sample.error for sample in samples} == {"the server process ended during the request"}


def test_the_connections_of_an_interrupted_level_are_dropped() -> None:
    dropped = threading.Event()

    async def hang(exchange: Exchange) -> None:
        await exchange.begin()
        try:
            while True:
                await exchange.emit(1)
                await asyncio.sleep(0.01)
        except ConnectionError:
            dropped.set()

    asked: list[int] = []

    def alive() -> bool:
        asked.append(1)
        if len(asked) > 1:
            raise InterruptedLevelError
        return True

    with FakeServer(hang) as server:
        with pytest.raises(InterruptedLevelError):
            run_round(server.url, PROMPTS[:1], Schedule(1), limit_s=60, alive=alive)
        assert dropped.wait(10)


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1:30000", "http://"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InputError, match="plain HTTP"):
        run_round(url, PROMPTS, Schedule(4), limit_s=1, alive=lambda: True)
