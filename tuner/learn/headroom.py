"""How much memory a configuration would leave, in GiB, learnt from the logs of launches that ran or died.

Two figures are predicted with their uncertainty: the room for the KV pool, and what is free once everything
stands (graphs captured). Of the memory fraction it is known how it acts: the static part grows by the card's
memory (SGLang 0.5.x: static part = fraction x free memory). What is left of a log is learnt by the additive
model: graphs by batch size, a draft model. What prompts take under load is `tuner.learn.prompt_room`. Where
the engine chose the fraction and did not say which, the size of its static part tells; where nothing does,
such a launch teaches nothing of memory.

Launches of earlier studies of the same model on cards of the same memory may join. Their level is their own
(another release or driver takes another share), and what a choice takes there may differ from what it takes
here: see `tuner.learn.additive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, median

import numpy as np

from tuner.learn.additive import HERE, Additive
from tuner.learn.axes import Axes, Floats, Rows
from tuner.learn.blame import is_by_memory
from tuner.learn.observation import Observation
from tuner.learn.prompt_room import PromptRoom, died_reading
from tuner.space.configuration import Configuration

_FRACTION = "mem_fraction_static"
_POOL_KINDS = frozenset({"mem-fraction-too-low", "oom-weights", "measurement-void"})
_GIB = 1.5
"""Spread of what a parameter takes, and what is missing where a death does not say."""
_UNSAID_GIB = 3.0
"""What a launch that ran is taken to have left where its log does not say."""
_LEAST_POOL_GIB = 0.3
_NOISE_GIB = 0.15
_UNTOLD = 0.5
"""How far the risk is believed while no log tells of memory, and no launch died for lack of it."""
_UNKNOWN = 0.05
"""The odds of running out of memory where nothing is known of it."""
_HEARSAY = 0.5
"""How far an earlier study is believed when it says how much room prompts take."""
_MOST_PAST = 60
"""Launches of earlier studies that predicting has time for, the latest of each."""
_NORMAL = NormalDist()


class Headroom:
    """Predicts memory for configurations that were never launched.

    `past` are the launches of earlier studies, those of each together; of those whose launches carry no
    `memory` nothing is taken. By themselves they say nothing: what is predicted stands on a launch of here.
    """

    def __init__(
        self,
        axes: Axes,
        observations: Sequence[Observation],
        past: Sequence[Sequence[Observation]] = (),
    ) -> None:
        self._axes = axes
        self._doubt = 1.0 if any(_tells(one) for one in observations) else _UNTOLD
        telling = [study for study in past if any(one.memory for one in study)]
        launches = [observations, *(study[-max(1, _MOST_PAST // len(telling)) :] for study in telling)]
        self._card_gib = next((gib for gib in (_card_gib(axes, one) for one in launches) if gib), 0.0)
        self._unsaid_fraction = _unsaid_fraction(self._card_gib, axes, observations)
        self._free = self._model(launches, _free_gib, -self._card_gib)
        self._pool = self._model(launches, _pool_gib, self._card_gib)
        everything = [one for study in launches for one in study]
        self._rooms = PromptRoom(axes, observations), PromptRoom(axes, everything)

    def risk(self, rows: Rows) -> Floats:
        """The odds (0 to 1) that each dies for lack of memory."""
        left = self._left(self._free, -self._card_gib, rows)
        here, told = (_below(left, room.least_gib(rows.configurations)) for room in self._rooms)
        free = (1.0 - _HEARSAY) * here + _HEARSAY * told
        pool = _below(self._left(self._pool, self._card_gib, rows), np.full(len(rows), _LEAST_POOL_GIB))
        found: Floats = self._doubt * (1.0 - (1.0 - free) * (1.0 - pool))
        return found

    def predicted_gib(self, configuration: Configuration) -> tuple[float, float] | None:
        """What is free once everything stands, and the sd of that; None before anything is known."""
        moved = _times(-self._card_gib, self._usual_fraction(configuration))
        if self._free is None or math.isnan(moved):
            return None
        rows = self._axes.rows([configuration])
        found = self._free.predict(rows, rows)
        return float(found.mean[0]) + moved, float(found.sd[0])

    def _model(
        self,
        launches: Sequence[Sequence[Observation]],
        told_gib: Callable[[Observation], float | None],
        slope: float,
    ) -> Additive | None:
        seen = [
            (place, one, gib - moved)
            for place, study in enumerate(launches, start=HERE)
            for one in study
            if (gib := told_gib(one)) is not None
            and not math.isnan(moved := _times(slope, self._fraction(one, is_here=place == HERE)))
        ]
        if not any(place == HERE for place, _, _ in seen):
            return None
        rows = self._axes.rows([one.configuration for _, one, _ in seen])
        values = np.array([gib for _, _, gib in seen])
        spreads = np.full(len(self._axes.names), _GIB / 3)
        for column, name in enumerate(self._axes.names):
            if name in ("speculative", "cuda_graph_max_bs", "chunked_prefill_size", "max_running_requests"):
                spreads[column] = _GIB
            if name == _FRACTION:
                spreads[column] = 0.3 if self._card_gib else 2 * _GIB
        noise = np.full(len(values), _NOISE_GIB)
        origins = np.array([place for place, _, _ in seen])
        model = Additive(self._axes, rows, values, spreads, noise, origins=origins)
        model.fit_doubts()
        return model

    def _left(self, model: Additive | None, slope: float, rows: Rows) -> tuple[Floats, Floats] | None:
        """What is left at each, and the sd of that; None before anything is known."""
        if model is None:
            return None
        found = model.predict(rows, self._axes.rows(rows.configurations[:1]))
        return found.mean + self._moved(slope, rows.configurations), np.sqrt(found.sd**2 + 0.2**2)

    def _fraction(self, one: Observation, *, is_here: bool) -> float | None:
        """The memory fraction of a launch, None where nobody knows. Elsewhere `auto` is another number."""
        number = one.configuration.get(_FRACTION)
        if number is None and not is_here:
            number = one.resolved.get(_FRACTION)
        return float(number) if number is not None else self._usual_fraction(one.configuration)

    def _usual_fraction(self, configuration: Configuration) -> float | None:
        number = self._axes.number(_FRACTION, configuration)
        return self._unsaid_fraction if number is None else number

    def _moved(self, slope: float, configurations: Sequence[Configuration]) -> Floats:
        """What the memory fraction does by itself, in GiB; NaN where it matters and nobody knows it."""
        return np.array(
            [_times(slope, self._usual_fraction(configuration)) for configuration in configurations]
        )


def _times(slope: float, fraction: float | None) -> float:
    """In GiB; NaN where the fraction matters and is not known."""
    if not slope:
        return 0.0
    return math.nan if fraction is None else slope * fraction


def _below(left: tuple[Floats, Floats] | None, least_gib: Floats) -> Floats:
    """The odds that less is left than has to be."""
    if left is None:
        return np.full(len(least_gib), _UNKNOWN)
    return np.array(
        [
            _UNKNOWN if math.isnan(there) else _NORMAL.cdf((least - there) / sd)
            for least, there, sd in zip(least_gib, *left, strict=True)
        ]
    )


def _tells(one: Observation) -> bool:
    return is_by_memory(one) or any(name in one.memory for name in ("available_gib", "kv_cache_gib"))


def _card_gib(axes: Axes, observations: Sequence[Observation]) -> float:
    """The memory that the fraction is a fraction of; 0 where no log tells."""
    found = []
    for one in observations:
        fraction = one.resolved.get(_FRACTION) or axes.number(_FRACTION, one.configuration)
        static = _static_gib(one)
        if fraction and static is not None:
            found.append(static / float(fraction))
    return median(found) if found else 0.0


def _unsaid_fraction(card_gib: float, axes: Axes, observations: Sequence[Observation]) -> float | None:
    """The fraction that the engine takes where none is given and it does not say which; None if unknown."""
    found = []
    for one in observations:
        static = _static_gib(one)
        if axes.number(_FRACTION, one.configuration) is None and static is not None and card_gib:
            found.append(static / card_gib)
    return median(found) if found else None


def _static_gib(one: Observation) -> float | None:
    """Weights and KV pool of a launch that ran; None where its log does not say."""
    weights, pool = one.memory.get("weights_gib"), one.memory.get("kv_cache_gib")
    if one.death is not None or weights is None or pool is None:
        return None
    return weights + one.memory.get("draft_weights_gib", 0.0) + pool


def _free_gib(one: Observation) -> float | None:
    """What this launch says of the memory that is free in the end."""
    if one.death is None:
        return one.memory.get("available_gib", _UNSAID_GIB)
    if not is_by_memory(one) or one.death.kind in _POOL_KINDS:
        return None
    if died_reading(one):
        return one.memory["available_gib"]
    missing = one.death.shortage_gib
    return -min(4.0, missing) if missing else -_GIB


def _pool_gib(one: Observation) -> float | None:
    """What this launch says of the room for its KV pool."""
    if one.death is None:
        return one.memory.get("kv_cache_gib", _UNSAID_GIB)
    if one.death.kind not in _POOL_KINDS:
        return one.memory.get("kv_cache_gib")
    missing = one.death.shortage_gib
    return -min(8.0, missing) if missing else -_GIB / 2
