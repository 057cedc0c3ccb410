"""How the foreign server answers: the batch it steps, and HTTP in two manners."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
import traceback
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from tests.foreign.box import ACCEPTED, Launch

VERSIONS = {"old": "0.5.9", "new": "0.5.21", "bare": ""}
WORDS = (
    "river",
    "stone",
    "lamp",
    "garden",
    "window",
    "paper",
    "copper",
    "field",
    "winter",
    "bridge",
    "cotton",
)
STEP_ODDS = tuple(one / before for before, one in zip((1.0, *ACCEPTED), ACCEPTED, strict=False))
"""The odds that one more draft is accepted, after all before it were."""


OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 1.12 GiB. GPU 0 has a total capacity of 94.97 GiB "
    "of which {free:.2f} GiB is free."
)


class Process(Protocol):
    """What an answer depends on."""

    style: str
    awkward: set[str]
    flags: argparse.Namespace
    box: Launch
    speedup: float
    luck: float
    ready: bool
    engine: Engine

    def say(self, text: str, rank: int | None = None) -> None: ...

    def die(self, error: str, where: str) -> None: ...


class Engine:
    """Steps the batch; one thread for all requests."""

    def __init__(self, server: Process) -> None:
        self.server, self.lock = server, threading.Condition()
        self.waiting: list[Asked] = []
        self.running: list[Asked] = []
        self.served = 0

    def run(self) -> None:
        """Admit, step, hand out; for ever."""
        steps, made, since = 0, 0, time.monotonic()
        due = since
        while True:
            with self.lock:
                while not (self.waiting or self.running):
                    self.lock.wait()
                    due = since = time.monotonic()
                    made = 0
                new = self.waiting[: self.server.box.running - len(self.running)]
                del self.waiting[: len(new)]
                self.running += new
            if new:
                self.prefill(new)
                due += 0.004 + sum(asked.prompt for asked in new) / 200_000
            due += self.server.box.step_ms(len(self.running)) / 1000 / self.server.speedup / self.server.luck
            time.sleep(max(0.0, due - time.monotonic()))
            batch = len(self.running)
            made += sum(asked.grow(self.accepted()) for asked in self.running)
            self.running = [asked for asked in self.running if asked.made < asked.wanted]
            steps += 1
            if steps % (self.server.flags.decode_log_interval or 40) == 0:
                self.tell(batch, made / (time.monotonic() - since))
                since, made = time.monotonic(), 0

    def prefill(self, new: list[Asked]) -> None:
        """Some prompts take more room than there is, or meet a kernel that cannot."""
        box, tokens = self.server.box, sum(asked.prompt for asked in new)
        self.server.say(
            f"Prefill batch, #new-seq: {len(new)}, #new-token: {tokens}, #cached-token: 0, token usage: 0.01, "
            f"#running-req: {len(self.running) - len(new)}, #queue-req: {len(self.waiting)}", 0
        )  # fmt: skip
        self.served += len(new)
        if box.rest_gib - box.chunk / 8192 * 1.2 < 0 and self.served > 6:
            self.server.die(f"torch.OutOfMemoryError: {OUT_OF_MEMORY.format(free=0.61)}", "managers")
        if box.steps >= 5 and "load" in self.server.awkward and self.served > 4:
            self.server.die(
                "RuntimeError: CUDA error: an illegal memory access was encountered", "speculative"
            )

    def accepted(self) -> int:
        """Tokens that one request gains in a step."""
        gain = 1
        while gain <= self.server.box.steps and random.random() < STEP_ODDS[gain - 1]:
            gain += 1
        return gain

    def tell(self, batch: int, tok_s: float) -> None:
        """The decode line."""
        box = self.server.box
        accept = f"accept len: {box.accepted:.2f}, accept rate: 0.45, " if box.steps else ""
        self.server.say(
            f"Decode batch, #running-req: {batch}, #token: 900, token usage: 0.02, {accept}"
            f"cuda graph: {batch <= box.graph_batch}, gen throughput (token/s): {tok_s:.2f}, "
            f"#queue-req: {len(self.waiting)}", 0
        )  # fmt: skip


class Asked:
    """One request and the tokens it has so far."""

    def __init__(self, body: dict[str, Any]) -> None:
        wanted = body.get("sampling_params") or {}
        self.wanted = int(wanted.get("max_new_tokens", 16))
        ids = body.get("input_ids") or str(body.get("text", "")).split()
        self.prompt, self.made, self.steps = max(len(ids), 1), 0, 0
        self.seed = hash(tuple(ids)) if body.get("input_ids") else sum(map(ord, str(body.get("text", ""))))
        self.grown = threading.Condition()

    def is_beyond(self, tokens: int) -> bool:
        return self.made > tokens

    def grow(self, tokens: int) -> int:
        with self.grown:
            before, self.made = self.made, min(self.made + tokens, self.wanted)
            self.steps += 1
            self.grown.notify()
        return self.made - before

    def words(self, first: int, last: int) -> str:
        return "".join(
            f" {WORDS[(self.seed + i * (7 + self.seed % 5)) % len(WORDS)]}" for i in range(first, last)
        )


class Listening(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with chunks cut anywhere (old), or HTTP/1.0 that closes after each answer (new, bare)."""

    server_of: Process

    def log_message(self, format: str, *args: Any) -> None:
        self.server_of.say(f"INFO:     127.0.0.1:0 - {format % args}")

    def answer(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        server, style = self.server_of, self.server_of.style
        path = self.path.split("?")[0]
        if path in ("/health", "/health_generate"):
            self.answer(200 if server.ready else 503, b"")
        elif path == {"old": "/get_model_info", "new": "/model_info"}.get(style):
            self.answer(200, {"model_path": server.flags.model_path, "is_generation": True})
        elif path == {"old": "/get_server_info", "new": "/server_info"}.get(style):
            facts = dict(vars(server.flags))
            facts |= {"version": VERSIONS[style], "internal_states": [{"last_gen_throughput": 1.0}]}
            if style == "old":
                facts |= {"max_total_num_tokens": server.box.tokens}
            self.answer(200, facts)
        elif path == "/flush_cache" and style != "bare":
            self.answer(200, b"Cache flushed.\n")
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if path != "/generate":
            return self.do_GET()
        asked = Asked(json.loads(body))
        if not self.server_of.ready:
            return self.answer(503, {"error": {"message": "starting"}})
        engine = self.server_of.engine
        with engine.lock:
            engine.waiting.append(asked)
            engine.lock.notify()
        if json.loads(body).get("stream"):
            return self.stream(asked)
        with asked.grown:
            asked.grown.wait_for(lambda: asked.made >= asked.wanted, timeout=120)
        return self.answer(200, self.event(asked, 0, asked.made))

    def event(self, asked: Asked, before: int, made: int) -> dict[str, Any]:
        """One event: all text so far (old), or what is new (new, bare)."""
        meta: dict[str, Any] = {"id": str(id(asked)), "completion_tokens": made, "finish_reason": None}
        if made >= asked.wanted:
            meta["finish_reason"] = {"type": "length", "length": made}
        style = self.server_of.style
        if style == "old":
            meta |= {"prompt_tokens": asked.prompt, "cached_tokens": 0}
            if self.server_of.box.steps:
                meta["spec_verify_ct"] = asked.steps
        return {"text": asked.words(0 if style == "old" else before, made), "meta_info": meta}

    def stream(self, asked: Asked) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        if self.server_of.style == "old":
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        before = 0
        while before < asked.wanted:
            with asked.grown:
                asked.grown.wait_for(partial(asked.is_beyond, before), timeout=120)
                made = asked.made
            self.send(f"data: {json.dumps(self.event(asked, before, made))}\n\n".encode())
            before = made
        self.send(b"data: [DONE]\n\n")
        if self.server_of.style == "old":
            self.wfile.write(b"0\r\n\r\n")

    def send(self, data: bytes) -> None:
        if self.server_of.style != "old":
            self.wfile.write(data)
            return
        cut = random.randrange(1, len(data))
        for part in (data[:cut], data[cut:]):
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
