"""Looks: launches of a server without its weights, and with a part of its layers.

Without weights (`--load-format dummy`) nothing is read from the disk, and with fewer layers the graphs are
captured sooner. Kernels, collectives and the host's part stay what they are, so that step times rank them.
Memory, drafts and what the server writes mean nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner.errors import InputError
from tuner.evaluate.protocol import Fidelity
from tuner.sglang.installation import Installation
from tuner.sglang.plan import LaunchPlan
from tuner.sglang.planning import FlagValue, number_text
from tuner.space.configuration import Value

_OVERRIDE = "json_model_override_args"
_LOAD_FORMAT = "load_format"
_SPECULATIVE = "speculative_"

_JUDGED = re.compile(
    r"NCCL_\w+|SGLANG_\w*(ALLREDUCE|ALL_REDUCE)\w*|all_reduce|\w*all_?reduce\w*|enable_(mscclpp|nccl_nvls|symm_mem)|"
    r"(prefill_|decode_)?attention_backend|triton_attention_\w+|sampling_backend|"
    r"moe_\w+|\w*fused_moe\w*|ep_size|"
    r"cuda_graph_(max_)?bs\w*|cuda_graph_backend\w*|disable_cuda_graph\w*|disable_\w+_cuda_graph|"
    r"enable_torch_compile|disable_overlap_schedule"
)
"""Kernels, collectives and graphs: what a step of such a model shows. Everything else is not judged."""

_PART_OF_LAYERS = 0.25
_LEAST_LAYERS = 8
"""Fewer, and what a step costs whatever its layers hides the rest."""


def fidelities_of(
    parameters: Iterable[str], fixed_flags: Mapping[str, FlagValue], facts: Mapping[str, object]
) -> tuple[Fidelity, ...]:
    """The looks that can be made of a study's launches, the cheapest first.

    None where every launch has speculation. `facts` are those of `tuner.preflight.facts`: without the number
    of layers the model keeps them all.
    """
    if fixed_flags.get("speculative_algorithm"):
        return ()
    blind_to = frozenset(name for name in parameters if not _JUDGED.fullmatch(name))
    whole = Fidelity("without weights", {_LOAD_FORMAT: "dummy"}, blind_to)
    layers, dense = facts.get("layers"), facts.get("dense_layers", 0)
    if not isinstance(layers, int) or not isinstance(dense, int):
        return (whole,)
    kept = max(_LEAST_LAYERS, dense + 1, math.ceil(_PART_OF_LAYERS * layers))
    if kept >= layers:
        return (whole,)
    override: dict[str, Any] = {"num_hidden_layers": kept}
    part = facts.get("language_part")
    text = json.dumps({part: override} if isinstance(part, str) else override)
    name = f"without weights, {kept} of {layers} layers"
    return Fidelity(name, {_LOAD_FORMAT: "dummy", _OVERRIDE: text}, blind_to), whole


def look_of(plan: LaunchPlan, fidelity: Fidelity, installation: Installation) -> LaunchPlan:
    """The plan as a look: without speculation, with the look's flags in place of its own.

    An override of the model's configuration that the plan has already is kept, as far as the look's says
    nothing else. Raises `InputError` where the version lacks one of the flags.
    """
    flags = installation.flags
    canonical = {word: flag.canonical for word, _ in plan.flags if (flag := flags.exact(word)) is not None}
    own = {canonical.get(word, ""): texts for word, texts in plan.flags}
    kept = [
        (word, texts)
        for word, texts in plan.flags
        if not canonical.get(word, "").startswith(_SPECULATIVE) and canonical.get(word) not in fidelity.flags
    ]
    for name, value in fidelity.flags.items():
        spelling = flags.spelling(name)
        if spelling is None:
            raise InputError(f"a look needs {name}, and {installation.shown()} has no flag for it")
        told = _merged(own.get(name, ()), value) if name == _OVERRIDE else number_text(value)
        kept.append((spelling, (told,)))
    return replace(plan, flags=tuple(kept))


def _merged(texts: tuple[str, ...], value: Value) -> str:
    """The override that is there with that of the look laid over it, part by part."""
    try:
        before = json.loads(texts[0]) if texts else {}
    except ValueError:
        return texts[0]  # SGLang refuses it, as in a full launch
    return json.dumps(_laid_over(before, json.loads(str(value)))) if isinstance(before, dict) else texts[0]


def _laid_over(before: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(before)
    for key, value in more.items():
        there = found.get(key)
        both = isinstance(value, dict) and isinstance(there, dict)
        found[key] = _laid_over(there, value) if both else value  # type: ignore[arg-type]
    return found
