"""What each parameter of the winner is worth: a model of all launches, asked one parameter at a time.

From the winner one parameter goes back to what leaving it unsaid means. The model says what that costs and
how sure it is; what would break a rule, end the server or miss a limit is needed whatever its speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from tuner.learn.additive import Additive
from tuner.learn.axes import Axes
from tuner.learn.blame import Culprits
from tuner.learn.expectations import spread_of
from tuner.learn.headroom import Headroom
from tuner.learn.limits import Limits
from tuner.learn.observation import Observation
from tuner.learn.speed import FLOOR, NOISE_SD
from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import AUTO
from tuner.space.space import SearchSpace

NOTHING = 0.02
"""A relative gain that nobody notices: about as large as the noise between launches."""

_SWEEPS = 3
_RISKY = 0.15
"""A parameter is needed where leaving it out raises the odds of a failure by more than this."""
WIDTH = NormalDist().inv_cdf(0.975)
"""Half of a 95 % interval, in standard deviations."""
_EQUAL_WIDTH = NormalDist().inv_cdf(0.95)
"""The same for 90 %: both ends of it within the margin are two tests at 5 % each that neither is beyond."""


@dataclass(frozen=True)
class Contribution:
    """What a parameter's value gives the winner over the value that it has when it is left unsaid.

    Gains are relative: 0.09 is 9 % faster with it; `low` to `high` is a 95 % interval. `needed` says why it
    cannot be left out, whatever its gain; then `gain` may be None, where nothing can tell it.
    """

    parameter: str
    value: Value
    unsaid: Value
    gain: float | None
    low: float = -math.inf
    high: float = math.inf
    needed: str = ""

    @property
    def effect(self) -> str:
        """`gains`, `costs`, `does nothing` (surely less than 2 % either way), or `not sure`."""
        if self.gain is None:
            return "not sure"
        if self.low > 0:
            return "gains"
        if self.high < 0:
            return "costs"
        narrower = _EQUAL_WIDTH / WIDTH
        ends = [self.gain + (end - self.gain) * narrower for end in (self.low, self.high)]
        return "does nothing" if all(abs(end) < NOTHING for end in ends) else "not sure"

    @property
    def is_idle(self) -> bool:
        """Whether it is known to do nothing for the speed, and nothing else needs it."""
        return self.effect == "does nothing" and not self.needed

    @property
    def is_open(self) -> bool:
        """Whether another launch could tell more: it can be left out, and may or may not be worth 2 %."""
        return not self.needed and not self.is_idle and self.low < NOTHING < self.high

    @property
    def setting(self) -> str:
        """`cuda_graph_max_bs=128`."""
        return f"{self.parameter}={_plain(self.value)}"

    @property
    def shown(self) -> str:
        """`cuda_graph_max_bs=128  +9.1% (95% interval +6.0% to +12.3%) over 512: gains`."""
        if self.gain is None:
            return f"{self.setting}  cannot be told apart: {self.needed}"
        needed = f"; needed: {self.needed}" if self.needed else ""
        if self.low == self.high:
            return (
                f"{self.setting}  the same server runs as with {_plain(self.unsaid)}: {self.effect}{needed}"
            )
        told = shown_gain(self.gain, self.low, self.high)
        return f"{self.setting}  {told} over {_plain(self.unsaid)}: {self.effect}{needed}"

    def to_json(self) -> dict[str, Any]:
        """For programs; an end of the interval that is not known is null."""
        told = {key: getattr(self, key) for key in ("parameter", "value", "unsaid", "gain")}
        ends = {key: getattr(self, key) if self.gain is not None else None for key in ("low", "high")}
        return {**told, **ends, "effect": self.effect, "needed": self.needed}


class Launches:
    """What the launches of a study say of its winner, and of the winner with something left out."""

    def __init__(
        self,
        observations: Sequence[Observation],
        space: SearchSpace,
        canonical: Callable[[Configuration], Configuration] = lambda given: given,
    ) -> None:
        self._space, self._canonical = space, canonical
        self._observations = observations
        self.unsaid = space.configuration(space.assignment({}))
        measured = [one for one in observations if one.log_scores]
        self._axes = Axes(space, observations)
        self._culprits = Culprits(space, observations)
        self._headroom = Headroom(self._axes, observations)
        values = np.array([one.log_scores[0] for one in measured])
        rows = self._axes.rows([canonical(one.configuration) for one in measured])
        spreads = np.array([spread_of(name) for name in self._axes.names])
        floored, noise_sds = np.maximum(values, values.max() - FLOOR), np.full(len(values), NOISE_SD)
        self._speed = Additive(self._axes, rows, floored, spreads, noise_sds)
        self._speed.fit(spreads, sweeps=_SWEEPS)
        self._limits = Limits(self._axes, measured, canonical, sweeps=_SWEEPS)

    def without(self, configuration: Configuration, name: str) -> Configuration:
        """The configuration with one parameter left unsaid, and without what applied only with it."""
        values = {key: value for key, value in configuration.items() if key != name}
        if name in self.unsaid:
            values[name] = self.unsaid[name]
        return self._space.configuration(self._space.assignment(values))

    def said(self, configuration: Configuration) -> list[str]:
        """The parameters in which it differs from what is unsaid, in the order of the space."""
        return [
            parameter.name
            for parameter in self._space.parameters
            if parameter.name in configuration
            and self.without(configuration, parameter.name) != configuration
        ]

    def contribution(self, winner: Configuration, name: str) -> Contribution:
        """What this parameter of the winner is worth to it."""
        without = self.without(winner, name)
        default = without.get(name, AUTO)
        broken = self._space.broken_rule(without)
        if broken is not None:
            return Contribution(
                name, winner[name], default, None, needed=f"without it a rule forbids '{broken.forbid.text}'"
            )
        gain, sd = self.loss(winner, without)
        low, high = (math.expm1(gain + sign * WIDTH * sd) for sign in (-1, 1))
        needed = self.why_not(winner, without)
        return Contribution(name, winner[name], default, math.expm1(gain), low, high, needed)

    def loss(self, winner: Configuration, without: Configuration) -> tuple[float, float]:
        """By how much `without` is slower than the winner (logarithm), and the sd of that."""
        there, here = self._canonical(winner), self._canonical(without)
        if there == here:
            return 0.0, 0.0
        found = self._speed.predict(self._axes.rows([here]), self._axes.rows([there]))
        return -float(found.gain[0]), float(found.gain_sd[0])

    def why_not(self, winner: Configuration, without: Configuration) -> str:
        """Why this cannot take the winner's place, whatever its speed; empty where nothing is against it."""
        launched = [one for one in self._observations if one.configuration == without]
        died = next((one for one in launched if one.death is not None), None)
        missed = next((one for one in launched if one.death is None and not one.feasible), None)
        if died is not None and died.death is not None:
            return f"without it the server died of {died.death.kind} (trial {died.trial})"
        if missed is not None:
            names = ", ".join(name for name, excess in missed.excesses.items() if excess > 0)
            return f"without it {names} is missed (trial {missed.trial})"
        if launched:
            return ""
        risk, before = (self._risk(each) for each in (without, winner))
        if risk - before > _RISKY:
            return f"without it the server is likely to die ({risk:.0%})"
        rows = self._axes.rows([self._canonical(each) for each in (without, winner)])
        for name, (missed, before) in self._limits.missed(rows).items():
            if missed - before > _RISKY:
                return f"without it {name} is likely to be missed ({missed:.0%})"
        return ""

    def _risk(self, configuration: Configuration) -> float:
        given = self._canonical(configuration)
        short = float(self._headroom.risk(self._axes.rows([given]))[0])
        return 1.0 - (1.0 - short) * (1.0 - self._culprits.risk(given))


def shown_gain(gain: float, low: float, high: float) -> str:
    """`+9.1% (95% interval +6.0% to +12.3%)`."""
    here, least, most = (f"{round(each, 3) + 0.0:+.1%}" for each in (gain, low, high))
    return f"{here} (95% interval {least} to {most})"


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
