"""What a launch comes to: the values that speed, memory and behaviour of a server follow from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding: `steps` draft passes of `topk` branches, `draft_tokens` rows verified a step.

    `draft_path` None means that no draft model was named: SGLang then loads the target a second time.
    """

    algorithm: str
    steps: int
    topk: int
    draft_tokens: int
    draft_path: str | None

    @property
    def has_model(self) -> bool:
        """Whether a second model is loaded."""
        return self.algorithm != "NGRAM"


@dataclass(frozen=True)
class Settings:
    """The resolved launch. `graph_sizes` is empty when decode graphs are off; `arguments` is what
    `/server_info` shows; `warnings` are the lines to print before it."""

    host: str
    port: int
    model_path: str
    model_name: str
    tp: int
    pp: int
    replicas: int
    attention_dp: int
    dcp: int
    attention_backend: str
    moe_runner: str
    kv_fp8: bool
    kv_splits: int
    mem_fraction: float
    max_total_tokens: int | None
    max_running: int | None
    chunk_tokens: int
    max_prefill_tokens: int
    context_length: int
    graph_sizes: tuple[int, ...]
    prefill_graph: bool
    speculation: Speculation | None
    overlap: bool
    mixed_chunk: bool
    radix_cache: bool
    conservativeness: float
    stream_interval: int
    decode_log_interval: int
    custom_all_reduce: bool
    fast_loading: bool
    dummy_weights: bool
    skip_warmup: bool
    api_key: str | None
    arguments: dict[str, Any] = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def largest_graph(self) -> int:
        """The largest captured batch; 0 without graphs."""
        return max(self.graph_sizes, default=0)

    @property
    def ranks(self) -> int:
        """Cards that the launch uses."""
        return self.tp * self.pp * self.replicas

    @property
    def rows_per_request(self) -> int:
        """Query tokens of one request in a decode step."""
        return self.speculation.draft_tokens if self.speculation else 1
