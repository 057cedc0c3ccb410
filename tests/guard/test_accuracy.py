"""The user's own judge of accuracy, as a real process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.processes import is_running
from tuner.clock import SystemClock
from tuner.errors import InputError
from tuner.guard.accuracy import AccuracyResult, accuracy_reason, check_command, run_accuracy

URL = "http://127.0.0.1:1234"


def run(script: str, *arguments: str, limit_s: float = 30.0) -> AccuracyResult:
    environment = {"PATH": os.environ["PATH"], "KEY": "value"}
    return run_accuracy(
        [sys.executable, "-c", script, *arguments],
        URL,
        SystemClock(),
        environment=environment,
        limit_s=limit_s,
    )


def test_the_last_line_is_the_number_and_the_url_is_filled_in() -> None:
    found = run("import sys; print('noise'); print(len(sys.argv[1])); print()", "{url}/v1")
    assert (found.exit_code, found.number, found.ok) == (0, len(URL) + 3, True)


def test_no_shell_sees_the_command() -> None:
    found = run("import sys; print(sys.argv[1])", "$(echo 1); {url} > x")
    assert found.last_line == f"$(echo 1); {URL} > x"
    assert found.number is None


def test_it_gets_the_environment_that_it_is_given() -> None:
    assert run("import os; print(os.environ['KEY'], 'HOME' in os.environ)").last_line == "value False"


def test_an_exit_code_says_no() -> None:
    found = run("print(0.9); raise SystemExit(3)")
    assert not found.ok
    assert "exit code 3" in found.problem


def test_one_that_does_not_end_is_ended_with_what_it_started(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    script = (
        "import subprocess, sys, time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}]); "
        "open(sys.argv[1], 'w').write(str(child.pid)); time.sleep(60)"
    )
    pids = tmp_path / "pid"
    began_s = time.monotonic()
    found = run(script, str(pids), limit_s=1.0)
    assert time.monotonic() - began_s < 20
    assert (found.exit_code, found.ok) == (None, False)
    assert "within 1 s" in found.problem
    assert not is_running(int(pids.read_text()))


def test_what_it_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    script = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "open(sys.argv[1], 'w').write(str(child.pid)); print(1)"
    )
    found = run(f"import warnings; warnings.simplefilter('ignore'); {script}", str(pids))
    assert found.number == 1
    assert not is_running(int(pids.read_text()))


def test_a_command_that_cannot_be_started_is_the_users_mistake() -> None:
    with pytest.raises(InputError, match="cannot be started"):
        run_accuracy(["/nowhere/judge", "{url}"], URL, SystemClock(), environment={})


@pytest.mark.parametrize("command", [[], ["judge"], ["judge", "--url", "url"]])
def test_a_command_without_the_server_is_refused(command: list[str]) -> None:
    with pytest.raises(InputError):
        check_command(command)


def test_a_command_with_the_server_is_accepted() -> None:
    check_command(["judge", "--base={url}/v1"])


def result(number: float | None = None, problem: str = "", last_line: str = "") -> AccuracyResult:
    return AccuracyResult(0 if not problem else 1, number, last_line, 1.0, problem)


@pytest.mark.parametrize(
    ("reference", "found", "is_wrong"),
    [
        ([0.90, 0.92], 0.90, False),
        ([0.90, 0.92], 0.871, False),  # within twice the spread
        ([0.90, 0.92], 0.80, True),
        ([0.90, 0.90], 0.885, False),  # within 2 %
        ([0.90, 0.90], 0.87, True),
        ([0.90], 0.95, False),
        ([-2.0, -2.1], -3.0, True),  # a log-likelihood
        ([-2.0, -2.1], -2.1, False),
    ],
)
def test_numbers_are_compared_with_the_defaults_and_its_repeat(
    reference: list[float], found: float, is_wrong: bool
) -> None:
    assert bool(accuracy_reason([result(number) for number in reference], result(found))) == is_wrong


def test_without_numbers_the_exit_code_decides() -> None:
    assert accuracy_reason([result()], result()) == ""
    assert "exit code" in accuracy_reason(
        [result()], result(problem="the accuracy command ended with exit code 1")
    )
    assert "no number" in accuracy_reason([result(0.9)], result(last_line="done"))


def test_where_the_default_has_no_result_nothing_is_held_against_others() -> None:
    assert accuracy_reason([result(problem="time")], result(problem="time")) == ""
    assert accuracy_reason([], result(0.1)) == ""
