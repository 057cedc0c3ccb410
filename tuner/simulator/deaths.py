"""The texts with which a server dies: exceptions, their tracebacks, and what the other ranks say to it."""

from __future__ import annotations

import math

from tuner.simulator.box import Box

_ROOT = "/sgl-workspace/sglang/python/sglang/srt"
_FRAMES = {
    "distributed-init": (("model_executor/model_runner.py", "init_torch_distributed"),),
    "weight-load": (
        ("model_executor/model_runner.py", "load_model"),
        ("model_loader/loader.py", "load_model"),
    ),
    "kv-cache-alloc": (("model_executor/model_runner.py", "alloc_memory_pool"),),
    "graph-capture": (
        ("model_executor/model_runner.py", "init_device_graphs"),
        ("model_executor/cuda_graph_runner.py", "__init__"),
    ),
    "serving": (
        ("managers/tp_worker.py", "forward_batch_generation"),
        ("model_executor/model_runner.py", "forward"),
    ),
}


def traceback_in(phase: str, exception: str) -> str:
    """`exception` under a traceback of the scheduler at `phase`."""
    top = "run_event_loop" if phase == "serving" else "__init__"
    frames = (
        ("managers/scheduler.py", "run_scheduler_process"),
        ("managers/scheduler.py", top),
        *_FRAMES[phase],
    )
    lines = [
        f'  File "{_ROOT}/{file}", line {311 + 97 * place}, in {name}'
        for place, (file, name) in enumerate(frames)
    ]
    return "\n".join(["Traceback (most recent call last):", *lines, exception, ""])


def cuda_out_of_memory(box: Box, *, asked_gib: float, free_gib: float) -> str:
    """PyTorch's exception for an allocation that does not fit on GPU 0."""
    total = box.gpus.memory_mib / 1024
    asked = f"{asked_gib * 1024:.2f} MiB" if asked_gib < 1 else f"{asked_gib:.2f} GiB"
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity "
        f"of {total:.2f} GiB of which {free_gib * 1024:.2f} MiB is free. Including non-PyTorch memory, this "
        f"process has {total - free_gib:.2f} GiB memory in use. Of the allocated memory "
        f"{total - free_gib - 2.1:.2f} GiB is allocated by PyTorch, and 318.40 MiB is reserved by PyTorch "
        "but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation. See documentation for "
        "Memory Management (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def no_room_for_cache(box: Box, fraction: float, least_fraction: float) -> str:
    """The exception for a static fraction that leaves no KV pool, in the words of the release."""
    if box.sglang_version.number < 14:
        return (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={fraction}"
        )
    suggested = math.ceil(least_fraction * 1000) / 1000
    return (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under "
        f"--mem-fraction-static={fraction}. Raise --mem-fraction-static above {suggested:.3f} "
        f"(minimum viable = 1 - available/pre = {least_fraction:.4f}). If using speculative decoding, draft "
        "weights are now counted."
    )


def capture_failure(box: Box, cause: str) -> str:
    """What SGLang makes of any RuntimeError during the capture of decode graphs."""
    inner = cause.split(": ", 1)[1]
    old = box.sglang_version.number < 14
    flag = "--cuda-graph-max-bs" if old else "--cuda-graph-max-bs-decode"
    rest = (
        "3. disable torch compile by not using --enable-torch-compile\n"
        "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
        if old
        else "3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. "
        "(Not recommended. Huge performance loss)\n"
    )
    return (
        f"Exception: Capture cuda graph failed: {inner}\n"
        "Possible solutions:\n"
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
        f"2. set {flag} to a smaller value (e.g., 16)\n"
        f"{rest}"
        "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
    )


def unreachable_repository(path: str) -> str:
    """The exception for a model that is neither a folder nor in the cache, on a box without network."""
    if path.startswith("/"):
        return (
            f"OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. "
            "Use `repo_type` argument if needed."
        )
    return (
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them "
        "in the cached files.\nCheck your internet connection or see how to run the library in offline "
        "mode at "
        "'https://huggingface.co/docs/transformers/installation#offline-mode'."
    )


def lost_peer(rank: int) -> str:
    """What a rank raises when the first one to fail has closed its connections."""
    if rank % 2:
        exception = (
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
            "ProcessGroupNCCL.cpp:3690, remote process exited or there was a network error\n"
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
            "prematurely."
        )
    else:
        exception = (
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
            "[127.0.0.1]:53817"
        )
    return traceback_in("distributed-init", exception)


def collective_timeout(ranks: int) -> str:
    """What PyTorch's watchdog prints when a collective never ends, and what the launcher makes of it."""
    lines = [
        f"[rank{rank}]:[E] [PG ID 2 PG GUID 3 Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
        "milliseconds before timing out."
        for rank in range(ranks)
    ]
    return "\n".join(
        [
            *lines,
            "terminate called after throwing an instance of 'c10::DistBackendError'",
            "Traceback (most recent call last):",
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -6). If exit code is -9 "
            "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.",
            "",
        ]
    )
