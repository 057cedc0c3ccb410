"""One launch as the models see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.space.configuration import Configuration


@dataclass(frozen=True)
class Death:
    """Why a launch was not measured.

    `kind` is the diagnosis' word, `text` its sentence and the telling line, `blamed` the parameters that its
    hints name, `shortage_gib` how much memory was missing, where that is known. `passing` says that the
    diagnosis takes it for bad luck that has nothing to do with the configuration.
    """

    kind: str
    phase: str = ""
    text: str = ""
    blamed: tuple[str, ...] = ()
    shortage_gib: float | None = None
    passing: bool = False


@dataclass(frozen=True)
class Observation:
    """A launch that was measured (`log_scores`, more is better) or died (`death`).

    `excesses` say by how much a limit is missed, relatively (0 or less is met). `memory` are the log's
    figures in GiB, `resolved` the values that the server really ran with. `accept_length` is the tokens of a
    step with speculation; what its drafts' luck did to the first score is taken out of that.
    """

    trial: int
    configuration: Configuration
    log_scores: tuple[float, ...] = ()
    death: Death | None = None
    excesses: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    resolved: Mapping[str, Any] = field(default_factory=dict)
    took_s: float = 0.0
    accept_length: float | None = None

    @property
    def feasible(self) -> bool:
        """Whether it was measured and meets what was asked for."""
        return self.death is None and all(value <= 0 for value in self.excesses.values())
