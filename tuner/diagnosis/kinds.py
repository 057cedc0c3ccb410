"""What each kind means by default: whose fault it is, what to change, and how to say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.diagnosis.failure import Cause, Hint, Kind
from tuner.diagnosis.signature import action, param


@dataclass(frozen=True)
class Meaning:
    """The usual cause, cures (best first) and sentence of a kind; a signature may say otherwise."""

    cause: Cause
    summary: str
    hints: tuple[Hint, ...] = ()


_CONFIG, _ENVIRONMENT, _TRANSIENT, _UNKNOWN = Cause.CONFIG, Cause.ENVIRONMENT, Cause.TRANSIENT, Cause.UNKNOWN

MEANINGS: Mapping[Kind, Meaning] = {
    Kind.OOM_WEIGHTS: Meaning(
        _CONFIG,
        "The weights do not fit into the memory of the GPUs.",
        (param("tp_size", "increase"), param("quantization", "change"), param("cpu_offload_gb", "increase")),
    ),
    Kind.OOM_KV_CACHE: Meaning(
        _CONFIG,
        "The KV pool that the memory fraction allows does not fit into what is free.",
        (
            param("mem_fraction_static", "decrease"),
            param("max_total_tokens", "decrease"),
            param("tp_size", "increase"),
        ),
    ),
    Kind.OOM_GRAPH_CAPTURE: Meaning(
        _CONFIG,
        "The GPU ran out of memory while CUDA graphs were captured.",
        (param("mem_fraction_static", "decrease"), param("cuda_graph_max_bs", "decrease")),
    ),
    Kind.OOM_DRAFT_MODEL: Meaning(
        _CONFIG,
        "The draft model or its KV pool does not fit beside the target model.",
        (
            param("mem_fraction_static", "decrease"),
            param("speculative_draft_model_quantization", "set"),
            param("speculative_algorithm", "unset"),
        ),
    ),
    Kind.OOM_SERVING: Meaning(
        _CONFIG,
        "The GPU ran out of memory while serving: the static part leaves too little for activations.",
        (
            param("mem_fraction_static", "decrease"),
            param("chunked_prefill_size", "decrease"),
            param("max_running_requests", "decrease"),
        ),
    ),
    Kind.MEM_FRACTION_TOO_LOW: Meaning(
        _CONFIG,
        "After the weights the memory fraction leaves no room for the KV cache.",
        (param("mem_fraction_static", "increase"), param("tp_size", "increase")),
    ),
    Kind.KV_POOL_EXHAUSTED: Meaning(
        _CONFIG,
        "The KV pool or its request slots ran out under the load.",
        (param("max_running_requests", "decrease"), param("mem_fraction_static", "increase")),
    ),
    Kind.KV_POOL_LEAK: Meaning(
        _CONFIG,
        "The server's own bookkeeping of the KV pool did not add up; it is no lack of memory.",
        (param("page_size", "decrease"), param("enable_mixed_chunk", "unset")),
    ),
    Kind.GPU_BUSY: Meaning(
        _TRANSIENT,
        "Somebody else holds memory of a GPU: perhaps a server that is still dying.",
        (action("free-the-gpus"),),
    ),
    Kind.GPU_LOST: Meaning(
        _ENVIRONMENT, "A GPU fell off the bus or reported a hardware fault.", (action("check-the-gpu"),)
    ),
    Kind.HOST_OOM: Meaning(
        _CONFIG,
        "The host ran out of memory.",
        (
            param("hicache_size", "decrease"),
            param("cpu_offload_gb", "decrease"),
            action("reduce-host-memory"),
        ),
    ),
    Kind.SHM_TOO_SMALL: Meaning(
        _ENVIRONMENT,
        "/dev/shm is too small (container: --shm-size or --ipc=host).",
        (action("enlarge-dev-shm"),),
    ),
    Kind.DISK_FULL: Meaning(_ENVIRONMENT, "A disk or a quota is full.", (action("free-disk-space"),)),
    Kind.KILLED: Meaning(_TRANSIENT, "Something outside ended the server with a signal."),
    Kind.INVALID_ARGUMENTS: Meaning(_CONFIG, "The server does not accept its arguments."),
    Kind.ASSERTION: Meaning(_CONFIG, "A check inside the server failed."),
    Kind.INDIVISIBLE: Meaning(
        _CONFIG,
        "A size does not divide by the degree of parallelism, the page or the block.",
        (param("tp_size", "change"),),
    ),
    Kind.INCOMPATIBLE_OPTIONS: Meaning(_CONFIG, "Options that do not work together."),
    Kind.ARCH_UNSUPPORTED: Meaning(
        _ENVIRONMENT,
        "The installed kernels have no code for this GPU.",
        (action("install-kernels-for-this-gpu"),),
    ),
    Kind.BACKEND_UNSUPPORTED: Meaning(
        _CONFIG,
        "The chosen backend does not work on this GPU or for this model.",
        (param("attention_backend", "change"),),
    ),
    Kind.ALLREDUCE_UNSUPPORTED: Meaning(
        _CONFIG,
        "The chosen all-reduce does not work between these GPUs.",
        (param("disable_custom_all_reduce", "set", True),),
    ),
    Kind.KERNEL_RESOURCES: Meaning(
        _CONFIG,
        "A kernel asks for more shared memory or workspace than there is.",
        (param("attention_backend", "change"), param("moe_runner_backend", "change")),
    ),
    Kind.KERNEL_FAULT: Meaning(
        _CONFIG,
        "A kernel touched memory that is not its own, or its assertion failed.",
        (param("attention_backend", "change"), param("disable_cuda_graph", "set", True)),
    ),
    Kind.JIT_COMPILE: Meaning(
        _ENVIRONMENT, "A kernel could not be compiled on this machine.", (action("mend-the-compiler"),)
    ),
    Kind.NCCL: Meaning(
        _ENVIRONMENT,
        "The collective library failed; NCCL_DEBUG=INFO shows more.",
        (action("rerun-with-NCCL_DEBUG"),),
    ),
    Kind.RENDEZVOUS: Meaning(
        _ENVIRONMENT, "The processes did not find each other.", (action("check-addresses-and-interfaces"),)
    ),
    Kind.PEER_LOST: Meaning(
        _TRANSIENT,
        "A peer died first; only the consequence is visible here.",
        (action("look-at-the-other-ranks"),),
    ),
    Kind.DEPENDENCY_MISMATCH: Meaning(
        _ENVIRONMENT, "Installed packages do not fit each other.", (action("mend-the-installation"),)
    ),
    Kind.DRIVER_MISMATCH: Meaning(
        _ENVIRONMENT, "No usable GPU driver for this build.", (action("mend-the-driver"),)
    ),
    Kind.MODEL_ACCESS: Meaning(
        _ENVIRONMENT, "Files of the model cannot be read or fetched.", (action("provide-the-model-files"),)
    ),
    Kind.UNSUPPORTED_MODEL: Meaning(
        _ENVIRONMENT, "This version cannot serve this model.", (action("change-version-or-model"),)
    ),
    Kind.UNSUPPORTED_QUANTIZATION: Meaning(
        _CONFIG, "The quantisation does not fit the model or the GPU.", (param("quantization", "change"),)
    ),
    Kind.PORT_IN_USE: Meaning(
        _TRANSIENT, "A port that the server needs is taken.", (param("port", "change"),)
    ),
    Kind.WATCHDOG_TIMEOUT: Meaning(
        _CONFIG,
        "The server's own watchdog saw no progress of a batch.",
        (param("max_running_requests", "decrease"), param("watchdog_timeout", "increase")),
    ),
    Kind.SLOW_WEIGHT_LOAD: Meaning(
        _TRANSIENT, "The weights were not loaded in time.", (action("retry-with-warm-page-cache"),)
    ),
    Kind.WARMUP_FAILED: Meaning(
        _CONFIG,
        "The server came up but its warm-up request failed.",
        (param("attention_backend", "change"),),
    ),
    Kind.HANG: Meaning(_CONFIG, "The server stopped making progress without an error."),
    Kind.SCHEDULER_DIED: Meaning(_UNKNOWN, "A scheduler process died and its reason is not in this log."),
    Kind.HEALTHY: Meaning(_UNKNOWN, "No failure in this log."),
    Kind.UNKNOWN: Meaning(_UNKNOWN, "The log does not tell why the server ended."),
}
