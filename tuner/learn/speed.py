"""How fast configurations are, learnt from the launches that were measured.

The logarithm of the speed is what was expected of the choices, plus what the drafts give, plus what the
additive model has learnt of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuner.learn.acceptance import Acceptance, drafts_of
from tuner.learn.additive import HERE, Additive
from tuner.learn.axes import Axes, Floats, Rows, Whole
from tuner.learn.expectations import Expectations
from tuner.learn.observation import Observation
from tuner.space.configuration import Configuration

NOISE_SD = 0.015
"""Between launches of the same (logarithm), drafts aside. Published: 0.3 to 2 % on boxes of eight cards."""
FLOOR = 1.5
"""Configurations slower than the best by more than this (logarithm) are all the same."""

Canonical = Callable[[Configuration], Configuration]


class Speed:
    """The speeds of a study. `weights` say how much each goal counts, `load` how many requests run at once.

    `past` are the measured launches of earlier studies, of which only the differences within each count.
    `spreads`, `noise_scale` and `doubts` (one for each of `past`) are where fitting starts; it goes on from
    there with every launch.
    """

    def __init__(
        self,
        axes: Axes,
        measured: Sequence[Observation],
        *,
        canonical: Canonical,
        load: int | None,
        weights: Sequence[float] = (1.0,),
        past: Sequence[Sequence[Observation]] = (),
        spreads: Mapping[str, float] | None = None,
        noise_scale: float = 1.0,
        doubts: Sequence[float] = (),
        sweeps: int = 1,
    ) -> None:
        self._axes, self._canonical, self._load = axes, canonical, load
        self._weight = weights[0]
        self._expectations = Expectations(axes.space)
        self._acceptance = Acceptance(
            (one.configuration, one.accept_length)
            for one in measured
            if one.accept_length and one.accept_length > 1
        )
        self._launched: list[Configuration] = []
        self._values: Floats = np.empty(0)
        self._origins: Whole = np.empty(0, dtype=np.int64)
        for place, launches in enumerate((measured, *past), start=HERE):
            self._take(launches, weights, place)
        expected = np.array([self._expectations.spread_of(name) for name in axes.names])
        known = spreads or {}
        start = np.array([known.get(name, usual) for name, usual in zip(axes.names, expected, strict=True)])
        doubted = np.array(doubts if len(doubts) == len(past) else [1.0] * len(past))
        self._additive = self._conditioned((), np.empty(0), start, noise_scale, doubted)
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
    def doubts(self) -> tuple[float, ...]:
        """How little each of the earlier studies is believed; 1 is usual."""
        return tuple(map(float, self._additive.doubts))

    @property
    def noise_sd(self) -> float:
        """The sd of the logarithm of the speed between launches of the same, as far as known."""
        return NOISE_SD * self.noise_scale

    def believe(self, running: Sequence[Configuration]) -> None:
        """Take what others are launching to come out as expected: it then promises nothing."""
        theirs = [self._canonical(configuration) for configuration in running]
        believed = self._additive.means(self._axes.rows(theirs))
        additive = self._additive
        self._additive = self._conditioned(
            theirs, believed, additive.spreads, additive.noise_scale, additive.doubts
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

    def _take(self, launches: Sequence[Observation], weights: Sequence[float], place: int) -> None:
        """What one study's launches tell beyond what was foreseen; an elsewhere's at the level of here."""
        values = np.array([_weighted(one, weights) for one in launches])
        values = np.maximum(values, values.max() - FLOOR)
        launched = [self._canonical(one.configuration) for one in launches]
        values = values - self._foreseen(launched)
        if place != HERE:
            here = self._values[self._origins == HERE]
            values += float(np.mean(here)) - float(np.mean(values))
        self._launched += launched
        self._values = np.concatenate([self._values, values])
        self._origins = np.concatenate([self._origins, np.full(len(values), place)])

    def _conditioned(
        self,
        more: Sequence[Configuration],
        values: Floats,
        spreads: Floats,
        noise_scale: float,
        doubts: Floats,
    ) -> Additive:
        """The model on all launches, and `more` with their `values`."""
        rows = self._axes.rows([*self._launched, *more])
        origins = np.concatenate([self._origins, np.full(len(more), HERE)])
        known = np.concatenate([self._values, values])
        noise = np.full(len(known), NOISE_SD)
        return Additive(self._axes, rows, known, spreads, noise, noise_scale, origins, doubts)

    def _foreseen(self, configurations: Sequence[Configuration]) -> Floats:
        """What is expected of the choices, and of the drafts."""
        return np.array(
            [
                sum(
                    self._expectations.gain_of(name, value, self._load)
                    for name, value in configuration.items()
                )
                + self._weight * self._acceptance.excess(configuration)
                for configuration in configurations
            ]
        )


def _weighted(one: Observation, weights: Sequence[float]) -> float:
    return sum(weight * score for weight, score in zip(weights, one.log_scores, strict=True))
