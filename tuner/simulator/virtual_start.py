"""The start of a simulated server in virtual time: its log as bytes, and how following it would have ended.

The lines, their times and the deaths are those of the process; the log is read with the tuner's own reader,
so that phases and failures come out as they do for a process.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from tuner.sglang.flags import parse_help
from tuner.sglang.installation import Installation
from tuner.sglang.log import LogReader
from tuner.simulator.box import Box
from tuner.simulator.checks import ArgumentError
from tuner.simulator.cut_model import launched_box
from tuner.simulator.deaths import collective_timeout, lost_peer
from tuner.simulator.flags import build_parser
from tuner.simulator.memory import MemoryPlan, plan_memory
from tuner.simulator.physics import StepModel, links_of
from tuner.simulator.resolve import resolve
from tuner.simulator.script import Event, Script
from tuner.simulator.settings import Settings
from tuner.simulator.startup import shown_arguments, startup_script
from tuner.startup.follow import Died, NotStarted, Ready, Stalled
from tuner.startup.ladder import StartupLadder
from tuner.startup.limits import StallLimits

_HELP_WIDTH = 200
_EXIT_USAGE = 2
_EXIT_EXCEPTION = 1
_SIGKILL = -9


@dataclass(frozen=True)
class Standing:
    """A server that is up: what it resolved its flags to, its memory, and its speed."""

    settings: Settings
    plan: MemoryPlan
    model: StepModel

    def server_info(self, box: Box) -> dict[str, Any]:
        """What `/server_info` would say of the launch, without the figures of traffic."""
        state = {"effective_max_running_requests_per_dp": self.plan.max_running}
        return {
            **self.settings.arguments,
            "max_total_num_tokens": self.plan.kv_tokens,
            "internal_states": [state],
            "version": box.sglang_version.text,
        }


@dataclass(frozen=True)
class VirtualStart:
    """How a start went. `standing` is None where it did not succeed; times are seconds at time scale 1."""

    log: bytes
    end: Ready | NotStarted
    standing: Standing | None = None


class VirtualStarts:
    """Starts servers of one box in virtual time. Deterministic: noise begins only under load."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._parser = build_parser(box.sglang_version)

    def installation(self, command: Sequence[str]) -> Installation:
        """The box's SGLang as the tuner knows one, from the simulator's own help."""
        self._parser.formatter_class = _WideHelp
        flags = parse_help(self._parser.format_help())
        return Installation(tuple(command), flags, version=self._box.sglang_version.text)

    def check(self, words: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """The exception (name and text) that ends a start before it loads anything, or what flags become."""
        try:
            parsed = self._parsed(words)
            return "", resolve(launched_box(self._box, parsed), parsed).arguments
        except _UsageError as error:
            return f"SystemExit: {str(error).strip().rpartition('error: ')[2]}", {}
        except ArgumentError as error:
            return str(error).strip().splitlines()[-1], {}

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> VirtualStart:
        """Start with these flags (what follows the server's command) and this environment."""
        paper = _Paper()
        try:
            parsed = self._parsed(words)
            box = launched_box(self._box, parsed)
            settings = resolve(box, parsed)
        except _UsageError as error:
            return self._refused(paper, str(error), _EXIT_USAGE)
        except ArgumentError as error:
            return self._refused(paper, f"Traceback (most recent call last):\n{error}\n", _EXIT_EXCEPTION)
        variables = dict(environment)
        plan, links = plan_memory(box, settings), links_of(box, settings, variables)
        paper.ranks = settings.tp
        for text in (*settings.warnings, shown_arguments(box, settings.arguments)):
            paper.write("main", text)
        script = startup_script(box, settings, plan, links, variables)
        standing = Standing(settings, plan, StepModel(box, settings, links))
        return self._followed(paper, script, standing)

    def _parsed(self, words: Sequence[str]) -> dict[str, Any]:
        said = io.StringIO()
        try:
            with redirect_stderr(said):
                return vars(self._parser.parse_args(list(words)))
        except SystemExit:
            raise _UsageError(said.getvalue()) from None

    def _refused(self, paper: _Paper, text: str, exit_code: int) -> VirtualStart:
        paper.write("raw", text)
        ladder = StartupLadder(StallLimits(), 0.0)
        at_s = self._box.startup.arguments_s
        ladder.on_exit(exit_code, at_s)
        return VirtualStart(paper.bytes, Died(at_s, ladder.state(at_s).spans, exit_code))

    def _followed(self, paper: _Paper, script: Script, standing: Standing) -> VirtualStart:
        """Write the log at its times and climb the ladder with it, as following a process does."""
        ladder, reader = StartupLadder(StallLimits(), 0.0), LogReader()
        ladder.on_log(reader.feed(paper.bytes), 1, 0.0)
        events = [*script.events, *self._last_events(script, standing.settings)]
        for at_s, together in groupby(events, key=lambda event: event.at_s):
            stall = ladder.state(at_s).stall
            if stall is not None:
                noticed_s = at_s - stall.silent_s + StallLimits().of(stall.phase)
                spans = ladder.state(noticed_s).spans
                end = Stalled(noticed_s, spans, noticed_s - at_s + stall.silent_s, stall.busy)
                return VirtualStart(paper.bytes, end)
            before = len(paper.bytes)
            for event in together:
                paper.write(event.speaker, event.text, at_s)
            ladder.on_log(reader.feed(paper.bytes[before:]), 1, at_s)
        ended_s = events[-1].at_s
        if script.ending == "ready":
            return VirtualStart(paper.bytes, Ready(ended_s, ladder.state(ended_s).spans), standing)
        exit_code = _SIGKILL if script.ending == "exception" else _EXIT_EXCEPTION
        ladder.on_log(reader.finish(), 0, ended_s)
        ladder.on_exit(exit_code, ended_s)
        return VirtualStart(paper.bytes, Died(ended_s, ladder.state(ended_s).spans, exit_code))

    def _last_events(self, script: Script, settings: Settings) -> list[Event]:
        """What the launcher adds to the script: the end of a failed start, or the warm-up."""
        at_s = script.at_s
        if script.ending == "exception":
            return [
                *scheduler_failure(script.failure, settings.tp, at_s),
                Event(
                    at_s, "main", "Received sigquit from a child process. It usually means the child failed."
                ),
            ]
        if script.ending == "abort":
            return [Event(at_s, "raw", collective_timeout(settings.tp))]
        ready_s = at_s + (0.0 if settings.skip_warmup else self._box.startup.warmup_s)
        return [
            Event(at_s, "main", "INFO:     Application startup complete."),
            Event(
                at_s, "main", f"INFO:     Uvicorn running on http://{settings.host} (Press CTRL+C to quit)"
            ),
            Event(ready_s, "main", "The server is fired up and ready to roll!"),
        ]


def scheduler_failure(failure: str, ranks: int, at_s: float) -> list[Event]:
    """The lines of all ranks when the first one dies of `failure`."""
    lost = [
        Event(at_s, f"rank{rank}", f"Scheduler hit an exception: {lost_peer(rank)}")
        for rank in range(1, ranks)
    ]
    return [Event(at_s, "rank0", f"Scheduler hit an exception: {failure}"), *lost]


def with_serving_failure(start: VirtualStart, failure: str, ranks: int) -> bytes:
    """The log of a server that was up and then died of `failure` under load."""
    paper = _Paper(ranks)
    for event in scheduler_failure(failure, ranks, start.end.seconds):
        paper.write(event.speaker, event.text, event.at_s)
    paper.write("main", "SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    return start.log + paper.bytes


class _UsageError(Exception):
    """What argparse prints before it ends the process."""


class _WideHelp(argparse.HelpFormatter):
    """Help of the same width whatever the terminal."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{**options, "width": _HELP_WIDTH})


class _Paper:
    """A log that is only written down: SGLang's line format, the time counted from the launch."""

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.bytes = b""

    def write(self, speaker: str, text: str, at_s: float = 0.0) -> None:
        """Write what a speaker of the script says."""
        if speaker == "raw":
            self.bytes += text.encode()
            return
        labels = {"main": [""], "ranks": self._labels(range(self.ranks))}.get(speaker)
        if labels is None:
            labels = self._labels([int(speaker.removeprefix("rank"))])
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))
        self.bytes += "".join(f"[{now}{label}] {text}\n" for label in labels).encode()

    def _labels(self, ranks: Iterable[int]) -> list[str]:
        """A server of one rank names none."""
        return [f" TP{rank}" if self.ranks > 1 else "" for rank in ranks]


def quiet(box: Box) -> Box:
    """The box without noise."""
    return replace(box, noise=replace(box.noise, scale=0.0))
