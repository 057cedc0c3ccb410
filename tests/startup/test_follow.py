from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from tests.startup import fakes
from tests.startup.fakes import PaperClient, PaperServer
from tuner.clock import ManualClock, SystemClock
from tuner.errors import TunerError
from tuner.launch.protocol import Activity
from tuner.sglang.phases import Phase
from tuner.startup.follow import (
    Died,
    NotStarted,
    PortNotOurs,
    Ready,
    RunAside,
    Stalled,
    TimedOut,
    follow_start,
    in_thread,
)
from tuner.startup.ladder import StartupState
from tuner.startup.limits import StallLimits

HEALTHY = {
    4.0: fakes.ARGUMENTS,
    10.0: fakes.INIT,
    14.0: fakes.WEIGHTS,
    400.0: fakes.WEIGHTS_END,
    410.0: fakes.CAPTURE,
    500.0: fakes.UVICORN,
    510.0: fakes.READY,
}


def reading(second: float) -> Activity:
    """A process that reads weights until second 400."""
    return Activity(cpu_s=0.0, read_bytes=int(min(second, 400.0) * 1e6))


def follow(
    server: PaperServer,
    client: PaperClient,
    *,
    limits: StallLimits | None = None,
    seen: list[StartupState] | None = None,
    run_aside: RunAside = fakes.at_once,
) -> Ready | NotStarted:
    states: list[StartupState] = [] if seen is None else seen
    return follow_start(
        server,
        client,
        clock=server.clock,
        limits=limits or StallLimits(),
        on_change=states.append,
        run_aside=run_aside,
    )


def test_ready_is_proven_by_a_token_of_the_launched_server() -> None:
    clock = ManualClock()
    server = PaperServer(clock, HEALTHY, activity_at=reading)
    client = PaperClient(clock, token_from_s=0)
    seen: list[StartupState] = []
    outcome = follow(server, client, seen=seen)
    assert isinstance(outcome, Ready)
    assert outcome.seconds == pytest.approx(510, abs=1)
    assert [str(span.phase) for span in outcome.phases] == [
        *("arguments", "import", "distributed-init", "weight-load", "kv-cache-alloc", "graph-capture"),
        *("warmup", "ready"),
    ]
    assert outcome.phases[3].seconds == pytest.approx(386, abs=1)
    assert list(dict.fromkeys(state.phase for state in seen)) == [span.phase for span in outcome.phases]
    seconds = [state.seconds for state in seen]
    assert max(later - earlier for earlier, later in pairwise(seconds)) < 1.5  # told at least once a second
    assert len(client.requests) == 1


def test_the_ready_line_alone_is_no_proof() -> None:
    clock = ManualClock()
    server = PaperServer(clock, HEALTHY, activity_at=reading)
    client = PaperClient(clock, token_from_s=560)
    outcome = follow(server, client)
    assert isinstance(outcome, Ready)
    assert outcome.seconds >= 560
    assert len(client.requests) > 10


def test_without_a_token_the_start_times_out_with_the_reason() -> None:
    clock = ManualClock()
    server = PaperServer(clock, HEALTHY, activity_at=reading)
    outcome = follow(server, PaperClient(clock), limits=StallLimits(proof_limit_s=30))
    assert isinstance(outcome, TimedOut)
    assert outcome.waited_for == "the first generated token (HTTP 500: no kernel)"
    assert outcome.seconds == pytest.approx(540, abs=1)


def test_a_request_that_hangs_does_not_block_the_loop() -> None:
    clock = ManualClock()
    server = PaperServer(clock, HEALTHY, activity_at=reading)
    outcome = follow(server, PaperClient(clock), limits=StallLimits(proof_limit_s=30), run_aside=fakes.never)
    assert isinstance(outcome, TimedOut)
    assert "still running" in outcome.waited_for


def test_a_server_whose_log_is_held_back_is_found_by_its_health() -> None:
    clock = ManualClock()
    server = PaperServer(clock, {}, activity_at=lambda second: Activity(read_bytes=int(second * 1e6)))
    outcome = follow(server, PaperClient(clock, well_from_s=90, token_from_s=90))
    assert isinstance(outcome, Ready)
    assert outcome.seconds == pytest.approx(90, abs=3)


def test_a_port_that_another_server_answers_is_noticed_before_the_load() -> None:
    clock = ManualClock()
    server = PaperServer(clock, HEALTHY, activity_at=reading, ours=False)
    outcome = follow(server, PaperClient(clock, well_from_s=0, token_from_s=0))
    assert isinstance(outcome, PortNotOurs)
    assert outcome.seconds < 6
    assert "did not start" in outcome.evidence


def test_a_failed_bind_ends_the_wait_although_the_server_hangs() -> None:
    busy = f"{fakes.AT}] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000)"
    clock = ManualClock()
    server = PaperServer(clock, {**HEALTHY, 500.0: busy, 510.0: "…"}, activity_at=reading)
    outcome = follow(server, PaperClient(clock))
    assert isinstance(outcome, PortNotOurs)
    assert "Errno 98" in outcome.evidence
    assert outcome.seconds == pytest.approx(500, abs=1)


@pytest.mark.parametrize(
    ("dies_at_s", "phase"),
    [
        (2.0, Phase.ARGUMENTS),
        (12.0, Phase.DISTRIBUTED_INIT),
        (200.0, Phase.WEIGHT_LOAD),
        (450.0, Phase.GRAPH_CAPTURE),
    ],
)
def test_a_death_is_noticed_within_a_second_with_its_phase(dies_at_s: float, phase: Phase) -> None:
    clock = ManualClock()
    server = PaperServer(clock, HEALTHY, dies_at_s=dies_at_s, exit_code=-9, activity_at=reading)
    outcome = follow(server, PaperClient(clock))
    assert isinstance(outcome, Died)
    assert (outcome.exit_code, outcome.phase) == (-9, phase)
    assert dies_at_s <= outcome.seconds <= dies_at_s + 1


def test_the_last_words_of_a_dead_server_count() -> None:
    clock = ManualClock()
    server = PaperServer(clock, {0.95: fakes.WEIGHTS}, dies_at_s=1.0, exit_code=1)
    outcome = follow(server, PaperClient(clock))
    assert isinstance(outcome, Died)
    assert outcome.phase is Phase.WEIGHT_LOAD


def test_a_phase_without_a_sign_of_life_is_a_stall() -> None:
    clock = ManualClock()
    server = PaperServer(clock, {4.0: fakes.ARGUMENTS, 10.0: fakes.INIT})
    outcome = follow(server, PaperClient(clock))
    assert isinstance(outcome, Stalled)
    assert (outcome.phase, outcome.busy) == (Phase.DISTRIBUTED_INIT, False)
    assert outcome.seconds == pytest.approx(190, abs=1)


def test_a_deadlock_at_full_speed_is_a_stall_too_but_later() -> None:
    clock = ManualClock()
    server = PaperServer(
        clock, {4.0: fakes.ARGUMENTS, 10.0: fakes.INIT}, activity_at=lambda second: Activity(cpu_s=8 * second)
    )
    outcome = follow(server, PaperClient(clock))
    assert isinstance(outcome, Stalled)
    assert (outcome.phase, outcome.busy) == (Phase.DISTRIBUTED_INIT, True)
    assert outcome.seconds == pytest.approx(550, abs=1)


def test_our_own_knocking_does_not_keep_a_hung_server_alive() -> None:
    refused = f'{fakes.AT}] INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 503 Service Unavailable'
    log = {4.0: fakes.ARGUMENTS, 10.0: fakes.UVICORN, **{20.0 + 2 * at: refused for at in range(400)}}
    clock = ManualClock()
    outcome = follow(PaperServer(clock, log), PaperClient(clock))
    assert isinstance(outcome, Stalled)
    assert outcome.phase is Phase.WARMUP
    assert outcome.seconds == pytest.approx(610, abs=1)


def test_a_long_compilation_is_no_stall_and_the_whole_start_is_bounded() -> None:
    clock = ManualClock()
    server = PaperServer(clock, {4.0: fakes.ARGUMENTS, 5.0: fakes.JIT, 1700.0: fakes.JIT, 3400.0: fakes.JIT})
    outcome = follow(server, PaperClient(clock), limits=StallLimits(ready_limit_s=4000))
    assert isinstance(outcome, TimedOut)
    assert outcome.limit_s == 4000
    assert outcome.waited_for == "the end of jit-compile"


def test_the_thread_beside_hands_over_results_and_errors() -> None:
    caller = threading.get_ident()
    assert in_thread(lambda: str(threading.get_ident())).result(5) != str(caller)

    def fail() -> str:
        raise TunerError("refused")

    with pytest.raises(TunerError, match="refused"):
        in_thread(fail).result(5)


def test_with_a_real_clock_and_a_slow_answer_a_death_is_still_noticed_at_once() -> None:
    hold = threading.Event()

    class SlowClient(PaperClient):
        def healthy(self, timeout_s: float) -> bool:
            hold.wait(20)
            return False

    class Dying(PaperServer):
        def poll(self) -> int | None:
            return 1 if time.monotonic() >= dies_at_s else None

    clock = ManualClock()
    began_s = time.monotonic()
    dies_at_s = began_s + 0.3
    try:
        outcome = follow_start(Dying(clock), SlowClient(clock), clock=SystemClock(), limits=StallLimits())
    finally:
        hold.set()
    assert isinstance(outcome, Died)
    assert time.monotonic() - dies_at_s < 10.0  # and not the 20 s of the client
