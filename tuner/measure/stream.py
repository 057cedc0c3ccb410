"""One streaming request over a plain TCP connection, cheap enough to time 100,000 tokens a second.

Every event but the last is only searched for its count of tokens; nothing of the growing text is decoded.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tuner.errors import InputError
from tuner.measure.measurement import RequestSample
from tuner.measure.prompts import Prompt
from tuner.measure.sse import EventReader, ProtocolError

_COUNT_KEY = b'"completion_tokens":'
_NUMBER = re.compile(rb"\s*(\d+)")
_ENDED = re.compile(rb'"finish_reason":\s*"')
_ERROR_CHARACTERS = 300
_COUNT_KEY_BYTES = len(_COUNT_KEY)
_READ_BYTES = 65536
"""The C library serves larger buffers from the operating system, one by one."""


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

    def resolved(self) -> tuple[int, Any]:
        """Family and address for a socket, IPv4 where there is one. Raises `OSError` for an unknown name."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        family, _, _, _, place = min(found, key=lambda info: info[0] != socket.AF_INET)
        return family, place


@dataclass(frozen=True)
class Call:
    """A streaming request as it is sent: `/generate`, or the chat endpoint for a prompt of messages."""

    path: str
    body: bytes

    @classmethod
    def of(cls, prompt: Prompt) -> Call:
        """The request for exactly `prompt.output_tokens` greedy tokens.

        A chat is asked for the token count with every chunk (`continuous_usage_stats`), since its chunks
        are pieces of text and no tokens.
        """
        if prompt.messages:
            path = "/v1/chat/completions"
            body: dict[str, Any] = {
                "model": "default",
                "messages": [{"role": role, "content": content} for role, content in prompt.messages],
                "max_tokens": prompt.output_tokens,
                "temperature": 0.0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }
        else:
            path = "/generate"
            asked = {"input_ids": prompt.ids} if prompt.ids else {"text": prompt.text}
            sampling = {
                "temperature": 0.0,
                "max_new_tokens": prompt.output_tokens,
                "ignore_eos": True,
            }
            body = {**asked, "sampling_params": sampling, "stream": True}
        return cls(path, json.dumps(body, separators=(",", ":")).encode())


class TokenStream:
    """A connection that carries one request: `open`, `send`, and `on_ready` whenever its socket is.

    However it ends, `ended` turns true and `sample` says what came back; nothing is raised for anything the
    server does. A stream that ends without `[DONE]` is an error: when SGLang dies, its streams just end.
    The socket does not block; whoever owns the stream waits for it (`wants` says for what).
    """

    __slots__ = (
        "_address", "_arrivals_s", "_call", "_chat_end", "_connected", "_count", "_error", "_is_chat",
        "_last_event", "_meta", "_reader", "_sent_s", "_socket", "_tokens", "_unsent", "ended", "wants",
    )  # fmt: skip

    def __init__(self, address: Address, call: Call) -> None:
        self.ended = False
        self.wants = select.EPOLLOUT
        self._address = address
        self._call = call
        self._socket: socket.socket | None = None
        self._connected = False
        self._unsent = b""
        self._reader = EventReader()
        self._sent_s = time.monotonic()
        self._arrivals_s: list[float] = []
        self._tokens: list[int] = []
        self._count = 0
        self._last_event = b""
        self._is_chat = call.path != "/generate"
        self._chat_end = b""  # the event of a chat that carries the finish reason; another one follows
        self._meta: dict[str, Any] = {}
        self._error = ""

    @property
    def connected(self) -> bool:
        """Whether the request can be sent."""
        return self._connected

    def open(self) -> int:
        """Begin to connect; the file descriptor to wait for, -1 where that has failed already."""
        try:
            family, place = self._address.resolved()
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self._socket.connect_ex(place)
        except OSError as error:
            self._refuse(error.strerror or str(error))
            return -1
        if code not in (0, errno.EINPROGRESS):
            self._refuse(os.strerror(code))
            return -1
        return self._socket.fileno()

    def send(self) -> None:
        """Send the request now, unless it has already failed."""
        self._sent_s = time.monotonic()
        if self.ended:
            return
        key = self._address.api_key
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        head = (
            f"POST {self._call.path} HTTP/1.1\r\n"
            f"Host: {self._address.host}:{self._address.port}\r\n"
            "Content-Type: application/json\r\n"
            f"{authorization}"
            f"Content-Length: {len(self._call.body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        self._unsent = head.encode() + self._call.body
        self._go_on_sending()

    def on_ready(self, now_s: float) -> bool:
        """The socket is ready since `now_s`: connect, send what is left, or read.

        Returns whether that has changed what the stream waits for, or ended it.
        """
        if self.wants == select.EPOLLIN:
            self._read(now_s)
            return self.ended
        if self._connected:
            self._go_on_sending()
        else:
            self._finish_connecting()
        return True

    def _read(self, now_s: float) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._on_end(f" ({error})")
            return
        if data:
            self.received(data, now_s)
        else:
            self._on_end("")

    def _finish_connecting(self) -> None:
        if self._socket is None:
            return
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._refuse(os.strerror(code))
            return
        # One acknowledgement for two chunks; sending them is a fifth of what reading costs.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        self._connected = True
        self.wants = select.EPOLLIN

    def received(self, data: bytes, now_s: float) -> None:
        """Account for what came."""
        if self._reader.holds_one_event(data):
            events: Sequence[bytes] = (data,)
        else:
            try:
                events = self._reader.feed(data)
            except ProtocolError as error:
                self.give_up(f"unreadable response: {error}")
                return
        for event in events:
            # Inside a JSON string the quote behind the word would be escaped, so this can only be a key.
            # From the right, because the text that has grown so far comes first.
            at = event.rfind(_COUNT_KEY)
            number = _NUMBER.match(event, at + _COUNT_KEY_BYTES) if at >= 0 else None
            if number is None:
                self._on_rare_event(event)
                if self.ended:
                    return
                continue
            self._last_event = event
            if self._is_chat and _ENDED.search(event):
                self._chat_end = event
            count = int(number[1])
            if count > self._count:  # the closing event may repeat the count of the one before
                self._count = count
                self._arrivals_s.append(now_s)
                self._tokens.append(count)
        if self._reader.complete:
            self._on_end("")

    def give_up(self, reason: str) -> None:
        """End the request with an error, unless it has ended already, and drop the connection."""
        if not self.ended:
            self._error = _shortened(reason)
        self._close()

    def sample(self) -> RequestSample:
        """What came back so far."""
        return RequestSample(
            sent_s=self._sent_s,
            arrivals_s=tuple(self._arrivals_s),
            tokens=tuple(self._tokens),
            cached_tokens=_whole_number(self._meta.get("cached_tokens")),
            prompt_tokens=_whole_number(self._meta.get("prompt_tokens")),
            retractions=_whole_number(self._meta.get("num_retractions")),
            verify_steps=_whole_number(self._meta.get("spec_verify_ct")),
            error=self._error if self.ended else "the request has not ended",
        )

    def _go_on_sending(self) -> None:
        if self._socket is None:
            return
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._on_end(f" ({error})")
            return
        self.wants = select.EPOLLOUT if self._unsent else select.EPOLLIN

    def _refuse(self, why: str) -> None:
        self.give_up(f"no connection to {self._address.host}:{self._address.port}: {why}")

    def _close(self) -> None:
        self.ended = True
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _on_rare_event(self, event: bytes) -> None:
        payload = _payload(event)
        if payload == b"[DONE]":
            self._on_done()
        elif self._is_chat and b'"choices":' in payload:
            # A chat's first chunk has no count; nor has one that ends it, where the last one has it.
            if _ENDED.search(payload):
                self._chat_end = event
        elif payload.startswith(b"{"):
            self.give_up(f"the server answered in the stream: {_error_text(payload)}")

    def _on_done(self) -> None:
        """Read the last event in full: it alone says how the request ended."""
        try:
            reason, self._meta = self._ending()
        except (ValueError, KeyError, TypeError, IndexError):
            self.give_up("the stream is done, but its last event has no finish reason")
            return
        kind = reason.get("type") if isinstance(reason, dict) else reason
        if kind is None:
            self.give_up(f"the stream is done, but the request is not, after {self._count} tokens")
        elif kind == "abort":
            message = reason.get("message") if isinstance(reason, dict) else None
            self.give_up(
                f"the server aborted the request after {self._count} tokens: {message or 'no reason'}"
            )
        else:
            self._close()

    def _ending(self) -> tuple[Any, dict[str, Any]]:
        """The finish reason and the facts that come with it, under `/generate`'s names."""
        last = json.loads(_payload(self._last_event))
        if not self._is_chat:
            return last["meta_info"]["finish_reason"], last["meta_info"]
        ended = json.loads(_payload(self._chat_end))
        usage = last["usage"]
        details = usage.get("prompt_tokens_details") or {}
        meta = {"prompt_tokens": usage["prompt_tokens"], "cached_tokens": details.get("cached_tokens")}
        return ended["choices"][0]["finish_reason"], meta

    def _on_end(self, detail: str) -> None:
        """The response is over; an error unless it was done before."""
        if self.ended:
            return
        if self._reader.status not in (0, 200):
            self.give_up(f"HTTP {self._reader.status}: {_error_text(self._reader.error_body)}")
        elif self._reader.error_body:
            self.give_up(f"the answer is no event stream: {_error_text(self._reader.error_body)}")
        else:
            self.give_up(f"the stream ended without [DONE] after {self._count} tokens{detail}")


def _payload(event: bytes) -> bytes:
    """What stands behind `data:`; the event may still be in the frame of its chunk."""
    at = event.find(b"data:")
    return event[at + 5 :].strip() if at >= 0 else event.strip()


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
