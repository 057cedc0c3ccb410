"""The arguments that SGLang refuses before it loads anything, with the text it raises."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from tuner.simulator.box import Box
from tuner.simulator.deaths import unreachable_repository

_TREE_BACKENDS = ("flashinfer", "fa3", "triton")


class ArgumentError(Exception):
    """An exception that ends the launcher with exit code 1; the text starts with the exception's name."""


def check(box: Box, arguments: dict[str, Any]) -> None:
    """Refuse what SGLang's own checks refuse. Raises `ArgumentError`."""
    _check_model(box, arguments)
    _check_parallelism(arguments)
    _check_scheduling(arguments)
    speculative = arguments["speculative_algorithm"] is not None
    if speculative and arguments["pp_size"] > 1:
        raise ArgumentError(
            "AssertionError: Pipeline parallelism currently only supports EAGLE (non-multi-layer) "
            "speculative decoding"
        )
    if (
        speculative
        and arguments["speculative_eagle_topk"] > 1
        and arguments["page_size"] > 1
        and arguments["attention_backend"] not in _TREE_BACKENDS
    ):
        raise ArgumentError(
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on "
            f"{_TREE_BACKENDS}, got {arguments['attention_backend']}."
        )
    if speculative and arguments.get("weight_cache_mode", "off") != "off":
        raise ArgumentError("ValueError: The weight cache does not support speculative decoding.")


def _check_model(box: Box, arguments: dict[str, Any]) -> None:
    path = str(arguments["model_path"]).rstrip("/")
    last = PurePosixPath(path).name.lower()
    if not any(last.startswith(name.lower()) for name in box.model.names):
        raise ArgumentError(unreachable_repository(path))
    context = arguments["context_length"]
    if context is not None and context > box.model.context_length:
        raise ArgumentError(
            f"ValueError: User-specified context_length ({context}) is greater than the derived "
            f"context_length ({box.model.context_length}). This may lead to incorrect model outputs or "
            "CUDA errors. To allow overriding this maximum, set the env var "
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
        )


def _check_parallelism(arguments: dict[str, Any]) -> None:
    if arguments["tp_size"] * arguments["pp_size"] % arguments["nnodes"]:
        raise ArgumentError("AssertionError: tp_size must be divisible by number of nodes")
    attention_dp = arguments.get("attn_dp_size") or 1
    if arguments.get("enable_dp_attention"):
        attention_dp = max(attention_dp, arguments["dp_size"])
    if arguments["tp_size"] % attention_dp:
        raise ArgumentError("AssertionError")
    if (
        arguments.get("enable_two_batch_overlap")
        and arguments.get("moe_a2a_backend") in (None, "none")
        and attention_dp == 1
    ):
        raise ArgumentError(
            "ValueError: When enabling two batch overlap, an expert parallel a2a backend or DP attention is "
            "needed."
        )


def _check_scheduling(arguments: dict[str, Any]) -> None:
    chunk, page = arguments["chunked_prefill_size"], arguments["page_size"]
    if chunk > 0 and chunk % page:
        raise ArgumentError("AssertionError: chunked_prefill_size must be divisible by page_size")
    if arguments["schedule_conservativeness"] < 0:
        raise ArgumentError("AssertionError: schedule_conservativeness must be non-negative")
    if arguments.get("enable_priority_scheduling") and arguments["schedule_policy"] not in ("fcfs", "lof"):
        raise ArgumentError(
            "AssertionError: To use priority scheduling, schedule_policy must be 'fcfs' or 'lof'. "
            f"'{arguments['schedule_policy']}' is not supported."
        )
    if arguments["disable_cuda_graph_padding"] and arguments["enable_torch_compile"]:
        raise ArgumentError(
            "AssertionError: --disable-cuda-graph-padding is incompatible with --enable-torch-compile."
        )
    if arguments.get("enable_hierarchical_cache") and arguments["disable_radix_cache"]:
        raise ArgumentError(
            "ValueError: The arguments enable-hierarchical-cache and disable-radix-cache are mutually "
            "exclusive and cannot be used at the same time. Please use only one of them."
        )
