"""The odds of surviving what nobody explains, learnt from where launches died and where they ran.

A log that tells of memory is learnt from in `headroom`, a death of many words in `blame`. What is left are
deaths of which nothing is told but that they happened, and these may have several reasons, numbers among
them: so no single choice is looked for, and the odds come from all parameters together.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from tuner.learn.additive import Additive
from tuner.learn.axes import Axes, Floats, Rows
from tuner.learn.observation import Observation

UNEXPLAINED = "unknown"
"""The kind of death of which nothing is told."""
_SPREAD = 0.2
"""By how much a parameter is expected to change the odds."""
_NOISE = 0.15
_HALF = 0.5
_NORMAL = NormalDist()


class Survival:
    """Learns nothing, and foresees nothing, as long as every death was explained."""

    def __init__(self, axes: Axes, observations: Sequence[Observation]) -> None:
        self._model: Additive | None = None
        told = [one for one in observations if one.death is None or one.death.kind == UNEXPLAINED]
        died = np.array([float(one.death is not None) for one in told])
        if not died.any():
            return
        self._axes = axes
        rows = axes.rows([one.configuration for one in told])
        spreads = np.full(len(axes.names), _SPREAD)
        self._model = Additive(axes, rows, died, spreads, np.full(len(died), _NOISE))
        self._model.fit(spreads)

    def risk(self, rows: Rows) -> Floats:
        """The odds (0 to 1) that each dies unexplained."""
        if self._model is None:
            return np.zeros(len(rows))
        found = self._model.predict(rows, self._axes.rows(rows.configurations[:1]))
        return np.array(
            [
                _NORMAL.cdf((mean - _HALF) / sd)
                for mean, sd in zip(found.mean, np.hypot(found.sd, _NOISE), strict=True)
            ]
        )
