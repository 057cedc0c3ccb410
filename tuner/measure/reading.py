"""A workload read from a study definition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.document import Node
from tuner.errors import InputError
from tuner.measure.datasets import DATASETS, FILE_DATASETS, open_dataset
from tuner.measure.lengths import Lengths
from tuner.measure.measurement import KINDS, LOADS, Workload
from tuner.measure.reading_objective import parse_objective

__all__ = ["parse_objective", "parse_workload"]

_WORKLOAD = (
    "kind", "load", "concurrency", "rate", "requests", "burst_every_s", "dataset", "dataset_file",
    "input_tokens", "output_tokens", "prefix_tokens", "prefix_groups", "precision", "batches", "max_batches",
    "repeat_limit_s", "level_limit_s", "warmup_output_tokens", "warmup_s", "warmup_limit_s",
    "silence_limit_s", "expected_level_s",
)  # fmt: skip
_FEWEST_OUTPUT_TOKENS = 8
"""Fewer leave no window between the last first token and the first finish."""

_LONGEST_DEFAULT_WARMUP_S = 20.0
"""Engines were seen at 0.6 to 0.9 of their speed for this long after a start."""


def parse_workload(node: Node) -> Workload:
    """The workload of a definition: see `Workload` for what each key means. Raises `InputError`.

    `input_tokens` and `output_tokens` are a number, `{low: 512, high: 2048}` (evenly spread) or `{median:
    800, sigma: 0.7, low: 16, high: 4096}` (lognormal). `repeat_limit_s` is `expected_level_s` where it is not
    given, and `warmup_s` half of that, at most 20.
    """
    keys = node.mapping(known=_WORKLOAD)
    kind = keys["kind"].text(one_of=KINDS) if "kind" in keys else Workload.kind
    concurrency, rates = _levels(node, keys, kind)
    dataset = keys["dataset"].text(one_of=DATASETS) if "dataset" in keys else Workload.dataset
    output_tokens = _lengths(keys.get("output_tokens"), least=_FEWEST_OUTPUT_TOKENS)
    batches = keys["batches"].integer(least=1, most=1000) if "batches" in keys else Workload.batches
    expected_s = _seconds(keys, "expected_level_s", Workload.expected_level_s, least=0.1)
    workload = Workload(
        kind=kind,
        load=keys["load"].text(one_of=LOADS) if "load" in keys else Workload.load,
        concurrency=concurrency,
        rates=rates,
        requests=keys["requests"].integer(least=1, most=100_000) if "requests" in keys else None,
        silence_limit_s=_seconds(keys, "silence_limit_s", Workload.silence_limit_s, least=1),
        burst_every_s=_seconds(keys, "burst_every_s", Workload.burst_every_s, least=0.001),
        dataset=dataset,
        dataset_file=Path(keys["dataset_file"].text()).expanduser() if "dataset_file" in keys else None,
        input_tokens=_lengths(keys.get("input_tokens"), least=1),
        output_tokens=output_tokens,
        prefix_tokens=keys["prefix_tokens"].integer(least=1) if "prefix_tokens" in keys else 0,
        prefix_groups=keys["prefix_groups"].integer(least=1) if "prefix_groups" in keys else 1,
        precision=keys["precision"].number(least=0.0001, most=1)
        if "precision" in keys
        else Workload.precision,
        batches=batches,
        max_batches=keys["max_batches"].integer(least=batches, most=10_000)
        if "max_batches" in keys
        else max(batches, Workload.max_batches),
        repeat_limit_s=_seconds(keys, "repeat_limit_s", expected_s, least=0),
        level_limit_s=_seconds(keys, "level_limit_s", Workload.level_limit_s, least=1),
        warmup_output_tokens=keys["warmup_output_tokens"].integer(least=1)
        if "warmup_output_tokens" in keys
        else min(Workload.warmup_output_tokens, output_tokens.high if output_tokens else 10**9),
        warmup_s=_seconds(keys, "warmup_s", min(_LONGEST_DEFAULT_WARMUP_S, expected_s / 2), least=0),
        warmup_limit_s=_seconds(keys, "warmup_limit_s", Workload.warmup_limit_s, least=0),
        expected_level_s=expected_s,
    )
    _check_dataset(node, keys, workload)
    return workload


def _levels(node: Node, keys: Mapping[str, Node], kind: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The concurrencies, or for an open load the rates."""
    own, other = ("rate", "concurrency") if kind == "open" else ("concurrency", "rate")
    if other in keys:
        why = "comes at a rate" if kind == "open" else "has a concurrency"
        raise keys[other].refuse(f"a load of the kind '{kind}' {why}", hint=f"give '{own}' in its place")
    if own not in keys:
        raise node.refuse(f"the key '{own}' is missing")
    found = one_or_more(keys[own])
    if kind == "open":
        rates = tuple(item.number(least=0.001, most=100_000) for item in found)
        levels: tuple[float, ...] = rates
        concurrency: tuple[int, ...] = ()
    else:
        rates = ()
        levels = concurrency = tuple(item.integer(least=1, most=4096) for item in found)
    if len(set(levels)) != len(levels):
        raise keys[own].refuse("a level stands here twice")
    return concurrency, rates


def _check_dataset(node: Node, keys: Mapping[str, Node], workload: Workload) -> None:
    """Refuse what could never be sent, before anything is launched."""
    _check_lengths(node, keys, workload)
    if workload.dataset in FILE_DATASETS and workload.dataset_file is None:
        raise node.refuse(f"the dataset '{workload.dataset}' needs the key 'dataset_file'")
    if workload.dataset not in FILE_DATASETS and workload.dataset_file is not None:
        raise keys["dataset_file"].refuse(
            f"the dataset '{workload.dataset}' reads no file", hint="set dataset to sharegpt or jsonl"
        )
    shared = workload.dataset == "shared-prefix"
    if shared and not workload.prefix_tokens:
        raise node.refuse("the dataset 'shared-prefix' needs the key 'prefix_tokens'")
    for key in ("prefix_tokens", "prefix_groups"):
        if key in keys and not shared:
            raise keys[key].refuse("only the dataset 'shared-prefix' has shared prefixes")
    place = keys.get("dataset_file", keys.get("dataset", node))
    try:
        dataset = open_dataset(workload)
        if workload.dataset in FILE_DATASETS:
            dataset.draw(max(map(workload.round_requests, workload.levels)), "check")
    except InputError as error:
        raise place.refuse(error.message, hint=error.hint) from None


def _check_lengths(node: Node, keys: Mapping[str, Node], workload: Workload) -> None:
    if workload.dataset in FILE_DATASETS:
        if "input_tokens" in keys:
            raise keys["input_tokens"].refuse("prompts of a file are as long as they are")
    else:
        for key in ("input_tokens", "output_tokens"):
            if key not in keys:
                raise node.refuse(f"the key '{key}' is missing")
    lengths = workload.output_tokens
    one_length = all(one is not None and one.is_fixed for one in (lengths, workload.input_tokens))
    if workload.load == "bench-serving" and not (
        workload.kind == "batch" and workload.dataset == "random" and one_length
    ):
        raise keys["load"].refuse(
            "sglang.bench_serving can stand in for batches of random prompts of one length only",
            hint="leave kind and dataset out, and give numbers as input_tokens and output_tokens",
        )
    if workload.kind == "waves" and lengths is not None and lengths.is_fixed:
        raise keys["output_tokens"].refuse(
            "in waves the answers end at different times", hint="give a range, such as {low: 64, high: 512}"
        )


def _lengths(node: Node | None, *, least: int) -> Lengths | None:
    if node is None:
        return None
    if not isinstance(node.value, dict):
        return Lengths.fixed(node.integer(least=least))
    keys = node.mapping(known=("low", "high", "median", "sigma"), required=("high",))
    low = keys["low"].integer(least=least) if "low" in keys else least
    high = keys["high"].integer(least=low)
    if ("median" in keys) != ("sigma" in keys):
        raise node.refuse("median and sigma belong together", hint="leave both out for an even spread")
    if "median" not in keys:
        return Lengths(low, high)
    return Lengths(
        low, high, keys["median"].integer(least=low, most=high), keys["sigma"].number(least=0.01, most=5)
    )


def _seconds(keys: Mapping[str, Node], key: str, default: float, *, least: float) -> float:
    return keys[key].number(least=least) if key in keys else default


def one_or_more(node: Node) -> list[Node]:
    """The items of a list, or the one thing that stands in its place."""
    return node.sequence(least=1) if isinstance(node.value, list) else [node]
