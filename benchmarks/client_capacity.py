"""What the load client can take, next to `sglang.bench_serving`, and how exact its times are.

    python -m benchmarks.client_capacity [--streams 128] [--tokens 256] [--step-ms 20] [--repeats 3]

Both clients read the same pre-rendered events from the same source (see `client_source`), a step of all
streams every 20 ms, as from an engine; what counts is how many events each accounts for per second of its
own CPU time between the first event and the last. Then the source sends at half the rate that the tuner's
client takes with a whole core when it is flooded, and every time of receipt is compared with the time that
its event carries. Other work on the machine shows in all of these figures.

The installation of SGLang and its model are looked for in TUNER_SGLANG_DIR (default
~/.cache/tuner/sglang-cpu); it needs the packages `datasets` and `tabulate` besides.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.client_source import Load, Source, Spent
from tuner.measure.statistics import percentile

ROOT = Path(__file__).resolve().parents[1]
RATIO_ASKED = 3.0
LATE_P99_ASKED_MS = 2.0


@dataclass(frozen=True)
class Result:
    """Events per CPU-second of both clients (medians), and the lateness at half of the capacity."""

    ours: float
    theirs: float
    half_rate: float
    late_p50_ms: float
    late_p99_ms: float
    cpu_share: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def installation() -> Path:
    """Where the real SGLang is."""
    return Path(os.environ.get("TUNER_SGLANG_DIR") or Path.home() / ".cache" / "tuner" / "sglang-cpu")


def run_ours(load: Load, *words: str) -> tuple[Spent, dict[str, Any]]:
    """Our client against a source of that load."""
    command = [
        sys.executable, "-m", "benchmarks.client_ours", "--port", "{port}",
        "--streams", str(load.streams), "--tokens", str(load.tokens), *words,
    ]  # fmt: skip

    async def run() -> tuple[Spent, dict[str, Any]]:
        source = Source(load)
        told = json.loads(await source.serve(command, {**os.environ, "PYTHONPATH": str(ROOT)}))
        if told["errors"]:
            raise RuntimeError(f"the client had errors: {told['errors']}")
        return source.spent, told

    return asyncio.run(run())


def run_theirs(load: Load) -> Spent:
    """`sglang.bench_serving` against a source of that load."""
    place = installation()
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            str(place / "venv" / "bin" / "python"), "-m", "sglang.bench_serving", "--backend", "sglang",
            "--host", "127.0.0.1", "--port", "{port}", "--dataset-name", "random-ids",
            "--model", str(place / "model-tiny"), "--tokenizer", str(place / "model-tiny"),
            "--random-input-len", "16", "--random-output-len", str(load.tokens), "--random-range-ratio", "1",
            "--num-prompts", str(load.streams), "--warmup-requests", "0", "--disable-tqdm",
            "--output-file", str(Path(scratch) / "out.jsonl"),
        ]  # fmt: skip
        environment = {
            **os.environ,
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT / "tests" / "real_server" / "recipe" / "stubs"),
        }

        async def run() -> Spent:
            source = Source(load)
            await source.serve(command, environment)
            return source.spent

        return asyncio.run(run())


def measure(streams: int, tokens: int, step_s: float, repeats: int) -> Result:
    """The comparison, the two clients in turn, then the lateness; medians of `repeats` runs of each."""
    load = Load(streams, tokens, interval_s=step_s)
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(run_ours(load)[0].events_per_cpu_s)
        theirs.append(run_theirs(load).events_per_cpu_s)
    capacity = median(run_ours(Load(streams, tokens, 0.0))[0].events_per_cpu_s for _ in range(repeats))
    half = Load(streams, tokens, interval_s=streams / (capacity / 2))
    late = [run_ours(half, "--stamps")[1] for _ in range(repeats)]
    return Result(
        ours=median(ours),
        theirs=median(theirs),
        half_rate=capacity / 2,
        late_p50_ms=median(percentile(told["late_s"], 50) for told in late) * 1e3,
        late_p99_ms=median(percentile(told["late_s"], 99) for told in late) * 1e3,
        cpu_share=median(told["cpu_share"] for told in late),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found = measure(options.streams, options.tokens, options.step_ms / 1e3, options.repeats)
    print(f"events per CPU-second  tuner {found.ours:,.0f}   sglang.bench_serving {found.theirs:,.0f}")
    print(f"ratio                  {found.ratio:.2f} (asked: {RATIO_ASKED:g})")
    print(
        f"late at {found.half_rate:,.0f} events/s  p50 {found.late_p50_ms:.2f} ms, "
        f"p99 {found.late_p99_ms:.2f} ms (asked: {LATE_P99_ASKED_MS:g} ms), "
        f"client at {found.cpu_share:.0%} of a core"
    )
    return 0 if found.ratio >= RATIO_ASKED and found.late_p99_ms < LATE_P99_ASKED_MS else 1


if __name__ == "__main__":
    sys.exit(main())
