"""From parsed flags to settings, as SGLang does it between its parser and its schedulers.

What it refuses ends the process with a traceback and exit code 1; what it changes is said in warnings.
"""

from __future__ import annotations

from typing import Any

from tuner.simulator.box import Box
from tuner.simulator.checks import ArgumentError, check
from tuner.simulator.memory import automatic_fraction, capture_sizes
from tuner.simulator.settings import Settings, Speculation

_SPECULATIVE = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
_AUTOMATIC_STEPS = (3, 1, 4)


def resolve(box: Box, parsed: dict[str, Any]) -> Settings:
    """The settings of a launch on `box`. Raises `ArgumentError` where SGLang raises before loading."""
    arguments = dict(parsed)
    warnings = [
        f"'{option}' is deprecated and will be removed in a future release."
        for option in arguments.pop("deprecated_options", [])
    ]
    _resolve_attention(box, arguments, warnings)
    speculation = _resolve_speculation(arguments, warnings)
    if arguments.get("moe_a2a_backend") == "deepep":
        arguments["ep_size"] = arguments["tp_size"]
    chunk, max_batch, batches = _resolve_memory(box, arguments, speculation is not None)
    check(box, arguments)
    context = arguments["context_length"] or box.model.context_length
    max_running = arguments["max_running_requests"]
    sizes = _graph_sizes(arguments, max_batch, batches, max_running)
    api_key = arguments["api_key"]
    for name in ("api_key", "admin_api_key"):
        arguments[name] = "[redacted]" if arguments[name] else None
    return Settings(
        host=arguments["host"],
        port=arguments["port"],
        model_path=arguments["model_path"],
        model_name=arguments["served_model_name"] or arguments["model_path"],
        tp=arguments["tp_size"],
        pp=arguments["pp_size"],
        replicas=1 if _attention_dp(arguments) else arguments["dp_size"],
        attention_dp=_attention_dp(arguments),
        dcp=arguments.get("dcp_size") or 1,
        attention_backend=arguments["decode_attention_backend"] or arguments["attention_backend"],
        moe_runner=arguments["moe_runner_backend"],
        kv_fp8=str(arguments["kv_cache_dtype"]).startswith("fp8"),
        kv_splits=arguments["triton_attention_num_kv_splits"],
        mem_fraction=arguments["mem_fraction_static"],
        max_total_tokens=arguments["max_total_tokens"],
        max_running=max_running,
        chunk_tokens=chunk if chunk > 0 else context,
        max_prefill_tokens=arguments["max_prefill_tokens"],
        context_length=context,
        graph_sizes=sizes,
        prefill_graph=_prefill_graph(box, arguments),
        speculation=speculation,
        overlap=not arguments["disable_overlap_schedule"],
        mixed_chunk=bool(arguments["enable_mixed_chunk"]),
        radix_cache=not arguments["disable_radix_cache"],
        conservativeness=arguments["schedule_conservativeness"],
        stream_interval=max(1, arguments["stream_interval"]),
        decode_log_interval=max(1, arguments["decode_log_interval"]),
        custom_all_reduce=not arguments["disable_custom_all_reduce"],
        fast_loading="enable_multithread_load" in str(arguments["model_loader_extra_config"]),
        dummy_weights=arguments["load_format"] == "dummy",
        skip_warmup=bool(arguments["skip_server_warmup"]),
        api_key=api_key,
        arguments=arguments,
        warnings=tuple(warnings),
    )


def _graph_sizes(
    arguments: dict[str, Any], max_batch: int, explicit: list[int] | None, max_running: int | None
) -> tuple[int, ...]:
    """The decode batches to capture: SGLang never captures more than the requests that may run."""
    if _decode_graph_off(arguments):
        return ()
    sizes = capture_sizes(
        max_batch,
        speculative=arguments["speculative_algorithm"] is not None,
        padding=not arguments["disable_cuda_graph_padding"],
    )
    if explicit:
        sizes = tuple(sorted(set(explicit)))
    if max_running and sizes[-1] > max_running:
        sizes = (*(size for size in sizes if size < max_running), max_running)
    return sizes


def _resolve_attention(box: Box, arguments: dict[str, Any], warnings: list[str]) -> None:
    if arguments["attention_backend"] is None:
        arguments["attention_backend"] = box.attention.default_backend
        warnings.append(
            f"Attention backend not specified. Use {box.attention.default_backend} backend by default."
        )
    if arguments["page_size"] is None:
        forced = {"flashmla": 64, "trtllm_mla": 64, "cutlass_mla": 128}
        arguments["page_size"] = forced.get(arguments["attention_backend"], 1)
    if arguments["sampling_backend"] is None:
        arguments["sampling_backend"] = "flashinfer"


def _resolve_speculation(arguments: dict[str, Any], warnings: list[str]) -> Speculation | None:
    algorithm = arguments["speculative_algorithm"]
    if algorithm is None:
        return None
    if algorithm.upper() not in _SPECULATIVE:
        raise ArgumentError(f"ValueError: Unknown speculative algorithm name: {algorithm}")
    algorithm = algorithm.upper()
    arguments["speculative_algorithm"] = algorithm
    if arguments["max_running_requests"] is None:
        arguments["max_running_requests"] = 48
        warnings.append(
            "Max running requests is reset to 48 for speculative decoding. "
            "You can override this by explicitly setting --max-running-requests."
        )
    if arguments["enable_mixed_chunk"]:
        arguments["enable_mixed_chunk"] = False
        warnings.append("Mixed chunked prefill is disabled because of using eagle speculative decoding.")
    steps, topk, tokens = (
        arguments[f"speculative_{name}"] for name in ("num_steps", "eagle_topk", "num_draft_tokens")
    )
    if steps is None:
        if topk is not None or (tokens is not None and algorithm != "NGRAM"):
            raise ArgumentError("AssertionError")
        steps, topk, tokens = _AUTOMATIC_STEPS[0], _AUTOMATIC_STEPS[1], tokens or _AUTOMATIC_STEPS[2]
    topk = 1 if topk is None else topk
    if topk == 1 and tokens != steps + 1:
        if tokens is not None:
            warnings.append(
                "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
                "speculative_eagle_topk == 1"
            )
        tokens = steps + 1
    tokens = steps * topk + 1 if tokens is None else tokens
    arguments |= {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }
    return Speculation(algorithm, steps, topk, tokens, arguments["speculative_draft_model_path"])


def _resolve_memory(
    box: Box, arguments: dict[str, Any], speculative: bool
) -> tuple[int, int, list[int] | None]:
    memory_gib = box.gpus.memory_mib / 1024
    wide = arguments["tp_size"] >= 4
    chunk, max_batch = _by_memory(memory_gib, wide, box.sglang_version.number)
    if arguments["chunked_prefill_size"] is None:
        arguments["chunked_prefill_size"] = chunk
    chunk = arguments["chunked_prefill_size"]
    explicit, asked = _decode_graph_options(arguments)
    if explicit:
        max_batch = max(explicit)
    elif asked is not None:
        max_batch = asked
    elif box.sglang_version.number >= 14 and arguments["max_running_requests"] and not speculative:
        max_batch = min(max_batch, arguments["max_running_requests"])
    attention_dp = _attention_dp(arguments)
    if attention_dp:
        chunk = max(1, chunk // attention_dp) if chunk > 0 else chunk
        arguments["chunked_prefill_size"] = chunk
    if arguments["mem_fraction_static"] is None:
        arguments["mem_fraction_static"] = automatic_fraction(
            box,
            chunk_tokens=chunk if chunk > 0 else arguments["max_prefill_tokens"],
            max_batch=max_batch,
            tp=arguments["tp_size"] * arguments["pp_size"],
            attention_dp=attention_dp,
            speculative=speculative,
            prefill_graph=_prefill_graph(box, arguments),
        )
    key = "cuda_graph_max_bs" if box.sglang_version.number < 14 else "cuda_graph_max_bs_decode"
    arguments[key] = max_batch
    return chunk, max_batch, explicit


def _attention_dp(arguments: dict[str, Any]) -> int:
    """Ranks over which attention is data-parallel; 0 when it is not."""
    if (arguments.get("attn_dp_size") or 1) > 1:
        return int(arguments["attn_dp_size"])
    return int(arguments["dp_size"]) if arguments.get("enable_dp_attention") else 0


def _by_memory(memory_gib: float, wide: bool, number: int) -> tuple[int, int]:
    """SGLang's default chunk and largest graph by a card's memory; `wide`: tensor parallel over 4 or more."""
    small = (48, 160) if number >= 20 else (24, 80)
    classes = ((20, 2048, 8, 8), (35, 2048, *small), (60, 4096, 32, 160), (160, 8192, 256, 512))
    for limit_gib, chunk, narrow_batch, wide_batch in classes:
        if memory_gib < limit_gib:
            return chunk, wide_batch if wide else narrow_batch
    return 16384, 512


def _decode_graph_options(arguments: dict[str, Any]) -> tuple[list[int] | None, int | None]:
    config = (arguments.get("cuda_graph_config") or {}).get("decode") or {}
    explicit = config.get("bs") or arguments.get("cuda_graph_bs_decode") or arguments.get("cuda_graph_bs")
    asked = (
        config.get("max_bs")
        or arguments.get("cuda_graph_max_bs_decode")
        or arguments.get("cuda_graph_max_bs")
    )
    return explicit, asked


def _decode_graph_off(arguments: dict[str, Any]) -> bool:
    config = (arguments.get("cuda_graph_config") or {}).get("decode") or {}
    backend = config.get("backend") or arguments.get("cuda_graph_backend_decode")
    return bool(
        backend == "disabled"
        or (
            backend is None
            and (arguments.get("disable_cuda_graph") or arguments.get("disable_decode_cuda_graph"))
        )
    )


def _prefill_graph(box: Box, arguments: dict[str, Any]) -> bool:
    """Whether prefill graphs are captured: before 0.5.14 not for multimodal models, since then for all."""
    if box.sglang_version.number < 14:
        return not (
            box.model.multimodal
            or arguments["disable_cuda_graph"]
            or arguments["disable_piecewise_cuda_graph"]
        )
    config = (arguments.get("cuda_graph_config") or {}).get("prefill") or {}
    backend = config.get("backend") or arguments.get("cuda_graph_backend_prefill")
    if backend is not None:
        return bool(backend != "disabled")
    off = arguments.get("disable_cuda_graph") or arguments.get("disable_prefill_cuda_graph")
    return not (off or arguments["pp_size"] > 1 or (arguments.get("dcp_size") or 1) > 1)
