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

    `status` is 0 until the status line was read. The body may be chunked, of a known length or ended by
    the close of the connection; `complete` turns true where the first two say so. Events end with an empty
    line (`\\n\\n`, as SGLang writes them). The body of a response that is no event stream comes out through
    `error_body`, cut to 2,000 bytes.
    """

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
        self._in_trailer = False
        self._rest = b""  # the beginning of an event that has not ended yet

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
            if not data:
                return []
        if self._chunked:
            body = self._dechunk(data)
        elif self._length_left is None:
            body = data
        else:
            body = data[: self._length_left]
            self._length_left -= len(body)
            self.complete = self._length_left == 0
        if not self._is_events:
            self.error_body = (self.error_body + body)[:_ERROR_BODY_BYTES]
            return []
        if self._rest:
            body = self._rest + body
        events = body.split(b"\n\n")
        self._rest = events.pop()
        return events

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

    def _dechunk(self, data: bytes) -> bytes:
        """The body bytes in `data`; what cannot be read yet is kept for the next call."""
        pieces = []
        position = 0
        end = len(data)
        while position < end:
            if self._chunk_left:
                piece = data[position : position + self._chunk_left]
                pieces.append(piece)
                self._chunk_left -= len(piece)
                position += len(piece)
                continue
            line_end = data.find(b"\r\n", position)
            if line_end < 0:
                self._wire = data[position:]
                break
            line = data[position:line_end]
            position = line_end + 2
            if self._in_trailer:
                if not line:
                    self.complete = True
                    break
            elif not self._chunk_closed:
                if line:
                    raise ProtocolError("a chunk is longer than its size")
                self._chunk_closed = True
            else:
                self._chunk_left = _chunk_size(line)
                self._in_trailer = self._chunk_left == 0
                self._chunk_closed = self._in_trailer
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise ProtocolError(f"no chunk size: {line[:80]!r}") from None
