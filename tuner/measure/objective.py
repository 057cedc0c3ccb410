"""What a configuration is judged by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.errors import InputError
from tuner.measure.highest import highest_level, meets
from tuner.measure.latency import LIMIT_NAMES, Limit
from tuner.measure.measurement import LevelSummary, Measurement

MAXIMIZE = "maximize"
MINIMIZE = "minimize"

GOALS = ("decode", "goodput", "highest-load", "tokens-per-joule", "latency")


@dataclass(frozen=True)
class Goal:
    """One number that is to be large, or for `latency` small. Over several levels it is the geometric mean.

    - `decode`: output tokens per second over the steady window.
    - `goodput`: requests per second that meet all limits.
    - `highest-load`: the highest concurrency (or rate) of the workload's range that meets all limits.
    - `tokens-per-joule`: output tokens per joule of the GPUs in use.
    - `latency`: the percentile `of` (such as `ttft_p99_ms`), in milliseconds.

    `levels` are concurrencies, or `by_rate` rates of an open load. The geometric mean lets a level of few
    tokens per second weigh as much as one of many: twice as fast at either counts the same.
    """

    levels: tuple[float, ...]
    kind: str = "decode"
    of: str = ""
    by_rate: bool = False

    def __post_init__(self) -> None:
        if self.kind not in GOALS or (self.kind == "latency") != (self.of in LIMIT_NAMES):
            raise InputError(f"there is no goal '{self.kind}' {self.of}".rstrip())
        if not self.levels or len(set(self.levels)) != len(self.levels):
            raise InputError(
                f"the objective needs one or more different load levels, not {list(self.levels)}",
                hint="name a concurrency of the workload, or several",
            )

    @property
    def unit(self) -> str:
        """What the number is counted in."""
        units = {"decode": "tok/s", "goodput": "req/s", "tokens-per-joule": "tok/J", "latency": "ms"}
        return units.get(self.kind, "")

    @property
    def direction(self) -> str:
        """`maximize` or `minimize`, in Optuna's words."""
        return MINIMIZE if self.kind == "latency" else MAXIMIZE

    @property
    def name(self) -> str:
        """The goal in words, its unit included."""
        levels = ",".join(f"{level:g}" for level in self.levels)
        shown = f"{levels} requests/s" if self.by_rate else f"C={levels}"
        if self.kind == "highest-load":
            return "highest load within the limits"
        mean = "" if len(self.levels) == 1 else "geometric mean "
        what = {
            "decode": "decode tok/s",
            "goodput": "goodput req/s",
            "tokens-per-joule": "tok/J",
            "latency": self.of.removesuffix("_ms").replace("_", " ") + " ms",
        }[self.kind]
        return f"{mean}{what} at {shown}"

    def score(self, measurement: Measurement, limits: Sequence[Limit]) -> float:
        """The number. `KeyError` where a level was not measured, `InputError` where it says nothing of it."""
        if self.kind == "highest-load":
            return highest_level(measurement.levels, limits)
        values = [self._value(measurement.level(level)) for level in self.levels]
        if not all(values):
            return 0.0  # no request of a level met the limits
        return math.exp(math.fsum(math.log(value) for value in values) / len(values))

    def _value(self, summary: LevelSummary) -> float:
        if self.kind == "decode":
            return summary.decode_tok_s
        if self.kind == "latency":
            return summary.latency_ms[self.of]
        value = summary.goodput_req_s if self.kind == "goodput" else summary.tok_per_j
        if value is None:
            missing = "limits" if self.kind == "goodput" else "the energy that the GPUs took"
            raise InputError(
                f"the objective '{self.name}' cannot be computed: the measurement knows nothing of {missing}",
                hint="choose another objective on this machine" if self.kind != "goodput" else "give limits",
            )
        return value


@dataclass(frozen=True)
class Objective:
    """One goal, or two that are traded off (a Pareto front), within `limits` on latencies.

    The limits hold at every level of the goals. With `goodput` and `highest-load` they are part of the
    number; with the other goals a configuration that exceeds them is not eligible: see `excesses`.
    """

    goals: tuple[Goal, ...]
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.goals) <= 2:
            raise InputError(f"an objective has one goal or two, not {len(self.goals)}")
        if not self.limits and any(goal.kind in ("goodput", "highest-load") for goal in self.goals):
            raise InputError(
                "goodput and highest-load need limits", hint="such as limits: {ttft_p99_ms: 500}"
            )

    @classmethod
    def of_levels(cls, levels: Iterable[float], *, by_rate: bool = False) -> Objective:
        """Decode throughput at these levels, nothing else."""
        return cls((Goal(tuple(levels), by_rate=by_rate),))

    @property
    def names(self) -> tuple[str, ...]:
        """The goals in words."""
        return tuple(goal.name for goal in self.goals)

    @property
    def directions(self) -> tuple[str, ...]:
        """`maximize` or `minimize` for each goal."""
        return tuple(goal.direction for goal in self.goals)

    @property
    def units(self) -> tuple[str, ...]:
        """The unit of each goal; empty for a count."""
        return tuple(goal.unit for goal in self.goals)

    @property
    def name(self) -> str:
        """The whole objective in words."""
        limits = f" with {', '.join(limit.shown for limit in self.limits)}" if self.limits else ""
        return " and ".join(self.names) + limits

    @property
    def seeks_highest(self) -> bool:
        """Whether levels are chosen by a bisection and not measured in the workload's order."""
        return any(goal.kind == "highest-load" for goal in self.goals)

    def scores(self, measurement: Measurement) -> tuple[float, ...]:
        """One number for each goal. `KeyError` where a level was not measured."""
        return tuple(goal.score(measurement, self.limits) for goal in self.goals)

    def score(self, measurement: Measurement) -> float:
        """The number of the first goal, which is the only one unless a trade-off was asked for."""
        return self.scores(measurement)[0]

    def accept_length(self, measurement: Measurement) -> float | None:
        """The tokens of a step at the levels of the first goal (geometric mean), where that counts tokens.

        None without speculation.
        """
        goal = self.goals[0]
        if goal.kind not in ("decode", "tokens-per-joule"):
            return None
        lengths = [measurement.level(level).accept_length or 0.0 for level in goal.levels]
        return math.exp(math.fsum(map(math.log, lengths)) / len(lengths)) if all(lengths) else None

    def excesses(self, measurement: Measurement) -> dict[str, float]:
        """For every limit by how much it is exceeded (0.2: by 20 %; 0 or less is met), at the worst level.

        Empty for objectives whose number contains the limits. Keys are the limits' names.
        """
        if not self.limits or any(goal.kind in ("goodput", "highest-load") for goal in self.goals):
            return {}
        return self._worst(measurement)

    def _worst(self, measurement: Measurement) -> dict[str, float]:
        judged = {level for goal in self.goals for level in goal.levels}
        levels = [summary for summary in measurement.levels if summary.level in judged]
        return {
            limit.name: max(summary.latency_ms[limit.name] / limit.most_ms - 1.0 for summary in levels)
            for limit in self.limits
        }


def nearest_to_limits(candidates: Iterable[tuple[str, Measurement]], objective: Objective) -> str:
    """A sentence for when nothing meets the limits: which of the (name, measurement) comes nearest.

    The distance is the largest relative excess over all limits, at the level of the measurement where it is
    smallest. Empty where a candidate meets them all, or where there are no limits or candidates.
    """
    nearest: tuple[float, str, LevelSummary, Limit] | None = None
    for name, measurement in candidates:
        for summary in measurement.levels:
            if not objective.limits or meets(summary, objective.limits):
                return ""
            limit = max(objective.limits, key=lambda one: summary.latency_ms[one.name] / one.most_ms)
            excess = summary.latency_ms[limit.name] / limit.most_ms - 1.0
            if nearest is None or excess < nearest[0]:
                nearest = (excess, name, summary, limit)
    if nearest is None:
        return ""
    excess, name, summary, limit = nearest
    asked = " and ".join(one.shown for one in objective.limits)
    return (
        f"no configuration meets {asked}; the nearest is {name} with {limit.kind} p{limit.percent} = "
        f"{summary.latency_ms[limit.name]:.4g} ms at {summary.name} ({excess:+.0%})"
    )
