"""The guard in a study: the first server is the reference, others are held against it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.clock import ManualClock
from tuner.evaluate import output
from tuner.evaluate.output import OutputCheck, OutputGuard
from tuner.guard.answers import Answer
from tuner.guard.prompts import Prompt
from tuner.guard.reading import GuardSpec
from tuner.sglang.endpoints import ServerClient

SOBER = "the quick brown fox jumps over the lazy dog and then it sleeps well until the morning comes again"


class Answers:
    """Stands in for the server: what it answers is set by the test."""

    text = SOBER

    def __init__(self, client: object, clock: object, *, logprobs: bool = True) -> None:
        del client, clock, logprobs

    def answer(self, prompts: Sequence[Prompt], *, at_once: int) -> list[Answer]:
        return [self._answer(prompt) for prompt in prompts]

    def _answer(self, prompt: Prompt) -> Answer:
        text = f"{prompt.name} {self.text}"
        words = text.split()
        ids = tuple(zlib.crc32(word.encode()) % 1000 for word in words)
        return Answer(prompt.name, text, ids, tokens=len(words), finish="length")


def check(guard: OutputGuard, folder: Path) -> OutputCheck:
    return guard.check(ServerClient("http://127.0.0.1:1"), folder, concurrency=4, speculative="off")


def test_the_first_server_becomes_the_reference_and_stays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "ServerAnswers", Answers)
    guard = OutputGuard(GuardSpec(), tmp_path, ManualClock())
    assert check(guard, tmp_path).facts == {"reference": True}
    same = check(OutputGuard(GuardSpec(), tmp_path, ManualClock()), tmp_path)
    assert same.failure is None and same.facts["ok"] is True


def test_a_garbling_server_is_wrong_and_both_answers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "ServerAnswers", Answers)
    guard = OutputGuard(GuardSpec(), tmp_path, ManualClock())
    check(guard, tmp_path)
    monkeypatch.setattr(Answers, "text", "!" * 200)
    trial = tmp_path / "trial-0001"
    trial.mkdir()
    found = check(guard, trial)
    assert found.failure is not None
    assert str(found.failure.kind) == "wrong-output" and str(found.failure.cause) == "config"
    kept = (trial / "answers.json").read_text()
    assert "!!!!" in kept and "lazy dog" in kept


def test_a_guard_that_is_off_asks_nothing(tmp_path: Path) -> None:
    guard = OutputGuard(GuardSpec(enabled=False), tmp_path, ManualClock())
    assert check(guard, tmp_path) == OutputCheck()
    assert list(tmp_path.iterdir()) == []
