"""What has to be free once a server stands, for reading prompts: activations, which no start-up allocates.

The log of a start says what is free once graphs are captured, and nothing of what the first prompts will
take. A server that runs out of memory under load tells that: what was free and what was missing. Chunks of a
prefill decide it most, in proportion to their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.learn.axes import Axes, Floats
from tuner.learn.blame import is_by_memory
from tuner.learn.observation import Observation
from tuner.space.configuration import Configuration

_CHUNK = "chunked_prefill_size"
_LEAST_GIB = 0.7
"""What has to be free where nothing is known."""
_MISSING_GIB = 0.3
"""What was missing where the death does not say."""
_SPARE_GIB = 0.3
"""By how much less would have done where a launch served."""
_MOST_GROWTH = 2.0
"""A much larger chunk is not judged by a small one: what was missing there may have had another reason."""


def died_reading(one: Observation) -> bool:
    """Whether it stood, and ran out of memory under load."""
    return one.death is not None and is_by_memory(one) and "available_gib" in one.memory


class PromptRoom:
    """Learns from the launches that died under load, and from those that served."""

    def __init__(self, axes: Axes, launches: Sequence[Observation]) -> None:
        self._axes = axes
        told = [(self._chunk(one.configuration), one) for one in launches if "available_gib" in one.memory]
        self._needed = [(chunk, _needed_gib(one)) for chunk, one in told if died_reading(one)]
        self._served = [(chunk, one.memory["available_gib"]) for chunk, one in told if one.death is None]

    def least_gib(self, configurations: Sequence[Configuration]) -> Floats:
        """What has to be free once everything stands, for each."""
        return np.array([self._least_gib(self._chunk(one)) for one in configurations])

    def _least_gib(self, chunk: float) -> float:
        needs = [
            gib * (min(_MOST_GROWTH, chunk / there) if chunk and there else 1.0)
            for there, gib in self._needed
        ]
        enough = min((gib for there, gib in self._served if there >= chunk), default=math.inf) - _SPARE_GIB
        return max(_LEAST_GIB, min(max(needs, default=0.0), enough))

    def _chunk(self, configuration: Configuration) -> float:
        return self._axes.number(_CHUNK, configuration) or 0.0


def _needed_gib(one: Observation) -> float:
    missing = one.death.shortage_gib if one.death is not None else None
    return one.memory["available_gib"] + (missing or _MISSING_GIB)
