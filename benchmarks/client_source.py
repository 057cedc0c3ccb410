"""A cheap source of streamed tokens: events rendered before, each with the time at which it is sent.

It answers `/generate` like SGLang (cumulative text and token ids) and whatever else `sglang.bench_serving`
asks for before it begins, and waits until all streams are there before it sends the first event.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

STAMP_KEY = b'"sent_s":'
_STAMP = b"0000000000.000000"
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_SYLLABLES = ("ba", "de", " ki", "lo", "mu", " na", "po", "ri", " sa", "tu")


@dataclass(frozen=True)
class Load:
    """How many streams, how many events each, and how long from one event of a stream to the next.

    With `interval_s` 0 events are sent as fast as the client takes them. Streams are sent one behind the
    other in every interval, as a server does after each step of its engine.
    """

    streams: int
    tokens: int
    interval_s: float


@dataclass
class Spent:
    """What a client spent between the first and the last event."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    events: int = 0

    @property
    def events_per_cpu_s(self) -> float:
        """How many events one second of one core is enough for."""
        return self.events / self.cpu_s


@dataclass
class Source:
    """Serves one load to one client on a free port of loopback."""

    load: Load
    port: int = 0
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        self._events = [_rendered(count, self.load.tokens) for count in range(1, self.load.tokens + 1)]
        self._streams: list[asyncio.StreamWriter] = []
        self._complete = asyncio.Event()
        self._closed = 0
        self._all_closed = asyncio.Event()
        self._small = 0

    async def serve(self, command: list[str], environment: dict[str, str] | None = None) -> str:
        """Run `command` (with `{port}` filled in) against this source; its standard output.

        Raises `RuntimeError` when it fails or does not open all streams.
        """
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        words = [word.replace("{port}", str(self.port)) for word in command]
        client = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
        )
        output = asyncio.create_task(client.communicate())
        begun = asyncio.create_task(self._complete.wait())
        await asyncio.wait([output, begun], return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            await self._send_all(client.pid)
        begun.cancel()
        told, complaints = await output
        server.close()
        if client.returncode or not self.spent.events:
            raise RuntimeError(f"{words[0]} failed ({client.returncode}): {complaints.decode()[-2000:]}")
        return told.decode()

    async def _send_all(self, pid: int) -> None:
        await asyncio.sleep(0.2)  # the client is done with sending and waits
        cpu_s, began_s = cpu_seconds(pid), time.monotonic()
        for count, (before, after) in enumerate(self._events):
            due_s = began_s + count * self.load.interval_s
            wait_s = due_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            for number, writer in enumerate(self._streams):
                writer.write(before + b"%17.6f" % time.monotonic() + after)
                if not number % 16:
                    await asyncio.sleep(0)
            if not self.load.interval_s:
                await asyncio.gather(*(writer.drain() for writer in self._streams))
        for writer in self._streams:
            writer.write(_END)
        await asyncio.wait_for(self._all_closed.wait(), 120)
        self.spent = Spent(
            cpu_s=cpu_seconds(pid) - cpu_s,
            wall_s=time.monotonic() - began_s,
            events=self.load.streams * self.load.tokens,
        )

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request of a connection; whether another one may follow."""
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        if not head.startswith(b"POST /generate "):
            answer = json.dumps(
                {"data": [{"id": "source"}], "status": "ready", "model_path": "source"}
            ).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(answer), answer)
            )
            return True
        if json.loads(body)["sampling_params"]["max_new_tokens"] != self.load.tokens:
            await self._answer_warmup(writer)
            return True
        writer.write(_HEAD)
        self._streams.append(writer)
        if len(self._streams) == self.load.streams:
            self._complete.set()
        await self._end_of(reader, writer)
        return False

    async def _end_of(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Wait until the client closes, which tells that it has read everything."""
        try:
            await reader.read()
        finally:
            self._closed += 1
            if self._closed == self.load.streams:
                self._all_closed.set()
            writer.close()

    async def _answer_warmup(self, writer: asyncio.StreamWriter) -> None:
        """A request of another length than those of the load is one to warm up with."""
        before, after = self._events[-1]
        writer.write(_HEAD + before + _STAMP.replace(b"0", b"1") + after + _END)
        await writer.drain()


def _rendered(count: int, tokens: int) -> tuple[bytes, bytes]:
    """The event of `count` tokens as a chunk, in two parts: the time goes between them."""
    text = "".join(_SYLLABLES[(place * 7) % len(_SYLLABLES)] for place in range(count))
    reason = {"type": "length", "length": tokens} if count == tokens else None
    meta = {
        "id": "c0ffee00c0ffee00c0ffee00c0ffee00",
        "finish_reason": reason,
        "prompt_tokens": 16,
        "weight_version": "default",
        "num_retractions": 0,
        "completion_tokens": count,
        "cached_tokens": 0,
        "dp_rank": None,
    }
    ids = [100 + (place * 37) % 900 for place in range(count)]
    payload = json.dumps({"text": text, "output_ids": ids, "meta_info": meta}, separators=(",", ":")).encode()
    event = (
        b"data: "
        + payload[:-1]
        + b","
        + STAMP_KEY
        + _STAMP.replace(b"0000000000.", b"1000000000.")
        + b"}\n\n"
    )
    chunk = b"%x\r\n" % len(event) + event + b"\r\n"
    before, _, after = chunk.rpartition(b"1000000000.000000")
    return before, after


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, all its threads together (from the scheduler, in nanoseconds)."""
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        spent_ns += int(task.read_text().split()[0])
    return spent_ns / 1e9
