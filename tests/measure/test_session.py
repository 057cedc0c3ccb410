from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from tests.measure.fake_server import Behaviour, Exchange, FakeServer
from tuner.clock import ManualClock
from tuner.errors import TunerError
from tuner.measure.measurement import LevelSample, LevelSummary, Measurement, Workload
from tuner.measure.serverlog import DecodeReading, LogReading
from tuner.measure.session import LevelVoid, ServerGone, measure

WORKLOAD = Workload(
    input_tokens=16, output_tokens=12, concurrency=(1, 4), warmup_output_tokens=3, level_limit_s=20
)


@dataclass
class Server:
    """A server under load whose log and life the test decides."""

    url: str
    calls: list[str] = field(default_factory=list)
    dead: threading.Event = field(default_factory=threading.Event)
    flush_error: str = ""
    api_key: str | None = None

    def alive(self) -> bool:
        return not self.dead.is_set()

    def flush_cache(self) -> None:
        self.calls.append("flush")
        if self.flush_error:
            raise TunerError(self.flush_error)

    def log_mark(self) -> int:
        self.calls.append("mark")
        return 7

    def log_readings_since(self, mark: int) -> list[LogReading]:
        self.calls.append(f"log since {mark}")
        return [DecodeReading(4, 0, 100.0 + step, cuda_graph=False) for step in range(3)]


@dataclass
class Heard:
    calls: list[str] = field(default_factory=list)

    def on_warmup(self, concurrency: int) -> None:
        self.calls.append(f"warm-up {concurrency}")

    def on_level(self, concurrency: int, attempt: int) -> None:
        self.calls.append(f"level {concurrency}.{attempt}")

    def on_level_done(self, sample: LevelSample, summary: LevelSummary) -> None:
        self.calls.append(f"done {summary.concurrency}")

    def on_level_void(self, sample: LevelSample) -> None:
        self.calls.append(f"void {sample.concurrency}.{sample.attempt}: {sample.void}")


def tokens_asked(exchange: Exchange) -> int:
    return int(exchange.body["sampling_params"]["max_new_tokens"])


def run(
    behaviour: Behaviour, workload: Workload = WORKLOAD, flush_error: str = ""
) -> tuple[Server, Heard, FakeServer, tuple[Measurement, list[LevelSample]]]:
    with FakeServer(behaviour) as fake:
        server, heard = Server(fake.url, flush_error=flush_error), Heard()
        return server, heard, fake, measure(server, workload, "seed", heard, clock=ManualClock())


def test_warm_up_then_every_level_in_order() -> None:
    server, heard, fake, (measurement, samples) = run(Exchange.answer)
    assert heard.calls == ["warm-up 4", "level 1.1", "done 1", "level 4.1", "done 4"]
    assert server.calls == ["flush", "mark", "log since 7"] * 2
    assert [tokens_asked(exchange) for exchange in fake.exchanges] == [3] * 4 + [12] * 5
    assert [summary.concurrency for summary in measurement.levels] == [1, 4]
    assert [sample.void for sample in samples] == ["", ""]
    assert samples[0].server_tok_s == (101.0, 102.0)
    assert samples[0].eager_decode_lines == 3
    assert measurement.level(1).server_tok_s == pytest.approx(101.5)


def test_no_prompt_is_sent_twice_and_the_same_seed_sends_the_same() -> None:
    sent = [
        sorted(tuple(exchange.body["input_ids"]) for exchange in run(Exchange.answer)[2].exchanges)
        for _ in range(2)
    ]
    assert sent[0] == sent[1]
    assert len(set(sent[0])) == 4 + 1 + 4


def test_a_void_level_is_measured_once_more_with_fresh_prompts() -> None:
    failed: list[list[int]] = []

    async def fail_once(exchange: Exchange) -> None:
        if tokens_asked(exchange) == 12 and not failed:
            failed.append(exchange.body["input_ids"])
            exchange.writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\nboom")
        else:
            await exchange.answer()

    _, heard, fake, (measurement, samples) = run(fail_once)
    assert heard.calls[1:5] == [
        "level 1.1",
        "void 1.1: 1 of 1 requests failed: HTTP 500: boom",
        "level 1.2",
        "done 1",
    ]
    assert len(measurement.levels) == 2
    assert [(sample.attempt, bool(sample.void)) for sample in samples] == [(1, True), (2, False), (1, False)]
    assert sum(exchange.body["input_ids"] == failed[0] for exchange in fake.exchanges) == 1


def test_a_level_void_twice_is_given_up_with_its_records() -> None:
    async def cached(exchange: Exchange) -> None:
        await exchange.answer(cached_tokens=16 if tokens_asked(exchange) == 12 else 0)

    with pytest.raises(LevelVoid, match="16 of 16 prompt tokens came from the prefix cache") as given_up:
        run(cached)
    assert given_up.value.concurrency == 1
    assert [sample.attempt for sample in given_up.value.samples] == [1, 2]


def test_a_cache_that_cannot_be_flushed_voids_the_level() -> None:
    with pytest.raises(LevelVoid, match="could not be flushed: the server is busy") as given_up:
        run(Exchange.answer, flush_error="the server is busy")
    assert len(given_up.value.samples) == 2


def test_a_warm_up_without_any_answer_is_no_warm_up() -> None:
    async def fail(exchange: Exchange) -> None:
        exchange.writer.write(b"HTTP/1.1 503 Not Ready\r\ncontent-length: 0\r\n\r\n")

    with pytest.raises(LevelVoid, match="all 4 requests of the warm-up failed: HTTP 503"):
        run(fail)


def test_a_hiccup_in_the_warm_up_is_forgiven() -> None:
    async def fail_first(exchange: Exchange) -> None:
        if exchange.number == 0:
            exchange.writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")
        else:
            await exchange.answer()

    assert len(run(fail_first)[3][1]) == 2


class DyingClock(ManualClock):
    """Lets the server's process end some seconds after its streams did."""

    def __init__(self, dead: threading.Event, after_s: float) -> None:
        super().__init__()
        self._dead = dead
        self._after_s = after_s

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.monotonic_s() >= self._after_s:
            self._dead.set()


@pytest.mark.parametrize("dies_at", [3, 12], ids=["in the warm-up", "in a level"])
def test_a_server_that_dies_late_after_its_streams_is_gone_and_not_void(dies_at: int) -> None:
    async def die(exchange: Exchange) -> None:
        if tokens_asked(exchange) == dies_at:
            await exchange.begin()
            await exchange.emit(1)
        else:
            await exchange.answer()

    with FakeServer(die) as fake:
        server = Server(fake.url)
        with pytest.raises(ServerGone, match="the stream ended without") as gone:
            measure(server, WORKLOAD, "seed", Heard(), clock=DyingClock(server.dead, 7.0))
    assert len(gone.value.samples) == (dies_at == 12)


def test_a_server_that_dies_between_levels_is_gone() -> None:
    class GoneAfterWarmUp(Server):
        def flush_cache(self) -> None:
            self.dead.set()
            raise TunerError("connection refused")

    with FakeServer(Exchange.answer) as fake:
        server = GoneAfterWarmUp(fake.url)
        with pytest.raises(ServerGone, match="could not be flushed: connection refused"):
            measure(server, WORKLOAD, "seed", Heard(), clock=ManualClock())
