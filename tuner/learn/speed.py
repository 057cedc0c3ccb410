"""How fast configurations are, learnt from the launches that were measured.

The logarithm of the speed is what was expected of the choices, plus what the drafts give, plus what the
additive model has learnt of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuner.learn.acceptance import Acceptance, drafts_of
from tuner.learn.additive import Additive
from tuner.learn.axes import Axes, Floats, Rows
from tuner.learn.expectations import gain_of, spread_of
from tuner.learn.observation import Observation
from tuner.space.configuration import Configuration

NOISE_SD = 0.015
"""Between launches of the same (logarithm), drafts aside. Published: 0.3 to 2 % on boxes of eight cards."""
_FLOOR = 1.5
"""Configurations slower than the best by more than this (logarithm) are all the same."""

Canonical = Callable[[Configuration], Configuration]


class Speed:
    """The speeds of a study. `weights` say how much each goal counts, `load` how many requests run at once.

    `spreads` and `noise_scale` are where fitting starts; it goes on from there with every launch.
    """

    def __init__(
        self,
        axes: Axes,
        measured: Sequence[Observation],
        *,
        canonical: Canonical,
        load: int | None,
        weights: Sequence[float] = (1.0,),
        spreads: Mapping[str, float] | None = None,
        noise_scale: float = 1.0,
        sweeps: int = 1,
    ) -> None:
        self._axes, self._canonical, self._load = axes, canonical, load
        self._weight = weights[0]
        self._acceptance = Acceptance(
            (one.configuration, one.accept_length)
            for one in measured
            if one.accept_length and one.accept_length > 1
        )
        values = np.array([_weighted(one, weights) for one in measured])
        values = np.maximum(values, values.max() - _FLOOR)
        launched = [canonical(one.configuration) for one in measured]
        self._launched = launched
        self._values = values - self._foreseen(launched)
        expected = np.array([spread_of(name) for name in axes.names])
        known = spreads or {}
        start = np.array([known.get(name, usual) for name, usual in zip(axes.names, expected, strict=True)])
        self._additive = self._conditioned(launched, self._values, start, noise_scale)
        self._additive.fit(expected, sweeps)

    @property
    def spreads(self) -> dict[str, float]:
        """Parameter → sd of what it does to the logarithm of the speed, as far as is known."""
        return dict(zip(self._axes.names, map(float, self._additive.spreads), strict=True))

    @property
    def noise_scale(self) -> float:
        """By how much the launches are noisier than `NOISE_SD`."""
        return self._additive.noise_scale

    @property
    def noise_sd(self) -> float:
        """The sd of the logarithm of the speed between launches of the same, as far as known."""
        return NOISE_SD * self.noise_scale

    def believe(self, running: Sequence[Configuration]) -> None:
        """Take what others are launching to come out as expected: it then promises nothing."""
        theirs = [self._canonical(configuration) for configuration in running]
        believed = self._additive.means(self._axes.rows(theirs))
        values = np.concatenate([self._values, believed])
        additive = self._additive
        self._additive = self._conditioned(
            [*self._launched, *theirs], values, additive.spreads, additive.noise_scale
        )

    def means(self, configurations: Sequence[Configuration]) -> Floats:
        """The expected logarithm of the speed of each."""
        same = [self._canonical(configuration) for configuration in configurations]
        return self._additive.means(self._axes.rows(same)) + self._foreseen(same)

    def gains(self, rows: Rows, incumbent: Configuration) -> tuple[Floats, Floats]:
        """By how much each is faster than `incumbent` (logarithm), and the sd of that. All are canonical."""
        same, there = rows.configurations, incumbent
        found = self._additive.predict(rows, self._axes.rows([there]))
        drafts = drafts_of(there)
        doubts = np.array([0.0 if drafts_of(one) == drafts else self._doubt(one, there) for one in same])
        gain: Floats = found.gain + self._foreseen(same) - self._foreseen([there])
        return gain, np.hypot(found.gain_sd, doubts)

    def _doubt(self, one: Configuration, other: Configuration) -> float:
        """How unsure it is what their drafts give, where they differ in them."""
        return self._weight * math.hypot(self._acceptance.doubt(one), self._acceptance.doubt(other))

    def _conditioned(
        self, launched: Sequence[Configuration], values: Floats, spreads: Floats, noise_scale: float
    ) -> Additive:
        noise = np.full(len(values), NOISE_SD)
        return Additive(self._axes, self._axes.rows(launched), values, spreads, noise, noise_scale)

    def _foreseen(self, configurations: Sequence[Configuration]) -> Floats:
        """What is expected of the choices, and of the drafts."""
        return np.array(
            [
                sum(gain_of(name, value, self._load) for name, value in configuration.items())
                + self._weight * self._acceptance.excess(configuration)
                for configuration in configurations
            ]
        )


def _weighted(one: Observation, weights: Sequence[float]) -> float:
    return sum(weight * score for weight, score in zip(weights, one.log_scores, strict=True))
