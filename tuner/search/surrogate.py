"""The purpose-built sampler: what the launches so far teach, and the launch that promises most per minute.

A proposal is the candidate with the largest expected improvement on the best configuration, times the odds
that it runs and meets what was asked for, over the time that it is expected to take. Speed, memory, times and
culprits come from `tuner.learn`. Candidates are found by climbing from the best configurations, one parameter
at a time, so that few things change at once unless changing more of them promises more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.learn.promise import Fitted, Lesson, Promise
from tuner.search.sampler import Admission, Assignment, levels_of
from tuner.space.configuration import Configuration, Value
from tuner.space.space import SearchSpace

_LEVELS = 14
"""Values of a number that are looked at."""
_STARTS = 3
_CLIMBS = 8
_ASKED = 12
"""Neighbours that are asked for whether they may be proposed, the most promising first."""


class SurrogateSampler(BaseSampler):
    """An Optuna sampler that learns from records; `join` and `learn` have to be called before it is asked."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._independent = RandomSampler(seed=seed)
        self._space: SearchSpace | None = None
        self._admit: Admission = lambda _: True
        self._lesson = Lesson((), lambda configuration: configuration)
        self._fitted = Fitted({})
        self._levels: dict[str, list[Value]] = {}
        self._made: tuple[Lesson, tuple[Configuration, ...], Promise] | None = None
        self.promised: float | None = None
        """What the latest proposal was expected to gain (logarithm of the speed), where that was known."""

    def join(self, space: SearchSpace, admit: Admission) -> None:
        """The space that is searched, and what may be proposed in it."""
        self._space, self._admit = space, admit
        self._levels = levels_of(space, most=_LEVELS)

    def learn(self, lesson: Lesson) -> None:
        """All that is known now."""
        self._lesson = lesson

    # --- Optuna -----------------------------------------------------------------------------------------

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Everything, always: see `FreshSampler`."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """An admitted assignment; empty where none was found."""
        if self._space is None:
            return {}
        running = [
            self._space.configuration(other.params)
            for other in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if other.number != trial.number and len(other.params) >= len(search_space)
        ]
        found = self.propose(running)
        return {name: found[name] for name in search_space} if found is not None else {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random; never needed for the space's own dimensions."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Other random numbers."""
        self._random.seed()
        self._independent.reseed_rng()

    # --- the proposal -----------------------------------------------------------------------------------

    def propose(self, running: Sequence[Configuration]) -> Assignment | None:
        """The admitted assignment that promises most while others launch `running`, or None."""
        space = self._space
        if space is None:
            return None
        model = self._model(space, running)
        best: tuple[float, Assignment] | None = None
        visited: set[str] = set()
        for start in self._starts(space, model):
            found = self._climb(space, model, start, visited)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
        if best is None:
            return None
        self.promised = best[0] if model.speed is not None else None
        return best[1]

    def _model(self, space: SearchSpace, running: Sequence[Configuration]) -> Promise:
        """The models of what is known now; made once while nothing new is learnt."""
        if self._made is None or self._made[0] is not self._lesson or self._made[1] != tuple(running):
            model = Promise(space, self._lesson, running, self._random, self._fitted)
            self._fitted = model.fitted
            self._made = (self._lesson, tuple(running), model)
        return self._made[2]

    def _starts(self, space: SearchSpace, model: Promise) -> list[Assignment]:
        starts = [space.assignment(configuration) for configuration in model.leaders(_STARTS)]
        return starts or [space.assignment({})]

    def _climb(
        self, space: SearchSpace, model: Promise, start: Assignment, visited: set[str]
    ) -> tuple[float, Assignment] | None:
        """Up the promise from here, one dimension at a time; the best admitted point on the way.

        Ends where an earlier climb has been.
        """
        here, value = start, -math.inf
        best: tuple[float, Assignment] | None = None
        for _ in range(_CLIMBS):
            fingerprint = space.configuration(here).fingerprint
            neighbours = self._neighbours(space, here) if fingerprint not in visited else []
            visited.add(fingerprint)
            if not neighbours:
                break
            promises = model.of([space.configuration(neighbour) for neighbour in neighbours])
            order = np.argsort(-promises)
            for index in order[:_ASKED]:
                if best is not None and promises[index] <= best[0]:
                    break
                if self._admit(neighbours[index]):
                    best = (float(promises[index]), neighbours[index])
                    break
            top = int(order[0])
            if promises[top] <= value * (1 + 1e-6) + 1e-12:
                break
            here, value = neighbours[top], float(promises[top])
        return best

    def _neighbours(self, space: SearchSpace, here: Assignment) -> list[Assignment]:
        seen = {space.configuration(here).fingerprint}
        found = []
        for name, levels in self._levels.items():
            for level in levels:
                if level == here[name] and type(level) is type(here[name]):
                    continue
                neighbour = {**here, name: level}
                if f"{name}.auto" in here:
                    neighbour[f"{name}.auto"] = False
                configuration = space.configuration(neighbour)
                if configuration.fingerprint in seen or space.broken_rule(configuration) is not None:
                    continue
                seen.add(configuration.fingerprint)
                found.append(neighbour)
        return found
