"""How far the measured decode throughput is from what a server really emitted.

    python -m benchmarks.client_bias [--levels 1 8 64 256] [--seconds 6] [--noise]

A simulated box is measured, which keeps a journal of its steps: when each ended, how long it took and how
many tokens it gave. The figure of every level is compared with the journal over the same windows. Decoding
is never accelerated in a simulated box, so this is real time; without --noise its steps are even.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.measure.lengths import Lengths
from tuner.measure.level import rounds_of
from tuner.measure.measurement import LevelSample, LevelSummary, Workload
from tuner.measure.serverlog import LogReading
from tuner.measure.session import measure
from tuner.measure.window import DecodeWindow

ROOT = Path(__file__).resolve().parents[1]
BOX = (
    "--box", "kimi-k2.5-8x-rtx-pro-6000-0.5.12", "--model-path", "moonshotai/Kimi-K2.5", "--tp-size", "8",
    "--trust-remote-code", "--mem-fraction-static", "0.88", "--cuda-graph-max-bs", "256",
)  # fmt: skip
LIMIT = 0.005
_READY = "The server is fired up and ready to roll!"


@dataclass(frozen=True)
class Step:
    """A step of the journal, in monotonic seconds."""

    ended_s: float
    took_s: float
    tokens: int


@dataclass(frozen=True)
class Bias:
    """A level: what was measured, and what the journal says of the same time."""

    concurrency: int
    measured_tok_s: float
    emitted_tok_s: float

    @property
    def share(self) -> float:
        return self.measured_tok_s / self.emitted_tok_s - 1.0


class SimulatedServer:
    """A `ServerUnderLoad` on the process of a simulated box."""

    api_key = None

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self._port = port
        self.url = f"http://127.0.0.1:{port}"

    def alive(self) -> bool:
        return self._process.poll() is None

    def flush_cache(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("POST", "/flush_cache")
            connection.getresponse().read()
        finally:
            connection.close()

    def log_mark(self) -> int:
        return 0

    def log_readings_since(self, mark: int) -> list[LogReading]:
        return []


class Quiet:
    """A listener that hears nothing."""

    def on_warmup(self, level: float) -> None: ...

    def on_level(self, level: float, attempt: int) -> None: ...

    def on_level_done(self, sample: LevelSample, summary: LevelSummary) -> None: ...

    def on_level_void(self, sample: LevelSample) -> None: ...


@contextlib.contextmanager
def simulated(journal: Path, box: Sequence[str] = BOX, *, noise: bool = False) -> Iterator[SimulatedServer]:
    """A ready simulated server; it is ended at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "TUNER_SIM_JOURNAL": str(journal), "TUNER_SIM_TIME_SCALE": "3000"}
    if not noise:
        environment["TUNER_SIM_NOISE"] = "0"
    log_path = journal.with_suffix(".log")
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuner.simulator", *box, "--port", str(port)],
            stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
    try:
        deadline_s = time.monotonic() + 60
        while _READY not in log_path.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"no server: {log_path.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        yield SimulatedServer(process, port)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def biases(levels: Sequence[int], seconds: float, *, noise: bool = False, tokens: int = 256) -> list[Bias]:
    """Measure the levels and compare."""
    workload = Workload(
        Lengths.fixed(128), Lengths.fixed(tokens), tuple(levels),
        batches=1, repeat_limit_s=seconds, warmup_s=0.5, precision=1e-6,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.jsonl"
        with simulated(journal, noise=noise) as server:
            measurement, samples = measure(server, workload, "bias", Quiet())
        steps = read_journal(journal)
    counted = [sample for sample in samples if not sample.void]
    found = []
    for sample, summary in zip(counted, measurement.levels, strict=True):
        windows = [one.window for one in rounds_of(sample)][summary.dropped :]
        found.append(Bias(sample.concurrency, summary.decode_tok_s, emitted(steps, windows)))
    return found


def read_journal(path: Path) -> list[Step]:
    """The decode steps of a journal."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Step(line["ended_s"], line["step_ms"] / 1e3, line["tokens"]) for line in lines if "ended_s" in line
    ]


def emitted(steps: Sequence[Step], windows: Sequence[DecodeWindow]) -> float:
    """Tokens per second in the windows; a step that reaches over an edge counts by its share inside."""
    tokens = seconds = 0.0
    for start_s, end_s in (piece for window in windows for piece in window.pieces):
        seconds += end_s - start_s
        for step in steps:
            inside_s = min(end_s, step.ended_s) - max(start_s, step.ended_s - step.took_s)
            if inside_s > 0:
                tokens += step.tokens * inside_s / step.took_s
    return tokens / seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--noise", action="store_true")
    options = parser.parse_args()
    found = biases(options.levels, options.seconds, noise=options.noise)
    for bias in found:
        print(
            f"C={bias.concurrency:<4} measured {bias.measured_tok_s:9.2f} tok/s, "
            f"emitted {bias.emitted_tok_s:9.2f}, bias {bias.share:+.3%}"
        )
    return 0 if all(abs(bias.share) <= LIMIT for bias in found) else 1


if __name__ == "__main__":
    sys.exit(main())
