"""Whether looks rank configurations as full launches do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tuner.learn.axes import Axes, Floats
from tuner.learn.observation import Observation
from tuner.learn.speed import Canonical, Speed

_SURE = 2.0
"""A difference between full launches counts from so many sds on: below it they have no rank themselves."""


@dataclass(frozen=True)
class Agreement:
    """Of how many pairs the full launches know which is faster, and of how many looks say the same."""

    pairs: int = 0
    alike: int = 0

    @property
    def tau(self) -> float | None:
        """Kendall's tau over these pairs: 1 the same order, 0 none, -1 the reverse; None without pairs."""
        return (2 * self.alike - self.pairs) / self.pairs if self.pairs else None

    @property
    def shown(self) -> str:
        """`rank agreement 0.67 with full launches (5 of 6 pairs)`."""
        if self.tau is None:
            return (
                "rank agreement not known: full launches of what was looked at differ by no more than noise"
            )
        return f"rank agreement {self.tau:.2f} with full launches ({self.alike} of {self.pairs} pairs)"


def agreement(looked: Sequence[float], gains: Floats, sds: Floats, least: float) -> Agreement:
    """How looks agree with full launches.

    `looked` are the logarithms of what the looks measured; `gains[i, j]` is by how much (logarithm) i is
    faster than j in full launches, `sds` how unsure that is. Pairs closer than `least` have no rank.
    """
    pairs = alike = 0
    for one, other in combinations(range(len(looked)), 2):
        gain = gains[one, other]
        if abs(gain) <= max(least, _SURE * sds[one, other]):
            continue
        pairs += 1
        alike += (looked[one] - looked[other]) * gain > 0
    return Agreement(pairs, alike)


def agreement_of(
    looks: Sequence[Observation],
    full: Sequence[Observation],
    axes: Axes,
    *,
    canonical: Canonical,
    load: int | None,
) -> Agreement:
    """How the looks agree with what the full launches that were measured teach of the same differences."""
    if len(looks) < 2 or not full:
        return Agreement()
    speed = Speed(axes, full, canonical=canonical, load=load)
    configurations = [canonical(one.configuration) for one in looks]
    rows = axes.rows(configurations)
    against = [speed.gains(rows, incumbent) for incumbent in configurations]
    looked = [one.log_scores[0] for one in looks]
    return agreement(
        looked,
        np.array([gain for gain, _ in against]).T,
        np.array([sd for _, sd in against]).T,
        2**0.5 * speed.noise_sd,
    )
