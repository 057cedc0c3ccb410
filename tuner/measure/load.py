"""Load: the requests of one level, all at once, never longer than a limit."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tuner.measure.measurement import RequestSample
from tuner.measure.prompts import Prompt
from tuner.measure.stream import Address, GenerateStream, generate_body, receive_buffer

_ALIVE_EVERY_S = 0.2
_CONNECT_LIMIT_S = 10.0


def run_level(
    url: str,
    prompts: Sequence[Prompt],
    output_tokens: int,
    *,
    limit_s: float,
    alive: Callable[[], bool],
    api_key: str | None = None,
) -> tuple[RequestSample, ...]:
    """Send one request per prompt at the same moment and wait until all have ended.

    Returns a sample per prompt, in the order of the prompts. Requests that have not ended after `limit_s`
    seconds, or when `alive` says that the server is gone, are dropped and carry the reason as their error.
    `alive` is asked five times a second while the tokens are being timed, so it has to answer at once.
    """
    address = Address.of(url, api_key)
    bodies = [generate_body(prompt, output_tokens) for prompt in prompts]
    with _no_garbage_collection():
        return asyncio.run(_run_batch(address, bodies, limit_s, alive))


async def _run_batch(
    address: Address, bodies: Sequence[bytes], limit_s: float, alive: Callable[[], bool]
) -> tuple[RequestSample, ...]:
    deadline_s = time.monotonic() + limit_s
    buffer = receive_buffer()
    streams = [GenerateStream(address, buffer) for _ in bodies]
    try:
        # All connections first: the batch then reaches the server as one, and no request's time to its
        # first token contains the making of another one's connection.
        await asyncio.gather(*(stream.connect(min(limit_s, _CONNECT_LIMIT_S)) for stream in streams))
        for stream, body in zip(streams, bodies, strict=True):
            stream.send(body)
        await _watch(streams, deadline_s, limit_s, alive)
        return tuple(stream.sample() for stream in streams)
    finally:
        for stream in streams:
            stream.give_up("cancelled")
        await asyncio.sleep(0)  # connections close in the next turn of the event loop


async def _watch(
    streams: Sequence[GenerateStream], deadline_s: float, limit_s: float, alive: Callable[[], bool]
) -> None:
    """Wait for all streams; give up on the rest when the server is gone or the time is up."""
    pending = {stream.finished for stream in streams if not stream.finished.done()}
    while pending:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            reason = f"not finished within the limit of {limit_s:g} s"
        elif not alive():
            reason = "the server process ended during the request"
        else:
            _, pending = await asyncio.wait(pending, timeout=min(_ALIVE_EVERY_S, left_s))
            continue
        for stream in streams:
            stream.give_up(reason)
        return


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the collector, which can stop a large process for many milliseconds, out of the timing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
