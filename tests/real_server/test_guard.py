"""The output guard on a real SGLang server with real random weights."""

from __future__ import annotations

import json
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
from tuner.sglang.events import KvAllocated
from tuner.sglang.log import LogReader
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


ONE_LAYER = json.dumps({"num_hidden_layers": 1})
KV_TOKENS = 1_000_000


@pytest.fixture(scope="module")
def hollow(
    real_sglang: RealSGLang, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerClient, Path]]:
    """A server without weights and with one of the model's two layers, and its folder."""
    folder = tmp_path_factory.mktemp("hollow")
    flags = (
        ("--load-format", ("dummy",)),
        ("--json-model-override-args", (ONE_LAYER,)),
        ("--max-total-tokens", (str(KV_TOKENS),)),
    )
    with serving(real_sglang, folder, real_sglang.model, *flags) as client:
        yield client, folder


@pytest.mark.real_server
@pytest.mark.timeout(600)
def test_a_cut_model_without_weights_is_served(
    hollow: tuple[ServerClient, Path], real_sglang: RealSGLang
) -> None:
    """What a cheap look at a configuration would be launched with: both flags are accepted, and tokens come."""
    client, folder = hollow
    assert client.generate_one_token(60.0)
    info = client.server_info()
    assert (info["load_format"], info["json_model_override_args"]) == ("dummy", ONE_LAYER)
    # Keys and values of bfloat16 in one layer; with both layers it would be twice as much.
    config = json.loads((real_sglang.model / "config.json").read_text())
    gib_per_layer = 2 * KV_TOKENS * config["num_key_value_heads"] * config["head_dim"] * 2 / 2**30
    events = LogReader().feed((folder / "server.log").read_bytes())
    sizes = [event.size_gib for event in events if isinstance(event, KvAllocated)]
    assert sizes == [pytest.approx(gib_per_layer, abs=0.02)]
    assert config["num_hidden_layers"] == 2


@pytest.mark.real_server
@pytest.mark.timeout(600)
def test_dummy_weights_are_known_to_show_nothing(hollow: tuple[ServerClient, Path]) -> None:
    client, _ = hollow
    reference = Reference((taken(client), taken(client)))
    verdict = judge(reference, reference.sets[0])
    assert verdict.ok
    assert "are the weights real?" in verdict.blind
