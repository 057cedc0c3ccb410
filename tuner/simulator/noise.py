"""The spread of a box's measurements: between starts, within one, and of the acceptance of drafts."""

from __future__ import annotations

import math
import random

from tuner.simulator.box import Box
from tuner.simulator.physics import interpolate

_REDRAW_S = 1.0
_ACCEPTANCE_TOKENS = 256
# Ten seconds of one stream: the luck of the single steps alone spreads their mean by 0.022. The rest comes
# from five stretches of text, and only from the 0.57 of the tokens that are drafts: sqrt(5) / 0.57 = 3.9.
_STEP_SPREAD = 0.022
_STRETCH_SPREAD = 3.9


class LaunchNoise:
    """The luck of one launch: `speed` says by what a step is faster than the model, now."""

    def __init__(self, box: Box, seed: str) -> None:
        self._noise = box.noise
        self._scale = box.noise.scale
        self._random = random.Random(seed)
        self._offset = self._random.gauss(0.0, 1.0)
        self._within = 1.0
        self._redraw_at_s = -math.inf
        self.silent = not self._scale
        """Whether every kind of noise is off: then drafts are accepted evenly, too."""

    def speed(self, running: int, now_s: float) -> float:
        """The factor on the speed of a step of `running` requests; its median over launches is 1."""
        if now_s >= self._redraw_at_s:
            self._redraw_at_s = now_s + _REDRAW_S
            self._within = math.exp(self._random.gauss(0.0, self._noise.within * self._scale))
        sigma = interpolate(self._noise.launch, running) * self._scale
        return math.exp(sigma * self._offset) * self._within

    def draw(self) -> float:
        """A number between 0 and 1: a step's luck with its drafts."""
        return self._random.random()

    def chance(self) -> float:
        """A number between 0 and 1 for what happens once in a launch."""
        return self._random.random()

    def acceptance_scale(self) -> float:
        """How much better than the mean the next stretch of a request's text is to foresee."""
        spread = (
            self._scale * _STRETCH_SPREAD * math.sqrt(max(0.0, self._noise.acceptance**2 - _STEP_SPREAD**2))
        )
        return math.exp(self._random.gauss(-spread * spread / 2, spread))

    @property
    def acceptance_tokens(self) -> int:
        """Tokens after which `acceptance_scale` is drawn again."""
        return _ACCEPTANCE_TOKENS
