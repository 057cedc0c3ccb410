"""The host meter on this machine, and whose a process is."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tuner.launch.environment import MARKER
from tuner.launch.host import LocalHost, is_of_launch


def test_a_busy_core_is_seen() -> None:
    host = LocalHost()
    until_s = time.monotonic() + 0.4
    while time.monotonic() < until_s:
        pass
    reading = host.read()
    assert reading.busiest_core_percent > 50
    assert 0 < reading.cpu_percent <= 100
    assert 0 <= reading.steal_percent <= 100
    assert reading.memory_available_gib > 0


def test_two_readings_at_once_divide_by_nothing() -> None:
    host = LocalHost()
    host.read()
    assert 0 <= host.read().cpu_percent <= 100


def test_a_process_is_known_by_the_marker_of_its_launch() -> None:
    environment = {**os.environ, MARKER: "study:abc"}
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    assert is_of_launch(process.pid, "study:abc")
    assert not is_of_launch(process.pid, "study:other")
    assert not is_of_launch(os.getpid(), "study:abc")
    process.communicate(b"\n")
    assert not is_of_launch(process.pid, "study:abc")
