"""What became of one launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuner.diagnosis.failure import Failure
from tuner.diagnosis.fallbacks import Fallback
from tuner.measure.measurement import Measurement
from tuner.startup.ladder import PhaseSpan


@dataclass(frozen=True)
class ServerFacts:
    """What the server said of itself: in its log, and at `/server_info` once it was ready.

    `resolved` are the values it really runs with, by canonical name; `runs_as` is a fingerprint that two
    servers share when all their tuned parameters resolve to the same. `memory` are the log's figures in GiB.
    """

    version: str | None = None
    kv_tokens: int | None = None
    max_running_requests: int | None = None
    context_len: int | None = None
    resolved: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    runs_as: str = ""


@dataclass(frozen=True)
class Outcome:
    """A launch that was measured (`measurement`), or one that failed (`failure`): exactly one of the two.

    `phases` are the spans of its start in seconds since the launch; `took_s` is the whole of it, stopping
    included. `fallbacks` say "asked for X, runs Y", `output` what the guard said of the answers. `clean` is
    false where the box was not left as it was.
    """

    measurement: Measurement | None = None
    failure: Failure | None = None
    phases: tuple[PhaseSpan, ...] = ()
    ready_s: float | None = None
    took_s: float = 0.0
    facts: ServerFacts = field(default_factory=ServerFacts)
    fallbacks: tuple[Fallback, ...] = ()
    output: dict[str, Any] = field(default_factory=dict)
    clean: bool = True
    leftovers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.measurement is None) == (self.failure is None):
            raise ValueError("an outcome is either measured or failed")
