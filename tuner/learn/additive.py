"""A Gaussian process whose parts are one function for each parameter, and weak ones for each pair.

f(x) = mean + sum over axes of f_d(x_d) + sum over pairs of f_de(x_d, x_e); the spreads of the f_d are fitted
to the launches (maximum a posteriori). Most knobs of a server act nearly independently on the logarithm of
its speed, so a handful of launches tells much about combinations that nobody launched.

Launches of elsewhere (another study, box or version) may join. They have a level of their own, so that only
their differences count; what a choice does there may differ from what it does here, and they are noisier. How
far they are believed is fitted, too: a study that misleads contradicts this one's launches, or itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tuner.learn.axes import Axes, Floats, Rows, Whole

_PAIRS = 0.06
"""The variance of a pair's part, as a share of the product of its parameters' spreads."""
_MEAN_SD = 1.0
_JITTER = 1e-8
_STEPS = (0.35, 1.0 / 1.4, 1.4, 3.0)
_LOG_SD = 0.9
"""How far fitted spreads may be from expected ones: sd of the logarithm of their ratio."""
_NOISE_LOG_SD = 0.5
"""The same for the noise."""
_FITTED_AT_ONCE = 40_000_000
_MISFIT = 0.5
"""What a choice does elsewhere differs from what it does here by this share of its spread (sd)."""
ELSEWHERE_NOISE = 2.0
"""A launch of elsewhere is noisier than one of here by this factor."""
_DOUBT_LOG_SD = 1.0
"""How far the fitted doubt of an elsewhere, which multiplies both, may be from 1: sd of its logarithm."""
_LEAST_DOUBT = 1.0
"""A study that agrees with itself may still be one of another box."""
_DOUBT_SWEEPS = 3
HERE = 0


@dataclass(frozen=True)
class Prediction:
    """Mean and sd at some configurations, and the sd of each one's difference from the incumbent."""

    mean: Floats
    sd: Floats
    gain: Floats
    gain_sd: Floats


class Additive:
    """The process, conditioned on launches. `spreads` are in units of what is predicted.

    `origins` says of each launch where it is from: `HERE`, or 1, 2, … for the elsewheres. `doubts` has a
    number for each of those: 1 is as much as is usual, more is believed less.
    """

    def __init__(
        self,
        axes: Axes,
        rows: Rows,
        values: Floats,
        spreads: Floats,
        noise_sd: Floats,
        noise_scale: float = 1.0,
        origins: Whole | None = None,
        doubts: Floats | None = None,
    ) -> None:
        self._axes = axes
        self._rows = rows
        self._values = values
        self._noise = noise_sd**2
        self.noise_scale = noise_scale
        self.spreads = spreads
        self._alike = axes.alike(rows, rows)
        self._origins = origins if origins is not None else np.full(len(values), HERE)
        self.doubts: Floats = doubts if doubts is not None else np.ones(int(max(self._origins, default=0)))
        self._centre = float(np.mean(values[self._origins == HERE])) if len(values) else 0.0
        self._condition()

    def fit(self, expected: Floats, sweeps: int = 1) -> None:
        """Move the spreads and the noise, one at a time, to where the launches are likeliest.

        `expected` are the spreads that are likely beforehand.
        """
        best = self._likelihood(self.spreads, self.noise_scale, self.doubts, expected)
        work = len(self._values) ** 3 * len(_STEPS)
        most = max(1, min(len(expected), int(_FITTED_AT_ONCE / max(1, work))))
        start = len(self._values) % len(expected)
        for _ in range(sweeps):
            for step in _STEPS:
                scale = self.noise_scale * step
                found = self._likelihood(self.spreads, scale, self.doubts, expected)
                if found > best + 1e-9:
                    best, self.noise_scale = found, scale
            best = self._better_doubts(best, expected)
            for offset in range(most):
                axis = (start + offset) % len(expected)
                for step in _STEPS:
                    tried = self.spreads.copy()
                    tried[axis] *= step
                    found = self._likelihood(tried, self.noise_scale, self.doubts, expected)
                    if found > best + 1e-9:
                        best, self.spreads = found, tried
        self._condition()

    def fit_doubts(self) -> None:
        """Move the doubts alone to where the launches are likeliest."""
        best = self._likelihood(self.spreads, self.noise_scale, self.doubts, self.spreads)
        for _ in range(_DOUBT_SWEEPS):
            best = self._better_doubts(best, self.spreads)
        self._condition()

    def predict(self, rows: Rows, incumbent: Rows) -> Prediction:
        """Mean and sd at `rows`, and of their differences from the one row of `incumbent`."""
        mean, half, prior = self._project(rows)
        there, half_there, prior_there = self._project(incumbent)
        variance = np.maximum(prior - np.sum(half**2, axis=0), 1e-12)
        variance_there = float(prior_there[0] - np.sum(half_there**2))
        between = self._kernel(self._axes.alike(rows, incumbent), self.spreads)[:, 0]
        between = between - half.T @ half_there[:, 0]
        differing = np.maximum(variance + variance_there - 2 * between, 1e-12)
        return Prediction(mean, np.sqrt(variance), mean - there[0], np.sqrt(differing))

    def means(self, rows: Rows) -> Floats:
        """The means at `rows`."""
        return self._project(rows)[0]

    def _better_doubts(self, best: float, expected: Floats) -> float:
        """One sweep over the doubts, from a likelihood of `best` to the one that is returned."""
        for place in range(len(self.doubts)):
            for step in _STEPS:
                doubts = self.doubts.copy()
                doubts[place] = max(_LEAST_DOUBT, doubts[place] * step)
                found = self._likelihood(self.spreads, self.noise_scale, doubts, expected)
                if found > best + 1e-9:
                    best, self.doubts = found, doubts
        return best

    def _project(self, rows: Rows) -> tuple[Floats, Floats, Floats]:
        across = self._kernel(self._axes.alike(self._rows, rows), self.spreads)
        half: Floats = self._whitening @ across
        mean: Floats = self._centre + across.T @ self._weights
        own = rows.active * self.spreads
        total = np.sum(own, axis=1)
        squares = np.sum(own**2, axis=1)
        prior: Floats = _MEAN_SD**2 + squares + _PAIRS * (total**2 - squares) / 2
        return mean, half, prior

    def _kernel(self, alike: Floats, spreads: Floats) -> Floats:
        """Covariances: of the mean, of each axis, of each pair."""
        parts = alike * spreads[:, None, None]
        total = parts.sum(axis=0)
        squares = (parts**2).sum(axis=0)
        single: Floats = np.tensordot(spreads**2, alike, axes=1)
        found: Floats = _MEAN_SD**2 + single + _PAIRS * (total**2 - squares) / 2
        return found

    def _condition(self) -> None:
        lower = np.linalg.cholesky(self._covariance(self.spreads, self.noise_scale, self.doubts))
        self._whitening: Floats = np.linalg.inv(lower)
        self._weights = self._whitening.T @ (self._whitening @ (self._values - self._centre))

    def _covariance(self, spreads: Floats, noise_scale: float, doubts: Floats) -> Floats:
        kernel = self._kernel(self._alike, spreads)
        noise = self._noise * noise_scale**2
        found = kernel.copy()
        for place, doubt in enumerate(doubts, start=HERE + 1):
            there = self._origins == place
            own = _MEAN_SD**2 + (_MISFIT * doubt) ** 2 * (kernel - _MEAN_SD**2)
            found += np.where(np.outer(there, there), own, 0.0)
            noise = np.where(there, self._noise * (ELSEWHERE_NOISE * doubt) ** 2, noise)
        full: Floats = found + np.diag(noise + _JITTER)
        return full

    def _likelihood(self, spreads: Floats, noise_scale: float, doubts: Floats, expected: Floats) -> float:
        lower = np.linalg.cholesky(self._covariance(spreads, noise_scale, doubts))
        white = np.linalg.solve(lower, self._values - self._centre)
        prior = np.sum(np.log(spreads / expected) ** 2) / (2 * _LOG_SD**2)
        prior += math.log(noise_scale) ** 2 / (2 * _NOISE_LOG_SD**2)
        prior += np.sum(np.log(doubts) ** 2) / (2 * _DOUBT_LOG_SD**2)
        return float(-0.5 * white @ white - np.sum(np.log(np.diag(lower))) - prior)
