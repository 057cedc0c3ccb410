"""A small server that streams like SGLang, with a schedule that the test decides."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

EVENTS_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
DONE = b"data: [DONE]\n\n"


def event(
    tokens: int,
    *,
    finish: dict[str, Any] | None = None,
    text: str = "",
    spaced: bool = False,
    **meta: Any,
) -> bytes:
    """An event as SGLang writes it, `tokens` being the cumulative count."""
    info = {"id": "x", "finish_reason": finish, "prompt_tokens": 7, "completion_tokens": tokens, **meta}
    payload = {"text": text, "output_ids": list(range(tokens)), "meta_info": info}
    return b"data: " + json.dumps(payload, separators=None if spaced else (",", ":")).encode() + b"\n\n"


def last_event(tokens: int, **meta: Any) -> bytes:
    """The event that ends a request well."""
    return event(tokens, finish={"type": "length", "length": tokens}, **meta)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@dataclass
class Exchange:
    """One request as the server sees it, with the ways to answer it."""

    body: dict[str, Any]
    number: int
    writer: asyncio.StreamWriter
    path: str = "/generate"
    written_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    async def begin(self) -> None:
        self.writer.write(EVENTS_HEAD)
        await self.writer.drain()

    async def emit(self, count: int, **meta: Any) -> None:
        """Send the event of a cumulative count now and note when."""
        self.written_s.append(time.monotonic())
        self.tokens.append(count)
        self.writer.write(chunk(event(count, **meta)))
        await self.writer.drain()

    async def finish(self, count: int, **meta: Any) -> None:
        """The last event, the end of the stream and the end of the body."""
        self.written_s.append(time.monotonic())
        self.tokens.append(count)
        self.writer.write(chunk(last_event(count, **meta)) + chunk(DONE) + b"0\r\n\r\n")
        await self.writer.drain()

    async def chat(self, tokens: int | None, *, finish: str | None = None, role: str | None = None) -> None:
        """A chunk of a chat, with the usage so far or without any."""
        delta = {"role": role, "content": "x"} if role else {"content": "x"}
        payload: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        if tokens is not None:
            payload["usage"] = {"prompt_tokens": 5, "completion_tokens": tokens}
        self.writer.write(chunk(b"data: " + json.dumps(payload).encode() + b"\n\n"))
        await self.writer.drain()

    async def chat_end(self, tokens: int, *, prompt: int, cached: int) -> None:
        """The chunk with nothing but the usage, and the end."""
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": None,
        }
        data = json.dumps({"choices": [], "usage": usage}).encode()
        self.writer.write(chunk(b"data: " + data + b"\n\n") + chunk(DONE) + b"0\r\n\r\n")
        await self.writer.drain()

    async def answer(self, **meta: Any) -> None:
        """All tokens that were asked for, one every 10 ms."""
        await self.begin()
        count = int(self.body["sampling_params"]["max_new_tokens"])
        for made in range(1, count):
            await self.emit(made)
            await asyncio.sleep(0.01)
        await self.finish(count, **meta)


Behaviour = Callable[[Exchange], Awaitable[None]]


class FakeServer:
    """Serves `behaviour` on a free port of loopback, in a thread of its own, while in the `with` block."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.exchanges: list[Exchange] = []
        self.problems: list[Exception] = []
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._stop: asyncio.Event

    def __enter__(self) -> FakeServer:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        assert not self.problems

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        await self._stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.split(b" ", 2)
            assert method == b"POST", head
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")
            )
            body = json.loads(await reader.readexactly(length))
            exchange = Exchange(body, len(self.exchanges), writer, path.decode())
            self.exchanges.append(exchange)
            await self.behaviour(exchange)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client gave up, which is what some tests are about
        except asyncio.CancelledError:
            pass
        except Exception as problem:
            self.problems.append(problem)
        finally:
            if not writer.is_closing():
                writer.close()
