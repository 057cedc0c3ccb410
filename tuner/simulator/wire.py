"""HTTP/1.1 over asyncio, as little as a load client needs: keep-alive, bodies by length, chunked answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

_MOST_HEADER_BYTES = 1 << 16
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Call:
    """One HTTP request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ValueError."""
        return json.loads(self.body or b"null")


class Reply:
    """The answer to one request: either `send` once, or `open_stream`, `chunk`s and `end`."""

    def __init__(
        self, connection: Connection, call: Call, on_access: Callable[[str, Call, str], None]
    ) -> None:
        self._connection = connection
        self._call = call
        self._on_access = on_access
        self._done = False
        self.on_lost: Callable[[], None] | None = None
        """Called when the client goes away before the end."""

    @property
    def done(self) -> bool:
        """Whether the answer is complete or its client gone."""
        return self._done

    def send(self, status: int, body: bytes, *, kind: str = "application/json") -> None:
        """The whole answer."""
        type_line = f"content-type: {kind}\r\n" if body else ""
        self._start(status, f"content-length: {len(body)}\r\n{type_line}", body)
        self._finish()

    def send_json(self, status: int, data: Any) -> None:
        """The whole answer as JSON."""
        self.send(status, json.dumps(data, separators=(",", ":")).encode())

    def open_stream(self) -> None:
        """Begin an answer of server-sent events."""
        self._start(
            200, "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n", b""
        )

    def chunk(self, data: bytes) -> None:
        """One piece of the stream, written at once."""
        if not self._done:
            self._connection.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self, data: bytes = b"") -> None:
        """The last piece and the end of the stream."""
        if not self._done:
            piece = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            self._connection.write(piece + b"0\r\n\r\n")
            self._finish()

    def lose(self) -> None:
        """The client is gone."""
        if not self._done:
            self._done = True
            if self.on_lost is not None:
                self.on_lost()

    def _start(self, status: int, headers: str, body: bytes) -> None:
        phrase = _PHRASES.get(status, "")
        date = formatdate(usegmt=True)
        head = f"HTTP/1.1 {status} {phrase}\r\ndate: {date}\r\nserver: uvicorn\r\n{headers}\r\n"
        self._connection.write(head.encode() + body)
        self._on_access(self._connection.client, self._call, f"{status} {phrase}")

    def _finish(self) -> None:
        self._done = True
        self._connection.next_call()


class Connection(asyncio.Protocol):
    """One client connection; answers its requests one after the other."""

    def __init__(
        self,
        handle: Callable[[Call, Reply], None],
        on_access: Callable[[str, Call, str], None],
        open_connections: set[Connection],
    ) -> None:
        self._handle = handle
        self._on_access = on_access
        self._open = open_connections
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._reply: Reply | None = None
        self._close_after = False
        self.client = "127.0.0.1:0"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream transport is needed")
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("127.0.0.1", 0)
        self.client = f"{peer[0]}:{peer[1]}"
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        del exc
        self._open.discard(self)
        self._transport = None
        if self._reply is not None:
            self._reply.lose()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._buffer += data
        if self._reply is None:
            self._parse()

    def write(self, data: bytes) -> None:
        """Send bytes; silently nothing once the client is gone."""
        if self._transport is not None:
            self._transport.write(data)

    def next_call(self) -> None:
        """The answer is complete: go on with what the client sent meanwhile."""
        self._reply = None
        if self._close_after and self._transport is not None:
            self._transport.close()
        elif self._buffer:
            self._parse()

    def close(self) -> None:
        """End the connection after what is written."""
        if self._transport is not None:
            self._transport.close()

    def _parse(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MOST_HEADER_BYTES:
                self._refuse()
            return
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._refuse()
            return
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        length = headers.get("content-length", "0")
        if not length.isdigit() or "transfer-encoding" in headers:
            self._refuse()
            return
        if len(self._buffer) < end + 4 + int(length):
            return
        body = bytes(self._buffer[end + 4 : end + 4 + int(length)])
        del self._buffer[: end + 4 + int(length)]
        wanted = headers.get("connection", "").lower()
        self._close_after = wanted == "close" or (words[2] == "HTTP/1.0" and wanted != "keep-alive")
        call = Call(words[0], words[1], headers, body)
        self._reply = Reply(self, call, self._on_access)
        self._handle(call, self._reply)

    def _refuse(self) -> None:
        self._buffer.clear()
        self.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.close()
