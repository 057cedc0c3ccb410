"""The real search on a box in virtual time, kept in memory: what the benchmarks have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optuna.samplers import BaseSampler

from tuner.results.trial_log import MemoryLog
from tuner.search.loop import Search, SearchListener
from tuner.search.opening import MEMORY
from tuner.search.past import PastStudy
from tuner.search.store import StudyStore
from tuner.simulator.virtual import VirtualEvaluator
from tuner.study.definition import StudyDefinition


def search_of(
    launched: VirtualEvaluator,
    definition: StudyDefinition,
    seed: int,
    *,
    inner: BaseSampler | None = None,
    listener: SearchListener | None = None,
    past: Sequence[PastStudy] = (),
) -> Search:
    """A search that is ready to run, with this seed; `inner` is the sampler, by default the definition's."""
    own = replace(definition, storage=MEMORY, seed=seed)
    store = StudyStore(
        own, launched.space, owner="benchmark", is_alive=lambda _: False, inner=inner, past=past
    )
    return Search(own, store, launched, launched.clock, listener or SearchListener(), log=MemoryLog())
