"""The main job from the command line, on simulated boxes: what is shown, what is left, how it stops and resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import optuna
import psutil
import pytest
import yaml
from optuna.trial import TrialState

from tests.cli.run import ROOT, simulated, tuner

LABEL = "Kimi-K2.5 on 8x RTX PRO 6000 (simulated)"


def study_of(folder: Path, name: str = "simulated-kimi-k2.5") -> optuna.Study:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{folder / 'study.db'}")


def records_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("trial-*/record.json"))]


def processes_of(marker: str) -> list[psutil.Process]:
    """Living processes whose command line names the marker."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if any(marker in word for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = 180.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {limit_s:g} s")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The embedded default, four launches long: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("default") / "study"
    done = tuner(*simulated(folder, "--launches", "4"))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_the_default_finds_what_was_found_by_hand(finished: tuple[Path, str]) -> None:
    """82 tok/s with the engine's defaults (graphs up to 512), 89.5 with 128, more with speculation at 0.88."""
    folder, printed = finished
    scores = {str(record["source"]): float(str(record["score"])) for record in records_of(folder)}
    assert scores["the engine's defaults"] == pytest.approx(82, rel=0.05)
    assert scores["no-speculation-128"] == pytest.approx(89.5, rel=0.05)
    assert scores["eagle3-at-0.88"] > 92
    assert records_of(folder)[0]["server"]["resolved"]["cuda_graph_max_bs"] == 512  # type: ignore[index]
    assert "best on" in printed and "over the engine's defaults (trial 0)" in printed


def test_the_label_is_shown_everywhere(finished: tuple[Path, str]) -> None:
    folder, printed = finished
    assert printed.count(f"[{LABEL}]") == 4
    assert {record["label"] for record in records_of(folder)} == {LABEL}
    assert all(trial.user_attrs["label"] == LABEL for trial in study_of(folder).get_trials())
    assert LABEL in (folder / "best.yaml").read_text()
    assert LABEL in (folder / "best.sh").read_text()
    told = tuner("export", str(folder), "-o", str(folder / "again.yaml"))
    assert LABEL in told.stdout


def test_hours_are_estimated_before_the_first_launch(finished: tuple[Path, str]) -> None:
    printed = finished[1]
    assert printed.index("expected: about") < printed.index("trial 0")


def test_phases_are_printed_as_plain_lines_with_their_times(finished: tuple[Path, str]) -> None:
    printed = finished[1]
    first = printed[printed.index("trial 0") : printed.index("trial 1")]
    phases = [line.split()[1] for line in first.splitlines() if line.startswith("  0:")]
    for phase in ("arguments", "weight-load", "graph-capture", "warmup", "serving"):
        assert phase in phases
    assert "\r" not in printed and "\x1b" not in printed


def test_each_trial_leaves_its_files(finished: tuple[Path, str]) -> None:
    folder = finished[0]
    for trial in folder.glob("trial-*"):
        names = {path.name for path in trial.iterdir()}
        assert {"record.json", "server.log", "samples.jsonl", "environment.json"} <= names
    record = records_of(folder)[1]
    assert record["version"] == 1
    assert [span["phase"] for span in record["phases"]][:2] == ["arguments", "import"]  # type: ignore[attr-defined]
    assert record["launch"]["config"]["cuda-graph-max-bs"] == 128  # type: ignore[index]


def test_the_dashboard_has_everything(finished: tuple[Path, str]) -> None:
    from optuna_dashboard import get_note

    folder = finished[0]
    study = study_of(folder)
    assert study.metric_names == ["decode tok/s at C=1"]
    trial = study.get_trials()[1]
    assert trial.user_attrs["outcome"] == "measured"
    assert trial.user_attrs["decode_tok_s_c1"] == pytest.approx(trial.value, abs=0.01)
    assert trial.user_attrs["accept_length_c1"] > 1.5
    kinds = (str, int, float, bool)
    assert all(
        isinstance(value, kinds) for known in study.get_trials() for value in known.user_attrs.values()
    )
    note = get_note(optuna.trial.Trial(study, trial._trial_id))
    assert "--speculative-algorithm EAGLE3" in note and "| weight-load |" in note
    artifacts = optuna.artifacts.get_all_artifact_meta(study_or_trial=trial, storage=study._storage)
    assert {item.filename: item.mimetype for item in artifacts} == {
        "server.log": "text/plain",
        "samples.jsonl": "application/jsonl",
        "record.json": "application/json",
    }


def test_the_exported_file_is_what_sglang_takes_and_starts_the_server(finished: tuple[Path, str]) -> None:
    folder = finished[0]
    config = yaml.safe_load((folder / "best.yaml").read_text())
    assert all("_" not in key for key in config)
    assert all(value is not None for value in config.values())
    assert "host" not in config and "port" not in config
    server = subprocess.Popen(
        ["sh", str(folder / "best.sh"), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if b"ready to roll" in line:
                break
        else:
            raise AssertionError("the server ended before it was ready")
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()


def test_resuming_a_finished_study_launches_nothing_and_a_larger_budget_goes_on(
    finished: tuple[Path, str],
) -> None:
    folder = finished[0]
    again = tuner(*simulated(folder, "--launches", "4"))
    assert again.returncode == 0 and "trial 4" not in again.stdout
    assert "resuming after 4 trials" in again.stdout
    changed = tuner(*simulated(folder, "--launches", "5", "--output-tokens", "128"))
    assert changed.returncode == 2
    assert "workload.output_tokens: was 256, is 128" in changed.stderr


def test_a_server_of_any_other_name_is_tuned_the_same(tmp_path: Path) -> None:
    """Nothing may know that it talks to the simulator: here it is a script that nobody has heard of."""
    script = tmp_path / "served"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tuner.simulator.__main__ import main\n"
        "sys.exit(main(['--box', 'kimi-k2.5-8x-rtx-pro-6000-0.5.23', *sys.argv[1:]]))\n"
    )
    script.chmod(0o755)
    done = tuner(
        *simulated(
            tmp_path / "study",
            "--command",
            str(script),
            "--label",
            "somebody's box",
            "--name",
            "any",
            "--launches",
            "2",
        )
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = records_of(tmp_path / "study")
    assert (
        first["label"] == "somebody's box"
        and "simulated" not in (tmp_path / "study" / "best.yaml").read_text()
    )
    assert second["launch"]["config"]["cuda-graph-max-bs-decode"] == 128  # type: ignore[index]
    assert first["server"]["version"] == "0.5.23"  # type: ignore[index]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_the_server_is_ended_and_the_configuration_queued_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "study"
    run = subprocess.Popen(
        [sys.executable, "-m", "tuner", *simulated(folder, "--launches", "2")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: weights_load(folder), "the first server's start")
    assert servers_of(folder)
    run.send_signal(number)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors.decode()
    assert b"goes on from here" in errors
    assert not servers_of(folder)
    assert [trial.state for trial in study_of(folder).get_trials()] == [TrialState.FAIL, TrialState.WAITING]
    resumed = tuner(*simulated(folder, "--launches", "1"))
    assert resumed.returncode == 0
    assert records_of(folder)[1]["role"] == "baseline"


def test_after_sigkill_the_next_run_ends_what_was_left_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    run = subprocess.Popen(
        [sys.executable, "-m", "tuner", *simulated(folder, "--launches", "1")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    wait_for(lambda: weights_load(folder), "the first server's start")
    left = servers_of(folder)
    run.kill()
    run.wait()
    assert left and all(process.is_running() for process in left)
    assert records_of(folder)[0]["state"] == "running"
    resumed = tuner(*simulated(folder, "--launches", "1"))
    assert resumed.returncode == 0, resumed.stderr
    assert "processes that an earlier run had left" in resumed.stdout
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in left)
    assert [record["state"] for record in records_of(folder)] == ["failed", "complete"]


def test_where_nothing_runs_the_exit_code_is_1_and_what_failed_is_named(tmp_path: Path) -> None:
    done = tuner(
        *simulated(tmp_path / "study", "--flag", "page_size=64", "--launches", "2"),
        *alone(tmp_path, "ep_size", "[2, 8]"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no configuration ran (assertion)" in done.stderr
    trials = study_of(tmp_path / "study").get_trials()
    assert {trial.state for trial in trials} == {TrialState.PRUNED}
    assert trials[0].user_attrs["failure_phase"] == "weight-load"
    assert "AssertionError: " in trials[0].user_attrs["failure_line"]


def test_eagle3_without_room_at_the_automatic_fraction_gives_way_to_a_known_good_reference(
    tmp_path: Path,
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        "parameters:\n  mem_fraction_static: {type: float, low: 0.86, high: 0.9, step: 0.01, auto: true}\n"
        "known_good:\n  - {name: by-hand, values: {mem_fraction_static: 0.88}}\n"
    )
    done = tuner(
        *simulated(tmp_path / "study", "--search-space", str(space), "--launches", "2", "--min-kv-tokens", "1"),
        "--flag", "speculative_algorithm=EAGLE3", "speculative_num_steps=3",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    baseline, by_hand = records_of(tmp_path / "study")
    assert baseline["state"] == "pruned" and by_hand["state"] == "complete"
    reference = "known-good 'by-hand' (trial 1: the baseline could not start, mem-fraction-too-low)"
    assert by_hand["reference"] == reference
    assert reference in done.stdout and reference in (tmp_path / "study" / "best.yaml").read_text()


def alone(folder: Path, parameter: str, choices: str) -> list[str]:
    """A space of one choice, which the baseline is given as well."""
    space = folder / "space.yaml"
    space.write_text(f"parameters:\n  {parameter}: {{type: choice, choices: {choices}}}\n")
    return ["--search-space", str(space), "--baseline-flag", f"{parameter}=8"]


def weights_load(folder: Path) -> bool:
    log = folder / "trial-0000" / "server.log"
    return log.is_file() and b"Load weight begin" in log.read_bytes()


def servers_of(folder: Path) -> list[psutil.Process]:
    """Processes of servers whose log lies in that study: found by the file they write to."""
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            files = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (1, 2)]
        except OSError:
            continue
        if any(str(folder) in file for file in files) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found
