"""The simulated server as a process: how it starts, what its clock says, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.simulator.boxes import DENSE, EAGLE, KIMI, KIMI_12, KIMI_23, QUIET, box, fast_box, model
from tests.simulator.running import ended, running
from tuner.simulator.profile import PROFILES

DENSE_MODEL = ("--model-path", "Qwen/Qwen3-32B-FP8")


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def wait_gone(pids: list[int]) -> None:
    deadline_s = time.monotonic() + 60
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < deadline_s, f"still there: {pids}"
        time.sleep(0.02)


def test_help_lists_the_flags_of_the_release_at_once() -> None:
    for name, there, missing in (
        (KIMI_12, "--cuda-graph-max-bs CUDA_GRAPH_MAX_BS", "--cuda-graph-max-bs-decode"),
        (KIMI_23, "--cuda-graph-max-bs-decode CUDA_GRAPH_MAX_BS_DECODE", "--nsa-prefill-backend"),
    ):
        began_s = time.monotonic()
        command = [sys.executable, "-m", "tuner.simulator", "--box", name, "--help"]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env={**QUIET, "COLUMNS": "200"}, timeout=20
        )
        assert done.returncode == 0
        assert done.stdout.startswith("usage: sglang serve [-h] ")
        assert there in done.stdout
        assert missing not in done.stdout
        assert time.monotonic() - began_s < 20


@pytest.mark.parametrize(
    ("name", "words", "code", "text"),
    [
        (KIMI_23, ("--no-such-flag",), 2, "sglang serve: error: unrecognized arguments: --no-such-flag"),
        (KIMI_23, ("--cuda-graph-max-bs", "8"), 2, "sglang serve: error: ambiguous option"),
        (
            KIMI_23,
            ("--page-size", "64", "--chunked-prefill-size", "100"),
            1,
            "AssertionError: chunked_prefill",
        ),
        ("no-such-box", (), 2, "there is no box named 'no-such-box'"),
    ],
)
def test_refused_launches_end_at_once(
    tmp_path: Path, name: str, words: tuple[str, ...], code: int, text: str
) -> None:
    got, log = ended(tmp_path, name, *KIMI, *words)
    assert got == code
    assert text in log.splitlines()[-2] + log.splitlines()[-1]
    assert "Init " not in log


def test_a_scheduler_that_fails_makes_the_launcher_kill_itself(tmp_path: Path) -> None:
    code, log = ended(tmp_path, KIMI_12, *KIMI, *EAGLE)
    assert code == -signal.SIGKILL
    first = next(line for line in log.splitlines() if "hit an exception" in line)
    assert " TP0] Scheduler hit an exception: Traceback" in first
    assert "Not enough memory. Please try to increase --mem-fraction-static." in log
    assert "Connection closed by peer" in log
    assert log.splitlines()[-1].endswith(
        "Received sigquit from a child process. It usually means the child failed."
    )


def test_a_collective_that_never_ends_is_an_exit_of_1(tmp_path: Path) -> None:
    rule = "{variable: NCCL_P2P_LEVEL, values: [SYS], phase: distributed-init, effect: hang}"
    path = box_with(tmp_path, rule)
    code, log = ended(tmp_path, path, *DENSE_MODEL, environment={"NCCL_P2P_LEVEL": "SYS"})
    assert code == 1
    assert "Watchdog caught collective operation timeout" in log
    assert "Rank 0 scheduler died during initialization (exit code: -6)" in log


def box_with(folder: Path, rule: str) -> str:
    path = folder / "ruled.yaml"
    path.write_text((PROFILES / f"{DENSE}.yaml").read_text() + f"\n  - {rule}\n")
    return str(path)


def test_a_kernel_that_fails_in_the_first_batch_ends_the_start(tmp_path: Path) -> None:
    rule = '{flag: sampling_backend, values: [pytorch], phase: serving, effect: death, text: "RuntimeError: no kernel"}'
    words = (*DENSE_MODEL, "--sampling-backend", "pytorch")
    code, log = ended(tmp_path, box_with(tmp_path, rule), *words)
    assert code == -signal.SIGKILL
    assert "Uvicorn running" in log
    assert "RuntimeError: no kernel" in log
    assert "fired up" not in log


def test_a_scheduler_that_stalls_never_gets_ready(tmp_path: Path) -> None:
    rule = "{flag: sampling_backend, values: [pytorch], phase: serving, effect: hang}"
    words = (*DENSE_MODEL, "--sampling-backend", "pytorch")
    with running(tmp_path, box_with(tmp_path, rule), *words, ready=False) as server:
        server.wait_for("Uvicorn running")
        assert server.call("GET", "/health")[0] == 503
        assert "fired up" not in server.log


def test_the_port_is_bound_only_after_the_load(tmp_path: Path) -> None:
    with running(
        tmp_path, DENSE, *DENSE_MODEL, ready=False, environment={"TUNER_SIM_TIME_SCALE": "60"}
    ) as server:
        server.wait_for("Load weight begin")
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", server.port), 1):
            pass
        server.wait_for("Uvicorn running")
        assert server.call("GET", "/health")[0] in (503, 200)
        server.wait_for("fired up")
        assert server.call("GET", "/health")[0] == 200


def test_a_busy_port_costs_the_load_and_ends_the_old_release(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with running(tmp_path, KIMI_12, *KIMI, port=port, ready=False) as server:
            assert server.wait() == 1
            assert f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {port})" in server.log
            assert "max_total_num_tokens=" in server.log


def test_a_busy_port_leaves_the_new_release_hanging(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with running(tmp_path, DENSE, *DENSE_MODEL, port=holder.getsockname()[1], ready=False) as server:
            server.wait_for("address already in use")
            server.wait_for("Waiting for application shutdown")
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(0.4)


@pytest.mark.parametrize(
    ("name", "words", "code"), [(DENSE, DENSE_MODEL, 0), (KIMI_12, KIMI, -signal.SIGKILL)], ids=["new", "old"]
)
def test_a_clean_stop_takes_every_process_with_it(
    tmp_path: Path, name: str, words: tuple[str, ...], code: int
) -> None:
    with running(tmp_path, name, *words) as server:
        children = server.children()
        assert len(children) == (9 if name == KIMI_12 else 2)
        comms = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in children}
        assert comms == {"sglang::schedul", "sglang::detoken"}
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == code
        assert "Draining requests and shutting down" in server.log
        wait_gone(children)


def test_sigterm_during_the_load_is_not_handled_and_children_follow(tmp_path: Path) -> None:
    with running(
        tmp_path, DENSE, *DENSE_MODEL, ready=False, environment={"TUNER_SIM_TIME_SCALE": "10"}
    ) as server:
        server.wait_for("Load weight begin")
        children = server.children()
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == -signal.SIGTERM
        wait_gone(children)


def test_a_killed_launcher_takes_its_children_with_it(tmp_path: Path) -> None:
    with running(tmp_path, DENSE, *DENSE_MODEL) as server:
        children = server.children()
        server.process.kill()
        server.wait()
        wait_gone(children)


def test_a_killed_scheduler_ends_the_server(tmp_path: Path) -> None:
    with running(tmp_path, DENSE, *DENSE_MODEL) as server:
        children = server.children()
        os.kill(children[0], signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
        assert f"(pid={children[0]}) crashed with exit code -9" in server.log
        wait_gone(children)


def test_an_interrupt_is_a_clean_end(tmp_path: Path) -> None:
    with running(tmp_path, DENSE, *DENSE_MODEL) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 0


def steps_in(journal: Path) -> list[dict[str, float]]:
    """The decode steps after the server was ready."""
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    ready = next(place for place, record in enumerate(records) if record.get("event") == "ready")
    return records[ready + 1 :]


def test_the_journal_says_what_was_emitted(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with running(tmp_path, *fast_box(tmp_path), environment={"TUNER_SIM_JOURNAL": str(journal)}) as server:
        server.generate("hello", 50)
        deadline_s = time.monotonic() + 60
        while len(steps_in(journal)) < 49:  # the last step is noted after it was sent
            assert time.monotonic() < deadline_s, "the journal is behind"
            time.sleep(0.02)
        server.process.kill()
        server.wait()
    steps = steps_in(journal)
    # The prefill gives the first of the fifty.
    assert [step["tokens"] for step in steps] == [1] * 49
    for before, after in pairwise(steps):
        assert after["ended_s"] - before["ended_s"] == pytest.approx(after["step_ms"] / 1000, abs=1e-5)


@pytest.mark.parametrize("streams", [1, 8])
def test_a_client_measures_what_the_model_says(tmp_path: Path, streams: int) -> None:
    tokens = 200 if streams == 1 else 100
    words = ("--cuda-graph-max-bs", "128", "--mem-fraction-static", "0.88")
    with running(tmp_path, KIMI_12, *KIMI, *words) as server:
        got = server.rate(streams, tokens)
    assert got == pytest.approx(model(box(), *words).tokens_per_s(streams, 5 + tokens / 2), rel=0.03)


def test_a_client_measures_the_tokens_of_accepted_drafts(tmp_path: Path) -> None:
    words = (*EAGLE, "--cuda-graph-max-bs", "128", "--mem-fraction-static", "0.88")
    launch = model(box(), *words)
    with running(tmp_path, KIMI_12, *KIMI, *words) as server:
        got = server.rate(1, 250)
        meta = server.generate("drafts", 100)[-1][1]["meta_info"]
        state = server.call("GET", "/server_info")[1]["internal_states"][0]
    assert got == pytest.approx(launch.tokens_per_s(1, 130), rel=0.03)
    assert meta["spec_verify_ct"] == pytest.approx(100 / launch.tokens_per_step, abs=2)
    assert state["avg_spec_accept_length"] == pytest.approx(launch.tokens_per_step, rel=0.03)


def test_a_config_file_launches_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "launch.yaml"
    path.write_text("model-path: Qwen/Qwen3-32B\nmax-running-requests: 4\nstream-interval: 3\n")
    with running(tmp_path, DENSE, "--config", str(path), "--stream-interval", "2") as server:
        info = server.call("GET", "/server_info")[1]
        assert info["max_running_requests"] == 4
        assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 4
        counts = [chunk["meta_info"]["completion_tokens"] for _, chunk in server.generate("hello", 8)]
        assert counts == [1, 3, 5, 7, 8]


def test_running_out_of_memory_under_load_kills_a_serving_server(tmp_path: Path) -> None:
    words = (*KIMI, "--cuda-graph-max-bs", "16", "--mem-fraction-static", "0.96")
    prompt = "word " * 9000
    with running(tmp_path, KIMI_12, *words) as server:
        server.generate("short", 4)
        with pytest.raises((AssertionError, ConnectionError)):
            server.generate(prompt, 4)
        assert server.wait() == -signal.SIGKILL
        assert "torch.OutOfMemoryError" in server.log
        assert "SIGQUIT received." in server.log


def test_bad_variables_are_named(tmp_path: Path) -> None:
    code, log = ended(tmp_path, DENSE, *DENSE_MODEL, environment={"TUNER_SIM_TIME_SCALE": "soon"})
    assert code == 2
    assert "TUNER_SIM_TIME_SCALE=soon cannot be used" in log
