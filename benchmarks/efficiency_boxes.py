"""The boxes of `benchmarks.search_efficiency`: shipped profiles with other coefficients, loads and spaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.clock import ManualClock
from tuner.document import Node, parse_document, read_document
from tuner.simulator.box import AllReduce, Box
from tuner.simulator.profile import read_box
from tuner.simulator.virtual import VirtualEvaluator
from tuner.space.reading import parse_space
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition, parse_definition

KIMI_12 = "kimi-k2.5-8x-rtx-pro-6000-0.5.12"
KIMI_23 = "kimi-k2.5-8x-rtx-pro-6000-0.5.23"
DENSE = "dense-small"
STUDY_HOURS = 12.0

_SPACES = Path(__file__).parent.parent / "search_spaces"
_KIMI_SERVER = """
  model: moonshotai/Kimi-K2.5
  flags: {tp_size: 8, trust_remote_code: true, speculative_draft_model_path: lightseekorg/kimi-k2.5-eagle3}
"""
_DENSE_SERVER = """
  model: Qwen/Qwen3-32B-FP8
  flags: {speculative_draft_model_path: some/qwen3-32b-eagle3}
"""
_STUDY = """
search_space: given
server:
  command: ["{{python}}", -m, tuner.simulator, --box, {box}]{server}
workload: {{{workload}, repeat_limit_s: 90}}
least: {least}
guard: {{enabled: false}}
budget: {{hours: {hours}}}
"""

_GRAPH_FILE = """
  NCCL_GRAPH_FILE: {type: choice, choices: [auto, /etc/nccl-graph.xml]}
"""
_SPECULATIVE = """
  speculative: {type: composite, choices: [off, eagle3], default: off}
  speculative_num_steps: {type: integer, low: 1, high: 5, default: 3, when: speculative != off}
  kv_cache_dtype: {type: choice, choices: [auto, fp8_e4m3, fp8_e5m2]}
"""
_OWN = """
name: own
parameters:
  mem_fraction_static: {type: float, low: 0.6, high: 0.96, auto: true}
  cuda_graph_max_bs: {type: choice, choices: [4, 16, 64, 256, 512], ordered: true, default: 256}
  attention_backend: {type: choice, choices: [auto, triton, flashinfer, fa3]}
  page_size: {type: choice, choices: [1, 16, 64], ordered: true, default: 1}
  chunked_prefill_size: {type: integer, low: 1000, high: 16000, step: 1000, auto: true}
  disable_overlap_schedule: {type: boolean}
  disable_cuda_graph: {type: boolean}
  num_continuous_decode_steps: {type: integer, low: 1, high: 8, default: 1}
""" + _SPECULATIVE.replace("[off, eagle3]", "[off, eagle3, ngram]")


@dataclass(frozen=True)
class Scenario:
    """A box, a load and a space. `held_out` were not looked at while the search was developed."""

    name: str
    box: str
    workload: str
    change: Callable[[Box], Box] = lambda box: box
    more_parameters: str = ""
    space: str = "kimi-k2.5-8x-rtx-pro-6000"
    least: str = "{min_kv_tokens: 40000}"
    known_good: bool = True
    held_out: bool = False

    def evaluator(self, hours: float = STUDY_HOURS) -> tuple[VirtualEvaluator, StudyDefinition]:
        """The box in virtual time, and its study."""
        space = _without_expectations(parse_space(self._space(), "given"))
        if not self.known_good:
            space = replace(space, known_good=())
        text = _STUDY.format(
            box=self.box,
            server=_DENSE_SERVER if self.box == DENSE else _KIMI_SERVER,
            workload=self.workload,
            least=self.least,
            hours=hours,
        )
        definition = parse_definition(
            parse_document(text, self.name), name="efficiency", folder=Path("nowhere"), space=space
        )
        return VirtualEvaluator(self.change(read_box(self.box)), definition, ManualClock()), definition

    def _space(self) -> Node:
        if self.space == "own":
            return parse_document(_OWN, "own.yaml")
        root = read_document(_SPACES / f"{self.space}.yaml")
        if not self.more_parameters:
            return root
        more = parse_document(self.more_parameters, self.name)
        parameters = {**root.value["parameters"].value, **more.value}
        merged = {**root.value, "parameters": replace(root.value["parameters"], value=parameters)}
        return replace(root, value=merged)


def _without_expectations(space: SearchSpace) -> SearchSpace:
    """The boxes are made of the figures that the files expect: told beforehand, there is little to find."""
    return replace(space, parameters=tuple(replace(one, expect=None) for one in space.parameters))


def _all_reduce(**changes: object) -> Callable[[Box], Box]:
    def change(box: Box) -> Box:
        reduce: AllReduce | None = box.all_reduce
        return replace(box, all_reduce=replace(reduce, **changes)) if reduce is not None else box  # type: ignore[arg-type]

    return change


def _poor_drafts(box: Box) -> Box:
    draft = replace(box.draft, accepted=(0.30, 0.10, 0.03, 0.01, 0.003)) if box.draft is not None else None
    return replace(
        _all_reduce(custom_works=True, custom_factor=((1.0, 0.85), (16.0, 1.05)))(box), draft=draft
    )


def _tight(box: Box) -> Box:
    """Less room beside the weights, graphs that take more of it, and a backend without kernels."""
    memory = replace(box.memory, graph_each_gib=0.035, workspace_gib=2.5)
    rules = tuple(
        replace(rule, values=("flashinfer", *rule.values))
        if rule.flag == "attention_backend" and rule.phase == "graph-capture" and "fa3" in rule.values
        else rule
        for rule in box.rules
    )
    return replace(box, model=replace(box.model, weights_gib=74.0), memory=memory, rules=rules)


def _expert_parallel(box: Box) -> Box:
    rules = tuple(rule for rule in box.rules if rule.flag != "ep_size")
    reread = (("triton", 0.2), ("flashinfer", 0.9))
    few = replace(box.attention, reread=reread, fp8_extra_ms=0.0)
    experts = replace(box.experts, triton_factor=0.85) if box.experts is not None else None
    return replace(box, rules=rules, attention=few, experts=experts)


SCENARIOS = (
    Scenario("single stream", KIMI_12, "input_tokens: 512, output_tokens: 256, concurrency: 1"),
    Scenario("32 streams", KIMI_23, "input_tokens: 1024, output_tokens: 512, concurrency: 32"),
    Scenario("long context", KIMI_23, "input_tokens: 32768, output_tokens: 1024, concurrency: 8"),
    Scenario(
        "bad NCCL graph",
        KIMI_12,
        "input_tokens: 1024, output_tokens: 512, concurrency: 4",
        change=_all_reduce(bad_graph=True),
        more_parameters=_GRAPH_FILE,
    ),
    Scenario(
        "PCIe switches",
        KIMI_23,
        "input_tokens: 512, output_tokens: 256, concurrency: [1, 8]",
        change=_all_reduce(pcie_ipc_us=7.0, pcie_ipc_us_per_kib=0.1, pcie_ipc_cutoff_kib=256.0),
    ),
    Scenario(
        "small dense",
        DENSE,
        "input_tokens: 1024, output_tokens: 512, concurrency: 16",
        more_parameters=_SPECULATIVE,
        space="generic",
    ),
    Scenario(
        "poor drafts",
        KIMI_23,
        "input_tokens: 512, output_tokens: 256, concurrency: 1",
        change=_poor_drafts,
        held_out=True,
    ),
    Scenario(
        "tight memory",
        KIMI_12,
        "input_tokens: 2048, output_tokens: 512, concurrency: [16, 64]",
        change=_tight,
        least="{min_kv_tokens: 100000}",
        held_out=True,
    ),
    Scenario(
        "nothing known",
        KIMI_12,
        "input_tokens: 1024, output_tokens: 512, concurrency: 32",
        change=_expert_parallel,
        known_good=False,
        least="{}",
        held_out=True,
    ),
    Scenario(
        "own space",
        DENSE,
        "input_tokens: 512, output_tokens: 512, concurrency: 2",
        space="own",
        least="{}",
        held_out=True,
    ),
)
