"""Answers of a server over HTTP, and the prompts that are sent."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tuner.clock import ManualClock, SystemClock
from tuner.errors import InputError
from tuner.guard.answers import take_answers
from tuner.guard.prompts import Prompt, read_prompts
from tuner.guard.source import ServerAnswers, read_answer
from tuner.sglang.endpoints import EndpointError, ServerClient

PROMPT = Prompt("capital", "The capital of France is", 8)
REPLY: dict[str, Any] = {
    "text": " Paris.",
    "output_ids": [12366, 13],
    "meta_info": {
        "finish_reason": {"type": "stop", "matched": 0},
        "completion_tokens": 2,
        "spec_verify_ct": 1,
        "output_token_logprobs": [[-0.25, 12366, None], [None, 13, None]],
        "output_top_logprobs": [[[-0.25, 12366, None], [-2.5, 279, None]], [[-0.1, 13, None]]],
    },
}


@contextmanager
def server(answer: Callable[[Mapping[str, Any]], tuple[int, Any]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, reply = answer(body)
            data = json.dumps(reply).encode()
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}"
        finally:
            httpd.shutdown()
            thread.join()


def source(url: str, **settings: Any) -> ServerAnswers:
    return ServerAnswers(ServerClient(url), SystemClock(), **settings)


def test_a_reply_is_read() -> None:
    answer = read_answer(PROMPT, REPLY)
    assert (answer.text, answer.token_ids, answer.tokens, answer.asked) == (" Paris.", (12366, 13), 2, 8)
    assert (answer.finish, answer.verify_steps) == ("stop", 1)
    assert answer.logprobs[0] == -0.25 and math.isnan(answer.logprobs[1])
    assert answer.choices[0] == ((12366, -0.25), (279, -2.5))


def test_older_servers_tell_their_tokens_only_beside_the_log_probabilities() -> None:
    old = {"text": "x", "meta_info": {**REPLY["meta_info"], "finish_reason": None}}
    answer = read_answer(PROMPT, old)
    assert (answer.token_ids, answer.finish) == ((12366, 13), "")


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"text": "x"},
        {"text": 1, "meta_info": {}},
        {"text": "x", "meta_info": {"output_token_logprobs": [["a", "b"]]}},
    ],
)
def test_what_is_no_reply_is_refused(reply: dict[str, Any]) -> None:
    with pytest.raises(EndpointError, match="/generate"):
        read_answer(PROMPT, reply)


def test_prompts_are_asked_greedily_and_answered_in_their_order() -> None:
    asked: list[Mapping[str, Any]] = []

    def answer(body: Mapping[str, Any]) -> tuple[int, Any]:
        asked.append(body)
        return 200, {"text": body["text"].upper(), "meta_info": {"completion_tokens": 1}}

    prompts = [Prompt(f"p{number}", f"text {number}", 8 + number) for number in range(20)]
    with server(answer) as url:
        answers = source(url).answer(prompts, at_once=7)
    assert [item.text for item in answers] == [f"TEXT {number}" for number in range(20)]
    assert [item.prompt for item in answers] == [prompt.name for prompt in prompts]
    first = next(body for body in asked if body["text"] == "text 0")
    assert first["sampling_params"] == {"temperature": 0.0, "max_new_tokens": 8}
    assert (first["return_logprob"], first["top_logprobs_num"]) == (True, 5)


def test_as_many_as_asked_for_run_at_once() -> None:
    together = threading.Barrier(5, timeout=20)

    def answer(body: Mapping[str, Any]) -> tuple[int, Any]:
        together.wait()
        return 200, {"text": "x", "meta_info": {}}

    with server(answer) as url:
        answers = source(url).answer([PROMPT] * 10, at_once=5)
    assert [item.error for item in answers] == [""] * 10


def test_a_server_that_refuses_log_probabilities_is_asked_without_them_from_then_on() -> None:
    asked: list[bool] = []

    def answer(body: Mapping[str, Any]) -> tuple[int, Any]:
        asked.append("return_logprob" in body)
        return (
            (400, {"error": "not with speculation"}) if asked[-1] else (200, {"text": "x", "meta_info": {}})
        )

    with server(answer) as url:
        answers = source(url).answer([PROMPT] * 3, at_once=1)
    assert [item.error for item in answers] == [""] * 3
    assert asked == [True, False, False, False]


def test_log_probabilities_need_not_be_asked_for() -> None:
    with server(
        lambda body: (500 if "return_logprob" in body else 200, {"text": "x", "meta_info": {}})
    ) as url:
        (answer,) = source(url, logprobs=False).answer([PROMPT], at_once=1)
    assert answer.error == ""


def test_no_answer_is_an_answer_with_an_error() -> None:
    with server(lambda _: (500, {"error": "no memory"})) as url:
        broken = source(url).answer([PROMPT, PROMPT], at_once=2)
    assert all("HTTP 500" in item.error and item.asked == 8 for item in broken)
    gone = source(url).answer([PROMPT], at_once=1)
    assert "cannot be reached" in gone[0].error


def test_the_time_for_all_answers_is_limited() -> None:
    clock = ManualClock()

    def answer(body: Mapping[str, Any]) -> tuple[int, Any]:
        clock.advance(4)
        return 200, {"text": "x", "meta_info": {}}

    with server(answer) as url:
        answers = ServerAnswers(ServerClient(url), clock, limit_s=10).answer([PROMPT] * 5, at_once=1)
    assert [item.error for item in answers] == ["", "", "", "no answer within 10 s", "no answer within 10 s"]


def test_an_interruption_does_not_wait_for_the_answers() -> None:
    release = threading.Event()

    def answer(body: Mapping[str, Any]) -> tuple[int, Any]:
        release.wait(30)
        return 200, {"text": "x", "meta_info": {}}

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with server(answer) as url:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            began_s = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                source(url).answer([PROMPT] * 8, at_once=2)
            assert time.monotonic() - began_s < 20  # and not the 30 s of the server
            release.set()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_under_load_as_many_requests_as_asked_for_and_the_others_are_shorter() -> None:
    asked: list[Mapping[str, Any]] = []

    def answer(body: Mapping[str, Any]) -> tuple[int, Any]:
        asked.append(body)
        return 200, {"text": "x", "meta_info": {}}

    prompts = read_prompts()
    with server(answer) as url:
        found = take_answers(source(url), prompts, concurrency=40)
    assert [item.prompt for item in found.alone] == [prompt.name for prompt in prompts[:8]]
    assert [item.prompt for item in found.under_load] == [prompt.name for prompt in prompts]
    loaded = asked[8:]
    assert len(loaded) == 40
    assert len({body["text"] for body in loaded}) == 40
    own = {prompt.text for prompt in prompts}
    lengths = {body["sampling_params"]["max_new_tokens"] for body in loaded if body["text"] not in own}
    assert len(lengths) > 4 and min(lengths) >= 4


def test_the_shipped_prompts_are_varied() -> None:
    prompts = read_prompts()
    assert len(prompts) == 24
    assert len({prompt.text for prompt in prompts}) == 24
    assert sum(not prompt.text.isascii() for prompt in prompts) >= 5
    # A tokenizer without other letters makes no empty prompt of any.
    assert all(
        sum(letter.isascii() and letter.isalnum() for letter in prompt.text) >= 5 for prompt in prompts
    )
    assert (
        sum(prompt.output_tokens >= 128 for prompt in prompts[:8]) >= 2
    )  # some garble only after 100 tokens


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompts: []", "at least 4"),
        ("questions: []", "unknown key"),
        (
            "prompts: [{name: a, text: b, tokens: 8}, {name: a, text: c, tokens: 8}, {name: d, text: c, tokens: 8}, {name: e, text: c, tokens: 8}]",
            "twice",
        ),
        ("prompts: [{name: a, text: b, tokens: 0}, 1, 2, 3]", "least possible"),
    ],
)
def test_a_bad_file_of_prompts_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "prompts.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        read_prompts(file)
