"""The output guard on a real SGLang server with real random weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real_server.conftest import RealSGLang
from tuner.clock import SystemClock
from tuner.guard.accuracy import run_accuracy
from tuner.guard.answers import AnswerSet, Reference, take_answers
from tuner.guard.judge import judge
from tuner.guard.prompts import read_prompts
from tuner.guard.source import ServerAnswers
from tuner.launch.gpus import NullProbe
from tuner.launch.local import LocalExecutor
from tuner.sglang.endpoints import ServerClient
from tuner.sglang.plan import LaunchPlan
from tuner.startup.follow import Ready, follow_start
from tuner.startup.limits import DEFAULT_SILENCE_S, StallLimits

WEIGHTS = Path(__file__).with_name("random_weights.py")
CONCURRENCY = 32
CLOCK = SystemClock()

# Counts how many of a few prompts are answered with a token; prints the share as its last line.
JUDGE = """
import json, sys, urllib.request
body = json.dumps({"text": "the server", "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}).encode()
request = urllib.request.Request(sys.argv[1] + "/generate", body, {"Content-Type": "application/json"})
reply = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60))
print("accuracy:")
print(reply["meta_info"]["completion_tokens"] / 4)
"""


def model_with(sglang: RealSGLang, folder: Path, seed: int) -> Path:
    out = folder / f"model-{seed}"
    command = [str(sglang.python), str(WEIGHTS), str(sglang.model), str(out), str(seed)]
    subprocess.run(command, check=True, timeout=120)
    return out


@contextmanager
def serving(
    sglang: RealSGLang, folder: Path, model: Path, *flags: tuple[str, tuple[str, ...]]
) -> Iterator[ServerClient]:
    executor = LocalExecutor(NullProbe(), CLOCK, marker_scope=f"test-guard-{folder}")
    lease = executor.lease(())
    plan = LaunchPlan(
        command=(str(sglang.python), "-m", "sglang.launch_server"),
        flags=(
            ("--model-path", (str(model),)),
            ("--device", ("cpu",)),
            ("--attention-backend", ("torch_native",)),
            ("--max-total-tokens", ("32768",)),
            *flags,
        ),
        variables=tuple(sglang.environment.items()),
    ).at(port=lease.port, gpus=())  # fmt: skip
    handle = executor.launch(plan, folder)
    try:
        client = ServerClient(handle.url)
        limits = StallLimits(silence_s=DEFAULT_SILENCE_S, ready_limit_s=300.0)
        start = follow_start(handle, client, clock=CLOCK, limits=limits, on_change=lambda _: None)
        assert isinstance(start, Ready), handle.read_log(0).decode(errors="replace")[-4000:]
        yield client
    finally:
        handle.stop()


def taken(client: ServerClient) -> AnswerSet:
    return take_answers(ServerAnswers(client, CLOCK, limit_s=120.0), read_prompts(), concurrency=CONCURRENCY)


def told(answers: AnswerSet) -> list[str]:
    """The errors of the prompts without an answer."""
    return [answer.error for answer in (*answers.alone, *answers.under_load) if answer.error]


@pytest.mark.real_server
@pytest.mark.timeout(900)
def test_the_same_model_passes_and_another_does_not(real_sglang: RealSGLang, tmp_path: Path) -> None:
    default = model_with(real_sglang, tmp_path, 1)
    with serving(real_sglang, tmp_path / "default", default) as client:
        reference = Reference((taken(client), taken(client)))
        again = taken(client)
        accuracy = run_accuracy(
            [sys.executable, "-c", JUDGE, "{url}"], client.url, CLOCK, environment={}, limit_s=90.0
        )
    assert (accuracy.number, accuracy.problem) == (1.0, "")
    answers = [answer for item in reference.sets for answer in (*item.alone, *item.under_load)]
    assert [answer.error for answer in answers if answer.error] == []
    assert all(len(answer.choices) == len(answer.token_ids) == len(answer.logprobs) for answer in answers)
    same = judge(reference, again)
    assert (same.ok, same.blind) == (True, ""), (same, told(again))

    # The same weights in another configuration: smaller chunks, few at once.
    flags = (("--chunked-prefill-size", ("64",)), ("--max-running-requests", ("4",)))
    with serving(real_sglang, tmp_path / "other", default, *flags) as client:
        answers_of_other = taken(client)
    other = judge(reference, answers_of_other)
    assert (other.ok, other.blind) == (True, ""), (other, told(answers_of_other))

    # Other weights: what a kernel that garbles amounts to.
    garbled = model_with(real_sglang, tmp_path, 2)
    with serving(real_sglang, tmp_path / "garbled", garbled) as client:
        wrong = judge(reference, taken(client))
    assert not wrong.ok
    assert any("part from the default's" in reason for reason in wrong.reasons)


@pytest.mark.real_server
@pytest.mark.timeout(600)
def test_dummy_weights_are_known_to_show_nothing(real_sglang: RealSGLang, tmp_path: Path) -> None:
    with serving(real_sglang, tmp_path / "dummy", real_sglang.model, ("--load-format", ("dummy",))) as client:
        reference = Reference((taken(client), taken(client)))
    verdict = judge(reference, reference.sets[0])
    assert verdict.ok
    assert "are the weights real?" in verdict.blind
