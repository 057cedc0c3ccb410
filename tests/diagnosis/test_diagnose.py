"""What is known from outside the log: exit codes, silence, whose memory it is."""

from __future__ import annotations

import pytest

from tuner.diagnosis.diagnose import diagnose
from tuner.diagnosis.failure import Cause, Kind
from tuner.diagnosis.lines import split_lines
from tuner.diagnosis.stall import failure_of_stall
from tuner.sglang.phases import Phase

WELL = (
    "[2026-03-01 10:00:01] The server is fired up and ready to roll!\n"
    "[2026-03-01 10:00:02 TP0] Decode batch, #running-req: 1, #token: 37, token usage: 0.00, cuda graph: "
    "True, gen throughput (token/s): 15.78, #queue-req: 0\n"
)
BUSY = (
    "[2026-03-01 10:00:01 TP0] Init torch distributed begin.\n"
    "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.\n"
)


@pytest.mark.parametrize(
    ("exit_code", "kind"),
    [
        (None, Kind.HEALTHY),
        (0, Kind.HEALTHY),
        (-9, Kind.KILLED),
        (137, Kind.KILLED),
        (-15, Kind.KILLED),
        (-11, Kind.SCHEDULER_DIED),
        (134, Kind.SCHEDULER_DIED),
        (-7, Kind.SHM_TOO_SMALL),
        (2, Kind.INVALID_ARGUMENTS),
        (1, Kind.UNKNOWN),
        (255, Kind.UNKNOWN),
        (-250, Kind.UNKNOWN),
    ],
)
def test_an_exit_code_alone(exit_code: int | None, kind: Kind) -> None:
    assert diagnose(WELL, exit_code=exit_code).kind is kind


def test_an_exit_code_does_not_outdo_a_cause() -> None:
    log = "[2026-03-01 10:00:02 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    log += "AssertionError\n"

    assert diagnose(log, exit_code=-9).kind is Kind.ASSERTION


def test_a_stall_without_a_word_is_a_hang() -> None:
    failure = diagnose(WELL, phase=Phase.SERVING, stalled=True)

    assert failure.kind is Kind.HANG
    assert failure.phase is Phase.SERVING
    assert failure.evidence[0].line == 2


def test_a_stall_after_an_error_is_the_error() -> None:
    log = WELL + "[2026-03-01 10:00:03] ERROR:    [Errno 98] address already in use\n"

    assert diagnose(log, stalled=True).kind is Kind.PORT_IN_USE


@pytest.mark.parametrize(
    ("foreign", "cause"), [(None, Cause.TRANSIENT), (False, Cause.TRANSIENT), (True, Cause.ENVIRONMENT)]
)
def test_whose_memory_fills_the_gpu(foreign: bool | None, cause: Cause) -> None:
    assert diagnose(BUSY, foreign_gpu_memory=foreign).cause is cause


def test_the_phase_from_outside_fills_in() -> None:
    log = "RuntimeError: CUDA error: device-side assert triggered\n"

    assert diagnose(log, phase=Phase.WARMUP).phase is Phase.WARMUP
    assert diagnose(log).phase is None


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
POOLS = "[2026-03-01 10:00:01 TP0] Target KV Cache is allocated. #tokens: 9, KV size: 8.78 GB\n"
TUNING = "[2026-03-01 10:00:02 TP0] Running FlashInfer autotune with cache: /root/.cache/x\n"


@pytest.mark.parametrize(
    ("log", "phase"),
    [
        (POOLS + TUNING, Phase.JIT_COMPILE),
        (POOLS + TUNING + "[2026-03-01 10:00:03 TP0] FlashInfer autotune completed.\n", Phase.KV_CACHE_ALLOC),
        (WELL + TUNING, Phase.SERVING),  # between two batches
    ],
)
def test_what_is_compiled_is_over_when_it_is_done(log: str, phase: Phase) -> None:
    assert diagnose(log + OOM).phase is phase


def test_a_stall_in_loading_may_pass_and_one_in_capture_is_the_configuration() -> None:
    assert failure_of_stall(Phase.WEIGHT_LOAD, 600.0, WELL).cause is Cause.TRANSIENT
    capture = failure_of_stall(Phase.GRAPH_CAPTURE, 600.0, WELL.encode())

    assert capture.cause is Cause.CONFIG
    assert "600 s" in capture.summary
    assert capture.telling_line.startswith("[2026-03-01 10:00:02 TP0] Decode batch")


@pytest.mark.parametrize(
    ("raw", "rank", "text"),
    [
        ("[2026-03-01 10:00:00 DP0 TP1 EP1] Load", "DP0 TP1 EP1", "Load"),
        ("[2026-03-01 10:00:00.123 TP1] Load", "TP1", "Load"),
        ("sglang-1  | [2026-03-01 10:00:00 TP1] Load", "TP1", "Load"),
        ("(Worker pid=42) [2026-03-01 10:00:00] Load", None, "Load"),
        ("2026-03-01T09:50:25.135404509Z [10:00:00 TP3] Load", "TP3", "Load"),
        ("[gpu_id=3] Memory pool end", "gpu_id=3", "Memory pool end"),
        ("[rank10]:[E130 18:11:34.707542570 ProcessGroupGloo.cpp:143] Gloo", "rank10", "Gloo"),
        ("2026-03-01 10:00:00 ERROR 125 [ DP1 TP1 scheduler.py:26] frame", "DP1 TP1", "frame"),
        ("\x1b[31mplain\x1b[0m text", None, "plain text"),
    ],
)
def test_prefixes(raw: str, rank: str | None, text: str) -> None:
    (line,) = split_lines(raw)

    assert (line.rank, line.text) == (rank, text)


def test_bars_keep_the_number_of_their_line() -> None:
    lines = split_lines(b"one thing\nbar 1\rbar 2\r\n\nlast \xff line")

    assert [line.number for line in lines] == [1, 2, 2, 4]
