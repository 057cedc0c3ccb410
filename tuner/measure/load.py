"""Load: the requests of one round, at once, as answers come in, or at set moments.

The loop is our own, on Linux's epoll: general event loops spend several times as much on every event as it
takes to read it, and a client that is busy stamps its tokens late. Everything that is readable at the same
moment is stamped with that moment, not with the one at which its turn has come.
"""

from __future__ import annotations

import gc
import random
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tuner.measure.effort import EffortMeter
from tuner.measure.measurement import ClientEffort, RequestSample, Workload
from tuner.measure.prompts import Prompt
from tuner.measure.stream import Address, Call, TokenStream

SILENT = "nothing came from the server"
_ALIVE_EVERY_S = 0.2
_CONNECT_LIMIT_S = 10.0

_CROWD = 16
_GATHER_S = 0.0004
"""An engine's step brings a token to every stream, one shortly after the other. To be woken for each costs
several times as much as to read it, so among many streams the others are given this long to arrive. It is
less than any step takes, and it delays all of a window alike."""


@dataclass(frozen=True)
class Schedule:
    """When the requests of a round are sent.

    `at_once` of them are sent together as soon as all are connected, and each answer that ends brings the
    next one. With `due_s` each is sent at its moment instead, in seconds since the beginning, whatever
    happened to the others.
    """

    at_once: int
    due_s: tuple[float, ...] = ()


def schedule_of(workload: Workload, level: float, seed: str) -> Schedule:
    """The schedule of one round of a level."""
    count = workload.round_requests(level)
    if workload.kind == "open":
        generator, moment_s, moments_s = random.Random(seed), 0.0, []
        for _ in range(count):
            moments_s.append(moment_s)
            moment_s += generator.expovariate(level)
        return Schedule(count, tuple(moments_s))
    if workload.kind == "burst":
        size = int(level)
        return Schedule(count, tuple(workload.burst_every_s * (number // size) for number in range(count)))
    return Schedule(int(level))


def run_round(
    url: str,
    prompts: Sequence[Prompt],
    schedule: Schedule,
    *,
    limit_s: float,
    alive: Callable[[], bool],
    silence_limit_s: float = float("inf"),
    api_key: str | None = None,
) -> tuple[tuple[RequestSample, ...], ClientEffort]:
    """Send one request per prompt and wait until all have ended.

    Returns a sample per prompt, in the order of the prompts, and the client's own effort. Requests that have
    not ended after `limit_s` seconds, or when `alive` says that the server is gone, are dropped and carry
    the reason as their error; so are all of them when nothing at all has come for `silence_limit_s`, which
    is how a server that hangs is told (`SILENT` begins the reason). `alive` is asked five times a second
    while the tokens are being timed, so it has to answer at once.
    """
    address = Address.of(url, api_key)
    calls = [Call.of(prompt) for prompt in prompts]
    with _no_garbage_collection():
        samples, effort = _Round(address, calls, schedule, limit_s, alive, silence_limit_s).run()
    return tuple(
        replace(sample, asked_tokens=prompt.output_tokens, shared_tokens=prompt.shared_tokens)
        for sample, prompt in zip(samples, prompts, strict=True)
    ), effort


class _Round:
    """The loop of one round. `run` once."""

    def __init__(
        self,
        address: Address,
        calls: Sequence[Call],
        schedule: Schedule,
        limit_s: float,
        alive: Callable[[], bool],
        silence_limit_s: float,
    ) -> None:
        self._schedule = schedule
        self._silence_limit_s = silence_limit_s
        self._limit_s = limit_s
        self._connect_limit_s = min(limit_s, _CONNECT_LIMIT_S)
        self._alive = alive
        self._streams = [TokenStream(address, call) for call in calls]
        self._waiting = deque(self._streams)
        self._due_s = deque(schedule.due_s)
        self._open: dict[int, TokenStream] = {}
        self._connecting: dict[int, float] = {}  # when that began, by file descriptor
        self._hold = True  # whether connected streams wait for the others before they send
        self._meter = EffortMeter()
        self._began_s = time.monotonic()
        self._ask_s = self._began_s
        self._heard_s = self._began_s

    def run(self) -> tuple[list[RequestSample], ClientEffort]:
        """Send everything, wait for everything."""
        self._epoll = select.epoll()
        try:
            if not self._due_s:
                self._connect_together()
            self._hold = False
            self._began_s = time.monotonic()
            self._meter.start(self._began_s)
            for stream in list(self._open.values()):
                stream.send()
            self._loop(lambda: bool(self._waiting or self._open))
            return [stream.sample() for stream in self._streams], self._meter.stop()
        finally:
            for stream in self._streams:
                stream.give_up("cancelled")
            self._epoll.close()

    def _connect_together(self) -> None:
        """Connect those that are sent at once.

        The level then reaches the server as one, and no request's time to its first token contains the
        making of another one's connection.
        """
        for _ in range(min(self._schedule.at_once, len(self._waiting))):
            self._open_next()
        self._meter.start(time.monotonic())
        self._loop(lambda: bool(self._connecting))

    def _loop(self, unfinished: Callable[[], bool]) -> None:
        open_, poll, tick = self._open, self._epoll.poll, self._meter.tick
        now_s = time.monotonic()
        while unfinished() and self._goes_on(now_s):
            if self._due_s and not self._hold:
                self._open_due(now_s)
            ready = poll(self._timeout_s(now_s))
            now_s = time.monotonic()
            if ready:
                self._heard_s = now_s
            for number, _ in ready:
                stream = open_[number]
                if stream.on_ready(now_s):
                    self._changed(number, stream)
            tick(now_s)
            if _CROWD <= len(open_) > 2 * len(ready) > 0:
                time.sleep(_GATHER_S)

    def _timeout_s(self, now_s: float) -> float:
        until_s = min(self._ask_s, self._meter.due_s, self._deadline_s)
        if self._due_s and not self._hold:
            until_s = min(until_s, self._began_s + self._due_s[0])
        return max(0.0, until_s - now_s)

    @property
    def _deadline_s(self) -> float:
        return self._began_s + self._limit_s

    def _open_due(self, now_s: float) -> None:
        while self._due_s and self._began_s + self._due_s[0] <= now_s:
            self._due_s.popleft()
            self._open_next()

    def _open_next(self) -> None:
        stream = self._waiting.popleft()
        number = stream.open()
        if number >= 0:
            self._open[number] = stream
            self._connecting[number] = time.monotonic()
            self._epoll.register(number, stream.wants)

    def _changed(self, number: int, stream: TokenStream) -> None:
        """A stream has connected, has sent everything or has ended."""
        if stream.ended:  # closing its socket has taken it out of the epoll
            del self._open[number]
            self._connecting.pop(number, None)
            if self._waiting and not self._schedule.due_s and not self._hold:
                self._open_next()
            return
        if self._connecting.pop(number, None) is not None and not self._hold:
            stream.send()
        if not stream.ended:
            self._epoll.modify(number, stream.wants)

    def _goes_on(self, now_s: float) -> bool:
        """Whether to wait on; gives up on the rest when the server is gone or the time is up."""
        if now_s >= self._deadline_s:
            self._drop(f"not finished within the limit of {self._limit_s:g} s")
            return False
        if now_s < self._ask_s:
            return True
        self._ask_s = now_s + _ALIVE_EVERY_S
        for number, since_s in list(self._connecting.items()):
            if now_s - since_s > self._connect_limit_s:
                stream = self._open[number]
                stream.give_up(f"no connection within {self._connect_limit_s:.1f} s")
                self._changed(number, stream)
        if not self._alive():
            self._drop("the server process ended during the request")
            return False
        if self._open and now_s - self._heard_s > self._silence_limit_s:
            self._drop(f"{SILENT} for {self._silence_limit_s:g} s")
            return False
        return True

    def _drop(self, reason: str) -> None:
        for stream in self._streams:
            stream.give_up(reason)
        self._open.clear()
        self._waiting.clear()


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
