"""One HTTP/1.1 response that carries server-sent events, read from bytes without any input or output.

Bytes go in as they come off the socket, complete events come out. Any split of the same bytes gives the
same events, so nothing here depends on how the network cuts them.
"""

from __future__ import annotations

_ERROR_BODY_BYTES = 2000
_HEAD_LIMIT_BYTES = 65536


class ProtocolError(Exception):
    """The bytes are no HTTP/1.1 response."""


class EventReader:
    """Reads the status, the headers and the events of one response.

    `status` is 0 until the status line was read. The body may be chunked, of a known length or
    ended by the close of the connection; `complete` turns true where the first two say so. Events end with
    an empty line: `\\n\\n`, as SGLang writes them, or `\\r\\n\\r\\n`. The body of a response that is none
    comes out through `error_body`, cut to 2,000 bytes.
    """

    __slots__ = (
        "_chunk_closed", "_chunk_left", "_chunked", "_clean", "_head_read", "_is_events", "_length_left",
        "_rest", "_wire", "complete", "error_body", "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self.status = 0
        self.complete = False
        self.error_body = b""
        self._is_events = False
        self._head_read = False
        self._chunked = False
        self._length_left: int | None = None
        self._wire = b""  # bytes that cannot be read yet: an unfinished head or chunk-size line
        self._chunk_left = 0  # bytes of the current chunk that are still to come
        self._chunk_closed = True  # whether the line end behind the last chunk was read
        self._rest = b""  # the beginning of an event that has not ended yet
        self._clean = False  # in a chunked event stream, with nothing unfinished

    def holds_one_event(self, data: bytes) -> bool:
        """Whether `data` is one whole chunk with one whole event, as a server that streams slowly sends it.

        Such data need not be fed: nothing is left of it, and the event is all of it but the frame.
        """
        if not self._clean:
            return False
        line_end = data.find(b"\r\n", 0, 12)
        try:
            size = int(data[:line_end], 16) if line_end > 0 else 0
        except ValueError:
            return False
        # JSON has no bare line end, so the first one is that of the event.
        length = len(data)
        return (
            size > 2
            and length == line_end + size + 4
            and data.find(b"\n", line_end + 2) == length - 4
            and data.endswith(b"\n\n\r\n")
        )

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes, in order, each without its empty line.

        Raises `ProtocolError` where the bytes make no sense; the reader is of no use afterwards.
        """
        if self.complete:
            return []
        if self._wire:
            data = self._wire + data
            self._wire = b""
        if not self._head_read:
            data = self._read_head(data)
            if not self._head_read:
                return []
        if self._chunked:
            events = self._read_chunks(data)
            unfinished = self._wire or self._rest or self._chunk_left or not self._chunk_closed
            self._clean = self._is_events and not unfinished
            return events
        if self._length_left is not None:
            data = data[: self._length_left]
            self._length_left -= len(data)
            self.complete = self._length_left == 0
        return self._read_body(data)

    def _read_head(self, data: bytes) -> bytes:
        """Read status line and headers; the bytes behind them, empty where the head is not complete."""
        head, end, body = data.partition(b"\r\n\r\n")
        if not end:
            if len(data) > _HEAD_LIMIT_BYTES:
                raise ProtocolError("the head of the response does not end")
            self._wire = data
            return b""
        status_line, *lines = head.split(b"\r\n")
        words = status_line.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ProtocolError(f"no HTTP status line: {status_line[:80]!r}")
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip().lower()
        self.status = int(words[1])
        self._is_events = self.status == 200 and headers.get(b"content-type", b"").startswith(
            b"text/event-stream"
        )
        self._chunked = b"chunked" in headers.get(b"transfer-encoding", b"")
        if not self._chunked and b"content-length" in headers:
            length = headers[b"content-length"]
            if not length.isdigit():
                raise ProtocolError(f"no content length: {length[:80]!r}")
            self._length_left = int(length)
            self.complete = self._length_left == 0
        self._head_read = True
        return body

    def _read_chunks(self, data: bytes) -> list[bytes]:
        """The events in the chunks of `data`; what cannot be read yet is kept for the next call."""
        events: list[bytes] = []
        position = 0
        if self._chunk_left:
            position = min(self._chunk_left, len(data))
            self._chunk_left -= position
            events += self._read_body(data[:position])
        while not self._chunk_left:
            line_end = data.find(b"\r\n", position)
            if line_end < 0:
                break
            if not self._chunk_closed:
                if line_end != position:
                    raise ProtocolError("a chunk is longer than its size")
                self._chunk_closed = True
                position += 2
                continue
            size = _chunk_size(data[position:line_end])
            start, end = line_end + 2, line_end + 2 + size
            if not size:
                # A trailer, or nothing, and an empty line.
                self.complete = data.startswith(b"\r\n", start) or data.find(b"\r\n\r\n", start) >= 0
                break
            if len(data) >= end + 2 and data.startswith(b"\r\n", end):
                events += self._read_chunk(data, start, end)
                position = end + 2
                continue
            events += self._read_body(data[start:end])
            position = min(end, len(data))
            self._chunk_left = end - position
            self._chunk_closed = False
        self._wire = data[position:]
        return events

    def _read_chunk(self, data: bytes, start: int, end: int) -> list[bytes]:
        """The events that one whole chunk completes: nearly always it is one event."""
        if self._is_events and not self._rest and _is_one_event(data, start, end):
            return [data[start : end - 2]]
        return self._read_body(data[start:end])

    def _read_body(self, body: bytes) -> list[bytes]:
        """The events that a piece of the body completes; anything else goes to `error_body`."""
        if not self._is_events:
            self.error_body = (self.error_body + body)[:_ERROR_BODY_BYTES]
            return []
        text = self._rest + body
        if b"\r" in text:  # JSON has no bare line end, so this is one of an event
            text = text.replace(b"\r\n", b"\n")
        events = text.split(b"\n\n")
        self._rest = events.pop()
        return events


def _is_one_event(data: bytes, start: int, end: int) -> bool:
    """Whether the bytes from `start` to `end` are one event and its empty line.

    Looking for a single byte is many times as fast as looking for the two of an empty line.
    """
    return data.find(b"\n", start, end) == end - 2 and data.startswith(b"\n\n", end - 2)


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise ProtocolError(f"no chunk size: {line[:80]!r}") from None
