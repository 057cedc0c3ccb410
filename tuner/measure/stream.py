"""One streaming `/generate` request over a plain TCP connection, cheap enough to time thousands of tokens.

Every event but the last is only searched for its count of tokens; nothing of the growing text is decoded.
Time is read once per piece of data that the operating system hands over.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from tuner.errors import InputError
from tuner.measure.measurement import RequestSample
from tuner.measure.sse import EventReader, ProtocolError

_COUNT_KEY = b'"completion_tokens":'
_NUMBER = re.compile(rb"\s*(\d+)")
_ERROR_CHARACTERS = 300


@dataclass(frozen=True)
class Address:
    """Where a server listens, and the key it asks for."""

    host: str
    port: int
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, api_key: str | None = None) -> Address:
        """The address in `http://host:port`. Raises `InputError` for any other kind of URL."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise InputError(
                f"cannot put load on '{url}': the load client speaks plain HTTP only",
                hint="give the server's address as http://host:port",
            )
        return cls(parts.hostname, parts.port or 80, api_key)


def receive_buffer() -> memoryview:
    """Room for whatever one read from a socket brings."""
    return memoryview(bytearray(256 * 1024))


def generate_body(prompt: tuple[int, ...], output_tokens: int) -> bytes:
    """The body of a streaming `/generate` request for exactly `output_tokens` greedy tokens."""
    sampling = {"temperature": 0.0, "max_new_tokens": output_tokens, "ignore_eos": True}
    body = {"input_ids": prompt, "sampling_params": sampling, "stream": True}
    return json.dumps(body, separators=(",", ":")).encode()


class GenerateStream(asyncio.BufferedProtocol):
    """A connection that carries one request: `connect`, `send`, wait for `finished`, read `sample`.

    However it ends, `finished` is set and `sample` says what came back; it never raises for anything the
    server does. A stream that ends without `[DONE]` is an error: when SGLang dies, its streams just end.

    All streams of one event loop may share a `buffer` (see `receive_buffer`): what lands in it is taken
    out before the loop turns to another connection. That halves the client's work, because asyncio
    otherwise allocates 256 KiB for every piece of data it receives.
    """

    def __init__(self, address: Address, buffer: memoryview) -> None:
        self._buffer = buffer
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._reader = EventReader()
        self._sent_s = time.monotonic()
        self._arrivals_s: list[float] = []
        self._tokens: list[int] = []
        self._count = 0
        self._last_event = b""
        self._meta: dict[str, Any] = {}
        self._error = ""

    async def connect(self, limit_s: float) -> None:
        """Open the connection; a failure becomes the sample's error."""
        loop = asyncio.get_running_loop()
        host, port = self._address.host, self._address.port
        try:
            await asyncio.wait_for(loop.create_connection(lambda: self, host, port), limit_s)
        except asyncio.TimeoutError:
            self.give_up(f"no connection to {host}:{port} within {limit_s:.1f} s")
        except OSError as error:
            # asyncio words its own text for a refused connection; the system's is the one people know.
            why = os.strerror(error.errno) if error.errno else str(error)
            self.give_up(f"no connection to {host}:{port}: {why}")

    def send(self, body: bytes) -> None:
        """Send the request now, unless it has already failed."""
        if self._transport is None or self.finished.done():
            return
        key = self._address.api_key
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        head = (
            "POST /generate HTTP/1.1\r\n"
            f"Host: {self._address.host}:{self._address.port}\r\n"
            "Content-Type: application/json\r\n"
            f"{authorization}"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        self._sent_s = time.monotonic()
        self._transport.write(head.encode() + body)

    def give_up(self, reason: str) -> None:
        """End the request with an error, unless it has ended already, and drop the connection."""
        if not self.finished.done():
            self._error = _shortened(reason)
            self.finished.set_result(None)
        if self._transport is not None:
            self._transport.abort()

    def sample(self) -> RequestSample:
        """What came back so far, times to the microsecond."""
        return RequestSample(
            sent_s=round(self._sent_s, 6),
            arrivals_s=tuple(round(moment, 6) for moment in self._arrivals_s),
            tokens=tuple(self._tokens),
            cached_tokens=_whole_number(self._meta.get("cached_tokens")),
            prompt_tokens=_whole_number(self._meta.get("prompt_tokens")),
            retractions=_whole_number(self._meta.get("num_retractions")),
            verify_steps=_whole_number(self._meta.get("spec_verify_ct")),
            error=self._error if self.finished.done() else "the request has not ended",
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._transport = cast(asyncio.Transport, transport)
        if self.finished.done():
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        del sizehint  # the buffer is as large as the most that asyncio reads at once
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        now_s = time.monotonic()
        if self.finished.done():
            return
        try:
            events = self._reader.feed(bytes(self._buffer[:nbytes]))
        except ProtocolError as error:
            self.give_up(f"unreadable response: {error}")
            return
        for event in events:
            # Inside a JSON string the quote behind the word would be escaped, so this can only be a key.
            # From the right, because the text that has grown so far comes first.
            at = event.rfind(_COUNT_KEY)
            number = _NUMBER.match(event, at + len(_COUNT_KEY)) if at >= 0 else None
            if number is None:
                self._on_rare_event(event)
                if self.finished.done():
                    return
                continue
            self._last_event = event
            count = int(number[1])
            if count > self._count:  # the closing event may repeat the count of the one before
                self._count = count
                self._arrivals_s.append(now_s)
                self._tokens.append(count)
        if self._reader.complete:
            self._on_end("")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._on_end(f" ({exc})" if exc is not None else "")

    def _on_rare_event(self, event: bytes) -> None:
        payload = event.removeprefix(b"data:").strip()
        if payload == b"[DONE]":
            self._on_done()
        elif payload.startswith(b"{"):
            self.give_up(f"the server answered in the stream: {_error_text(payload)}")

    def _on_done(self) -> None:
        """Read the last event in full: it alone says how the request ended."""
        try:
            meta = json.loads(self._last_event.removeprefix(b"data:"))["meta_info"]
            reason = meta["finish_reason"]
        except (ValueError, KeyError, TypeError):
            self.give_up("the stream is done, but its last event has no finish reason")
            return
        self._meta = meta
        kind = reason.get("type") if isinstance(reason, dict) else reason
        if kind is None:
            self.give_up(f"the stream is done, but the request is not, after {self._count} tokens")
        elif kind == "abort":
            message = reason.get("message") if isinstance(reason, dict) else None
            self.give_up(
                f"the server aborted the request after {self._count} tokens: {message or 'no reason'}"
            )
        else:
            self.finished.set_result(None)

    def _on_end(self, detail: str) -> None:
        """The response is over; an error unless it was done before."""
        if self.finished.done():
            return
        if self._reader.status not in (0, 200):
            self.give_up(f"HTTP {self._reader.status}: {_error_text(self._reader.error_body)}")
        elif self._reader.error_body:
            self.give_up(f"the answer is no event stream: {_error_text(self._reader.error_body)}")
        else:
            self.give_up(f"the stream ended without [DONE] after {self._count} tokens{detail}")


def _error_text(body: bytes) -> str:
    """The message in an error body such as `{"error": {"message": …}}`, else the body itself."""
    try:
        found = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    return found if isinstance(found, str) else json.dumps(found)


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _ERROR_CHARACTERS else words[: _ERROR_CHARACTERS - 1] + "…"


def _whole_number(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
