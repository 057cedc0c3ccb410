"""How long prompts or answers are: always the same, evenly spread, or with a long tail."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens between `low` and `high`, both included.

    Without `sigma` every number in between is as likely as the others. With it the lengths are lognormal
    around `median` (`sigma` is the spread of the natural logarithm; 0.5 to 1 fits chat traffic), and what
    falls outside is drawn again.
    """

    low: int
    high: int
    median: int = 0
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ValueError(f"no lengths: {self.low} to {self.high} tokens")
        if self.sigma and not self.low <= self.median <= self.high:
            raise ValueError(f"the median {self.median} lies outside {self.low} to {self.high}")

    @classmethod
    def fixed(cls, tokens: int) -> Lengths:
        """Always `tokens`."""
        return cls(tokens, tokens)

    @property
    def is_fixed(self) -> bool:
        """Whether there is only one length."""
        return self.low == self.high

    @property
    def mean(self) -> float:
        """The mean, of lognormal lengths without regard to the bounds."""
        if self.sigma:
            return min(float(self.high), self.median * math.exp(self.sigma**2 / 2))
        return (self.low + self.high) / 2

    def draw(self, generator: random.Random) -> int:
        """One length."""
        if not self.sigma or self.is_fixed:
            return generator.randint(self.low, self.high)
        for _ in range(1000):
            drawn = round(generator.lognormvariate(math.log(self.median), self.sigma))
            if self.low <= drawn <= self.high:
                return drawn
        return self.median  # bounds so narrow that nothing falls between them

    def capped(self, most: int) -> Lengths:
        """The same lengths, none above `most`."""
        if most >= self.high:
            return self
        return Lengths(min(self.low, most), most, min(self.median, most) if self.sigma else 0, self.sigma)

    def to_json(self) -> int | dict[str, Any]:
        """As it is written in a study: a number, or a mapping."""
        if self.is_fixed:
            return self.low
        if self.sigma:
            return {"median": self.median, "sigma": self.sigma, "low": self.low, "high": self.high}
        return {"low": self.low, "high": self.high}
