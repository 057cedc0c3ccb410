"""What a failed trial failed of, in a closed vocabulary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from tuner.sglang.phases import Phase


class Cause(str, Enum):
    """Whose fault it is, which decides what becomes of the trial and of the study."""

    CONFIG = "config"
    """Another point of the space can succeed: the trial is pruned."""
    TRANSIENT = "transient"
    """The same again may succeed: the trial is tried once more."""
    ENVIRONMENT = "environment"
    """Every trial would fail: the study stops."""
    UNKNOWN = "unknown"
    """Nobody can tell from what was seen: treated like `config`."""

    def __str__(self) -> str:
        return self.value


class Kind(str, Enum):
    """What happened. The words are the same in records, in the dashboard and on the screen."""

    OOM_WEIGHTS = "oom-weights"
    OOM_KV_CACHE = "oom-kv-cache"
    OOM_GRAPH_CAPTURE = "oom-graph-capture"
    OOM_DRAFT_MODEL = "oom-draft-model"
    OOM_SERVING = "oom-serving"
    MEM_FRACTION_TOO_LOW = "mem-fraction-too-low"
    KV_POOL_EXHAUSTED = "kv-pool-exhausted"
    KV_POOL_LEAK = "kv-pool-leak"
    GPU_BUSY = "gpu-busy"
    GPU_LOST = "gpu-lost"
    HOST_OOM = "host-oom"
    SHM_TOO_SMALL = "shm-too-small"
    DISK_FULL = "disk-full"
    KILLED = "killed"
    INVALID_ARGUMENTS = "invalid-arguments"
    ASSERTION = "assertion"
    INDIVISIBLE = "indivisible"
    INCOMPATIBLE_OPTIONS = "incompatible-options"
    ARCH_UNSUPPORTED = "arch-unsupported"
    BACKEND_UNSUPPORTED = "backend-unsupported"
    ALLREDUCE_UNSUPPORTED = "allreduce-unsupported"
    KERNEL_RESOURCES = "kernel-resources"
    KERNEL_FAULT = "kernel-fault"
    JIT_COMPILE = "jit-compile"
    NCCL = "nccl"
    RENDEZVOUS = "rendezvous"
    PEER_LOST = "peer-lost"
    DEPENDENCY_MISMATCH = "dependency-mismatch"
    DRIVER_MISMATCH = "driver-mismatch"
    MODEL_ACCESS = "model-access"
    UNSUPPORTED_MODEL = "unsupported-model"
    UNSUPPORTED_QUANTIZATION = "unsupported-quantization"
    PORT_IN_USE = "port-in-use"
    WATCHDOG_TIMEOUT = "watchdog-timeout"
    SLOW_WEIGHT_LOAD = "slow-weight-load"
    WARMUP_FAILED = "warmup-failed"
    HANG = "hang"
    SCHEDULER_DIED = "scheduler-died"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"
    # These two come from measuring and never from reading a log.
    WRONG_OUTPUT = "wrong-output"
    SLOW = "slow"
    # The load could not be put on a server that lives (failed requests twice over).
    MEASUREMENT_VOID = "measurement-void"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Evidence:
    """A line of the log, and its number (from 1; 0 where it is no log line)."""

    line: int
    text: str


@dataclass(frozen=True)
class Hint:
    """What to change: a parameter, a variable or an action, with a direction and perhaps a value.

    `direction` is one of increase, decrease, set, unset, change.
    """

    target: str
    name: str
    direction: str
    value: int | float | str | bool | None = None

    def to_json(self) -> dict[str, Any]:
        """`{param|env|action: name, direction, value?}`."""
        shown: dict[str, Any] = {self.target: self.name, "direction": self.direction}
        if self.value is not None:
            shown["value"] = self.value
        return shown


@dataclass(frozen=True)
class Failure:
    """The diagnosis of a failed launch.

    `certainty` is how often a diagnosis that is said with it is right (0 to 1). `shortage_gib` is how much
    memory was missing, where the messages tell.
    """

    kind: Kind
    cause: Cause
    phase: Phase | None
    summary: str
    evidence: tuple[Evidence, ...] = ()
    hints: tuple[Hint, ...] = ()
    certainty: float = 0.5
    shortage_gib: float | None = None
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def telling_line(self) -> str:
        """The one log line that says most, or the empty string."""
        return self.evidence[0].text if self.evidence else ""

    def to_json(self) -> dict[str, Any]:
        """The failure for records and for `diagnose --json`."""
        return {
            "kind": str(self.kind),
            "cause": str(self.cause),
            "phase": str(self.phase) if self.phase is not None else None,
            "evidence": [asdict(line) for line in self.evidence],
            "hints": [hint.to_json() for hint in self.hints],
            "summary": self.summary,
            "certainty": round(self.certainty, 3),
            "shortage_gib": self.shortage_gib,
        }
