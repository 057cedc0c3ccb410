"""The guard on simulated servers: one that garbles is told from one that is only configured otherwise."""

from __future__ import annotations

from pathlib import Path

from tests.simulator.boxes import fast_box
from tests.simulator.running import running
from tuner.clock import SystemClock
from tuner.guard.answers import AnswerSet, Reference, take_answers
from tuner.guard.judge import judge
from tuner.guard.prompts import read_prompts
from tuner.guard.source import ServerAnswers
from tuner.sglang.endpoints import ServerClient


def taken(folder: Path, *words: str) -> AnswerSet:
    with running(folder, *fast_box(folder), *words) as server:
        client = ServerClient(f"http://127.0.0.1:{server.port}")
        return take_answers(
            ServerAnswers(client, SystemClock(), limit_s=60.0), read_prompts(), concurrency=32
        )


def test_a_box_that_garbles_is_told_from_another_configuration(tmp_path: Path) -> None:
    default = taken(tmp_path)
    reference = Reference((default, default))
    other = judge(reference, taken(tmp_path, "--max-running-requests", "16"))
    assert (other.ok, other.blind, other.agreement) == (True, "", 1.0)
    garbled = judge(reference, taken(tmp_path, "--kv-cache-dtype", "fp8_e5m2"))
    assert not garbled.ok
    assert "answers are no text" in garbled.reasons[0]
