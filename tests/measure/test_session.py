from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.measure.fake_server import Behaviour, Exchange, FakeServer
from tuner.clock import ManualClock, SystemClock
from tuner.errors import TunerError
from tuner.measure.latency import Limit
from tuner.measure.lengths import Lengths
from tuner.measure.measurement import LevelSample, LevelSummary, Measurement, Workload
from tuner.measure.objective import Goal, Objective
from tuner.measure.seams import Watched
from tuner.measure.serverlog import DecodeReading, LogReading
from tuner.measure.session import LevelVoid, ServerGone, measure

pytestmark = pytest.mark.serial

WORKLOAD = Workload(
    input_tokens=Lengths.fixed(16),
    output_tokens=Lengths.fixed(12),
    concurrency=(1, 4),
    batches=1,
    max_batches=1,
    level_limit_s=20,
    warmup_output_tokens=3,
    warmup_s=0,
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

    def on_warmup(self, level: float) -> None:
        self.calls.append(f"warm-up {level:g}")

    def on_level(self, level: float, attempt: int) -> None:
        self.calls.append(f"level {level:g}.{attempt}")

    def on_level_done(self, sample: LevelSample, summary: LevelSummary) -> None:
        self.calls.append(f"done {summary.concurrency}")

    def on_level_void(self, sample: LevelSample) -> None:
        self.calls.append(f"void {sample.concurrency}.{sample.attempt}: {sample.void}")


@dataclass
class TellingServer(Server):
    """One that can also be asked how fast it was."""

    def last_gen_tok_s(self) -> float:
        self.calls.append("asked")
        return 123.0


@dataclass
class Telemetry:
    """Finds something wrong with the first level that it watches, if it is told so."""

    void: str = ""
    calls: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.calls.append("begin")

    def end(self) -> Watched:
        void, self.void = self.void, ""
        self.calls.append("end")
        return Watched(void, energy_j=6.0, facts={"power_w": 300})


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
        await exchange.answer(cached_tokens=7 if tokens_asked(exchange) == 12 else 0)

    with pytest.raises(LevelVoid, match="7 of 7 prompt tokens came from the prefix cache") as given_up:
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


# --- rounds, warm-up and what comes with them --------------------------------------------------------------


def rounds_sent(
    workload: Workload, clock: ManualClock | SystemClock | None = None
) -> tuple[LevelSummary, LevelSample]:
    with FakeServer(Exchange.answer) as fake:
        measurement, samples = measure(
            Server(fake.url), workload, "seed", Heard(), clock=clock or ManualClock()
        )
    return measurement.levels[0], samples[0]


ONE = replace(WORKLOAD, concurrency=(1,), max_batches=5)


def test_a_level_is_repeated_until_its_interval_is_narrow() -> None:
    assert rounds_sent(replace(ONE, precision=1e-9))[0].rounds == 5
    wide = replace(ONE, output_tokens=Lengths.fixed(60), precision=0.5, batches=2)
    summary, sample = rounds_sent(wide)
    assert summary.rounds == 2
    assert {request.round for request in sample.requests} == {0, 1}
    assert len(sample.client) == 2
    assert sample.server_tok_s == (101.0, 102.0) * 2


def test_no_round_begins_after_the_time_is_up() -> None:
    assert rounds_sent(replace(ONE, precision=1e-9, repeat_limit_s=0.0))[0].rounds == 1


def test_rounds_and_levels_and_attempts_never_send_a_prompt_twice() -> None:
    with FakeServer(Exchange.answer) as fake:
        measure(
            Server(fake.url),
            replace(WORKLOAD, precision=1e-9, batches=3, max_batches=3),
            "seed",
            Heard(),
            clock=ManualClock(),
        )
        sent = [tuple(exchange.body["input_ids"]) for exchange in fake.exchanges]
    assert len(sent) == len(set(sent)) == 4 + 3 + 12


def test_a_file_ends_the_rounds_before_it_would_be_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"number {index}"}) for index in range(3)))
    own = replace(ONE, dataset="jsonl", dataset_file=path, input_tokens=None, precision=1e-9)
    assert rounds_sent(own)[0].rounds == 3


def test_the_warm_up_lasts_until_the_server_is_no_longer_getting_faster() -> None:
    async def answer(exchange: Exchange) -> None:
        """Every request is faster than the one before, until the fifth."""
        await exchange.begin()
        count = tokens_asked(exchange)
        for made in range(1, count):
            await exchange.emit(made)
            await asyncio.sleep((0.020, 0.015, 0.011, 0.008, 0.006)[min(4, exchange.number)])
        await exchange.finish(count)

    warm = replace(
        ONE, output_tokens=Lengths.fixed(20), warmup_output_tokens=16, warmup_s=0.01, max_batches=1
    )
    with FakeServer(answer) as fake:
        measure(Server(fake.url), warm, "seed", Heard())
        assert sum(tokens_asked(exchange) == 16 for exchange in fake.exchanges) >= 5


def test_a_warm_up_that_never_settles_ends_at_its_limit() -> None:
    async def faster_and_faster(exchange: Exchange) -> None:
        await exchange.begin()
        for made in range(1, 12):
            await exchange.emit(made)
            await asyncio.sleep(0.01 / (1 + exchange.number))
        await exchange.finish(12)

    warm = replace(ONE, warmup_output_tokens=12, warmup_s=0.01, warmup_limit_s=0.4, max_batches=1)
    with FakeServer(faster_and_faster) as fake:
        measure(Server(fake.url), warm, "seed", Heard())
        assert len(fake.exchanges) > 2


def test_telemetry_watches_every_level_and_can_void_it_once() -> None:
    watch = Telemetry("a GPU was throttled")
    with FakeServer(Exchange.answer) as fake:
        heard = Heard()
        measurement, samples = measure(
            Server(fake.url), WORKLOAD, "seed", heard, watch=watch, clock=ManualClock()
        )
    assert "void 1.1: a GPU was throttled" in heard.calls
    assert watch.calls == ["begin", "end"] * 3
    assert (samples[0].energy_j, samples[0].telemetry) == (6.0, {"power_w": 300})
    assert measurement.level(1).tok_per_j == pytest.approx(12 / 6)


def test_a_server_is_asked_for_its_last_speed_after_the_level() -> None:
    with FakeServer(Exchange.answer) as fake:
        server = TellingServer(fake.url)
        _, samples = measure(server, WORKLOAD, "seed", Heard(), clock=ManualClock())
    assert server.calls == ["flush", "mark", "log since 7", "asked"] * 2
    assert samples[0].server_last_tok_s == 123.0


def test_shared_prefixes_are_primed_before_the_level() -> None:
    async def cached(exchange: Exchange) -> None:
        await exchange.answer(cached_tokens=5)

    shared = replace(ONE, dataset="shared-prefix", prefix_tokens=5, prefix_groups=2, max_batches=1)
    with FakeServer(cached) as fake:
        measurement, samples = measure(Server(fake.url), shared, "seed", Heard(), clock=ManualClock())
        asked = [tokens_asked(exchange) for exchange in fake.exchanges]
    assert asked == [3, 1, 1, 12]
    assert samples[0].void == ""
    assert measurement.levels[0].cached_tokens == 5


def test_limits_of_the_objective_make_goodput() -> None:
    objective = Objective((Goal((1,), "goodput"),), (Limit("ttft_p99_ms", 5000.0),))
    with FakeServer(Exchange.answer) as fake:
        measurement, _ = measure(
            Server(fake.url), WORKLOAD, "seed", Heard(), objective=objective, clock=ManualClock()
        )
    assert measurement.level(1).good_share == 1.0
    assert objective.score(measurement) > 0


def test_the_highest_load_within_the_limits_is_searched_on_the_running_server() -> None:
    running = 0

    async def crowded(exchange: Exchange) -> None:
        """More than five at once wait for their first token."""
        nonlocal running
        running += 1
        try:
            await asyncio.sleep(0.01)
            if running > 5:
                await asyncio.sleep(0.25)
            await exchange.answer()
        finally:
            running -= 1

    objective = Objective((Goal((1, 12), "highest-load"),), (Limit("ttft_p99_ms", 200.0),))
    with FakeServer(crowded) as fake:
        heard = Heard()
        measurement, _ = measure(
            Server(fake.url),
            replace(WORKLOAD, concurrency=(1, 12)),
            "seed",
            heard,
            objective=objective,
            clock=ManualClock(),
        )
    assert [summary.concurrency for summary in measurement.levels] == [12, 1, 3, 6, 4, 5]
    assert objective.score(measurement) == 5
