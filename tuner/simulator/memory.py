"""GPU memory of a launch: the automatic fraction, the pools, the graphs, and whether it all fits."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.simulator.box import Box
from tuner.simulator.settings import Settings

_GIB = 1024**3
_LEAST_FREE_GIB = 0.5


def capture_sizes(max_batch: int, *, speculative: bool, padding: bool = True) -> tuple[int, ...]:
    """The batch sizes for which SGLang captures decode graphs, rising (0.5.x)."""
    if not padding:
        return tuple(range(1, max_batch + 1))
    if speculative:
        sizes = [
            *range(1, 9),
            *range(10, 33, 2),
            *range(40, 65, 4),
            *range(72, 257, 8),
            *range(272, max_batch + 1, 16),
        ]
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, max_batch + 1, 32)]
    return tuple(sorted({size for size in sizes if size <= max_batch} | {max_batch}))


def automatic_fraction(
    box: Box,
    *,
    chunk_tokens: int,
    max_batch: int,
    tp: int,
    attention_dp: int,
    speculative: bool,
    prefill_graph: bool,
) -> float:
    """`--mem-fraction-static` as SGLang 0.5.x chooses it when it is not given.

    Reserved are, in MiB: 512 + 1.5 per token of a prefill chunk + 2 per batch of the largest graph + 1024 per
    eight ranks, at least 10 GiB on a large card; what graphs of the prefill need; before 0.5.14 a flat
    amount for a draft model. Multimodal models keep a further share free.
    """
    memory_mib = box.gpus.memory_mib
    reserved_mib = 512 + 1.5 * max(chunk_tokens, 2048) + 2 * max_batch + tp / 8 * 1024
    if attention_dp:
        reserved_mib += 3 * max_batch * attention_dp
        if max_batch > 300:
            reserved_mib += 1.5 * max_batch * attention_dp
    if prefill_graph:
        reserved_mib += box.memory.prefill_graph_gib * 1024
    if memory_mib > 60 * 1024:
        reserved_mib = max(reserved_mib, 10 * 1024)
    if speculative and box.sglang_version.reserves_for_draft:
        reserved_mib += box.memory.draft_reserve_mib
    fraction = round((memory_mib - reserved_mib) / memory_mib, 3)
    return fraction * box.memory.multimodal_factor if box.model.multimodal else fraction


@dataclass(frozen=True)
class MemoryPlan:
    """Where the memory of one GPU goes, in GiB, and what does not fit.

    `verdict`: fits, or what finds no room first: weights, draft-weights, pool (none is left
    within the fraction), pool-memory (there is less than the fraction promises), draft-pool, capture or
    draft-capture. `spare_gib` is what is left for activations once everything stands.
    """

    verdict: str
    free_gib: float
    weights_gib: float
    draft_gib: float
    kv_gib: float
    kv_tokens: int
    profiled_tokens: int
    max_running: int
    workspace_gib: float
    graph_gib: float
    draft_graph_gib: float
    prefill_graph_gib: float
    spare_gib: float
    least_fraction: float


def plan_memory(box: Box, settings: Settings) -> MemoryPlan:
    """The memory of a launch on one GPU of `box`.

    From 0.5.14 on both models load before the pool is sized. Before, the target gets its pool and graphs
    first, so a draft model that finds no room is noticed late.
    """
    memory, free_gib = box.memory, box.gpus.free_gib
    early = box.sglang_version.loads_draft_early
    weights = box.model.weights_gib * box.model.gpus / (settings.tp * settings.pp)
    draft = _draft_gib(box, settings, weights)
    static = settings.mem_fraction * free_gib
    profiled = _profiled_tokens(box, settings, static - weights - draft)
    target_profiled = _profiled_tokens(box, settings, static - weights)
    enough = profiled >= memory.least_kv_tokens
    tokens = profiled if enough or early else target_profiled
    if settings.max_total_tokens is not None:
        tokens = min(tokens, settings.max_total_tokens)
    kv_gib = tokens * _kv_bytes(box, settings) / _GIB
    sizes = len(settings.graph_sizes)
    graphs = memory.graph_base_gib + memory.graph_each_gib * sizes if sizes else 0.0
    draft_graphs = memory.graph_each_gib * sizes if draft else 0.0
    prefill_graph = memory.prefill_graph_gib if settings.prefill_graph else 0.0
    after_target = free_gib - weights - kv_gib - memory.workspace_gib - graphs - prefill_graph
    spare = after_target - draft - draft_graphs
    needs: tuple[tuple[str, bool], ...] = (
        ("weights", free_gib - weights >= _LEAST_FREE_GIB),
        ("draft-weights", free_gib - weights - draft >= _LEAST_FREE_GIB),
        ("pool", enough),
        ("pool-memory", free_gib - weights - draft - kv_gib >= 0),
        ("capture", not sizes or spare >= memory.capture_margin_gib),
    )
    if not early:
        needs = (
            ("weights", free_gib - weights >= _LEAST_FREE_GIB),
            ("pool", target_profiled >= memory.least_kv_tokens),
            ("pool-memory", free_gib - weights - kv_gib >= 0),
            ("capture", not sizes or after_target >= memory.capture_margin_gib),
            ("draft-weights", after_target >= draft),
            ("draft-pool", enough),
            ("draft-capture", not sizes or spare >= memory.capture_margin_gib),
        )
    return MemoryPlan(
        verdict=next((name for name, met in needs if not met), "fits"),
        free_gib=free_gib,
        weights_gib=weights,
        draft_gib=draft,
        kv_gib=kv_gib,
        kv_tokens=tokens,
        profiled_tokens=profiled,
        max_running=_max_running(settings, tokens),
        workspace_gib=memory.workspace_gib,
        graph_gib=graphs,
        draft_graph_gib=draft_graphs,
        prefill_graph_gib=prefill_graph,
        spare_gib=spare,
        least_fraction=(weights + draft) / free_gib,
    )


def _profiled_tokens(box: Box, settings: Settings, room_gib: float) -> int:
    """The tokens that a KV pool of `room_gib` holds."""
    return max(0, int(room_gib * _GIB / _kv_bytes(box, settings)))


def _kv_bytes(box: Box, settings: Settings) -> float:
    """Bytes of the KV pool, the draft model's included, that one token takes on one card."""
    model, drafts = box.model, settings.speculation
    kv_bytes = model.kv_bytes_per_token
    if drafts is not None and drafts.has_model and box.draft is not None:
        kv_bytes += box.draft.kv_bytes_per_token
    kv_bytes *= (0.5 if settings.kv_fp8 else 1.0) / settings.dcp
    if not model.latent_attention:
        kv_bytes *= model.gpus / settings.tp
    return kv_bytes


def _draft_gib(box: Box, settings: Settings, weights_gib: float) -> float:
    speculation = settings.speculation
    if speculation is None or not speculation.has_model:
        return 0.0
    if speculation.draft_path is None or box.draft is None:
        return weights_gib
    return box.draft.gib


def _max_running(settings: Settings, tokens: int) -> int:
    """The most requests that run at once: asked for, or by SGLang's estimate from the pool (0.5.x)."""
    if settings.max_running is None:
        estimate = max(min(int(tokens / settings.context_length * 512), 4096), 2048)
        return max(1, min(estimate, tokens // 2))
    per_worker = settings.max_running // max(1, settings.attention_dp)
    return max(1, min(per_worker, tokens // 2))
