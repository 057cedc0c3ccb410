"""Memory of the GPU and of the host: too little, or too little left for the pool."""

from __future__ import annotations

from tuner.diagnosis.failure import Cause, Kind
from tuner.diagnosis.signature import Signature, Weight, action, param
from tuner.sglang.phases import Phase

DEVICE_OOM_KINDS = {
    Phase.IMPORT: Kind.GPU_BUSY,
    Phase.DISTRIBUTED_INIT: Kind.GPU_BUSY,
    Phase.WEIGHT_LOAD: Kind.OOM_WEIGHTS,
    Phase.KV_CACHE_ALLOC: Kind.OOM_KV_CACHE,
    Phase.GRAPH_CAPTURE: Kind.OOM_GRAPH_CAPTURE,
    Phase.DRAFT_MODEL: Kind.OOM_DRAFT_MODEL,
}
"""The same words mean different things at different times; while serving and in doubt: oom-serving."""

# The text that announces a shortage also stands in advice, in guesses and in profiler's chatter.
_NOT_A_SHORTAGE = (
    r"out of resource:|\(e\.?g\.?,? ?OOM\)|to avoid (?:an? )?out of memory"
    r"|may (?:cause|lead to) (?:an? )?(?:oom|out of memory)"
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="pinned host memory",
        kind=Kind.HOST_OOM,
        literals=("hostalloc", "hostmalloc", "mallochost", "hostregister", "pin_memory", "pinned memory"),
        pattern=r"out of memory|cudaErrorMemoryAllocation|(?:Host(?:Alloc|Malloc|Register))\b.*\bfailed"
        r"|cannot allocate|failed to (?:pin|register|allocate)"
        r"|CUDA error: (?:invalid argument|OS call failed)",
        certainty=0.8,
    ),
    Signature(
        name="pool has no room: least fraction named",
        kind=Kind.MEM_FRACTION_TOO_LOW,
        literals=("leave no gpu memory for the kv cache", "raise --mem-fraction-static above"),
        phase=Phase.KV_CACHE_ALLOC,
        certainty=0.98,
        since="0.5.14",
    ),
    Signature(
        name="pool has no room",
        kind=Kind.MEM_FRACTION_TOO_LOW,
        literals=(
            "try to increase --mem-fraction-static",
            "increase `--mem-fraction-static`",
            "try increasing --mem-fraction",
        ),
        phase=Phase.KV_CACHE_ALLOC,
        certainty=0.97,
    ),
    Signature(
        name="state cache has no room",
        kind=Kind.MEM_FRACTION_TOO_LOW,
        literals=(
            "not enough gpu memory for hybrid",
            "max_mamba_cache_size=-",
            "mamba cache",
            "max_mamba_cache_size",
        ),
        pattern=r"not enough gpu memory for hybrid|max_mamba_cache_size ?= ?-"
        r"|max_mamba_cache_size.*(?:too small|must be)"
        r"|not enough (?:gpu )?memory for (?:the )?mamba",
        phase=Phase.KV_CACHE_ALLOC,
        certainty=0.95,
        hints=(param("mem_fraction_static", "increase"), param("max_running_requests", "decrease")),
    ),
    Signature(
        name="profiled pool is negative",
        kind=Kind.MEM_FRACTION_TOO_LOW,
        literals=(
            "profiled value",
            "total_rest_memory",
            "max_total_num_tokens",
            "rest_memory",
            "max_num_token",
        ),
        pattern=r"profiled value:? -\d|rest_memory ?[=:] ?-\d|max_(?:total_)?num_tokens?(?:=| is "
        r"|: )(?:-\d|0\b|zero|negative)",
        phase=Phase.KV_CACHE_ALLOC,
        warns=True,
        certainty=0.92,
    ),
    Signature(
        name="the message asks for a larger fraction",
        kind=Kind.MEM_FRACTION_TOO_LOW,
        literals=("mem-fraction", "mem_fraction", "memory fraction"),
        pattern=r"^(?:\w+\.)*\w*(?:Error|Exception): .*\b(?:increas\w+|rais(?:e|ing)|larger"
        r"|higher)\b.{0,40}mem(?:ory)?[-_ ]fraction",
        phase=Phase.KV_CACHE_ALLOC,
        certainty=0.9,
    ),
    Signature(
        name="pool smaller than a request or a page",
        kind=Kind.MEM_FRACTION_TOO_LOW,
        literals=(
            "no available memory for the cache",
            "no available memory for the kv",
            "max_running_request",
            "kv cache",
            "memory pool",
        ),
        pattern=r"no available memory for the (?:kv )?(?:cache|blocks)|max_running_requests? is (?:zero|0)"
        r"|(?:kv cache|memory pool)[^.]{0,40} (?:is )?(?:too small|not enough|insufficient)",
        phase=Phase.KV_CACHE_ALLOC,
        certainty=0.85,
    ),
    Signature(
        name="host pool of the hierarchical cache",
        kind=Kind.HOST_OOM,
        literals=("not enough host memory", "reduce the size of the hierarchical cache"),
        phase=Phase.KV_CACHE_ALLOC,
        hints=(param("hicache_size", "decrease"), param("hicache_ratio", "decrease")),
        certainty=0.97,
    ),
    Signature(
        name="host allocation of the pool refused",
        kind=Kind.HOST_OOM,
        literals=(
            "defaultcpuallocator",
            "unable to mmap",
            "cannot allocate memory",
            "memoryerror",
            "std::bad_alloc",
        ),
        pattern=r"DefaultCPUAllocator|unable to mmap|cannot allocate memory|^(?:\w+\.)*MemoryError\b"
        r"|std::bad_alloc",
        unless=r"/dev/shm|shared memory segment",
        kinds={Phase.KV_CACHE_ALLOC: Kind.OOM_KV_CACHE},
        certainty=0.93,
    ),
    Signature(
        name="no more threads or processes",
        kind=Kind.HOST_OOM,
        literals=("resource temporarily unavailable", "can't start new thread", "pthread_create failed"),
        pattern=r"(?:Error|Exception)\b.*resource temporarily unavailable|can't start new thread"
        r"|pthread_create failed",
        hints=(action("raise-limits-of-memory-and-processes"),),
        cause=Cause.ENVIRONMENT,
        certainty=0.8,
    ),
    Signature(
        name="kernel's OOM killer",
        kind=Kind.HOST_OOM,
        literals=(
            "oom-kill",
            "oom_kill event",
            "been oom killed",
            "out of memory: kill",
            "memory cgroup out of memory",
            "oomkilled",
            "oom killer invoked",
            "oom_reaper",
        ),
        unless=r"common cause is the OS OOM killer",
        certainty=0.95,
    ),
    Signature(
        name="ray's memory monitor",
        kind=Kind.HOST_OOM,
        literals=(
            "ray.exceptions.outofmemoryerror",
            "node running low on memory",
            "workers killed due to memory pressure",
        ),
        certainty=0.92,
    ),
    Signature(
        name="GPU memory unbalanced",
        kind=Kind.GPU_BUSY,
        literals=("memory capacity is unbalanced", "gpus may be occupied by other processes"),
        certainty=0.95,
    ),
    Signature(
        name="GPU memory held before the start",
        kind=Kind.GPU_BUSY,
        literals=(
            "free memory on device",
            "gpu memory usage is not",
            "is already in use by another process",
            "all cuda-capable devices are busy",
            "devices are busy or unavailable",
        ),
        pattern=r"free memory on device.* less than|is already in use by another process"
        r"|devices are busy or unavailable"
        r"|CUDA-capable device\(s\) is/are busy",
        certainty=0.85,
    ),
    Signature(
        name="GPU out of memory",
        kind=Kind.OOM_SERVING,
        literals=(
            "nvml_success == r",
            "out of memory",
            "outofmemoryerror",
            "cuda_error_out_of_memory",
            "cudaerrormemoryallocation",
            "cublas_status_not_initialized",
            "cublas_status_alloc_failed",
            "cudnn_status_alloc_failed",
            "hiperroroutofmemory",
            "failed to cuda calloc",
            "curesult error",
            "tried to allocate",
        ),
        pattern=r"NVML_SUCCESS == r INTERNAL ASSERT FAILED|(?:cuda|hip|npu|xpu|musa"
        r"|gpu)[\w :=.()]{0,40}out of memory"
        r"|(?<!exceptions\.)OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cudaErrorMemoryAllocation|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"
        r"|hipErrorOutOfMemory"
        r"|failed to cuda calloc|CUresult error:? +result=2\b|cuda failure (?:2 )?'out of memory'"
        r"|tried to allocate \d[\d.]* [KMG]i?B",
        unless=_NOT_A_SHORTAGE,
        kinds=DEVICE_OOM_KINDS,
        certainty=0.93,
    ),
    Signature(
        name="the message asks for a smaller fraction",
        kind=Kind.OOM_SERVING,
        literals=("mem-fraction", "mem_fraction", "memory fraction"),
        pattern=r"^(?:\w+\.)*\w*(?:Error|Exception): .*\b(?:lower|reduc\w+|decreas\w+"
        r"|smaller)\b.{0,80}mem(?:ory)?[-_ ]fraction",
        kinds=DEVICE_OOM_KINDS,
        certainty=0.8,
    ),
    Signature(
        name="loading did not keep up",
        kind=Kind.SLOW_WEIGHT_LOAD,
        literals=("could finish the model loading, but there are other ranks", "didn't finish loading"),
        weight=Weight.VERDICT,
        phase=Phase.WEIGHT_LOAD,
        certainty=0.85,
    ),
)
