"""What a configuration is judged by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.errors import InputError
from tuner.measure.measurement import Measurement

UNIT = "tok/s"


@dataclass(frozen=True)
class Objective:
    """Decode throughput at one load level, or the geometric mean over several; more is better.

    The geometric mean lets a level of few tokens per second weigh as much as one of many: twice as fast at
    either counts the same.
    """

    levels: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.levels or len(set(self.levels)) != len(self.levels):
            raise InputError(
                f"the objective needs one or more different load levels, not {list(self.levels)}",
                hint="name a concurrency of the workload, or several",
            )

    @property
    def name(self) -> str:
        """The objective in words, its unit included."""
        shown = ",".join(str(level) for level in self.levels)
        mean = "" if len(self.levels) == 1 else "geometric mean "
        return f"{mean}decode {UNIT} at C={shown}"

    def score(self, measurement: Measurement) -> float:
        """Output tokens per second. `KeyError` where a level was not measured."""
        rates = [measurement.level(level).decode_tok_s for level in self.levels]
        return math.prod(rates) ** (1 / len(rates))
