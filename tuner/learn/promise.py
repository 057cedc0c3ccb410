"""What a launch promises: the expected improvement on the best, times the odds that it runs and counts."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tuner.learn.axes import Axes, Floats, Rows
from tuner.learn.blame import Culprits
from tuner.learn.duration import Durations
from tuner.learn.headroom import Headroom
from tuner.learn.limits import Limits
from tuner.learn.observation import Observation
from tuner.learn.speed import Canonical, Speed
from tuner.learn.survival import Survival
from tuner.space.configuration import Configuration
from tuner.space.space import SearchSpace

_MOST_TELLING = 160
_MOST_PAST = 80
"""Launches of earlier studies that asking has time for."""
_FEW = 80
_SWEEPS = 4
"""Of a few launches each has to tell what there is to tell: one sweep a launch is slow to give up hopes."""
_UNKNOWN_LAUNCH_S = 600.0
LOSSES = 0.08
"""The share of the time that may go into launches that die."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Lesson:
    """What there is to learn from: the launches, how to canonise a configuration, and the scored load.

    `load` is the largest number of requests at once that counts; None where that is not fixed. `past` are
    the launches of earlier studies, those of each together; with their `memory` where the cards are alike.
    """

    observations: tuple[Observation, ...]
    canonical: Canonical
    load: int | None = None
    past: tuple[tuple[Observation, ...], ...] = ()


@dataclass(frozen=True)
class Fitted:
    """Where the fit of the speeds stands, for the next one to go on from."""

    spreads: Mapping[str, float]
    noise_scale: float = 1.0
    doubts: tuple[float, ...] = ()


class Promise:
    """All models of one moment. `running` are configurations that others are launching."""

    def __init__(
        self,
        space: SearchSpace,
        lesson: Lesson,
        running: Sequence[Configuration],
        source: random.Random,
        fitted: Fitted,
    ) -> None:
        everything = lesson.observations
        observations = _most_telling(everything, _MOST_TELLING)
        self._canonical = lesson.canonical
        self._axes = Axes(space, observations)
        self._culprits = Culprits(space, everything, [one for study in lesson.past for one in study])
        self._headroom = Headroom(self._axes, observations, lesson.past)
        self._survival = Survival(self._axes, observations)
        self._measured = [one for one in observations if one.death is None]
        self.speed: Speed | None = None
        self.fitted = fitted
        if self._measured:
            self.speed = Speed(
                self._axes,
                self._measured,
                canonical=lesson.canonical,
                load=lesson.load,
                weights=_weights(self._measured, source),
                past=_comparable(lesson.past, goals=len(self._measured[0].log_scores)),
                spreads=fitted.spreads,
                noise_scale=fitted.noise_scale,
                doubts=fitted.doubts,
                sweeps=_SWEEPS if len(self._measured) <= _FEW else 1,
            )
            self.fitted = Fitted(self.speed.spreads, self.speed.noise_scale, self.speed.doubts)
            if running:
                self.speed.believe(running)
        self._durations = Durations(self._axes, self._measured, self._canonical)
        self._limits = Limits(self._axes, self._measured, self._canonical)
        self._spent_s = sum(one.took_s for one in everything)
        self._lost_s = sum(one.took_s for one in everything if one.death is not None)
        self._launch_s = max(1.0, self._spent_s / len(everything)) if everything else _UNKNOWN_LAUNCH_S
        deaths = sum(one.death is not None for one in everything)
        self._death_s = self._lost_s / deaths if deaths else self._launch_s
        self._incumbent = next(iter(self.leaders(1)), None)

    def of(self, configurations: Sequence[Configuration]) -> Floats:
        """The promise of each: a gain (logarithm of the speed) per usual launch, or odds before anything was
        measured."""
        rows = self._axes.rows([self._canonical(configuration) for configuration in configurations])
        lives = (1.0 - self._headroom.risk(rows)) * (1.0 - self._survival.risk(rows))
        runs: Floats = lives * np.array(
            [1.0 - self._culprits.risk(configuration) for configuration in configurations]
        )
        if self.speed is None or self._incumbent is None:
            return runs
        gain, sd = self.speed.gains(rows, self._incumbent)
        odds = runs * self._meets(rows)
        worth = odds * self._affordable(runs) / self._durations.of(rows)
        found: Floats = _expected_improvement(gain, sd) * worth
        return found

    def leaders(self, count: int) -> list[Configuration]:
        """The configurations that are believed to be the best of those that were measured, best first."""
        if self.speed is None:
            return []
        known = {self._canonical(one.configuration): one for one in self._measured}
        configurations = list(known)
        means = self.speed.means(configurations)
        ranks = means - np.array([0.0 if known[each].feasible else 1.0 for each in configurations])
        return [configurations[int(index)] for index in np.argsort(-ranks)[:count]]

    # --- the parts --------------------------------------------------------------------------------------

    def _meets(self, rows: Rows) -> Floats:
        """The odds that each meets what was asked for."""
        odds: Floats = np.ones(len(rows))
        for missed in self._limits.missed(rows).values():
            odds = odds * (1.0 - missed)
        return odds

    def _affordable(self, runs: Floats) -> Floats:
        """1 where the launches that die are expected to keep to their share of the time, else much less.

        That is so as long as they have not used it up, and for a launch that is itself expected to lose no
        more than that share of its time: it brings the share down. To launch nothing but what is sure to run
        would cost all the rest of the time, for next to nothing.
        """
        dying_s = (1.0 - runs) * self._death_s
        lost = (self._lost_s + dying_s) / (self._spent_s + self._launch_s)
        own = dying_s / (dying_s + runs * self._launch_s)
        return np.where((lost <= LOSSES) | (own <= LOSSES), 1.0, 0.02 * runs)


def _comparable(past: Sequence[Sequence[Observation]], goals: int) -> tuple[tuple[Observation, ...], ...]:
    """What was measured for the same goals, by study; one launch alone has no differences."""
    measured = [[one for one in study if len(one.log_scores) == goals] for study in past]
    telling = [study for study in measured if len(study) > 1]
    return tuple(_most_telling(study, max(2, _MOST_PAST // len(telling))) for study in telling)


def _most_telling(observations: Sequence[Observation], most: int) -> tuple[Observation, ...]:
    """The best and the latest launches, where there are more than asking has time for."""
    if len(observations) <= most:
        return tuple(observations)
    half = most // 2
    best = sorted(observations, key=lambda one: -(one.log_scores[0] if one.log_scores else -math.inf))[:half]
    kept = {one.trial for one in (*best, *observations[-half:])}
    return tuple(one for one in observations if one.trial in kept)


def _weights(measured: Sequence[Observation], source: random.Random) -> tuple[float, ...]:
    """How much each goal counts now: all of them get their turn."""
    goals = len(measured[0].log_scores)
    if goals == 1:
        return (1.0,)
    drawn = [source.expovariate(1.0) for _ in range(goals)]
    return tuple(weight / sum(drawn) for weight in drawn)


def _expected_improvement(gain: Floats, sd: Floats) -> Floats:
    scaled = gain / sd
    density = np.exp(-0.5 * scaled**2) / math.sqrt(2 * math.pi)
    below = np.array([_NORMAL.cdf(value) for value in scaled])
    found: Floats = np.maximum(gain * below + sd * density, 1e-15)
    return found
