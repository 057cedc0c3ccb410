"""How long a phase of a start may go without a sign of life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.sglang.phases import Phase

DEFAULT_SILENCE_S: Mapping[Phase, float] = {
    Phase.ARGUMENTS: 120.0,
    Phase.IMPORT: 120.0,
    Phase.DISTRIBUTED_INIT: 180.0,
    Phase.WEIGHT_LOAD: 300.0,
    Phase.DRAFT_MODEL: 300.0,
    Phase.KV_CACHE_ALLOC: 120.0,
    # Compilers may print nothing for many minutes (DeepGEMM says 10 to 20).
    Phase.JIT_COMPILE: 1800.0,
    Phase.GRAPH_CAPTURE: 300.0,
    Phase.WARMUP: 600.0,
    Phase.READY: 600.0,
    Phase.SERVING: 600.0,
    Phase.SHUTDOWN: 120.0,
}


@dataclass(frozen=True)
class StallLimits:
    """When a start counts as stalled. A phase that makes progress may take its time.

    `silence_s`: per phase, how long there may be no sign of life at all: no log output, no CPU time above
    `idle_cpu_share`, no disk reads, no change of GPU memory. A process that only burns CPU (a deadlock in a
    busy wait) gets `busy_factor` times as long. `idle_cpu_share` is in CPU seconds per second, over the whole
    process tree; hung servers still poll a little. `ready_limit_s` bounds the whole start, `proof_limit_s`
    the first real token after the ready line, kernels compiled on first use included.
    """

    silence_s: Mapping[Phase, float] = field(default_factory=lambda: dict(DEFAULT_SILENCE_S))
    busy_factor: float = 3.0
    idle_cpu_share: float = 0.05
    ready_limit_s: float = 5400.0
    proof_limit_s: float = 600.0

    def of(self, phase: Phase) -> float:
        """The limit of a phase, in seconds; phases that are not listed have their default."""
        return self.silence_s.get(phase, DEFAULT_SILENCE_S.get(phase, 300.0))
