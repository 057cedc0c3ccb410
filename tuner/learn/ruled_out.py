"""What is off the list for the rest of a study, and the trials that bear witness.

Two kinds: a choice that killed launches in different company (`Blame`), and an edge of the memory, beyond
which everything is heavier than what ran out of it (`Edge`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.learn.blame import Blame, Culprits
from tuner.learn.observation import Observation
from tuner.space.configuration import Configuration, Value
from tuner.space.space import SearchSpace

_FULL = frozenset({"oom-graph-capture", "oom-draft-model", "oom-serving"})
"""Kinds of death with too little left beside weights and KV pool: more of anything is worse."""
_NO_POOL = frozenset({"mem-fraction-too-low", "oom-kv-cache"})
"""Kinds of death with no room for the pool: a smaller fraction is worse. SGLang sizes the pool before it
captures graphs, so their batches have no part in it (`free after loading - free before x (1 - fraction)`)."""
_FRACTION = "mem_fraction_static"
_HEAVIER = (
    _FRACTION,
    "cuda_graph_max_bs",
    "max_running_requests",
    "chunked_prefill_size",
    "speculative_num_steps",
)
"""Numbers of which more takes more memory beside the pool."""
_WEIGHTLESS = re.compile(
    r"NCCL_\w+|all_reduce|kv_cache_dtype|schedule_\w+|stream_interval|disable_overlap_schedule|"
    r"num_continuous_decode_steps"
)
"""What takes no memory worth mentioning beside the pool, whose size the fraction alone decides."""
_HEAVY_CHOICES = frozenset({"nccl-symm-mem"})
"""Choices of those that do: NCCL's symmetric memory takes 4 GiB of each card."""
_OFF = "off"


@dataclass(frozen=True)
class Edge:
    """A launch that ran out of memory: everything at least as heavy (or with less of a pool) is off the list.

    `bounds` are the numbers that decide, `company` what has to be the same for that to follow.
    """

    kind: str
    bounds: Mapping[str, float]
    company: Mapping[str, Value]
    witnesses: tuple[int, ...]

    def forbids(self, configuration: Configuration) -> bool:
        """Whether this one would run out of memory, too. Not where a number is left to the engine."""
        return (
            all(self._is_beyond(configuration.get(name), bound) for name, bound in self.bounds.items())
            and all(configuration.get(name) == value for name, value in self.company.items())
            and not any(self._may_relieve(name, value) for name, value in configuration.items())
        )

    def _is_beyond(self, value: Value | None, bound: float) -> bool:
        if not isinstance(value, (int, float)):
            return False
        return value <= bound if self.kind in _NO_POOL else value >= bound

    def _may_relieve(self, name: str, value: Value) -> bool:
        """Whether a choice that the witness did not make may take less memory than what it left unsaid."""
        if name in self.bounds or name in self.company or _is_weightless(name, value):
            return False
        return not name.startswith("speculative") and not (self.kind in _NO_POOL and name in _HEAVIER)

    @property
    def shown(self) -> str:
        """`mem_fraction_static >= 0.9 with cuda_graph_max_bs >= 256 is off the list: trial 5 died of it`."""
        sign = "<=" if self.kind in _NO_POOL else ">="
        bounds = " with ".join(f"{name} {sign} {bound:g}" for name, bound in self.bounds.items())
        company = ", ".join(f"{name}={value}" for name, value in self.company.items())
        where = f"{bounds} ({company})" if company else bounds
        return f"{where} is off the list: trial {self.witnesses[0]} died of it ({self.kind})"


RuledOut = Blame | Edge


def ruled_out(space: SearchSpace, observations: Sequence[Observation]) -> tuple[RuledOut, ...]:
    """All that is off the list after these launches. What ran is never on it."""
    blamed = Culprits(space, observations).blamed()
    ran = [one.configuration for one in observations if one.death is None]
    edges: list[Edge] = []
    for one in observations:
        edge = _edge(one)
        if edge is None or any(edge.forbids(configuration) for configuration in ran):
            continue
        if not any(known.forbids(one.configuration) for known in edges):
            edges.append(edge)
    return (*blamed, *edges)


def _edge(one: Observation) -> Edge | None:
    if one.death is None or one.death.kind not in _FULL | _NO_POOL:
        return None
    values = {
        name: value
        for name, value in one.configuration.items()
        if not _is_weightless(name, value) and not (name == "speculative" and value == _OFF)
    }
    deciding = (_FRACTION,) if one.death.kind in _NO_POOL else _HEAVIER
    bounds = {
        name: float(values[name])
        for name in deciding
        if isinstance(values.get(name), (int, float)) and not isinstance(values[name], bool)
    }
    if _FRACTION not in bounds:
        return None  # what the engine makes of it depends on all the rest
    passed_over = _HEAVIER if one.death.kind in _NO_POOL else ()
    company = {
        name: value for name, value in values.items() if name not in bounds and name not in passed_over
    }
    return Edge(one.death.kind, bounds, company, (one.trial,))


def _is_weightless(name: str, value: Value) -> bool:
    return _WEIGHTLESS.fullmatch(name) is not None and value not in _HEAVY_CHOICES
