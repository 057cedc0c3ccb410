"""Starting simulated servers as processes, and talking to them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulator.boxes import QUIET

READY = "The server is fired up and ready to roll!"
_DEADLINE_S = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str) -> None:
        deadline_s = time.monotonic() + _DEADLINE_S
        while text not in self.log:
            assert self.process.poll() is None, (
                f"it ended with {self.process.returncode}:\n{self.log[-2000:]}"
            )
            assert time.monotonic() < deadline_s, f"'{text}' did not come:\n{self.log[-2000:]}"
            time.sleep(0.02)

    def wait(self) -> int:
        return self.process.wait(_DEADLINE_S)

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(word) for word in listed]

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_DEADLINE_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
            try:
                return answer.status, json.loads(text)
            except json.JSONDecodeError:
                return answer.status, text.decode()
        finally:
            connection.close()

    def stream(self, path: str, body: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
        """The chunks with the times at which they came; the stream must end with [DONE]."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_DEADLINE_S)
        chunks: list[tuple[float, dict[str, Any]]] = []
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            for line in answer:
                if line.startswith(b"data: [DONE]"):
                    return chunks
                if line.startswith(b"data: "):
                    chunks.append((time.monotonic(), json.loads(line[6:])))
        finally:
            connection.close()
        raise AssertionError("the stream ended without [DONE]")

    def generate(self, prompt: str, tokens: int, **more: Any) -> list[tuple[float, dict[str, Any]]]:
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        return self.stream("/generate", {"text": prompt, "sampling_params": sampling, **more})

    def rate(self, streams: int, tokens: int) -> float:
        """Tokens per second of `streams` equal streams while all of them run, by completion counts."""
        results: list[list[tuple[float, dict[str, Any]]]] = [[] for _ in range(streams)]

        def work(number: int) -> None:
            results[number] = self.generate(f"stream number {number}", tokens)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_DEADLINE_S)
        began_s = max(chunks[0][0] for chunks in results)
        ended_s = min(chunks[-1][0] for chunks in results)
        total = 0
        for chunks in results:
            counts = [(at_s, chunk["meta_info"]["completion_tokens"]) for at_s, chunk in chunks]
            before = max(count for at_s, count in counts if at_s <= began_s)
            total += max(count for at_s, count in counts if at_s <= ended_s) - before
        return total / (ended_s - began_s)


@contextlib.contextmanager
def running(
    folder: Path,
    box: str,
    *words: str,
    port: int | None = None,
    ready: bool = True,
    environment: dict[str, str] | None = None,
) -> Iterator[Running]:
    """A simulated server in a session of its own; whatever is left of it is killed at the end."""
    port = port or free_port()
    log_path = folder / f"server-{port}-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "tuner.simulator", "--box", box, "--port", str(port), *words]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**QUIET, **(environment or {})},
            cwd=Path(__file__).parents[2],
        )
    server = Running(process, port, log_path)
    try:
        if ready:
            server.wait_for(READY)
        yield server
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_DEADLINE_S)


def ended(folder: Path, box: str, *words: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and log of a launch that ends by itself."""
    with running(folder, box, *words, ready=False, environment=environment) as server:
        return server.wait(), server.log
