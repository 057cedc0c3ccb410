"""A launch plan as a file for SGLang's own `--config`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.sglang.command import typed_value
from tuner.sglang.flags import Flag, Takes
from tuner.sglang.installation import Installation
from tuner.sglang.plan import LaunchPlan
from tuner.sglang.planning import number_text
from tuner.space.configuration import Value


@dataclass(frozen=True)
class Leftover:
    """Words that have to stay on the command line, and why."""

    words: tuple[str, ...]
    reason: str


def to_config(plan: LaunchPlan, installation: Installation) -> tuple[dict[str, Any], list[Leftover]]:
    """The content of a `--config` file, and what it cannot hold. Host, port and variables are not part of it.

    Keys are flags with hyphens, as the file's reader (SGLang 0.5.3+) takes them verbatim; values are
    booleans, numbers, text and lists, and never null, which it would pass on as the word `None`. It refuses
    deprecated and `--x, --no-x` flags although the command line takes them: where a newer flag says the
    same, that one is used, else the words are left over.
    """
    if "--config" not in installation.flags:
        reason = f"{installation.shown()} has no --config"
        return {}, [Leftover((word, *values), reason) for word, values in plan.flags]
    config: dict[str, Any] = {}
    leftovers: list[Leftover] = []
    replaced: set[str] = set()
    for word, values in plan.flags:
        flag = installation.flags.exact(word)
        newer, instead_of = (
            _newer(word, plan, installation) if flag is not None and flag.deprecated else ({}, ())
        )
        reason = _refusal(word, values, flag)
        if newer:
            config.update(newer)
            replaced |= set(instead_of)
        elif reason or flag is None:
            leftovers.append(Leftover((word, *values), reason))
        elif flag.takes is Takes.NONE:
            config[word.lstrip("-")] = True
        elif values:
            config[word.lstrip("-")] = _typed(flag, values)
    return {key: value for key, value in config.items() if key not in replaced}, leftovers


def _refusal(word: str, values: tuple[str, ...], flag: Flag | None) -> str:
    """Why the file cannot hold this, or the empty string."""
    if flag is None or flag.negation is not None:
        return f"the reader of --config refuses flags that can be negated, like {word}"
    if flag.deprecated:
        return f"the reader of --config refuses deprecated flags, like {word}"
    return f"the value of {word} is empty, which the reader of --config drops" if "" in values else ""


def _newer(word: str, plan: LaunchPlan, installation: Installation) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys that say the same as a deprecated flag, and the keys that they make superfluous."""
    flags = installation.flags
    if word == "--disable-cuda-graph" and "--cuda-graph-backend-decode" in flags:
        phases = [f"cuda-graph-backend-{phase}" for phase in ("decode", "prefill")]
        return {key: "disabled" for key in phases if f"--{key}" in flags}, ()
    if word == "--enable-dp-attention" and "--attn-dp-size" in flags:
        ranks = dict(plan.flags).get("--dp-size", ("1",))
        return {"attn-dp-size": typed_value(ranks[0])}, ("dp-size",)
    if word == "--enable-flashinfer-allreduce-fusion" and "--flashinfer-allreduce-fusion-backend" in flags:
        return {"flashinfer-allreduce-fusion-backend": "auto"}, ()
    return {}, ()


def _typed(flag: Flag, values: tuple[str, ...]) -> Any:
    typed = [_exact(text) for text in values]
    return typed if flag.takes is Takes.MANY else typed[0]


def _exact(text: str) -> Value:
    """A number only where reading the file gives the same word back; so `1.10` stays text, and `true` too."""
    value = typed_value(text)
    plain = isinstance(value, int) or (isinstance(value, float) and repr(value) == text)
    return value if plain and number_text(value) == text else text
