"""Lines that sound like failures and are none: they are never matched."""

from __future__ import annotations

import re

_HARMLESS = re.compile(
    r"ignore import error"
    r"|can be ignored"
    r"|setup (?:custom|torch|flashinfer)\w*[ -]\S* ?\S* ?failed with"
    r"|disabling flashinfer allreduce fusion"
    r"|failed to initialize flashinfer workspace"
    r"|is disabled because|falling back to (?:nccl|cpu|the|native)|stay on nccl|communicator is not available"
    r"|is unavailable because its dependencies"
    r"|failed to load generation config"
    r"|unexpected error during package walk"
    r"|leaked (?:semaphore|shared_memory|type|function|keep_alive)|nanobind:"
    r"|^KeyError: '/(?:mp|psm|loky)[-_]|resource_tracker"
    r"|pyspy failed|py-spy dump|coredump"
    r"|generator was garbage collected"
    r"|no live scheduler processes"
    r"|destroy_process_group\(\) was not called"
    r"|silent incorrectness"
    r"|cuda kernel errors might be asynchronously|consider passing \w+_LAUNCH_BLOCKING"
    r"|compile with `TORCH_USE_(?:CUDA|HIP)_DSA"
    r"|search for `cuda|open an issue on github|possible solutions"
    r"|^\s*\d\. (?:set|disable|use|try|reduce|lower|decrease)\b"
    r"|^(?!.*(?:OutOfMemoryError|out of memory)).*(?:if reserved but unallocated|expandable_segments)"
    r"|\[repeated \d+x across cluster\]"
    r"|^\s*usage: |^\s*\[-{1,2}\w|^\s+\[?--\w"
    r"|server_args=|^Namespace\(|ServerArgs\((?!\))|launch_command"
    r"|^(?:\S*python\S* -m sglang\S* |sglang serve |command=)"
    r"|token indices sequence length is longer"
    r"|endpoint '\S+' is deprecated"
    r"|performance might be sub-?optimal|config file not found at"
    r"|fail to set rlimit|set_ulimit"
    r"|no kernel tuned|using default moe"
    r"|error code: none|error_count|errors=0|0 errors"
    r"|nccl info",
    re.IGNORECASE,
)
_REQUEST = re.compile(r"^\s*INFO:\s+\S+ - \"(?:GET|POST|PUT|HEAD|OPTIONS) |^(?:Decode|Prefill) batch\b")


def is_noise(text: str) -> bool:
    """Whether a line is known chatter: advice, fall-backs, usage, access logs, dumps of arguments."""
    return _REQUEST.search(text) is not None or _HARMLESS.search(text) is not None
