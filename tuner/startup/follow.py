"""Following a server from its launch until it is proven ready, or until it is clear that it will not be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from tuner.clock import Clock
from tuner.errors import TunerError
from tuner.launch.protocol import ServerHandle
from tuner.sglang.log import LogReader
from tuner.sglang.phases import Phase
from tuner.startup.ladder import PhaseSpan, StartupLadder, StartupState
from tuner.startup.limits import StallLimits

_LOOK_EVERY_S = 0.2
_ACTIVITY_EVERY_S = 1.0
_KNOCK_EVERY_S = 2.0
_KNOCK_LIMIT_S = 25.0
_CONFIRM_S = 3.0
"""A port that answered but is not ours may have been: a server that was just killed takes a while to go."""


class Prober(Protocol):
    """What proves a server ready; `tuner.sglang.endpoints.ServerClient` is one."""

    def healthy(self, timeout_s: float) -> bool:
        """Whether the server says that it is well."""

    def generate_one_token(self, timeout_s: float) -> str:
        """One really generated token, or a `TunerError`."""


@dataclass(frozen=True)
class _Outcome:
    """What every outcome tells: how long it took, and the phases, in seconds since the launch."""

    seconds: float
    phases: tuple[PhaseSpan, ...]

    @property
    def phase(self) -> Phase:
        """The phase in which it ended."""
        return self.phases[-1].phase if self.phases else Phase.ARGUMENTS


@dataclass(frozen=True)
class Ready(_Outcome):
    """It serves: a real token was generated, by the server that was launched."""


@dataclass(frozen=True)
class Died(_Outcome):
    """Its process ended. `exit_code` is negative for a signal."""

    exit_code: int


@dataclass(frozen=True)
class Stalled(_Outcome):
    """There was no sign of life for `silent_s`; `busy`: it burnt CPU time, but nothing else moved."""

    silent_s: float
    busy: bool


@dataclass(frozen=True)
class TimedOut(_Outcome):
    """It lived, but was not ready in time. `waited_for` says for what, and how it last failed."""

    limit_s: float
    waited_for: str


@dataclass(frozen=True)
class PortNotOurs(_Outcome):
    """Its port belongs to another program. `evidence` is what shows that."""

    evidence: str


NotStarted = Died | Stalled | TimedOut | PortNotOurs
RunAside = Callable[[Callable[[], str]], "Future[str]"]


def in_thread(work: Callable[[], str]) -> Future[str]:
    """Run `work` beside the caller, in a thread that does not keep the program from ending."""
    future: Future[str] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001  # handed to whoever asks the future
            future.set_exception(error)

    threading.Thread(target=run, name="prove-ready", daemon=True).start()
    return future


def follow_start(
    handle: ServerHandle,
    client: Prober,
    *,
    clock: Clock,
    limits: StallLimits,
    on_change: Callable[[StartupState], None] = lambda _: None,
    run_aside: RunAside = in_thread,
) -> Ready | NotStarted:
    """Follow a server that was just launched; it is not stopped here, whatever the outcome.

    A death is noticed within a second. Ready means that a real token was generated and that the port belongs
    to this launch; the ready line alone is no proof, and a port that answers may be another server's.
    `on_change` is called with every new phase and every step of progress, and once a second in between.
    """
    proof = _Proof(client, run_aside, limits)
    return _Follower(handle, proof, clock=clock, limits=limits, on_change=on_change).run()


class _Follower:
    def __init__(
        self,
        handle: ServerHandle,
        proof: _Proof,
        *,
        clock: Clock,
        limits: StallLimits,
        on_change: Callable[[StartupState], None],
    ) -> None:
        self._handle = handle
        self._clock = clock
        self._limits = limits
        self._on_change = on_change
        self._reader = LogReader()
        self._offset = 0
        self._began_s = clock.monotonic_s()
        self._ladder = StartupLadder(limits, self._began_s)
        self._proof = proof
        self._next_activity_s = self._began_s
        self._answered_s: float | None = None
        self._shown: tuple[Phase, tuple[int, int] | None, int] | None = None

    def run(self) -> Ready | NotStarted:
        while True:
            code = self._handle.poll()  # Before the log, so that the log of a dead server is read to its end.
            now_s = self._clock.monotonic_s()
            self._read_log(now_s, last=code is not None)
            if code is not None:
                self._ladder.on_exit(code, now_s)
            elif now_s >= self._next_activity_s:
                self._ladder.on_activity(self._handle.activity(), now_s)
                self._next_activity_s = now_s + _ACTIVITY_EVERY_S
            state = self._ladder.state(now_s)
            self._tell(state)
            outcome = self._judge(state, now_s)
            if outcome is not None:
                return outcome
            self._clock.sleep(_LOOK_EVERY_S)

    def _read_log(self, now_s: float, *, last: bool) -> None:
        data = self._handle.read_log(self._offset)
        self._offset += len(data)
        before = self._reader.lines_of_life
        events = self._reader.feed(data)
        if last:
            events += self._reader.finish()
        self._ladder.on_log(events, self._reader.lines_of_life - before, now_s)

    def _tell(self, state: StartupState) -> None:
        shown = (state.phase, state.progress, int(state.seconds))
        if shown != self._shown:
            self._shown = shown
            self._on_change(state)

    def _judge(self, state: StartupState, now_s: float) -> Ready | NotStarted | None:
        seconds, spans = state.seconds, state.spans
        if state.exit_code is not None:
            return Died(seconds, spans, state.exit_code)
        if state.port_busy:
            # It would not end by itself: after a failed bind SGLang hangs with all its processes.
            return PortNotOurs(seconds, spans, state.port_busy)
        if self._answered_s is None and self._proof.look(state, now_s):
            self._answered_s = now_s
        if self._answered_s is not None:
            if self._handle.owns_port():
                return Ready(seconds, spans)
            if now_s - self._answered_s < _CONFIRM_S:
                return None
            other = f"{self._handle.url} is answered by a process that this launch did not start"
            return PortNotOurs(seconds, spans, other)
        return self._judge_time(state, now_s)

    def _judge_time(self, state: StartupState, now_s: float) -> Stalled | TimedOut | None:
        seconds, spans, limits = state.seconds, state.spans, self._limits
        if state.stall is not None:
            return Stalled(seconds, spans, state.stall.silent_s, state.stall.busy)
        if seconds >= limits.ready_limit_s:
            return TimedOut(seconds, spans, limits.ready_limit_s, f"the end of {state.phase}")
        overdue = self._proof.overdue(now_s)
        return TimedOut(seconds, spans, limits.proof_limit_s, overdue) if overdue else None


class _Proof:
    """Gets a real token out of the server, one attempt at a time and beside the loop."""

    def __init__(self, client: Prober, run_aside: RunAside, limits: StallLimits) -> None:
        self._client = client
        self._run_aside = run_aside
        self._limits = limits
        self._attempt: Future[str] | None = None
        self._next_s = 0.0
        self._asked_when_ready = False
        self._claimed_ready_s: float | None = None
        self._last_error = ""

    def look(self, state: StartupState, now_s: float) -> bool:
        """Whether a token has come; begins an attempt where one is due."""
        if state.ready_line and self._claimed_ready_s is None:
            self._claimed_ready_s = now_s
            self._next_s = now_s
        if self._attempt is not None and self._attempt.done():
            attempt, self._attempt = self._attempt, None
            error = attempt.exception()
            if error is None:
                return True
            self._last_error = error.message if isinstance(error, TunerError) else repr(error)
            # An attempt from before the ready line says nothing about now.
            outdated = state.ready_line and not self._asked_when_ready
            self._next_s = now_s if outdated else now_s + _KNOCK_EVERY_S
        if self._attempt is None and now_s >= self._next_s:
            self._asked_when_ready = state.ready_line
            self._attempt = self._run_aside(self._knock(ready=state.ready_line))
        return False

    def overdue(self, now_s: float) -> str:
        """What is missing for too long since the server called itself ready, or the empty string."""
        if self._claimed_ready_s is None or now_s - self._claimed_ready_s < self._limits.proof_limit_s:
            return ""
        return f"the first generated token ({self._last_error or 'the request is still running'})"

    def _knock(self, *, ready: bool) -> Callable[[], str]:
        """One attempt. Before the ready line (a log can be held back) the server has to say it is well."""
        client, limit_s = self._client, self._limits.proof_limit_s

        def attempt() -> str:
            if not ready and not client.healthy(_KNOCK_LIMIT_S):
                raise TunerError("the server does not say that it is well yet")
            return client.generate_one_token(limit_s)

        return attempt
