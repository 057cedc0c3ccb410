"""The form of a signature: what to match, where it counts, what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from tuner.diagnosis.failure import Cause, Hint, Kind
from tuner.sglang.phases import Phase


class Weight(IntEnum):
    """How near to the root of a failure a line stands; a heavier event wins over a lighter one."""

    ECHO = 10
    """Printed after every death: signals to the parent, exit codes, 'Killed'."""
    AFTERMATH = 30
    """What the survivors say: lost peers, closed pipes, refused connections."""
    UNSORTED = 40
    """An exception of which nothing is known; any signature on the same line says more."""
    VERDICT = 50
    """A watcher's judgement that nothing moves: warm-up failed, watchdog, collective time-out."""
    RAISED = 60
    """An exception of which nothing is known but that a scheduler died of it: more than a watcher knows."""
    GENERIC = 70
    """An exception whose type says little; a named cause beside it is better."""
    SYMPTOM = 80
    """Names what failed, which is often itself a consequence of another rank's death."""
    ROOT = 90
    """Names the cause."""


@dataclass(frozen=True)
class Signature:
    """One way of dying, as it shows in one line.

    `literals`: lower-case; at least one is in the lower-cased line (they pre-filter, so a log costs little).
    `pattern`: a regular expression on the line, case ignored; empty where the literal says it all.
    `unless`: must not match the line. `near` must, `not_near` must not match the message that the line
    belongs to (its traceback and what follows).
    `frame`: must match the innermost frame (not torch's) of the traceback that the line ends.
    `phases`: counts only there (an event whose phase is unknown counts). `phase`: where it happens by nature.
    `kinds`: what it is in other phases than the usual. `warns`: counts even in a line that calls itself a
    warning.
    `in_source`: counts also in the frames and quoted source lines of a traceback.
    `certainty`: how often a diagnosis made from it is right. `since`: the first SGLang version that prints
    it.
    """

    name: str
    kind: Kind
    literals: tuple[str, ...]
    pattern: str = ""
    weight: Weight = Weight.ROOT
    cause: Cause | None = None
    near: str = ""
    not_near: str = ""
    frame: str = ""
    unless: str = ""
    phases: tuple[Phase, ...] = ()
    phase: Phase | None = None
    kinds: Mapping[Phase, Kind] = field(default_factory=dict)
    hints: tuple[Hint, ...] = ()
    summary: str = ""
    certainty: float = 0.9
    warns: bool = False
    in_source: bool = False
    since: str = ""

    @cached_property
    def line_regex(self) -> re.Pattern[str] | None:
        """The compiled `pattern`, or None where there is none."""
        return re.compile(self.pattern, re.IGNORECASE) if self.pattern else None

    @cached_property
    def near_regex(self) -> re.Pattern[str] | None:
        """The compiled `near`, or None."""
        return re.compile(self.near, re.IGNORECASE) if self.near else None

    @cached_property
    def not_near_regex(self) -> re.Pattern[str] | None:
        """The compiled `not_near`, or None."""
        return re.compile(self.not_near, re.IGNORECASE) if self.not_near else None

    @cached_property
    def frame_regex(self) -> re.Pattern[str] | None:
        """The compiled `frame`, or None."""
        return re.compile(self.frame) if self.frame else None

    @cached_property
    def unless_regex(self) -> re.Pattern[str] | None:
        """The compiled `unless`, or None."""
        return re.compile(self.unless, re.IGNORECASE) if self.unless else None


def param(name: str, direction: str, value: float | str | bool | None = None) -> Hint:
    """A hint at one of the server's parameters, by its canonical name."""
    return Hint("param", name, direction, value)


def env(name: str, direction: str, value: float | str | bool | None = None) -> Hint:
    """A hint at an environment variable."""
    return Hint("env", name, direction, value)


def action(name: str) -> Hint:
    """A hint at something only a person, or the tuner's keeper of the box, can do."""
    return Hint("action", name, "set")
