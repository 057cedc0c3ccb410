"""The kinds of parameter a search space is made of.

Names are SGLang's flags with underscores (`mem_fraction_static`), the composites (`all_reduce`,
`speculative`), or environment variables in capitals (`NCCL_PROTO`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.space.configuration import Value

AUTO = "auto"
"""As a value: leave the flag or variable out of the launch."""

BUILT_IN_COMPOSITES: Mapping[str, tuple[str, ...]] = {
    "all_reduce": (
        "nccl",
        "custom",
        "pcie-ipc",
        "torch-symm-mem",
        "nccl-symm-mem",
        "mscclpp",
        "flashinfer-fusion",
    ),
    "speculative": (
        "off",
        "eagle",
        "eagle3",
        "nextn",
        "standalone",
        "ngram",
        "dflash",
        "dspark",
        "uno",
    ),
}
"""The composites whose choices `tuner.sglang` turns into flags and variables for the installed version."""

_VARIABLE = re.compile(r"^[A-Z][A-Z0-9_]*$")


@dataclass(frozen=True)
class Expectation:
    """What is expected of a parameter before anything was launched; launches overrule it.

    Of a number, which way is faster (None: not said); of a choice, by its text, how much faster it is than
    leaving the parameter out, as a share (0.05 is 5 %). It guides a search and is no part of its identity.
    """

    larger_is_faster: bool | None = None
    gains: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Named:
    """What every parameter has.

    `default` is what the engine is believed to use when the flag is left out (it is what the baseline
    tells the sampler; the launch itself leaves the flag out). `when` is a condition in the language of
    `tuner.space.rules`; where it does not hold the parameter does not exist. `about` is what is known, for
    people, `expect` for the search.
    """

    name: str
    default: Value | None = None
    when: str | None = None
    about: str = ""
    expect: Expectation | None = None

    @property
    def is_variable(self) -> bool:
        """Whether this sets an environment variable instead of a flag."""
        return bool(_VARIABLE.match(self.name))


@dataclass(frozen=True, kw_only=True)
class Integer(_Named):
    """A whole number from `low` to `high` (both included), by `step`, or spread by its logarithm.

    With `auto`, leaving the flag out is one more possibility.
    """

    low: int
    high: int
    step: int = 1
    log: bool = False
    auto: bool = False


@dataclass(frozen=True, kw_only=True)
class Float(_Named):
    """A number from `low` to `high` (both included), by `step` where given, or by its logarithm."""

    low: float
    high: float
    step: float | None = None
    log: bool = False
    auto: bool = False


@dataclass(frozen=True, kw_only=True)
class Choice(_Named):
    """One of several values; `ordered` says that neighbours are alike. The value `auto` leaves it out."""

    choices: tuple[Value, ...]
    ordered: bool = False


@dataclass(frozen=True, kw_only=True)
class Boolean(_Named):
    """A switch: true adds the flag, false leaves it out."""


@dataclass(frozen=True)
class Effect:
    """What a composite's choice sets: flags (canonical name → value; true adds a bare flag) and variables."""

    flags: tuple[tuple[str, Value | tuple[Value, ...]], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Composite(_Named):
    """A choice that stands for a set of flags and variables.

    `effects` spells out the choices of the user's own composites. A choice without an entry is one of the
    built-in ones (`all_reduce`, `speculative`), which `tuner.sglang` maps for the installed version.
    """

    choices: tuple[str, ...]
    effects: Mapping[str, Effect]


Parameter = Integer | Float | Choice | Boolean | Composite


def same(one: object, other: object) -> bool:
    """Whether two values are one: `1` is `1.0`, but neither `true` nor `"1"`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other
