"""How fast a foreign box is, what it has room for and what kills it: plain functions, standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass

FREE_GIB = 94.0
WEIGHTS_GIB = 72.0
DRAFT_GIB = 1.5
KV_KIB_A_TOKEN = 69.0
ACCEPTED = (0.66, 0.45, 0.30, 0.18, 0.10)
"""The share of drafts that is accepted, by their place."""


@dataclass(frozen=True)
class Launch:
    """A launch as the box sees it: flags and variables, resolved."""

    graph_batch: int = 512
    memory_fraction: float | None = None
    requests: int | None = None
    chunk: int = 8192
    fp8: bool = False
    all_reduce: str = "custom"
    protocol: str = ""
    algorithm: str = ""
    p2p: str = ""
    channels: int = 0
    steps: int = 0
    attention: str = "triton"
    moe: str = "marlin"
    experts: int = 1
    decode_steps: int = 1
    conservativeness: float = 1.0

    @property
    def fraction(self) -> float:
        """The share of the card for weights and pool; the engine's own guess knows nothing of drafts."""
        return 0.815 if self.memory_fraction is None else self.memory_fraction

    @property
    def pool_gib(self) -> float:
        """What is left for the KV cache; negative where the weights do not even fit."""
        return self.fraction * FREE_GIB - WEIGHTS_GIB - (DRAFT_GIB if self.steps else 0.0)

    @property
    def tokens(self) -> int:
        """The KV cache in tokens."""
        return int(self.pool_gib * 2**20 / (KV_KIB_A_TOKEN / (2 if self.fp8 else 1)))

    @property
    def graphs_gib(self) -> float:
        """What captured graphs take."""
        return 0.6 + 0.010 * self.graph_batch * (1.6 if self.steps else 1.0) + 0.2 * self.steps

    @property
    def rest_gib(self) -> float:
        """What is left beside the pool once graphs are captured; a prefill still needs room in it."""
        return (1 - self.fraction) * FREE_GIB - 1.5 - self.graphs_gib

    @property
    def running(self) -> int:
        """How many requests run at once."""
        return min(self.requests or (48 if self.steps else 2048), max(self.tokens // 2, 1))

    @property
    def accepted(self) -> float:
        """Tokens of a step."""
        return 1.0 + sum(ACCEPTED[: self.steps])

    def step_ms(self, batch: int) -> float:
        """Milliseconds of one step of a batch."""
        rows = batch * (self.steps + 1)
        reduce_ms = {
            "nccl": 3.1 + 0.045 * rows,
            "custom": 3.2 + 0.050 * rows,
            "ipc": 1.7 + 0.110 * rows,
            "mscclpp": 2.9 + 0.06 * rows,
        }.get(self.all_reduce, 3.2 + 0.05 * rows)
        if self.all_reduce != "ipc":
            reduce_ms *= {"LL": 1.10, "LL128": 0.86, "LL,LL128,Simple": 0.88}.get(self.protocol, 1.0)
            reduce_ms *= 1.15 if self.algorithm == "Tree" else 1.0
            reduce_ms *= {8: 0.96, 16: 1.05}.get(self.channels, 1.0)
        step: float = 6.4 + reduce_ms + 1.5 * min(rows, 40) ** 0.55 + 0.05 * rows + 1.0 * self.steps
        step += min(max(math.log2(self.graph_batch / 128) / 2, 0.0), 1.0)
        if batch > self.graph_batch:
            step += 11.0
        step *= {"flashinfer": 0.94, "triton": 1.0, "torch_native": 1.4}.get(self.attention, 1.0)
        step *= {"triton": 1.06}.get(self.moe, 1.0)
        step *= 4.0 if self.fp8 else 1.0
        step -= 0.15 * min(self.decode_steps - 1, 2)
        return step

    def tok_s(self, concurrency: int) -> float:
        """True decode throughput, where it runs at all."""
        batch = min(concurrency, self.running)
        return 1000.0 * batch * self.accepted / self.step_ms(batch)
