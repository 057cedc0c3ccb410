from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tuner.sglang.endpoints import EndpointError, ServerClient, last_gen_tok_s, resolved_values

Answer = tuple[int, str]
TOKEN = json.dumps({"text": "mu", "meta_info": {"completion_tokens": 1}})


@contextmanager
def server(answer: Callable[[str, str, Any, dict[str, str]], Answer]) -> Iterator[str]:
    """A server on a free port that answers (method, path, body, headers) with a status and a text."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text = answer(self.command, self.path, body, headers)
            data = text.encode()
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        do_GET = do_POST = reply

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}"
        finally:
            httpd.shutdown()
            thread.join()


def always(status: int, text: str) -> Callable[[str, str, Any, dict[str, str]], Answer]:
    return lambda *_: (status, text)


def test_a_real_token_is_asked_for_and_returned() -> None:
    asked: list[Any] = []

    def answer(method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        asked.append((method, path, body["sampling_params"]["max_new_tokens"], headers.get("authorization")))
        return 200, TOKEN

    with server(answer) as url:
        assert ServerClient(url + "/", "secret").generate_one_token(5) == "mu"
    assert asked == [("POST", "/generate", 1, "Bearer secret")]


def test_a_server_without_tokenizer_is_asked_with_token_ids() -> None:
    def answer(_: str, __: str, body: Any, ___: dict[str, str]) -> Answer:
        return (200, TOKEN) if "input_ids" in body else (400, '{"error": "no tokenizer"}')

    with server(answer) as url:
        assert ServerClient(url).generate_one_token(5) == "mu"


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (200, json.dumps({"text": "", "meta_info": {"completion_tokens": 0}}), "without a token"),
        (200, json.dumps({"error": {"message": "pool is gone"}}), "pool is gone"),
        (200, "[]", "without a token"),
        (200, "<html>", "no JSON"),
        (500, "kernel fault", "HTTP 500: kernel fault"),
        (401, "", "wants an API key"),
        (302, "", "no JSON"),
    ],
)
def test_an_answer_without_a_token_is_no_proof(status: int, text: str, said: str) -> None:
    with server(always(status, text)) as url, pytest.raises(EndpointError, match=said):
        ServerClient(url).generate_one_token(5)


def test_every_call_has_a_limit() -> None:
    hold = threading.Event()

    def answer(*_: Any) -> Answer:
        hold.wait(10)
        return 200, TOKEN

    with server(answer) as url:
        try:
            with pytest.raises(EndpointError, match=r"did not answer within 0\.1 s"):
                ServerClient(url).generate_one_token(0.1)
            assert ServerClient(url).healthy(0.1) is False
        finally:
            hold.set()


def test_where_nobody_listens_the_reason_is_short() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = ServerClient(f"http://127.0.0.1:{free.getsockname()[1]}")
        assert client.healthy() is False
        with pytest.raises(EndpointError, match=r"cannot be reached: .*refused") as refused:
            client.server_info()
    assert len(str(refused.value)) < 200


def test_proxies_of_the_user_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with server(always(200, "")) as url:
        assert ServerClient(url).healthy() is True


@pytest.mark.parametrize(("known", "status"), [("/server_info", 200), ("/get_server_info", 200)])
def test_old_and_new_paths_are_found(known: str, status: int) -> None:
    def answer(_: str, path: str, __: Any, ___: dict[str, str]) -> Answer:
        return (status, '{"version": "0.5.3"}') if path == known else (404, '{"detail": "Not Found"}')

    with server(answer) as url:
        assert ServerClient(url).server_info() == {"version": "0.5.3"}
        with pytest.raises(EndpointError, match="neither /model_info nor /get_model_info"):
            ServerClient(url).model_info()


@pytest.mark.parametrize(
    ("posted", "got", "flushed"), [(405, 200, True), (501, 400, False), (404, 404, True)]
)
def test_a_cache_is_flushed_by_whatever_call_there_is(posted: int, got: int, flushed: bool) -> None:
    def answer(method: str, *_: Any) -> Answer:
        return (posted if method == "POST" else got), ""

    with server(answer) as url:
        assert ServerClient(url).flush_cache() is flushed


@pytest.mark.parametrize(("status", "flushed"), [(200, True), (400, False)])
def test_a_busy_server_refuses_to_flush(status: int, flushed: bool) -> None:
    with server(always(status, "")) as url:
        assert ServerClient(url).flush_cache() is flushed


def test_all_requests_can_be_aborted() -> None:
    bodies: list[Any] = []

    def answer(_: str, path: str, body: Any, __: dict[str, str]) -> Answer:
        bodies.append((path, body))
        return 200, ""

    with server(answer) as url:
        ServerClient(url).abort_all()
    assert bodies == [("/abort_request", {"rid": "", "abort_all": True})]


NEW_INFO = {
    "mem_fraction_static": 0.716,
    "max_running_requests": None,
    "max_total_num_tokens": 65536,
    "tp_size": 8,
    "speculative_algorithm": "EAGLE3",
    "cuda_graph_max_bs_decode": None,
    "cuda_graph_config": {"decode": {"backend": "full", "max_bs": 32, "bs": [1, 2]}},
    "internal_states": [
        {"effective_max_running_requests_per_dp": 24},
        {"effective_max_running_requests_per_dp": 24},
    ],
}


def test_what_the_server_really_uses_is_read_under_canonical_names() -> None:
    names = [
        *("mem_fraction_static", "max_running_requests", "max_total_tokens", "tp_size", "speculative"),
        *("cuda_graph_max_bs", "cuda_graph_bs", "all_reduce"),
    ]
    assert resolved_values(NEW_INFO, names) == {
        "mem_fraction_static": 0.716,
        "max_running_requests": 48,
        "max_total_tokens": 65536,
        "tp_size": 8,
        "speculative": "eagle3",
        "cuda_graph_max_bs": 32,
        "cuda_graph_bs": [1, 2],
    }


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"cuda_graph_max_bs": 160}, {"cuda_graph_max_bs": 160}),
        (
            {"cuda_graph_max_bs_decode": 64, "max_running_requests": 7},
            {"cuda_graph_max_bs": 64, "max_running_requests": 7},
        ),
        ({"cuda_graph_config": {"decode": {"backend": "disabled", "max_bs": 32}}}, {}),
        (
            {"internal_states": "odd", "cuda_graph_config": None, "speculative_algorithm": None},
            {"speculative": "off"},
        ),
        ({"dsa_decode_backend": "fa3", "nsa_decode_backend": None}, {"nsa_decode_backend": "fa3"}),
        ({}, {}),
    ],
)
def test_other_versions_report_under_other_names(info: dict[str, Any], expected: dict[str, Any]) -> None:
    names = ["cuda_graph_max_bs", "max_running_requests", "speculative", "nsa_decode_backend"]
    assert resolved_values(info, names) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([{"last_gen_throughput": 751.8}], 751.8),
        ([{"last_gen_throughput": 400.0}, {"last_gen_throughput": 380.5}], 780.5),
        ([{"last_gen_throughput": 0.0}], None),
        ([{}], None),
        ("odd", None),
    ],
)
def test_the_last_speed_is_that_of_all_data_parallel_ranks(states: Any, expected: float | None) -> None:
    assert last_gen_tok_s({"internal_states": states}) == expected
