"""How long an engine step takes: the physical model of a box, as pure functions of its coefficients.

With R = running requests x rows per request, a step costs, in ms: a fixed part, the expert slots that R rows
touch, a part per row, the all-reduces, the reading of the KV cache and, when drafting, the draft passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tuner.simulator.box import AllReduce, Box, Table
from tuner.simulator.settings import Settings

_GB = 1e9
_LOW_P2P_LEVELS = ("LOC", "NVL", "0")
_MANY_CHANNELS = 8
_FITTED_SPLITS = 8
_LARGE_MESSAGE_KIB = 512


@dataclass(frozen=True)
class Links:
    """The way an all-reduce takes between the cards.

    `path`: none, nccl, nccl-all-protocols, nccl-bad-graph or custom; messages up to `pcie_ipc_limit_kib` take
    FlashInfer's PCIe-IPC kernel instead.
    """

    path: str
    pcie_ipc_limit_kib: float = 0.0
    many_channels: bool = False


def links_of(box: Box, settings: Settings, environment: dict[str, str]) -> Links:
    """Which all-reduce this launch uses, given its flags and the environment of its process."""
    reduce = box.all_reduce
    if reduce is None or settings.tp == 1:
        return Links("none")
    limit_kib = 0.0
    if box.sglang_version.has_pcie_ipc and environment.get(
        "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", ""
    ).lower() in ("1", "true"):
        limit_kib = reduce.pcie_ipc_cutoff_kib
        numel = environment.get("SGLANG_PCIE_IPC_MAX_NUMEL", "")
        if numel.isdigit():
            limit_kib = min(limit_kib, int(numel) * 2 / 1024)
    if settings.custom_all_reduce and reduce.custom_works:
        return Links("custom")
    level = environment.get("NCCL_P2P_LEVEL", "").upper()
    no_p2p = environment.get("NCCL_P2P_DISABLE") == "1" or level in _LOW_P2P_LEVELS
    if no_p2p or (reduce.bad_graph and not environment.get("NCCL_GRAPH_FILE")):
        return Links("nccl-bad-graph", limit_kib)
    channels = environment.get("NCCL_MIN_NCHANNELS", "")
    many = channels.isdigit() and int(channels) >= _MANY_CHANNELS
    if _takes_every_protocol(environment.get("NCCL_PROTO", "")):
        return Links("nccl-all-protocols", limit_kib, many)
    return Links("nccl", limit_kib, many)


def _takes_every_protocol(value: str) -> bool:
    """Whether NCCL may choose LL128 or Simple; left alone it clings to LL on such a box. `^` excludes."""
    words = {word.strip().upper() for word in value.removeprefix("^").split(",") if word.strip()}
    if value.startswith("^"):
        return bool({"LL", "LL128", "SIMPLE"} - words) and "LL" in words
    return bool(words & {"LL128", "SIMPLE"})


def interpolate(table: Table, x: float, *, logarithmic: bool = False) -> float:
    """The value at `x`: between points linear (in log x where asked), below the first constant, above the
    last growing with x where `logarithmic` (message sizes), else constant."""
    if x <= table[0][0]:
        return table[0][1]
    for (x0, y0), (x1, y1) in pairwise(table):
        if x <= x1:
            share = math.log(x / x0) / math.log(x1 / x0) if logarithmic else (x - x0) / (x1 - x0)
            return y0 + share * (y1 - y0)
    last_x, last_y = table[-1]
    return last_y * x / last_x if logarithmic else last_y


def expected_tokens(
    accepted: tuple[float, ...], steps: int, topk: int, draft_tokens: int
) -> tuple[float, ...]:
    """Shares of steps that accept at least 1, 2, … drafts, for `steps` passes of `topk` branches.

    Each branch beside the first gives a missed draft 35 % of another chance; a tree with fewer tokens than
    its depth is cut at them.
    """
    shares: list[float] = []
    reached = 1.0
    previous = 1.0
    for depth in range(min(steps, draft_tokens - 1)):
        share = (
            accepted[depth] if depth < len(accepted) else accepted[-1] * 0.6 ** (depth - len(accepted) + 1)
        )
        hit = share / previous
        previous = share
        reached *= 1 - (1 - hit) ** (1 + 0.35 * (topk - 1))
        shares.append(reached)
    return tuple(shares)


class StepModel:
    """Step and prefill times of one launch on one box. Pure: same settings, same times."""

    def __init__(self, box: Box, settings: Settings, links: Links) -> None:
        self._box = box
        self._settings = settings
        self._links = links
        self._rows = settings.rows_per_request
        self._share = (
            box.model.gpus / settings.tp
        )  # of the weights, on one card, against the profile's figures
        self._kv_gb_per_token = box.model.kv_bytes_per_token * (0.5 if settings.kv_fp8 else 1.0) / _GB
        self._reread = dict(box.attention.reread).get(settings.attention_backend, 1.0)
        self._row_part_ms = lru_cache(maxsize=4096)(self._compute_row_part_ms)

    @property
    def accepted(self) -> tuple[float, ...]:
        """Shares of steps that accept at least 1, 2, … drafts; empty without drafting."""
        speculation, draft = self._settings.speculation, self._box.draft
        if speculation is None or self._settings.dummy_weights or not speculation.has_model:
            return ()
        if draft is None or speculation.draft_path is None:
            return ()
        return expected_tokens(draft.accepted, speculation.steps, speculation.topk, speculation.draft_tokens)

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that one request gains in a step."""
        return 1.0 + sum(self.accepted)

    def step_ms(self, running: int, context_tokens: float) -> float:
        """One decode step of `running` requests that hold `context_tokens` tokens together, in ms."""
        rows = running * self._rows
        ms = self._row_part_ms(running) + self._kv_ms(rows, context_tokens)
        if self._links.path == "custom" and self._box.all_reduce is not None:
            ms *= interpolate(self._box.all_reduce.custom_factor, rows)
        speculation = self._settings.speculation
        if speculation is not None and self._box.draft is not None and speculation.has_model:
            ms += speculation.steps * self._box.draft.pass_ms
        if self._box.step.power:
            ms /= interpolate(self._box.step.power, running)
        return ms

    def tokens_per_s(self, running: int, context_each: float) -> float:
        """Decode speed of `running` requests with `context_each` tokens each, all together."""
        return 1000.0 * running * self.tokens_per_step / self.step_ms(running, running * context_each)

    def prefill_s(self, parts: list[tuple[int, int]]) -> float:
        """One prefill batch of (new tokens, tokens already in the cache) parts, in seconds."""
        seconds = self._box.prefill.batch_s
        for new, before in parts:
            seconds += self._prompt_s(before + new) - self._prompt_s(before)
        return seconds

    def _prompt_s(self, tokens: int) -> float:
        return tokens / interpolate(self._box.prefill.tokens_per_s, tokens) if tokens else 0.0

    def _compute_row_part_ms(self, running: int) -> float:
        rows = running * self._rows
        step, settings = self._box.step, self._settings
        ms = step.fixed_ms * self._share + step.row_ms * rows
        ms += self._experts_ms(rows) + self._all_reduce_ms(rows)
        if settings.graph_sizes:
            doublings = math.log2(max(settings.largest_graph, 1) / 128) / 2
            ms += step.large_graph_ms * min(1.0, max(0.0, doublings))
        if running > settings.largest_graph:
            ms += step.eager_ms
        if not settings.overlap:
            ms += step.overlap_off_ms
        if settings.kv_fp8:
            ms += self._box.attention.fp8_extra_ms
        if settings.dcp > 1:
            doubled = math.log2(settings.dcp)
            ms += 0.59 + 0.889 * doubled + 0.0773 * rows * doubled
        return ms

    def _experts_ms(self, rows: int) -> float:
        experts = self._box.experts
        if experts is None:
            return 0.0
        touched = experts.pool * (1.0 - (1.0 - experts.active / experts.pool) ** rows)
        factor = experts.triton_factor if self._settings.moe_runner == "triton" else 1.0
        return touched * experts.slot_gb * experts.ms_per_gb * factor * self._share

    def _all_reduce_ms(self, rows: int) -> float:
        reduce = self._box.all_reduce
        if reduce is None or self._links.path == "none":
            return 0.0
        kib = rows * reduce.row_bytes / 1024
        if kib <= self._links.pcie_ipc_limit_kib:
            us = reduce.pcie_ipc_us + reduce.pcie_ipc_us_per_kib * kib
        else:
            us = interpolate(_nccl_table(reduce, self._links.path), kib, logarithmic=True)
            if self._links.many_channels and kib >= _LARGE_MESSAGE_KIB:
                us *= reduce.many_channels_factor
        return reduce.per_step * reduce.scale * us / 1000.0

    def _kv_ms(self, rows: int, context_tokens: float) -> float:
        attention = self._box.attention
        gb = context_tokens * self._kv_gb_per_token * (1.0 + (self._rows - 1) * self._reread)
        few, merge_ms = attention.few_rows, 0.0
        if self._settings.attention_backend == "triton":
            # More splits keep the card busy at few rows, but each has to be merged; few_rows holds at 8.
            splits = max(1, self._settings.kv_splits)
            few *= math.sqrt(_FITTED_SPLITS / splits)
            merge_ms = attention.split_ms * (splits - _FITTED_SPLITS) * rows
        traffic_ms = gb / self._settings.dcp * attention.ms_per_gb * (1.0 + few / max(1, rows))
        return max(0.0, traffic_ms + gb * attention.compute_ms_per_gb + merge_ms)


def _nccl_table(reduce: AllReduce, path: str) -> Table:
    if path == "nccl-bad-graph":
        return reduce.nccl_bad_graph
    return reduce.nccl_all_protocols if path == "nccl-all-protocols" else reduce.nccl_default
