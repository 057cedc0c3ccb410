"""The launch-to-launch noise of a study, and what it allows to be told.

Noise is the standard deviation of the logarithm of the score between launches of the same configuration:
0.013 means that two thirds of all launches lie within 1.3 % of their mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.verdict.student import t_quantile

PRIOR_SD = 0.012
PRIOR_FREEDOM = 2.0
"""What is known before anything was repeated, for plans only. Published repeats of decode throughput on
multi-GPU servers spread by 0.4 to 4 % (0.4 % at 2 to 4 streams, 1.3 % at one, 1 to 2 % at 16 and more; with
speculation 3 to 4 % at one stream, 2.5 % at 8 to 32, 0.6 to 2 % at 64): their middle is 1.35 %, and their
logarithms spread by 0.69. A scaled inverse chi-squared of 2 degrees of freedom about 1.2 % has the median
1.4 % and the spread 0.64. It weighs as much as three launches of one configuration. Verdicts do without it:
they have to be right on a box of any noise."""

LEAST_SD = 0.001
"""Two launches may agree to the last digit by luck; no load client repeats itself better than this."""

CONFIDENCE = 0.95
POWER = 0.8
_MOST_REPEATS = 100


@dataclass(frozen=True)
class Noise:
    """The spread between launches of the same configuration.

    `sd` is the estimate that plans are made with, the prior included; `measured_sd` is that of the study's
    own repeats alone, None where nothing was repeated; `freedom` counts those: launches less configurations.
    """

    sd: float
    measured_sd: float | None
    freedom: int

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        return asdict(self)

    def shown(self) -> str:
        """For people: `launches differ by 1.3% (sd, from 4 repeats)`."""
        if self.measured_sd is None:
            return f"launches are expected to differ by {self.sd:.1%} (sd; nothing was repeated yet)"
        repeats = "1 repeat" if self.freedom == 1 else f"{self.freedom} repeats"
        return f"launches differ by {self.measured_sd:.1%} (sd, from {repeats})"


def noise_of(groups: Iterable[Sequence[float]]) -> Noise:
    """The pooled noise of all configurations that were launched more than once.

    A group holds the log-scores of one configuration, launched under the same circumstances. Each group has a
    mean of its own, so how fast they are plays no part; groups of one launch say nothing.
    """
    squares, freedom = 0.0, 0
    for group in groups:
        squares += squared_deviations(group)
        freedom += max(0, len(group) - 1)
    with_prior = (PRIOR_FREEDOM * PRIOR_SD**2 + squares) / (PRIOR_FREEDOM + freedom)
    measured_sd = math.sqrt(squares / freedom) if freedom else None
    return Noise(max(LEAST_SD, math.sqrt(with_prior)), measured_sd, freedom)


def squared_deviations(group: Sequence[float]) -> float:
    """The sum of squared deviations from the group's mean."""
    if len(group) < 2:
        return 0.0
    mean = math.fsum(group) / len(group)
    return math.fsum((value - mean) ** 2 for value in group)


def detectable_gain(noise: Noise, launches_each: int) -> float:
    """The relative gain that this many launches of each of two configurations tell in 4 of 5 studies.

    (t(97.5 %) + t(80 %)) sd sqrt(2 / n), with the degrees of freedom that these launches and the study's
    repeats have, less one for the two spreads that may differ. Raises `ValueError` below one launch each.
    """
    if launches_each < 1:
        raise ValueError("nothing can be told without a launch")
    freedom = max(1, 2 * (launches_each - 1) + noise.freedom - 1)
    quantiles = t_quantile((1 + CONFIDENCE) / 2, freedom) + t_quantile(POWER, freedom)
    return math.expm1(quantiles * noise.sd * math.sqrt(2 / launches_each))


def repeats_needed(noise: Noise, gain: float) -> int | None:
    """Launches of each configuration that tell a relative gain in 4 of 5 studies, at least 2.

    None where a hundred would not do. Raises `ValueError` for a gain that is not above 0.
    """
    if not gain > 0:
        raise ValueError(f"a gain is above 0, not {gain}")
    return next((n for n in range(2, _MOST_REPEATS + 1) if detectable_gain(noise, n) <= gain), None)
