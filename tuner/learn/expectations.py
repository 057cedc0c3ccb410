"""What is expected of parameters before anything was launched: gains, how sure they are, and what may die.

What the search-space file says (`expect`) comes first. The rest is by SGLang's names and choices; an unknown
parameter gets the middle of everything. Launches overrule all of
it: a few of them outweigh a wrong spread, one that runs ends a suspicion. The figures are rounded from what
users of SGLang and vLLM have published for boxes of eight RTX PRO 6000 without NVLink (noted beside them);
risks follow from which kernels are built for one GPU generation only (SM90 or SM100), and from what needs
links or packages that many boxes lack.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from tuner.learn.axes import place_of
from tuner.space.configuration import Value
from tuner.space.parameters import AUTO, Parameter
from tuner.space.space import SearchSpace

SPREAD = 0.10
"""The sd of the logarithm of the speed that a parameter is expected to make, where nothing is known of it."""
RISK = 0.04
"""The odds that an untried choice kills the launch, where nothing is known of it."""

_SPREADS: tuple[tuple[str, float], ...] = (
    (r"speculative(_algorithm)?", 0.25),  # +25 to +84 % at one stream, -14 to +12 % at 128
    (r"speculative_.*", 0.08),  # 1 to 3 steps are within some per cent of each other
    (r"disable_cuda_graph", 0.30),  # 25 to 107 tok/s where graphs began to cover the batch
    (r"cuda_graph_(max_)?bs.*", 0.12),  # 82 to 89.5 tok/s for 512 to 128
    (r"max_running_requests|max_total_tokens", 0.15),  # below the load the rest waits
    (r"mem_fraction_static", 0.10),
    (r"all_reduce|disable_custom_all_reduce", 0.15),  # 80 to 87 tok/s, 35 to 48 for PCIe-IPC
    (r"kv_cache_dtype", 0.15),  # 90 to 16 tok/s with INT4 weights, some per cent elsewhere
    (r"NCCL_GRAPH_FILE|NCCL_PROTO|NCCL_P2P_.*", 0.10),  # 998 to 1132 tok/s; 40 to 65 by the graph
    (r"NCCL_.*", 0.06),
    (r"attention_backend|decode_attention_backend|moe_runner_backend|quantization", 0.12),  # 70 to 108
    (r"(moe_)?ep_size", 0.08),
    (r"(tp|dp|pp|attn_dp)_size|enable_dp_attention", 0.20),  # TP4 x DP2 has twice TP8's throughput
    (r"enable_torch_compile|disable_overlap_schedule|enable_two_batch_overlap", 0.10),
    (r"chunked_prefill_size|max_prefill_tokens|enable_mixed_chunk", 0.05),  # decoding feels memory only
    (r"schedule_.*|page_size|num_continuous_decode_steps|stream_interval|disable_radix_cache", 0.05),
)

_RISKS: tuple[tuple[str, str, float], ...] = (
    # Built for SM90 and SM100; elsewhere they fall back, or die at the start.
    (r"all_reduce", r"torch-symm-mem|flashinfer-fusion|nccl-symm-mem|mscclpp", 0.40),
    (r"all_reduce", r"nccl|custom", 0.01),
    (r"enable_(torch_symm_mem|flashinfer_allreduce_fusion|nccl_nvls|mscclpp)", r"True", 0.40),
    (r".*attention_backend", r"fa3|fa4|flashmla|cutlass_mla|trtllm_m[lh]a|cutedsl_mla|tokenspeed.*", 0.40),
    (r".*attention_backend", r"triton|flashinfer|torch_native", 0.03),
    (r"moe_(runner_)?backend", r"deep_gemm|cutlass|flashinfer.*", 0.35),
    (r"moe_a2a_backend", r".*", 0.35),
    (r"(moe_)?ep_size|dp_size|pp_size|moe_dp_size", r"(?!1$).*", 0.35),  # assertions at the start
    (r"enable_(dp_attention|two_batch_overlap|torch_compile|piecewise_cuda_graph)", r"True", 0.20),
    (r"kv_cache_dtype", r"fp8_e5m2|fp4.*|int8", 0.25),
    (r"kv_cache_dtype", r"fp8_e4m3", 0.08),
    (r"NCCL_P2P_LEVEL", r"SYS|PXB", 0.12),  # above what the links can do the first collective hangs
    (r"NCCL_.*", r".*", 0.02),
    (r"quantization", r".*", 0.25),
    (r"disable_.*|schedule_.*", r".*", 0.01),
    (r"speculative_num_steps", r"[5-9]|\d\d", 0.06),  # illegal memory accesses
)

_GAINS: tuple[tuple[str, str, float], ...] = (
    (r"speculative(_algorithm)?", r"(?!off$).*", 0.15),  # 110 for 91 tok/s at one stream, 1221 for 963 at 32
    (r"speculative_num_steps", r"4", -0.02),
    (r"speculative_num_steps", r"[5-9]|\d\d", -0.05),  # what is drafted last is rarely accepted
    (r"all_reduce", r"pcie-ipc", 0.05),
    (r"kv_cache_dtype", r"(fp8|fp4|int8).*", -0.10),
    (r"moe_runner_backend|moe_a2a_backend", r"(?!none$).*", -0.05),  # the default is chosen for the weights
    (r"(moe_)?ep_size|dp_size|pp_size", r"(?!1$).*", -0.08),  # costs throughput over PCIe
    (r"attention_backend", r"flashinfer", 0.02),  # 20 tok/s with triton at 135,000 tokens
    (r"NCCL_PROTO", r".*LL128.*", 0.02),  # +13 % at 32 streams, nothing at one
    (r"disable_cuda_graph", r"True", -0.30),
    (r"disable_overlap_schedule", r"True", -0.06),
)
_ROOM_FOR_THE_LOAD = ("max_running_requests", "cuda_graph_max_bs")
_LOSS_PER_HALVING = 0.25
"""Of the speed (logarithm), when half of the load has to wait."""
_UNSURE = 1 / 3
"""A stated gain is believed to within a third of itself (sd)."""
_ENDS_APART = 2.0
"""Where only a direction is stated, the ends of the range are so many usual spreads apart."""


class Expectations:
    """What is expected of a space's parameters: what its file says, and what is known of the others."""

    def __init__(self, space: SearchSpace) -> None:
        self._stated = {one.name: one for one in space.parameters if one.expect is not None}

    def gain_of(self, name: str, value: Value, load: int | None) -> float:
        """See `gain_of`; the load has to find room whatever the file says."""
        parameter = self._stated.get(name)
        if parameter is None or value == AUTO:
            return gain_of(name, value, load)
        return _stated_gain(parameter, value) - _waiting(name, value, load)

    def spread_of(self, name: str) -> float:
        """See `spread_of`; more where a large gain is stated."""
        parameter = self._stated.get(name)
        gains = parameter.expect.gains if parameter is not None and parameter.expect is not None else {}
        return max([spread_of(name), *(_UNSURE * abs(math.log1p(gain)) for gain in gains.values())])


def _stated_gain(parameter: Parameter, value: Value) -> float:
    """What the file says of this value (logarithm), over leaving the parameter out."""
    expect = parameter.expect
    if expect is None:
        return 0.0
    if expect.larger_is_faster is None:
        return math.log1p(expect.gains.get(str(value).lower() if value is True else str(value), 0.0))
    if isinstance(value, (bool, str)):
        return 0.0
    unsaid = parameter.default
    there = place_of(parameter, unsaid) if isinstance(unsaid, (int, float)) else 0.5
    gain = _ENDS_APART * spread_of(parameter.name) * (place_of(parameter, value) - there)
    return 0.0 if math.isnan(gain) else gain if expect.larger_is_faster else -gain


def _waiting(name: str, value: Value, load: int | None) -> float:
    """What it costs (logarithm of the speed) that a part of the load has to wait, or runs eagerly."""
    if name in _ROOM_FOR_THE_LOAD and load is not None and isinstance(value, (int, float)) and value > 0:
        return _LOSS_PER_HALVING * max(0.0, math.log2(load / value))
    return 0.0


@lru_cache(maxsize=10_000, typed=True)
def gain_of(name: str, value: Value, load: int | None) -> float:
    """The expected gain (logarithm of the speed) of this value over leaving the parameter out.

    `load` is the number of requests at once that is scored: requests beyond `max_running_requests` wait, and
    batches beyond the largest captured graph run eagerly.
    """
    if value == AUTO:
        return 0.0
    if name in _ROOM_FOR_THE_LOAD:
        return -_waiting(name, value, load)
    for pattern, choice, gain in _GAINS:
        if re.fullmatch(pattern, name) and re.fullmatch(choice, str(value)):
            return gain
    return 0.0


def spread_of(name: str) -> float:
    """The sd of the logarithm of the speed that this parameter is expected to make."""
    return next((spread for pattern, spread in _SPREADS if re.fullmatch(pattern, name)), SPREAD)


@lru_cache(maxsize=10_000, typed=True)
def risk_of(name: str, value: Value) -> float:
    """The odds (0 to 1) that this choice of a parameter kills a launch; leaving it out never does."""
    if value == AUTO or value is False:
        return 0.0
    for pattern, choice, risk in _RISKS:
        if re.fullmatch(pattern, name) and re.fullmatch(choice, str(value)):
            return risk
    return RISK
