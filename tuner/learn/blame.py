"""Which choice killed the launches that died for no lack of memory.

Launches that died in the same way share a culprit. It is among the choices that all of them made, and not
among those with which any launch ever ran; a sentence that names a parameter points at it. Where no single
choice is left, a pair of them is to blame.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tuner.learn.expectations import risk_of
from tuner.learn.observation import Death, Observation
from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import Boolean, Choice, Composite, Integer
from tuner.space.space import SearchSpace

MEMORY_KINDS = frozenset(
    {
        "oom-weights",
        "oom-kv-cache",
        "oom-graph-capture",
        "oom-draft-model",
        "oom-serving",
        "mem-fraction-too-low",
        "kv-pool-exhausted",
    }
)
"""Kinds of death for which a number is too high or too low, and no choice is to blame."""

_NUMBERS_KINDS = frozenset({"measurement-void"})
"""Kinds that numbers bring about as well (a pool too small for the load): no choice is taken off for them."""

_VAGUE_KINDS = frozenset({"nccl", "peer-lost", "scheduler-died", "killed", "unknown"})
_LITTLE_GIB = 4.0


def is_by_memory(one: Observation) -> bool:
    """Whether a launch died for lack of memory.

    A server that was up with little memory left, and of whose end only the consequences are seen, counts too:
    the log of an out-of-memory under load often shows little but the peers that were lost.
    """
    if one.death is None:
        return False
    little = one.memory.get("available_gib", math.inf) < _LITTLE_GIB
    return one.death.kind in MEMORY_KINDS or (one.death.kind in _VAGUE_KINDS and little)


def tells_of_choices(death: Death) -> bool:
    """Whether a death is of a kind that only a choice brings about, whatever memory and load there were."""
    return not death.passing and death.kind not in MEMORY_KINDS | _NUMBERS_KINDS | _VAGUE_KINDS


Literal = tuple[str, Value]
"""A parameter and what was chosen for it."""

_FEW = 8
"""An integer with up to so many values is as good as a choice."""
_NAMED = 25.0
"""By what a sentence that names a parameter raises the odds that it is to blame."""
_SURE = 0.8
_LEAST_RISK = 0.004
_HEARSAY = 0.5
"""How far an earlier study is believed when it says that a choice kills."""
_RAN_ELSEWHERE = 0.25
"""What the odds that an untried choice kills come to where it ran in an earlier study."""
_WITNESSES = 2
"""One death makes a choice suspect, and little is risked on it; two take it off the list."""


@dataclass(frozen=True)
class Blame:
    """A choice that is off the list, how sure that is (0 to 1), and the trials that bear witness."""

    parameter: str
    value: Value
    certainty: float
    kind: str
    witnesses: tuple[int, ...]

    @property
    def shown(self) -> str:
        """`ep_size=8 is off the list: trials 4 and 9 died of it (assertion)`."""
        *others, last = map(str, self.witnesses)
        trials = f"trials {', '.join(others)} and {last}" if others else f"trial {last}"
        return f"{self.parameter}={self.value} is off the list: {trials} died of it ({self.kind})"

    def forbids(self, configuration: Configuration) -> bool:
        """Whether this configuration makes the choice."""
        value = configuration.get(self.parameter)
        return value == self.value and type(value) is type(self.value)


@dataclass
class _Case:
    """Launches that died in the same way, and the odds of what they have in common.

    `is_telling` is False where that way of dying may have nothing to do with any choice.
    """

    kind: str
    witnesses: tuple[int, ...]
    odds: Mapping[frozenset[Literal], float] = field(default_factory=dict)
    is_telling: bool = True

    def guilt(self, choices: set[Literal]) -> float:
        """The odds that a launch with these choices dies in this way."""
        return min(0.98, sum(odds for blamed, odds in self.odds.items() if blamed <= choices))


class Culprits:
    """What is known of the choices of a space from its launches.

    Launches of earlier studies (`hearsay`) raise or calm a suspicion and no more: only this study's own
    launches take a choice off the list, and what ran here is suspected no longer.
    """

    def __init__(
        self,
        space: SearchSpace,
        observations: Sequence[Observation],
        hearsay: Sequence[Observation] = (),
    ) -> None:
        self._names = {
            parameter.name
            for parameter in space.parameters
            if isinstance(parameter, (Choice, Composite, Boolean))
            or (isinstance(parameter, Integer) and parameter.high - parameter.low < _FEW * parameter.step)
        }
        # A launch that died of memory got far enough to clear the choices that kill before.
        survived = [one for one in observations if one.death is None or is_by_memory(one)]
        self._survivors = [set(self._everything(one.configuration)) for one in survived]
        self._cleared = {literal for one in survived for literal in self._literals(one.configuration)}
        self._cases = [self._case(deaths) for deaths in _alike(observations)]
        self._elsewhere = Culprits(space, [*hearsay, *survived]) if hearsay else None

    def risk(self, configuration: Configuration) -> float:
        """The odds that this configuration dies for no lack of memory (0 to 1)."""
        lives = 1.0
        literals = self._literals(configuration)
        everything = set(self._everything(configuration))
        suspected: set[Literal] = set()
        for case in self._cases:
            lives *= 1.0 - case.guilt(everything)
            suspected |= {literal for blamed in case.odds for literal in blamed}
        for literal in literals:
            if literal not in self._cleared and literal not in suspected:
                lives *= 1.0 - self._foreseen(literal)
        for case in self._elsewhere._cases if self._elsewhere is not None else ():
            lives *= 1.0 - _HEARSAY * case.guilt(everything)
        return 1.0 - lives

    def _foreseen(self, literal: Literal) -> float:
        """The odds that a choice kills of which this study's launches say nothing."""
        ran_elsewhere = self._elsewhere is not None and literal in self._elsewhere._cleared
        return risk_of(*literal) * (_RAN_ELSEWHERE if ran_elsewhere else 1.0)

    def blamed(self) -> list[Blame]:
        """The choices that are off the list: each killed launches in different company, and never ran."""
        return [
            Blame(*next(iter(literals)), odds, case.kind, case.witnesses)
            for case in self._cases
            for literals, odds in case.odds.items()
            if len(literals) == 1 and odds >= _SURE and len(case.witnesses) >= _WITNESSES and case.is_telling
        ]

    # --- cases ----------------------------------------------------------------------------------------

    def _case(self, deaths: Sequence[Observation]) -> _Case:
        witnesses = tuple(one.trial for one in deaths)
        kind = deaths[0].death.kind if deaths[0].death is not None else ""
        shared = set.intersection(*(set(self._literals(one.configuration)) for one in deaths))
        weights: dict[frozenset[Literal], float] = {
            frozenset({literal}): max(_LEAST_RISK, risk_of(*literal)) * _named(literal, deaths)
            for literal in shared
            if literal not in self._cleared
        }
        if not weights:
            together = set.intersection(*(set(self._everything(one.configuration)) for one in deaths))
            weights = {
                pair: _LEAST_RISK * max(_named(literal, deaths) for literal in pair)
                for pair in map(frozenset, combinations(sorted(together, key=str), 2))
                if not any(pair <= survivor for survivor in self._survivors)
            }
        total = sum(weights.values())
        telling = kind not in _NUMBERS_KINDS and not any(
            one.death is not None and one.death.passing for one in deaths
        )
        odds = {key: weight / total for key, weight in weights.items()}
        return _Case(kind, witnesses, odds, telling)

    def _literals(self, configuration: Configuration) -> list[Literal]:
        return [(name, value) for name, value in configuration.items() if name in self._names]

    @staticmethod
    def _everything(configuration: Configuration) -> list[Literal]:
        return list(configuration.items())


def _alike(observations: Iterable[Observation]) -> list[list[Observation]]:
    """The deaths that no lack of memory explains, those of one kind and sentence together."""
    groups: dict[tuple[str, str, str], list[Observation]] = {}
    for observation in observations:
        death = observation.death
        if death is None or is_by_memory(observation):
            continue
        text = re.sub(r"0x[0-9a-f]+|\d+", "#", death.text)
        groups.setdefault((death.kind, death.phase, text), []).append(observation)
    return list(groups.values())


def _named(literal: Literal, deaths: Sequence[Observation]) -> float:
    name, value = literal
    return _NAMED if all(one.death is not None and _names(one.death, name, value) for one in deaths) else 1.0


def _names(death: Death, name: str, value: Value) -> bool:
    """Whether the death's hints or its sentence speak of the parameter or of the choice."""
    if name in death.blamed:
        return True
    text = re.sub(r"[\s_-]+", " ", death.text.lower())
    words = re.sub(r"[\s_-]+", " ", name.lower())
    spoken = {words, *_OTHER_WORDS.get(name, ())}
    choice = re.sub(r"[\s_-]+", " ", str(value).lower())
    if len(choice) >= 4 and not choice.replace(" ", "").replace(".", "").isdigit():
        spoken.add(choice)
    return any(word in text for word in spoken)


_OTHER_WORDS: Mapping[str, tuple[str, ...]] = {
    "ep_size": ("expert parallel", "ep size"),
    "tp_size": ("tensor parallel",),
    "pp_size": ("pipeline parallel",),
    "dp_size": ("data parallel",),
    "all_reduce": ("all reduce", "allreduce"),
    "speculative": ("speculative", "draft"),
    "kv_cache_dtype": ("kv cache dtype", "fp8"),
    "moe_runner_backend": ("moe runner", "deep gemm", "deepgemm"),
    "attention_backend": ("attention backend",),
}
