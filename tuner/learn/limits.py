"""What a study asks for besides speed (KV tokens, requests at once, latency): the odds that it is missed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from tuner.learn.additive import Additive
from tuner.learn.axes import Axes, Floats, Rows
from tuner.learn.observation import Observation
from tuner.learn.speed import Canonical

_SPREAD = 0.15
_SPREAD_MEMORY = 0.6
"""Of what decides on the size of the KV pool."""
_NOISE_SD = 0.03
_MEMORY = frozenset({"mem_fraction_static", "kv_cache_dtype", "speculative", "max_running_requests"})
_NORMAL = NormalDist()


class Limits:
    """How far each limit was missed by the launches that ran, by the same kind of model as their speed.

    `sweeps` are those of its fit: see `Additive.fit`.
    """

    def __init__(
        self, axes: Axes, measured: Sequence[Observation], canonical: Canonical, *, sweeps: int = 1
    ) -> None:
        self._axes, self._canonical, self._sweeps = axes, canonical, sweeps
        names = sorted({name for one in measured for name in one.excesses})
        self._models = {name: self._model(name, measured) for name in names}

    def missed(self, rows: Rows) -> dict[str, Floats]:
        """For every limit the odds that each row misses it."""
        there = self._axes.rows(rows.configurations[:1])
        odds = {}
        for name, model in self._models.items():
            found = model.predict(rows, there)
            pairs = zip(found.mean, found.sd, strict=True)
            odds[name] = np.array([_NORMAL.cdf(mean / math.hypot(sd, _NOISE_SD)) for mean, sd in pairs])
        return odds

    def _model(self, name: str, measured: Sequence[Observation]) -> Additive:
        told = [one for one in measured if name in one.excesses]
        values = np.clip(np.array([one.excesses[name] for one in told]), -2.0, 1.0)
        rows = self._axes.rows([self._canonical(one.configuration) for one in told])
        spreads = np.array([_SPREAD_MEMORY if axis in _MEMORY else _SPREAD for axis in self._axes.names])
        model = Additive(self._axes, rows, values, spreads, np.full(len(values), _NOISE_SD))
        model.fit(spreads, sweeps=self._sweeps)
        return model
