"""How another program ranks what this space can express, before anything is launched.

`aiconfigurator` (NVIDIA's; read and tried here in version 0.12.0) adds up measured times of kernels and says
how fast a layout of the GPUs is: tensor, pipeline, data and expert parallel. Its figures may be several times
off, so only their order is used: the best layouts are tried early, and what they are worth is measured like
anything else. It is no dependency; where it is not there or knows nothing, a sentence says so and the search
goes without.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product, takewhile

from tuner.clock import Clock
from tuner.measure.lengths import Lengths
from tuner.programs import Ended, run_to_end
from tuner.search.lesson import point_of
from tuner.search.sampler import levels_of
from tuner.space.configuration import Configuration, Value
from tuner.space.space import KnownGood, SearchSpace
from tuner.study.definition import StudyDefinition
from tuner.telemetry.audit import PlatformAudit

PROGRAM = "aiconfigurator"
_BEST = 3
"""So many layouts are tried before the sampler is asked."""
_LIMIT_S = 300.0
"""How long it may take for all layouts together; one takes two to three seconds on an idle core."""
_MOST_LEVELS = 8
"""Values of a number that are looked at."""
_PARALLEL = ("tp_size", "pp_size", "dp_size", "enable_dp_attention", "ep_size")
"""What it ranks of SGLang's parameters. It knows nothing of memory, graphs, all-reduce or drafts, and of
attention back ends and KV types too little to tell them apart."""

_SYSTEMS = (
    (r"rtx pro 6000 blackwell", "rtx_pro_6000_server"),
    (r"\bgb300\b", "gb300"),
    (r"\bgb200\b", "gb200"),
    (r"\bb300\b", "b300_sxm"),
    (r"\bb200\b", "b200_sxm"),
    (r"\bh200$", "h200_sxm"),
    (r"\bh100 80gb hbm3\b", "h100_sxm"),
    (r"\ba100-sxm4-80gb\b", "a100_sxm"),
    (r"\bl40s\b", "l40s"),
)
"""Names of GPUs as the driver gives them → its systems. These have data for SGLang in version 0.12.0."""

_FIGURE = re.compile(r"^\s*(tokens/s|TTFT|TPOT|Request Latency):\s+([\d,]+(?:\.\d+)?)", re.MULTILINE)
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "TPOT", "e2e": "Request Latency"}
_TOLD_CHARACTERS = 200
_REFUSED = 2
"""Its exit code for arguments that it refuses: with one layout as with any."""


@dataclass(frozen=True)
class Prior:
    """What to try early, the best first, and what to tell the user of it."""

    given: tuple[KnownGood, ...] = ()
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """How a server shares the model and the requests among GPUs, in SGLang's words.

    With `dp_attention` the `dp` ranks are part of the `tp` ones; without it there are `dp` copies.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dp_attention: bool = False
    ep: int = 1

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Layout:
        """The layout of a launch with these flags; what is left unsaid is SGLang's default."""
        tp, pp, dp, ep = (_whole(values.get(name)) for name in ("tp_size", "pp_size", "dp_size", "ep_size"))
        return cls(tp, pp, dp, bool(values.get("enable_dp_attention")) and dp > 1, ep)

    @property
    def copies(self) -> int:
        """How many times the model is loaded."""
        return 1 if self.dp_attention else self.dp

    @property
    def gpus(self) -> int:
        """How many GPUs it takes."""
        return self.tp * self.pp * self.copies

    def fits(self, gpus: int) -> bool:
        """Whether it can run on so many GPUs."""
        shared = self.tp % self.ep == 0 and (self.tp % self.dp == 0 or not self.dp_attention)
        return shared and self.gpus <= gpus

    def batch(self, load: int) -> int:
        """How many of `load` requests at once one of the `dp` ranks or copies serves."""
        return math.ceil(load / self.dp)

    def busy(self, load: int) -> float:
        """The share of what the program takes to be served at once that `load` requests come to.

        It takes all ranks to be as busy as the busiest, and knows nothing of copies.
        """
        return self.copies * load / (self.batch(load) * self.dp)

    def words(self, load: int) -> list[str]:
        """What the program is told of it, for `load` requests at once."""
        attention_dp = self.dp if self.dp_attention else 1
        words = {
            "--batch-size": self.batch(load),
            "--tp-size": self.tp // attention_dp,
            "--pp-size": self.pp,
            "--attention-dp-size": attention_dp,
            "--moe-tp-size": self.tp // self.ep,
            "--moe-ep-size": self.ep,
        }
        return [str(word) for pair in words.items() for word in pair]


class _NothingToSay(Exception):
    """Why there is no ranking."""


def ask_prior(
    definition: StudyDefinition,
    space: SearchSpace,
    platform: PlatformAudit | None,
    clock: Clock,
    *,
    limit_s: float = _LIMIT_S,
) -> Prior:
    """What the program that `prior` names would try first in `space`; empty where the study names none.

    `platform` is what this box is like, where that is known. The program is given `limit_s` seconds for all
    that it is asked. Never raises: what stands in the way is told.
    """
    if definition.prior is None:
        return Prior()
    try:
        return _ranked(definition, space, platform, clock, limit_s)
    except _NothingToSay as reason:
        return Prior(told=(f"warning  prior: {reason}; the search goes without",))


def _ranked(
    definition: StudyDefinition,
    space: SearchSpace,
    platform: PlatformAudit | None,
    clock: Clock,
    limit_s: float,
) -> Prior:
    reference = _of_the_reference(definition, space)
    layouts = _layouts(space, definition, reference)
    if len(layouts) < 2:
        raise _NothingToSay(
            f"{PROGRAM} ranks {', '.join(_PARALLEL)}, and this space leaves nothing of it open"
        )
    common = _common_words(definition, platform)
    figure, sign, load = _goal(definition)
    deadline_s = clock.monotonic_s() + limit_s
    scores: dict[Layout, float] = {}
    complaint = "it was given no time"
    for layout in layouts:
        left_s = deadline_s - clock.monotonic_s()
        if left_s <= 0:
            break
        try:
            ended = run_to_end(
                [*common, *layout.words(load)], environment=os.environ, limit_s=left_s, clock=clock
            )
        except (OSError, ValueError) as error:
            raise _NothingToSay(f"{common[0]} cannot be started: {error}") from error
        found = {name: float(number.replace(",", "")) for name, number in _FIGURE.findall(ended.output)}
        if ended.exit_code == 0 and figure in found:
            scores[layout] = sign * found[figure] * (layout.busy(load) if figure == "tokens/s" else 1)
            continue
        complaint = _complaint(ended)
        if ended.exit_code in (None, _REFUSED):
            break
    if not scores:
        raise _NothingToSay(f"{PROGRAM} ranks no layout of this space: {complaint}")
    return _first(layouts, scores, reference)


def _first(
    layouts: Mapping[Layout, Configuration], scores: Mapping[Layout, float], reference: Layout | None
) -> Prior:
    """The layouts that are ranked above the reference's, which is launched anyway; all if it has no rank.

    Of those that it cannot tell apart (experts in parallel where the model has none) only one is tried.
    """
    order = sorted(scores, key=lambda layout: -scores[layout])
    best: dict[float, Layout] = {}
    for layout in takewhile(lambda layout: layout != reference, order):
        best.setdefault(scores[layout], layout)
    given = [
        KnownGood(f"{PROGRAM}, rank {order.index(layout) + 1} of {len(order)}", layouts[layout])
        for layout in list(best.values())[:_BEST]
    ]
    ranked = f"prior: {PROGRAM} ranks {len(order)} of {len(layouts)} layouts of the GPUs"
    if not given:
        return Prior(told=(f"{ranked}, none above the reference's",))
    shown = [
        " ".join(f"{name}={values[name]}" for name in _PARALLEL if name in values) or "the defaults"
        for values in (known.values for known in given)
    ]
    return Prior(tuple(given), (f"{ranked}; tried early: {', '.join(shown)}",))


def _complaint(ended: Ended) -> str:
    if ended.exit_code is None:
        return "it took too long"
    said = [line.strip() for line in (ended.output + "\n" + ended.errors).splitlines() if line.strip()]
    return said[-1][:_TOLD_CHARACTERS] if said else f"it ended with exit code {ended.exit_code}"


# --- what it is asked ---------------------------------------------------------------------------------------


def _layouts(
    space: SearchSpace, definition: StudyDefinition, reference: Layout | None
) -> dict[Layout, Configuration]:
    """The layouts that the space can express and its rules allow, everything else as in the defaults.

    The reference's comes first, then those of the most GPUs: time may not suffice for all.
    """
    gpus = len(definition.server.gpus)
    if not gpus:
        raise _NothingToSay("how many GPUs there are is not known (name them in server.gpus)")
    found: dict[Layout, Configuration] = {}
    for configuration in _configurations(space):
        layout = Layout.of({**definition.server.flags, **configuration})
        if layout.fits(gpus) and space.broken_rule(configuration) is None:
            found.setdefault(layout, configuration)
    return dict(sorted(found.items(), key=lambda item: (item[0] != reference, -item[0].gpus)))


def _configurations(space: SearchSpace) -> Iterator[Configuration]:
    defaults = space.assignment({})
    levels = {
        name: [defaults[name], *values]
        for name, values in levels_of(space, most=_MOST_LEVELS).items()
        if name in _PARALLEL
    }
    for values in product(*levels.values()):
        chosen: dict[str, Value] = dict(zip(levels, values, strict=True))
        given = {f"{name}.auto": False for name in chosen if f"{name}.auto" in defaults}
        yield space.configuration({**defaults, **given, **chosen})


def _of_the_reference(definition: StudyDefinition, space: SearchSpace) -> Layout | None:
    """None for a command of the user's."""
    if definition.baseline.command is not None:
        return None
    point = point_of(definition.baseline, space) or Configuration({})
    return Layout.of({**definition.server.flags, **definition.baseline.flags, **point})


def _common_words(definition: StudyDefinition, platform: PlatformAudit | None) -> list[str]:
    program = shutil.which(PROGRAM)
    if program is None:
        raise _NothingToSay(f"there is no {PROGRAM} on PATH")
    lengths = definition.workload.input_tokens, definition.workload.output_tokens
    prompt, answer = (_mean(one) for one in lengths)
    return [
        program, "cli", "estimate", "--no-color", "--log-level", "ERROR",
        "--backend", "sglang", "--system", _system(platform), "--model-path", definition.server.model,
        "--isl", str(prompt), "--osl", str(answer),
    ]  # fmt: skip


def _mean(lengths: Lengths | None) -> int:
    if lengths is None:
        raise _NothingToSay(f"{PROGRAM} has to know how long prompts and answers are (workload.input_tokens)")
    return max(1, round(lengths.mean))


def _system(platform: PlatformAudit | None) -> str:
    findings = platform.findings if platform is not None else ()
    shown = next((finding.value for finding in findings if finding.what == "GPUs"), "")
    kinds = [kind.partition("x ")[2].casefold() for kind in shown.split(", ") if kind]
    if not kinds:
        raise _NothingToSay("which GPUs this box has is not known")
    for pattern, system in _SYSTEMS:
        if all(re.search(pattern, kind) for kind in kinds):
            return system
    raise _NothingToSay(f"{PROGRAM} has no data for SGLang on {shown}")


def _goal(definition: StudyDefinition) -> tuple[str, float, int]:
    """The figure to rank by, 1 where more of it is better or else -1, and the requests at once."""
    goal = definition.objective.goals[0]
    if goal.by_rate:
        raise _NothingToSay(f"{PROGRAM} ranks for a number of requests at once, and this load is a rate")
    load = round(max(goal.levels))
    if goal.kind == "latency":
        return _LATENCIES[goal.of.partition("_")[0]], -1.0, load
    return "tokens/s", 1.0, load


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1
