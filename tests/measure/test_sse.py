from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.fake_server import DONE, EVENTS_HEAD, chunk, event, last_event
from tuner.measure.sse import EventReader, ProtocolError

EVENTS = [event(1), event(3, text='a "completion_tokens":9 b'), last_event(4), DONE]
STREAM = b"".join(EVENTS)
TWO_IN_ONE = EVENTS_HEAD + chunk(EVENTS[0] + EVENTS[1]) + chunk(EVENTS[2]) + chunk(DONE) + b"0\r\n\r\n"
CUT_ACROSS = (
    EVENTS_HEAD + b"".join(chunk(STREAM[i : i + 37]) for i in range(0, len(STREAM), 37)) + b"0\r\n\r\n"
)
WITH_EXTRAS = (
    EVENTS_HEAD
    + b"".join(f"{len(part):X};note=1\r\n".encode() + part + b"\r\n" for part in EVENTS)
    + b"0\r\nX-Trailer: yes\r\n\r\n"
)
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
OF_LENGTH = PLAIN_HEAD + f"CONTENT-LENGTH: {len(STREAM)}\r\n\r\n".encode() + STREAM
UNTIL_CLOSE = PLAIN_HEAD + b"\r\n" + STREAM
WINDOWS_LINES = UNTIL_CLOSE.replace(STREAM, STREAM.replace(b"\n", b"\r\n"))


def read(wire: bytes, cuts: list[int]) -> tuple[EventReader, list[bytes]]:
    reader = EventReader()
    events: list[bytes] = []
    edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    for start, end in pairwise(edges):
        if end > start:
            events += reader.feed(wire[start:end])
    return reader, events


@pytest.mark.parametrize(
    ("wire", "complete"),
    [
        (TWO_IN_ONE, True),
        (CUT_ACROSS, True),
        (WITH_EXTRAS, True),
        (OF_LENGTH, True),
        (UNTIL_CLOSE, False),
        (WINDOWS_LINES, False),
    ],
    ids=[
        "two events in a chunk",
        "events across chunks",
        "extensions and trailer",
        "length",
        "until close",
        "CR LF",
    ],
)
@given(cuts=st.lists(st.integers(min_value=0), max_size=40))
def test_any_split_of_the_bytes_gives_the_same_events(wire: bytes, complete: bool, cuts: list[int]) -> None:
    reader, events = read(wire, cuts)
    assert events == [one.removesuffix(b"\n\n") for one in EVENTS]
    assert reader.status == 200
    assert reader.complete is complete


def test_byte_by_byte() -> None:
    reader, events = read(TWO_IN_ONE, list(range(len(TWO_IN_ONE))))
    assert len(events) == len(EVENTS)
    assert reader.complete


def test_an_event_is_there_as_soon_as_its_last_byte_is_though_its_chunk_goes_on() -> None:
    reader = EventReader()
    both = EVENTS[0] + EVENTS[1]
    wire = EVENTS_HEAD + f"{len(both):x}\r\n".encode() + EVENTS[0]
    assert len(reader.feed(wire)) == 1


@given(cuts=st.lists(st.integers(min_value=0), max_size=10))
def test_an_error_body_is_kept(cuts: list[int]) -> None:
    body = b'{"error":{"message":"max_new_tokens must be at least 0"}}'
    wire = b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    reader, events = read(wire, cuts)
    assert (reader.status, reader.error_body, reader.complete, events) == (400, body, True, [])


def test_a_long_error_body_is_cut() -> None:
    reader = EventReader()
    reader.feed(b"HTTP/1.1 500 Internal Server Error\r\n\r\n")
    for _ in range(100):
        reader.feed(b"x" * 1000)
    assert len(reader.error_body) == 2000


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        EVENTS_HEAD + b"zz\r\n",
        EVENTS_HEAD + b"2\r\nabc\r\n0\r\n\r\n",
        PLAIN_HEAD + b"Content-Length: many\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_http_response_is_said_to_be_none(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        EventReader().feed(wire)
