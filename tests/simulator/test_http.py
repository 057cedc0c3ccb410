"""What a simulated server answers."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.boxes import DENSE, KIMI, KIMI_12, fast_box
from tests.simulator.running import Running, running

MODEL = ("--model-path", "Qwen/Qwen3-32B-FP8")
GREEDY = {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("http")
    with running(folder, *fast_box(folder)) as server:
        yield server


def test_state_endpoints(server: Running) -> None:
    assert server.call("GET", "/health") == (200, "")
    for path in ("/model_info", "/get_model_info"):
        status, info = server.call("GET", path)
        assert (status, info["model_path"], info["is_generation"]) == (200, "Qwen/Qwen3-32B-FP8", True)
    for path in ("/server_info", "/get_server_info"):
        status, info = server.call("GET", path)
        state = info["internal_states"][0]
        assert (status, info["version"], info["tp_size"]) == (200, "0.5.23", 1)
        assert info["attention_backend"] == "flashinfer"
        assert state["memory_usage"]["token_capacity"] == info["max_total_num_tokens"] > 100_000
        assert state["effective_max_running_requests_per_dp"] >= 2048
    assert server.call("GET", "/v1/models")[1]["data"][0]["id"] == "Qwen/Qwen3-32B-FP8"
    assert server.call("GET", "/version") == (404, {"detail": "Not Found"})
    assert server.call("GET", "/generate")[0] == 405


def test_a_stream_is_cumulative_and_ends_with_its_reason(server: Running) -> None:
    chunks = [chunk for _, chunk in server.generate("the same prompt", 12)]
    texts = [chunk["text"] for chunk in chunks]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert [chunk["meta_info"]["completion_tokens"] for chunk in chunks] == list(range(1, 13))
    assert [len(chunk["output_ids"]) for chunk in chunks] == list(range(1, 13))
    assert all(chunk["meta_info"]["finish_reason"] is None for chunk in chunks[:-1])
    last = chunks[-1]["meta_info"]
    assert last["finish_reason"] == {"type": "length", "length": 12}
    assert last["e2e_latency"] > 0
    assert last["prompt_tokens"] == 3
    whole = server.call("POST", "/generate", {"text": "the same prompt", "sampling_params": GREEDY})[1]
    assert whole["text"] == texts[-1]
    assert whole["output_ids"] == chunks[-1]["output_ids"]


def test_text_depends_on_the_prompt_and_on_the_temperature(server: Running) -> None:
    def text(prompt: str, temperature: float) -> str:
        sampling = {**GREEDY, "temperature": temperature}
        body = {"text": prompt, "sampling_params": sampling}
        got: str = server.call("POST", "/generate", body)[1]["text"]
        return got

    assert text("a prompt", 0) == text("a prompt", 0)
    assert text("a prompt", 0) != text("another prompt", 0)
    assert len({text("a prompt", 1.0) for _ in range(3)}) > 1


def test_a_text_ends_by_itself_unless_it_is_told_not_to(server: Running) -> None:
    sampling = {"max_new_tokens": 10_000, "temperature": 0}
    lengths = []
    for prompt in ("this one", "that one"):
        meta = server.stream("/generate", {"text": prompt, "sampling_params": sampling})[-1][1]["meta_info"]
        assert meta["finish_reason"]["type"] == "stop"
        lengths.append(meta["completion_tokens"])
    assert all(200 <= length < 2200 for length in lengths)
    assert lengths[0] != lengths[1]


def test_a_request_can_be_aborted(server: Running) -> None:
    sampling = {"max_new_tokens": 30_000, "temperature": 0, "ignore_eos": True}
    body = {"text": "until the end", "sampling_params": sampling, "rid": "mine", "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("POST", "/generate", json.dumps(body))
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    assert server.call("POST", "/flush_cache")[0] == 400
    assert server.call("POST", "/abort_request", {"rid": "mine"})[0] == 200
    last = [line for line in answer if line.startswith(b"data: {")][-1]
    assert json.loads(last[6:])["meta_info"]["finish_reason"]["type"] == "abort"
    connection.close()
    wait_idle(server)


def wait_idle(server: Running) -> None:
    deadline_s = time.monotonic() + 60
    while server.call("POST", "/flush_cache")[0] != 200:
        assert time.monotonic() < deadline_s, "a request is still open"
        time.sleep(0.02)


def test_the_prefix_cache_is_seen_and_can_be_flushed(server: Running) -> None:
    body = {"input_ids": list(range(7000, 7200)), "sampling_params": {**GREEDY, "max_new_tokens": 1}}
    cached = []
    for _ in range(2):
        cached.append(server.call("POST", "/generate", body)[1]["meta_info"]["cached_tokens"])
    assert server.call("POST", "/flush_cache")[0] == 200
    cached.append(server.call("POST", "/generate", body)[1]["meta_info"]["cached_tokens"])
    assert cached == [0, 199, 0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": "x", "sampling_params": {"max_new_tokens": -1}}, "must be at least 0, got -1."),
        ({"text": "x", "sampling_params": {"temperature": -1}}, "temperature must be non-negative"),
        ({"sampling_params": {}}, "Either text, input_ids or input_embeds should be provided."),
        ({"text": "word " * 50_000}, "is longer than the model's context length"),
        ({"text": "x", "sampling_params": {"stream_interval": "often"}}, "often"),
        ([], "The body must be an object."),
    ],
)  # fmt: skip
def test_bad_requests_are_refused(server: Running, body: Any, message: str) -> None:
    status, answer = server.call("POST", "/generate", body)
    assert status == 400
    assert message in answer["error"]["message"]


def test_the_openai_endpoints_send_only_what_is_new(server: Running) -> None:
    options = {"include_usage": True}
    body = {"model": "any", "prompt": "complete me", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    chunks = [chunk for _, chunk in server.stream("/v1/completions", {**body, "stream_options": options})]
    assert [len(chunk["choices"]) for chunk in chunks] == [1] * 6 + [0]
    assert chunks[-1]["usage"]["completion_tokens"] == 6
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1])
    assert server.call("POST", "/v1/completions", body)[1]["choices"][0]["text"] == text
    chat = {
        "model": "any",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 3,
        "temperature": 0,
    }
    parts = [chunk for _, chunk in server.stream("/v1/chat/completions", chat)]
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert server.call("POST", "/v1/chat/completions", chat)[1]["usage"]["completion_tokens"] == 3


def test_a_client_that_leaves_frees_its_place(server: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    body = {"text": "leaving", "sampling_params": {**GREEDY, "max_new_tokens": 30_000}, "stream": True}
    connection.request("POST", "/generate", json.dumps(body))
    answer = connection.getresponse()
    answer.readline()
    answer.close()
    connection.close()
    wait_idle(server)


def test_one_connection_serves_many_requests(server: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/model_info")
        assert connection.getresponse().read().startswith(b'{"model_path"')
    connection.close()


def test_a_key_protects_all_but_health(tmp_path: Path) -> None:
    with running(tmp_path, DENSE, *MODEL, "--api-key", "secret") as server:
        assert server.call("GET", "/health")[0] == 200
        assert server.call("GET", "/model_info")[0] == 401
        assert server.call("GET", "/model_info", authorization="Bearer secret")[0] == 200
        assert server.call("GET", "/server_info", authorization="Bearer secret")[1]["api_key"] == "[redacted]"
        assert "secret" not in server.log


def test_a_garbled_launch_writes_no_sentences(tmp_path: Path) -> None:
    with running(tmp_path, *fast_box(tmp_path), "--kv-cache-dtype", "fp8_e5m2") as server:
        assert "!!!!!!" in server.generate("hello", 40)[-1][1]["text"]


def test_a_full_pool_retracts_and_every_request_still_gets_its_tokens(tmp_path: Path) -> None:
    words = (
        *KIMI,
        "--mem-fraction-static",
        "0.88",
        "--max-total-tokens",
        "400",
        "--schedule-conservativeness",
        "0",
    )
    with running(tmp_path, KIMI_12, *words) as server:
        counts: list[tuple[int, int]] = []

        def work(number: int) -> None:
            meta = server.generate(f"request number {number}", 100)[-1][1]["meta_info"]
            counts.append((meta["completion_tokens"], meta["num_retractions"]))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert [tokens for tokens, _ in counts] == [100] * 6
        assert sum(retractions for _, retractions in counts) > 0
        assert "KV cache pool is full. Retract requests. #retracted_reqs: " in server.log


def test_only_as_many_run_as_may(tmp_path: Path) -> None:
    with running(
        tmp_path, DENSE, *MODEL, "--max-running-requests", "2", "--decode-log-interval", "5"
    ) as server:
        threads = [threading.Thread(target=server.generate, args=(f"r{number}", 20)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        lines = [line for line in server.log.splitlines() if "Decode batch, #running-req: " in line]
        assert lines
        assert all("#running-req: 1," in line or "#running-req: 2," in line for line in lines)
        assert any("#queue-req: 3" in line for line in lines)
