"""How long launches take, learnt from those that were measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.learn.additive import Additive
from tuner.learn.axes import Axes, Floats, Rows
from tuner.learn.observation import Observation
from tuner.learn.speed import Canonical

_SPREAD = 0.10
"""The sd of the logarithm of a launch's time that a parameter makes: what is captured, compiled, loaded."""
_NOISE_SD = 0.05


class Durations:
    """The time that configurations take from launch to end, in units of what a launch usually takes."""

    def __init__(self, axes: Axes, measured: Sequence[Observation], canonical: Canonical) -> None:
        timed = [one for one in measured if one.took_s > 0]
        self._model: Additive | None = None
        if len(timed) < 2:
            return
        logs = np.log(np.array([one.took_s for one in timed]))
        self._usual = float(np.mean(logs))
        rows = axes.rows([canonical(one.configuration) for one in timed])
        spreads = np.full(len(axes.names), _SPREAD)
        self._model = Additive(axes, rows, logs, spreads, np.full(len(logs), _NOISE_SD))

    def of(self, rows: Rows) -> Floats:
        """1 for what takes as long as the launches so far did on average, 2 for twice that."""
        if self._model is None:
            return np.ones(len(rows))
        found: Floats = np.exp(self._model.means(rows) - self._usual)
        return found
