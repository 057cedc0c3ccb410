"""An executor with short limits, and the proof that a test leaves no process behind."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tuner.clock import SystemClock
from tuner.launch.gpus import NullProbe
from tuner.launch.local import LocalExecutor


@pytest.fixture
def scope() -> Iterator[str]:
    """A marker scope of the test's own; whatever still carries it afterwards is ended and fails the test."""
    name = f"test:{secrets.token_hex(4)}"
    yield name
    left = LocalExecutor(NullProbe(), SystemClock(), marker_scope=name).sweep_leftovers()
    assert left == [], "the test left processes behind"


@pytest.fixture
def executor(scope: str) -> LocalExecutor:
    """Servers of this machine, with short limits."""
    return LocalExecutor(
        NullProbe(), SystemClock(), marker_scope=scope, stop_grace_s=1.0, kill_grace_s=5.0, clean_limit_s=5.0
    )
