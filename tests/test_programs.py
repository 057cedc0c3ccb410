"""Programs with a deadline, as real processes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.processes import is_running
from tuner.programs import Ended, end, exit_code_of, run_to_end, start, wait_for

PARENT = """
import os, signal, sys, time
child = os.fork()
if child:
    open(sys.argv[1], 'w').write(str(child))
else:
    time.sleep(60)
"""


def run(script: str, *words: str, limit_s: float = 30.0, **how: object) -> Ended:
    argv = [sys.executable, "-c", script, *words]
    return run_to_end(argv, environment={"KEY": "value"}, limit_s=limit_s, **how)  # type: ignore[arg-type]


def test_it_tells_both_streams_and_the_exit_code_and_gives_only_what_it_was_given() -> None:
    script = "import os, sys; print(os.environ['KEY'], 'HOME' in os.environ, sys.stdin.read() == ''); sys.exit('no')"
    assert run(script) == Ended(1, "value False True\n", "no\n")


def test_a_signal_is_a_negative_exit_code() -> None:
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").exit_code == -11


def test_of_much_output_the_end_is_kept() -> None:
    found = run("print('first'); print('x' * 3_000_000); print('last')").output
    assert len(found) == 1 << 20
    assert found.endswith("x\nlast\n")


def test_after_its_deadline_it_is_ended_with_what_it_started(tmp_path: Path) -> None:
    began_s = time.monotonic()
    found = run(PARENT + "time.sleep(60)", str(tmp_path / "pid"), limit_s=1.0)
    assert time.monotonic() - began_s < 20
    assert found.exit_code is None
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_what_it_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    assert run(PARENT, str(tmp_path / "pid")).exit_code == 0
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_what_nobody_wants_any_more_is_ended() -> None:
    began_s = time.monotonic()
    assert run("import time; time.sleep(60)", wanted=lambda: False).exit_code is None
    assert time.monotonic() - began_s < 20


def test_an_exception_leaves_nobody_behind(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def interrupted() -> bool:
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        run(PARENT + "time.sleep(60)", str(pid), wanted=interrupted)
    assert not is_running(int(pid.read_text()))


@pytest.mark.parametrize(("grace_s", "said"), [(20.0, "bye"), (0.0, "")])
def test_it_is_asked_first_where_it_has_a_grace(tmp_path: Path, grace_s: float, said: str) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye', end='')))\n"
        "open(sys.argv[1], 'w')\n"
        "time.sleep(60)"
    )
    ready = tmp_path / "ready"
    found = run(script, str(ready), wanted=lambda: not ready.exists(), grace_s=grace_s)
    assert (found.exit_code, found.output) == (None, said)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(OSError, match="No such file"):
        run_to_end(["/nowhere/program"], environment={}, limit_s=1)
    with pytest.raises(ValueError, match="null"):
        run_to_end(["/bin/true", "\0"], environment={}, limit_s=1)


def test_a_child_keeps_its_number_until_it_is_ended(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        child = start([sys.executable, "-c", "raise SystemExit(7)"], environment={}, stdout=log, stderr=log)
    assert wait_for(child, 30) == 7
    assert exit_code_of(child) == 7
    assert child.returncode is None  # still ours
    assert os.getpgid(child.pid) == child.pid
    end(child)
    assert exit_code_of(child) == 7
