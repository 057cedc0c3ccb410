"""An Optuna sampler that never proposes a known configuration again and never breaks a rule.

Optuna has no policy for repeats (about one proposal in six is one in a space of a few thousand points), and
a repeated launch costs a quarter of an hour. So any sampler is wrapped: its proposals are drawn until one
is admitted, and when it insists on what is known, a random admitted point is taken instead.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.space.configuration import Value
from tuner.space.space import ChoiceDimension, NumberDimension, SearchSpace

Assignment = dict[str, Value]
Admission = Callable[[Mapping[str, Value]], bool]

_PROPOSALS = 40
"""How often the wrapped sampler is asked before a random point is taken: it moves slowly when it is sure."""
_RANDOM_DRAWS = 2000
_ENUMERABLE = 200_000
"""Grids up to this size are searched to the last point before the space is called exhausted."""


def distributions_of(space: SearchSpace) -> dict[str, BaseDistribution]:
    """What Optuna is asked for in every trial: one distribution per dimension, always all of them."""
    return {dimension.name: _distribution(dimension) for dimension in space.dimensions}


def _distribution(dimension: NumberDimension | ChoiceDimension) -> BaseDistribution:
    if isinstance(dimension, ChoiceDimension):
        return CategoricalDistribution(dimension.choices)
    if dimension.whole:
        step = int(dimension.step or 1)
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log, step=step)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log, step=dimension.step)


class FreshSampler(BaseSampler):
    """Wraps `inner` so that every proposal is complete and admitted.

    `admit` says whether an assignment is new and allowed. The joint space is the whole space in every
    trial, so nothing that a trial fails of can shrink what the sampler learns from.
    """

    def __init__(self, inner: BaseSampler, space: SearchSpace, admit: Admission, *, seed: int) -> None:
        self._inner = inner
        self._distributions = distributions_of(space)
        self._admit = admit
        self._random = random.Random(seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Always the whole space."""
        return dict(self._distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A complete, admitted assignment; a random one where the inner sampler has nothing new to say."""
        movable = {name: item for name, item in search_space.items() if not item.single()}
        for _ in range(_PROPOSALS):
            proposal = self._inner.sample_relative(study, trial, movable)
            if not proposal:
                break
            complete = {
                **{name: _single(item) for name, item in search_space.items() if item.single()},
                **proposal,
            }
            if len(complete) == len(search_space) and self._admit(complete):
                return complete
        fresh = self.find_fresh()
        # The store asks `find_fresh` before it asks Optuna, so this is only reached in a race of workers.
        return fresh if fresh is not None else self._draw()

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never needed for the space's own dimensions; passed on."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def find_fresh(self) -> Assignment | None:
        """An admitted assignment at random, or None where none is left."""
        for _ in range(_RANDOM_DRAWS):
            assignment = self._draw()
            if self._admit(assignment):
                return assignment
        return self._enumerate()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Passed on."""
        self._inner.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Passed on."""
        self._inner.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Passed on."""
        self._inner.reseed_rng()
        self._random.seed()

    def _draw(self) -> Assignment:
        return {name: _draw_one(self._random, item) for name, item in self._distributions.items()}

    def _enumerate(self) -> Assignment | None:
        grids = [_grid(item) for item in self._distributions.values()]
        size = 1
        for grid in grids:
            if grid is None or (size := size * len(grid)) > _ENUMERABLE:
                return None
        for values in itertools.product(*(grid for grid in grids if grid is not None)):
            assignment = dict(zip(self._distributions, values, strict=True))
            if self._admit(assignment):
                return assignment
        return None


def levels_of(space: SearchSpace, *, most: int) -> dict[str, list[Value]]:
    """The values of every dimension: all of them, or at most so many spread over its range."""
    return {name: _levels(item, most) for name, item in distributions_of(space).items()}


def _levels(distribution: BaseDistribution, most: int) -> list[Value]:
    grid = _grid(distribution)
    if grid is not None and (len(grid) <= most or isinstance(distribution, CategoricalDistribution)):
        return grid
    if not isinstance(distribution, (IntDistribution, FloatDistribution)):
        raise TypeError(f"{distribution} has no values")
    low, high = distribution.low, distribution.high
    shares = [index / (most - 1) for index in range(most)]
    spread = [
        low * (high / low) ** share if distribution.log else low + (high - low) * share for share in shares
    ]
    if isinstance(distribution, IntDistribution):
        step = distribution.step
        whole = {low + step * round((value - low) / step) for value in spread}
        return sorted(int(value) for value in whole if value <= high)
    if distribution.step is not None:
        return sorted(
            {
                round(low + distribution.step * round((value - low) / distribution.step), 10)
                for value in spread
            }
        )
    return [min(max(value, low), high) for value in spread]


def _single(distribution: BaseDistribution) -> Any:
    grid = _grid(distribution)
    return grid[0] if grid else None


def _draw_one(source: random.Random, distribution: BaseDistribution) -> Value:
    """One value, uniform on the grid or (without a step, or by logarithm) on the range."""
    if isinstance(distribution, CategoricalDistribution):
        value: Value = source.choice(distribution.choices)  # type: ignore[assignment]
        return value
    if isinstance(distribution, IntDistribution):
        if distribution.log:
            drawn = round(_log_uniform(source, distribution.low, distribution.high))
            return min(max(drawn, distribution.low), distribution.high)
        return source.randrange(distribution.low, distribution.high + 1, distribution.step)
    if not isinstance(distribution, FloatDistribution):
        raise TypeError(f"no values can be drawn from {distribution}")
    if distribution.log:
        return _log_uniform(source, distribution.low, distribution.high)
    if distribution.step is not None:
        steps = round((distribution.high - distribution.low) / distribution.step)
        return round(distribution.low + source.randint(0, steps) * distribution.step, 10)
    return source.uniform(distribution.low, distribution.high)


def _log_uniform(source: random.Random, low: float, high: float) -> float:
    drawn: float = low * (high / low) ** source.random()
    return min(max(drawn, low), high)


def _grid(distribution: BaseDistribution) -> list[Value] | None:
    """All values where they are countable."""
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)  # type: ignore[arg-type]
    if isinstance(distribution, IntDistribution):
        return list(range(distribution.low, distribution.high + 1, distribution.step))
    if isinstance(distribution, FloatDistribution) and distribution.single():
        return [distribution.low]
    if isinstance(distribution, FloatDistribution) and distribution.step is not None:
        steps = round((distribution.high - distribution.low) / distribution.step)
        return [round(distribution.low + index * distribution.step, 10) for index in range(steps + 1)]
    return None
