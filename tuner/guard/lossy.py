"""Switches that are fast because they give up exactness."""

from __future__ import annotations

from collections.abc import Mapping

# Each of these changes the model or what is taken as its output. 8-bit KV caches are not among them: they
# round, as other kernels do, and whether a model bears that is what the guard measures.
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
_WEIGHTS = ("quantization", "torchao_config", "load_format")
_LOSSY_LOADS = ("bitsandbytes",)
_FOUR_BIT_CACHES = ("fp4", "int4")
_SPARSE = ("enable_double_sparsity", "enable_hisparse")


def lossy_switches(flags: Mapping[str, object]) -> list[str]:
    """Which of these flags (canonical names) give up exactness, each with what it does.

    Give it only what a configuration changes: a quantization that the study fixes for every launch is the
    model that is tuned.
    """
    found = []
    for name in _THRESHOLDS:
        value = flags.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 1:
            found.append(f"{name}={value:g} accepts drafts that the model would not have chosen")
    for name in _WEIGHTS:
        value = flags.get(name)
        if value is None or (name == "load_format" and value not in _LOSSY_LOADS):
            continue
        if str(value).lower() not in ("", "none", "auto", "unquant"):
            found.append(f"{name}={value} rounds the weights while they are loaded")
    cache = str(flags.get("kv_cache_dtype") or "")
    if cache.startswith(_FOUR_BIT_CACHES):
        found.append(f"kv_cache_dtype={cache} keeps four bits of each value in the KV cache")
    for name in _SPARSE:
        if flags.get(name):
            found.append(f"{name} leaves out a part of the attention")
    if flags.get("json_model_override_args"):
        found.append("json_model_override_args may change what the model computes")
    return found
