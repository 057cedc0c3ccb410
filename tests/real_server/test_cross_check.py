"""The tuner's client and SGLang's own benchmark on the same real server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.real_server.conftest import RealSGLang
from tuner.measure.crosscheck import BenchServing
from tuner.measure.lengths import Lengths
from tuner.measure.load import Schedule, run_round
from tuner.measure.measurement import LevelSample, LevelSummary, Workload
from tuner.measure.prompts import Prompt
from tuner.measure.serverlog import LogReading
from tuner.measure.session import measure

WORKLOAD = Workload(
    Lengths.fixed(64), Lengths.fixed(128), (8,),
    batches=4, max_batches=4, repeat_limit_s=300, level_limit_s=120, warmup_output_tokens=128, warmup_s=0,
)  # fmt: skip


class Server:
    """The server process as measuring wants it."""

    api_key = None

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def alive(self) -> bool:
        return self.process.poll() is None

    def flush_cache(self) -> None:
        requests.post(f"{self.url}/flush_cache", timeout=30).raise_for_status()

    def log_mark(self) -> int:
        return 0

    def log_readings_since(self, mark: int) -> list[LogReading]:
        return []


class Quiet:
    def on_warmup(self, level: float) -> None: ...

    def on_level(self, level: float, attempt: int) -> None: ...

    def on_level_done(self, sample: LevelSample, summary: LevelSummary) -> None: ...

    def on_level_void(self, sample: LevelSample) -> None: ...


@contextlib.contextmanager
def serving(sglang: RealSGLang, folder: Path) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log_path = folder / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                str(sglang.python), "-m", "sglang.launch_server", "--model-path", str(sglang.model),
                "--load-format", "dummy", "--device", "cpu", "--attention-backend", "torch_native",
                "--host", "127.0.0.1", "--port", str(port), "--max-total-tokens", "65536",
            ],
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **sglang.environment},
        )  # fmt: skip
    try:
        deadline_s = time.monotonic() + 240
        while b"The server is fired up and ready to roll!" not in log_path.read_bytes():
            assert process.poll() is None, log_path.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline_s, log_path.read_text(errors="replace")[-3000:]
            time.sleep(0.5)
        yield Server(process, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


@pytest.mark.real_server
@pytest.mark.serial
@pytest.mark.timeout(900)
def test_both_clients_agree_and_chats_are_counted(real_sglang: RealSGLang, tmp_path: Path) -> None:
    needed = [str(real_sglang.python), "-c", "import datasets, tabulate"]
    if subprocess.run(needed, capture_output=True, check=False).returncode:
        pytest.skip("sglang.bench_serving needs the packages datasets and tabulate")
    with serving(real_sglang, tmp_path) as server:
        chats_are_counted(server)
        theirs_is = BenchServing(
            str(real_sglang.python), str(real_sglang.model), real_sglang.environment, seed=7
        )
        for attempt in range(3):
            ours = measure(server, WORKLOAD, f"cross-check {attempt}", Quiet())[0].level(8)
            theirs = measure(server, WORKLOAD, f"cross-check {attempt}", Quiet(), load=theirs_is)[0].level(8)
            if overlap(ours, theirs):
                break
        assert overlap(ours, theirs), f"ours {shown(ours)}, sglang.bench_serving {shown(theirs)}"
    assert theirs.whole and ours.whole
    assert theirs.output_tokens == ours.output_tokens == 4 * 8 * 128


def overlap(one: LevelSummary, other: LevelSummary) -> bool:
    assert one.low is not None and one.high is not None
    assert other.low is not None and other.high is not None
    return one.low <= other.high and other.low <= one.high


def shown(summary: LevelSummary) -> str:
    return (
        f"{summary.decode_tok_s:.1f} tok/s ({summary.low:.1f} to {summary.high:.1f}, {summary.rounds} rounds)"
    )


def chats_are_counted(server: Server) -> None:
    """Messages go through the chat template, and every token of the answer is seen with its time."""
    prompts = [
        Prompt(24, messages=(("system", "be brief"), ("user", f"question {number}"))) for number in range(3)
    ]
    samples, _ = run_round(server.url, prompts, Schedule(3), limit_s=60, alive=server.alive)
    for sample in samples:
        assert sample.error == ""
        assert sample.output_tokens == 24
        assert len(sample.arrivals_s) > 4  # a chunk is a piece of text, which may take several tokens
        assert sample.prompt_tokens > 0
