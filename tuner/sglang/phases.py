"""The phases of a server's life, in the words used everywhere."""

from __future__ import annotations

from enum import Enum


class Phase(str, Enum):
    """Where a server stands. The order of the middle ones differs by version."""

    ARGUMENTS = "arguments"
    IMPORT = "import"
    DISTRIBUTED_INIT = "distributed-init"
    WEIGHT_LOAD = "weight-load"
    DRAFT_MODEL = "draft-model"
    KV_CACHE_ALLOC = "kv-cache-alloc"
    JIT_COMPILE = "jit-compile"
    GRAPH_CAPTURE = "graph-capture"
    WARMUP = "warmup"
    READY = "ready"
    SERVING = "serving"
    SHUTDOWN = "shutdown"
    GONE = "gone"

    def __str__(self) -> str:
        return self.value


BEFORE_WEIGHTS = (Phase.ARGUMENTS, Phase.IMPORT, Phase.DISTRIBUTED_INIT)
"""Phases in which a death cost little: the weights were not being loaded yet."""
