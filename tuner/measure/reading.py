"""Workload and objective read from a study definition."""

from __future__ import annotations

from tuner.document import Node
from tuner.measure.measurement import Workload
from tuner.measure.objective import Objective

_WORKLOAD = (
    "dataset", "input_tokens", "output_tokens", "concurrency", "warmup_output_tokens", "level_limit_s",
    "expected_level_s",
)  # fmt: skip
_FEWEST_OUTPUT_TOKENS = 8
"""Fewer leave no window between the last first token and the first finish."""


def parse_workload(node: Node) -> Workload:
    """The workload of a definition. Raises `InputError`."""
    keys = node.mapping(known=_WORKLOAD, required=("input_tokens", "output_tokens", "concurrency"))
    concurrency = tuple(item.integer(least=1, most=4096) for item in _one_or_more(keys["concurrency"]))
    if len(set(concurrency)) != len(concurrency):
        raise keys["concurrency"].refuse("a level stands here twice")
    output_tokens = keys["output_tokens"].integer(least=_FEWEST_OUTPUT_TOKENS)
    warmup = keys.get("warmup_output_tokens")
    limit = keys.get("level_limit_s")
    expected = keys.get("expected_level_s")
    return Workload(
        input_tokens=keys["input_tokens"].integer(least=1),
        output_tokens=output_tokens,
        concurrency=concurrency,
        dataset=keys["dataset"].text(one_of=("random",)) if "dataset" in keys else Workload.dataset,
        warmup_output_tokens=warmup.integer(least=1) if warmup else min(64, output_tokens),
        level_limit_s=limit.number(least=1) if limit else Workload.level_limit_s,
        expected_level_s=expected.number(least=0) if expected else Workload.expected_level_s,
    )


def parse_objective(node: Node | None, workload: Workload) -> Objective:
    """The objective of a definition; without one, all levels of the workload. Raises `InputError`."""
    if node is None:
        return Objective(levels=workload.concurrency)
    keys = node.mapping(known=("concurrency",), required=("concurrency",))
    levels = _one_or_more(keys["concurrency"])
    for level in levels:
        if level.integer(least=1) not in workload.concurrency:
            measured = ", ".join(str(concurrency) for concurrency in workload.concurrency)
            raise level.refuse(
                f"the workload does not measure concurrency {level.value}", hint=f"it measures {measured}"
            )
    return Objective(levels=tuple(level.integer() for level in levels))


def _one_or_more(node: Node) -> list[Node]:
    return node.sequence(least=1) if isinstance(node.value, list) else [node]
