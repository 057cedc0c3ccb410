"""A whole study of a server that nobody here wrote for the tuner: other habits in log, HTTP and dying."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.cli.run import tuner
from tests.foreign.evaluators import box_truth
from tuner.results.record import read_records

SERVER = Path(__file__).with_name("server.py")
SPACE = """
name: foreign
description: what the foreign server has
parameters:
  cuda_graph_max_bs: {type: integer, low: 8, high: 512, log: true, auto: true}
  mem_fraction_static: {type: float, low: 0.75, high: 0.97, step: 0.01, auto: true}
  all_reduce: {type: composite, choices: [custom, nccl], default: custom}
  speculative: {type: composite, choices: [off, eagle3], default: off}
  speculative_num_steps: {type: integer, low: 1, high: 5, default: 3, when: speculative != off}
  moe_runner_backend: {type: choice, choices: [auto, triton]}
  ep_size: {type: choice, choices: [1, 8], default: 1}
  stream_interval: {type: choice, choices: [auto, 8]}
known_good:
  - {name: small graphs, values: {cuda_graph_max_bs: 64, speculative: eagle3, speculative_num_steps: 2}}
  - {name: spread, values: {ep_size: 8}}
  - {name: too little, values: {mem_fraction_static: 0.76, speculative: eagle3}}
  - {name: too much, values: {mem_fraction_static: 0.96, cuda_graph_max_bs: 512}}
  - {name: wordless, values: {moe_runner_backend: triton}}
"""
STUDY = """
search_space: {space}
server:
  command: ["{{python}}", {server}, --style, {style}, --awkward, "mute,silent,deaf", --start-s, "0.5"]
  label: a foreign box
  model: somebody/{marker}
  flags: {{tp_size: 8, speculative_draft_model_path: somebody/draft}}
  stop_grace_s: 0.5
workload:
  {{input_tokens: 64, output_tokens: 48, concurrency: 8, warmup_s: 0.2, warmup_limit_s: 1, repeat_limit_s: 0.3,
   warmup_output_tokens: 8, precision: 0.1}}
guard: {{enabled: false}}
budget: {{launches: 8, confirm: 0, explain: 0, repairs: 0}}
"""


@pytest.mark.parametrize("style", ["old", "new"])
def test_a_study_finds_names_the_deaths_and_exports_what_starts(tmp_path: Path, style: str) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    study = tmp_path / "night.yaml"
    marker = f"model-of-{tmp_path.name}"
    study.write_text(STUDY.format(space=tmp_path / "space.yaml", server=SERVER, style=style, marker=marker))
    done = tuner("optimize", str(study))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out of the search: stream_interval" in done.stdout
    records = read_records(tmp_path / "night")
    assert len(records) == 8
    kinds = [record.failure["kind"] for record in records if record.failure and record.role == "known-good"]
    assert kinds == ["assertion", "mem-fraction-too-low", "oom-graph-capture", "unknown"]
    best = max(records, key=lambda one: one.score or 0.0)
    truth = box_truth(8)
    assert truth(best.configuration) > 1.3 * truth({})
    assert not _left_over(marker)
    assert _starts(tmp_path / "night" / "best.sh")
    assert not _left_over(marker)


def _starts(script: Path) -> bool:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["sh", str(script), "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        return _is_healthy(f"http://127.0.0.1:{port}/health", server)
    finally:
        server.kill()
        server.wait()


def _is_healthy(url: str, server: subprocess.Popen[bytes]) -> bool:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    return False


def _left_over(marker: str) -> list[int]:
    """Processes of the study's servers that are still there, after the time its ranks need to notice."""
    deadline_s = time.monotonic() + 10
    while True:
        found = [
            one.pid
            for one in psutil.process_iter(["cmdline"])
            if f"somebody/{marker}" in (one.info["cmdline"] or [])
        ]
        if not found or time.monotonic() > deadline_s:
            return found
        time.sleep(0.1)
