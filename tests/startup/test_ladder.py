from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.launch.protocol import Activity
from tuner.sglang.events import PhaseSeen, PortBusy, Progress, ReadyLine
from tuner.sglang.phases import Phase
from tuner.startup.ladder import StartupLadder
from tuner.startup.limits import DEFAULT_SILENCE_S, StallLimits

LIMITS = StallLimits(
    silence_s={Phase.ARGUMENTS: 10, Phase.WEIGHT_LOAD: 20, Phase.JIT_COMPILE: 100}, busy_factor=3
)


def ladder(limits: StallLimits = LIMITS) -> StartupLadder:
    return StartupLadder(limits, 1000.0)


def loading(limits: StallLimits = LIMITS) -> StartupLadder:
    """Entered the loading of weights at second 1000, with a first look at its activity."""
    climbing = ladder(limits)
    climbing.on_log([PhaseSeen(Phase.WEIGHT_LOAD)], 1, 1000.0)
    climbing.on_activity(Activity(), 1000.0)
    return climbing


def test_phases_and_their_times_are_kept_since_the_launch() -> None:
    climbing = ladder()
    climbing.on_log([PhaseSeen(Phase.IMPORT)], 1, 1004.0)
    climbing.on_log([PhaseSeen(Phase.WEIGHT_LOAD, "TP0")], 1, 1010.0)
    climbing.on_log([Progress(Phase.WEIGHT_LOAD, 3, 64)], 1, 1012.5)
    state = climbing.state(1013.0)
    assert [(str(span.phase), span.start_s, span.end_s) for span in state.spans] == [
        ("arguments", 0.0, 4.0),
        ("import", 4.0, 10.0),
        ("weight-load", 10.0, 13.0),
    ]
    assert state.shown() == "weight-load 3/64 (3 s)"
    assert state.spans[1].seconds == 6.0
    assert state.spans[1].to_json() == {"phase": "import", "start_s": 4.0, "end_s": 10.0}


def test_the_leading_rank_is_followed_and_others_only_until_it_speaks() -> None:
    climbing = ladder()
    climbing.on_log([PhaseSeen(Phase.DISTRIBUTED_INIT, "TP3")], 1, 1001.0)
    assert climbing.state(1001.0).phase is Phase.DISTRIBUTED_INIT
    climbing.on_log([PhaseSeen(Phase.WEIGHT_LOAD, "TP0"), PhaseSeen(Phase.GRAPH_CAPTURE, "TP3")], 2, 1002.0)
    assert climbing.state(1002.0).phase is Phase.WEIGHT_LOAD


def test_progress_belongs_to_its_phase() -> None:
    climbing = ladder()
    climbing.on_log([PhaseSeen(Phase.WEIGHT_LOAD), Progress(Phase.WEIGHT_LOAD, 64, 64)], 2, 1001.0)
    climbing.on_log([PhaseSeen(Phase.GRAPH_CAPTURE), Progress(Phase.WEIGHT_LOAD, 64, 64)], 2, 1002.0)
    assert climbing.state(1002.0).progress is None


def test_what_the_log_says_is_kept() -> None:
    climbing = ladder()
    climbing.on_log([ReadyLine(), PortBusy("first"), PortBusy("second")], 3, 1001.0)
    state = climbing.state(1001.0)
    assert (state.ready_line, state.port_busy) == (True, "first")


# --- stalls ----------------------------------------------------------------------------------------------


def test_silence_over_the_limit_of_the_phase_is_a_stall() -> None:
    climbing = loading()
    assert climbing.state(1019.9).stall is None
    stall = climbing.state(1020.0).stall
    assert stall is not None
    assert (stall.phase, stall.silent_s, stall.busy) == (Phase.WEIGHT_LOAD, 20.0, False)


@pytest.mark.parametrize(
    ("sign", "limit_s"),
    [
        (lambda second: Activity(read_bytes=second * 4096), None),
        (lambda second: Activity(gpu_memory_mib=100.0 + 50 * second), None),
        (lambda second: Activity(cpu_s=second * 1.0), 60),
        (lambda second: Activity(cpu_s=second * 0.04), 20),
        (lambda second: Activity(gpu_memory_mib=100.0 + second % 2), 20),
        (lambda second: Activity(), 20),
    ],
    ids=["disk reads", "GPU memory", "a busy loop", "polling", "noise of the GPU", "nothing"],
)
def test_how_long_each_sign_of_life_carries(sign: object, limit_s: int | None) -> None:
    assert callable(sign)
    climbing = loading()
    stalled_at = None
    for second in range(1, 300):
        climbing.on_activity(sign(second), 1000.0 + second)
        if climbing.state(1000.0 + second).stall is not None:
            stalled_at = second
            break
    assert stalled_at == limit_s


def test_a_busy_loop_is_told_from_silence() -> None:
    climbing = loading()
    for second in range(1, 61):
        climbing.on_activity(Activity(cpu_s=8.0 * second), 1000.0 + second)
    stall = climbing.state(1060.0).stall
    assert stall is not None
    assert (stall.busy, stall.silent_s) == (True, 60.0)


def test_a_phase_that_makes_progress_may_take_its_time() -> None:
    climbing = loading()
    for second in range(15, 3000, 15):
        climbing.on_log([Progress(Phase.WEIGHT_LOAD, second, 3000)], 1, 1000.0 + second)
        assert climbing.state(1000.0 + second).stall is None


def test_a_compiler_may_be_silent_for_longer() -> None:
    climbing = loading()
    climbing.on_log([PhaseSeen(Phase.JIT_COMPILE)], 1, 1001.0)
    assert climbing.state(1090.0).stall is None
    assert climbing.state(1101.0).stall is not None


def test_a_child_that_ended_and_took_its_totals_along_is_a_sign_of_life() -> None:
    climbing = loading()
    climbing.on_activity(Activity(cpu_s=50, read_bytes=9000), 1010.0)
    climbing.on_activity(Activity(cpu_s=10, read_bytes=100), 1018.0)
    assert climbing.state(1037.0).stall is None


def test_the_end_of_the_process_closes_the_phase_and_is_no_stall() -> None:
    climbing = loading()
    climbing.on_exit(-9, 1005.0)
    climbing.on_exit(0, 1006.0)
    state = climbing.state(1500.0)
    assert (state.exit_code, state.stall) == (-9, None)
    assert (state.spans[-1].phase, state.spans[-1].end_s) == (Phase.WEIGHT_LOAD, 5.0)


def test_what_is_not_set_has_a_default() -> None:
    limits = StallLimits(silence_s={Phase.IMPORT: 7})
    assert limits.of(Phase.IMPORT) == 7
    assert limits.of(Phase.JIT_COMPILE) == DEFAULT_SILENCE_S[Phase.JIT_COMPILE]


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.sampled_from([*Phase, None]), st.sampled_from(["", "TP0", "TP1"])),
        max_size=30,
    )
)
def test_spans_always_join_without_gaps(steps: list[tuple[float, Phase | None, str]]) -> None:
    climbing, now_s = ladder(), 1000.0
    for wait_s, phase, rank in steps:
        now_s += wait_s
        climbing.on_log([PhaseSeen(phase, rank)] if phase else [], 1, now_s)
    spans = climbing.state(now_s).spans
    assert spans[0].start_s == 0.0
    assert spans[-1].end_s == pytest.approx(now_s - 1000.0)
    assert all(before.end_s == after.start_s for before, after in pairwise(spans))
    assert all(before.phase is not after.phase for before, after in pairwise(spans))
