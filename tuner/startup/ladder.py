"""The ladder of phases that a starting server climbs: a pure state machine.

It is fed with log events, with the exit, and with ticks that carry the signs of life; it never looks at a
clock or a process. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tuner.launch.protocol import Activity
from tuner.sglang.events import LogEvent, PhaseSeen, PortBusy, Progress, ReadyLine, leads
from tuner.sglang.phases import Phase
from tuner.startup.limits import StallLimits

_GPU_MEMORY_NOISE_MIB = 2.0
_PASSIVE = (Phase.READY, Phase.SERVING, Phase.SHUTDOWN, Phase.GONE)


@dataclass(frozen=True)
class PhaseSpan:
    """A phase and when it lasted, in seconds since the launch. The last one ends when the start ended."""

    phase: Phase
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s

    def to_json(self) -> dict[str, Any]:
        """For the record, to the millisecond."""
        return {"phase": str(self.phase), "start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3)}


@dataclass(frozen=True)
class Stall:
    """A phase without a sign of life. `busy`: CPU time was burnt all the while, but nothing else moved."""

    phase: Phase
    silent_s: float
    busy: bool


@dataclass(frozen=True)
class StartupState:
    """Where a start stands.

    `progress` is (done, total) of the phase where the log counts. `silent_s` is the time since the last sign
    of life, `stall` is set once that is over the limit. `port_busy` is the line that says so, or empty.
    """

    phase: Phase
    seconds: float
    progress: tuple[int, int] | None
    silent_s: float
    stall: Stall | None
    ready_line: bool
    port_busy: str
    exit_code: int | None
    spans: tuple[PhaseSpan, ...]

    def shown(self) -> str:
        """For people: `weight-load 12/64 (34 s)`."""
        counted = f" {self.progress[0]}/{self.progress[1]}" if self.progress is not None else ""
        began_s = self.spans[-1].start_s if self.spans else 0.0
        return f"{self.phase}{counted} ({self.seconds - began_s:.0f} s)"


class StartupLadder:
    """The state of one start. `now_s` must never run backwards from call to call."""

    def __init__(self, limits: StallLimits, now_s: float) -> None:
        self._limits = limits
        self._began_s = now_s
        self._phase = Phase.ARGUMENTS
        self._entered_s = now_s
        self._spans: list[PhaseSpan] = []
        self._progress: tuple[int, int] | None = None
        self._led = False
        self._ready_line = False
        self._port_busy = ""
        self._exit_code: int | None = None
        self._activity: Activity | None = None
        self._activity_s = now_s
        self._moved_s = now_s
        self._busy_s = now_s

    def on_log(self, events: Iterable[LogEvent], line_count: int, now_s: float) -> None:
        """The log has grown by `line_count` lines that show life, and says this."""
        if line_count > 0:
            self._moved_s = now_s
        for event in events:
            if isinstance(event, PhaseSeen):
                self._on_phase(event, now_s)
            elif isinstance(event, Progress):
                if event.phase is self._phase:
                    self._progress = (event.done, event.total)
            elif isinstance(event, ReadyLine):
                self._ready_line = True
            elif isinstance(event, PortBusy):
                self._port_busy = self._port_busy or event.text

    def on_activity(self, activity: Activity, now_s: float) -> None:
        """The signs of life of the process tree, as running totals, measured now."""
        before, elapsed_s = self._activity, now_s - self._activity_s
        self._activity, self._activity_s = activity, now_s
        if before is None or elapsed_s <= 0:
            return
        # A child that ends takes its totals with it, so a total that falls is a change like any other.
        if activity.read_bytes != before.read_bytes or _gpu_moved(before, activity):
            self._moved_s = now_s
        used_s = activity.cpu_s - before.cpu_s
        if used_s < 0 or used_s / elapsed_s > self._limits.idle_cpu_share:
            self._busy_s = now_s

    def on_exit(self, code: int, now_s: float) -> None:
        """The server's process has ended."""
        if self._exit_code is None:
            self._exit_code = code
            self._spans.append(self._open_span(now_s))
            self._entered_s = now_s

    def state(self, now_s: float) -> StartupState:
        """Where the start stands at `now_s`."""
        ended = self._exit_code is not None
        return StartupState(
            phase=self._phase,
            seconds=now_s - self._began_s,
            progress=self._progress,
            silent_s=now_s - max(self._moved_s, self._busy_s),
            stall=None if ended else self._stall(now_s),
            ready_line=self._ready_line,
            port_busy=self._port_busy,
            exit_code=self._exit_code,
            spans=tuple(self._spans) if ended else (*self._spans, self._open_span(now_s)),
        )

    # --- inside ----------------------------------------------------------------------------------------

    def _on_phase(self, event: PhaseSeen, now_s: float) -> None:
        # Ranks climb at their own pace; the leading one is followed, any other only until it has spoken.
        if leads(event.rank):
            self._led = self._led or bool(event.rank)
        elif self._led:
            return
        if event.phase is self._phase or (self._phase in _PASSIVE and event.phase not in _PASSIVE):
            return
        self._spans.append(self._open_span(now_s))
        self._phase, self._entered_s, self._progress = event.phase, now_s, None

    def _open_span(self, now_s: float) -> PhaseSpan:
        return PhaseSpan(self._phase, self._entered_s - self._began_s, now_s - self._began_s)

    def _stall(self, now_s: float) -> Stall | None:
        limit_s = self._limits.of(self._phase)
        unmoved_s = now_s - self._moved_s
        silent_s = min(unmoved_s, now_s - self._busy_s)
        if silent_s >= limit_s:
            return Stall(self._phase, silent_s, busy=False)
        if unmoved_s >= limit_s * self._limits.busy_factor:
            return Stall(self._phase, unmoved_s, busy=True)
        return None


def _gpu_moved(before: Activity, after: Activity) -> bool:
    if before.gpu_memory_mib is None or after.gpu_memory_mib is None:
        return False
    return abs(after.gpu_memory_mib - before.gpu_memory_mib) >= _GPU_MEMORY_NOISE_MIB
