"""The whole loop on a real SGLang server: optimise, crash, interrupt, resume, export, start from the export."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psutil
import pytest
import requests
from optuna.trial import TrialState

from tests.real_server.conftest import RealSGLang

ROOT = Path(__file__).resolve().parents[2]

# A page of 64 with chunks of 96 is an assertion when SGLang checks its arguments. Three ranks cannot share the
# model's four heads; SGLang notices while it builds the layers, and the tuner's rule knows. All else runs.
SPACE = """
parameters:
  max_running_requests: {type: integer, low: 1, high: 64, log: true, auto: true}
  max_total_tokens: {type: choice, choices: [16384, 65536], default: 65536}
  chunked_prefill_size: {type: choice, choices: [auto, 96, 1024]}
  page_size: {type: choice, choices: [1, 64], default: 1}
  tp_size: {type: choice, choices: [1, 3], default: 1}
known_good:
  - {name: one-at-a-time, values: {max_running_requests: 1}}
  - {name: refused, values: {chunked_prefill_size: 96, page_size: 64}}
  - {name: crashes, values: {tp_size: 3}}
"""


def optimize(sglang: RealSGLang, folder: Path, *options: str) -> list[str]:
    space = folder / "space.yaml"
    space.write_text(SPACE)
    return [
        sys.executable, "-m", "tuner", "optimize", "cpu", *sglang.options,
        "--folder", str(folder / "study"), "--search-space", str(space), "--objective-concurrency", "32", "--expected-level-s", "3", "--warmup-s", "1",
        "--guard", "false", *options,
    ]  # fmt: skip


@pytest.mark.real_server
@pytest.mark.serial
@pytest.mark.timeout(900)
def test_the_whole_loop(real_sglang: RealSGLang, tmp_path: Path) -> None:
    study = tmp_path / "study"

    # Ctrl-C in the first trial, once the server is there: it is gone afterwards, and the study is clean.
    first = subprocess.Popen(
        optimize(real_sglang, tmp_path, "--launches", "4"), cwd=ROOT, text=True, stdout=subprocess.PIPE
    )
    wait_for(
        lambda: "import" in (study / "trial-0000" / "record.json").read_text(), "the first server's start"
    )
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode == 130
    assert servers(study) == []
    assert states(study) == ["FAIL", "WAITING"]

    # The same command goes on.
    done = subprocess.run(
        optimize(real_sglang, tmp_path, "--launches", "4"),
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert servers(study) == []
    records = [json.loads(path.read_text()) for path in sorted(study.glob("trial-*/record.json"))]
    assert [record["state"] for record in records] == ["failed", "complete", "complete", "pruned", "complete"]
    baseline, one_at_a_time, crash = records[1:4]
    assert baseline["role"] == "baseline" and baseline["configuration"] == {}
    assert baseline["server"]["resolved"]["page_size"] == 1
    assert baseline["server"]["version"] == "0.5.23"

    # What SGLang itself refuses was told, and never launched.
    assert (
        "refused before launch: chunked_prefill_size must be divisible by page_size (SGLang)" in done.stdout
    )
    assert "known-good 'refused' is skipped" in done.stdout
    launched = [record["configuration"] for record in records]
    assert not any(
        item.get("chunked_prefill_size") == 96 and item.get("page_size") == 64 for item in launched
    )

    # What only a rule refuses was launched, since it was said to run; the crash was real and is told as it was.
    assert "4 attention heads cannot be shared by 3 ranks (heads-by-tp)" in done.stdout
    assert crash["configuration"]["tp_size"] == 3
    assert crash["failure"]["kind"] == "indivisible"
    assert crash["failure"]["evidence"][0]["text"] in (study / "trial-0003" / "server.log").read_text()
    assert launched[4]["tp_size"] == 1
    trials = optuna.load_study(study_name="cpu", storage=f"sqlite:///{study / 'study.db'}").get_trials()
    assert trials[3].state is TrialState.PRUNED
    assert trials[3].user_attrs["failure_kind"] == "indivisible"

    # One request at a time is several times slower at 32 streams, and the record says why.
    level = next(item for item in one_at_a_time["levels"] if item["concurrency"] == 32)
    # An end and the next one's beginning that are read at the same moment count as two that overlap.
    assert level["running"] < 8 and not level["whole"]
    # Its figure is of all answers, one after the other: what is lost between them is prefill.
    assert level["decode_tok_s"] == pytest.approx(overall_tok_s(study / "trial-0002", 32), rel=0.1)
    raw = [json.loads(line) for line in (study / "trial-0001" / "samples.jsonl").read_text().splitlines()]
    assert all(sample["server_last_tok_s"] > 0 for sample in raw)  # what the server remembers of itself
    assert baseline["score"] > 2 * one_at_a_time["score"]

    # The export starts the real server, which generates.
    exported = tmp_path / "found.yaml"
    told = subprocess.run(
        [sys.executable, "-m", "tuner", "export", str(study), "-o", str(exported)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    )
    assert "tok/s" in told.stdout
    generate_from(exported.with_suffix(".sh"))


def overall_tok_s(trial: Path, concurrency: int) -> float:
    """All tokens of a level over the time from each round's first token to its last finish."""
    kept = [json.loads(line) for line in (trial / "samples.jsonl").read_text().splitlines()]
    (level,) = [sample for sample in kept if sample["concurrency"] == concurrency and not sample["void"]]
    tokens = seconds = 0.0
    for number in {request["round"] for request in level["requests"]}:
        of_round = [request for request in level["requests"] if request["round"] == number]
        tokens += sum(request["tokens"][-1] for request in of_round)
        seconds += max(request["arrivals_s"][-1] for request in of_round)
        seconds -= min(request["arrivals_s"][0] for request in of_round)
    return tokens / seconds


def generate_from(script: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["sh", str(script), "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for(lambda: healthy(port, server), "the exported server's start")
        body = {"text": "the server", "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
        reply = requests.post(f"http://127.0.0.1:{port}/generate", json=body, timeout=60).json()
        assert reply["meta_info"]["completion_tokens"] == 4
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()


def healthy(port: int, server: subprocess.Popen[bytes]) -> bool:
    if server.poll() is not None:
        raise AssertionError(f"the server ended: {server.communicate()[0].decode()[-2000:]}")
    try:
        return requests.get(f"http://127.0.0.1:{port}/health", timeout=5).ok
    except requests.RequestException:
        return False


def wait_for(condition: object, what: str, limit_s: float = 180.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        try:
            if condition():  # type: ignore[operator]
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen within {limit_s:g} s")


def states(study: Path) -> list[str]:
    trials = optuna.load_study(study_name="cpu", storage=f"sqlite:///{study / 'study.db'}").get_trials()
    return [trial.state.name for trial in trials]


def servers(study: Path) -> list[str]:
    """What still runs of the study's servers: their log is open in each of their processes."""
    found = []
    for process in psutil.process_iter():
        try:
            files = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in (1, 2)]
        except OSError:
            continue  # it is gone, or somebody else's
        if any(study in file.parents for file in files):
            found.append(f"{process.pid}: {files[0]}")
    return found
