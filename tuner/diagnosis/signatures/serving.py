"""A server that came up, or nearly, and then stopped working."""

from __future__ import annotations

from tuner.diagnosis.failure import Cause, Kind
from tuner.diagnosis.signature import Signature, Weight, action, param
from tuner.sglang.phases import Phase

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="pool bookkeeping",
        kind=Kind.KV_POOL_LEAK,
        literals=("memory leak detected", "pool leak", "token leak", "pool memory leak"),
        pattern=r"(?:pool|allocator|token|slot|mamba|swa|cache)\w*.{0,40}leak",
        unless=r"leaked (?:semaphore|shared_memory|type|function)|nanobind",
        phase=Phase.SERVING,
        certainty=0.96,
    ),
    Signature(
        name="pool or slots exhausted",
        kind=Kind.KV_POOL_EXHAUSTED,
        literals=(
            "out of memory. please set a smaller",
            "decode out of memory",
            "prefill out of memory",
            "alloc_req_slots",
            "out of memory even after retracting",
            "out of memory. try to lower your batch size",
            "extend out of memory",
            "try to lower your batch size",
            "req_to_token_pool",
            "req_pool_indices",
            "not enough space for mamba",
            "mamba pool",
            "swa pool",
            "out of kv cache",
            "cannot be allocated",
            "is longer than the",
            "kv cache capacity",
        ),
        pattern=r"out of memory\. please set a smaller|(?:decode|prefill|extend) out of memory"
        r"|alloc_req_slots runs out"
        r"|out of memory even after retracting|try to lower your batch size|(?:Error|error"
        r"|Exception)\b.*(?:req_to_token_pool|req_pool_indices|not enough space for mamba"
        r"|(?:mamba|swa|kv) pool .{0,30}(?:full|exhaust|out of))"
        r"|req_pool_indices\.cpu\(\)|out of kv cache",
        unless=r"#retracted_reqs",
        in_source=True,
        phase=Phase.SERVING,
        certainty=0.94,
    ),
    Signature(
        name="request can never fit",
        kind=Kind.KV_POOL_EXHAUSTED,
        literals=(
            "exceeds the maximum allowed length",
            "maximum allowed length",
            "larger than the maximum",
            "exceed the kv cache",
        ),
        pattern=r"(?:Error|Exception|abort)\b.*(?:exceeds? the (?:maximum allowed length|kv cache)"
        r"|larger than the maximum)",
        weight=Weight.VERDICT,
        phase=Phase.SERVING,
        certainty=0.6,
        hints=(param("mem_fraction_static", "increase"), param("max_running_requests", "decrease")),
    ),
    Signature(
        name="watchdog",
        kind=Kind.WATCHDOG_TIMEOUT,
        literals=("watchdog timeout (self.watchdog_timeout", "watchdog timeout ("),
        unless=r"soft=True",
        weight=Weight.VERDICT,
        certainty=0.88,
    ),
    Signature(
        name="watchdog's picture of a standing batch",
        kind=Kind.WATCHDOG_TIMEOUT,
        literals=("scheduler debug info:", "cur_batch.batch_size()"),
        weight=Weight.VERDICT,
        certainty=0.7,
    ),
    Signature(
        name="transfer or all-to-all of experts timed out",
        kind=Kind.HANG,
        literals=("cpu recv timeout", "deepep timeout", "deepep error"),
        weight=Weight.VERDICT,
        hints=(param("moe_a2a_backend", "unset"),),
        certainty=0.65,
    ),
    Signature(
        name="not ready in time",
        kind=Kind.HANG,
        literals=("failed to start within", "did not become ready", "server not ready after"),
        weight=Weight.UNSORTED,
        cause=Cause.UNKNOWN,
        certainty=0.5,
    ),
    Signature(
        name="warm-up behind a proxy",
        kind=Kind.WARMUP_FAILED,
        literals=(
            "res=<response [50",
            "squid",
            "proxyerror",
            "cannot connect to proxy",
            "bad gateway",
            "res=<response [40",
            'http/1.1" 403',
            'http/1.1" 50',
            "httpx.invalidurl",
        ),
        pattern=r"res=<Response \[[45]0\d\]>|squid|ProxyError|cannot connect to proxy|bad gateway"
        r"|\"(?:GET|POST) http://\S+ HTTP/1\.1\" (?:403|50\d)|httpx\.InvalidURL",
        near=r"warm_?up|\" http://\S+ |HTTP/1\.1\" (?:403|50\d)",
        weight=Weight.GENERIC,
        phase=Phase.WARMUP,
        cause=Cause.ENVIRONMENT,
        hints=(action("set-no_proxy-for-localhost"),),
        summary="A proxy answered the warm-up request instead of the server: set no_proxy for localhost.",
        certainty=0.92,
    ),
    Signature(
        name="warm-up",
        kind=Kind.WARMUP_FAILED,
        literals=(
            "initialization failed. warmup error",
            "warmup error",
            "_wait_and_warmup",
            "_execute_server_warmup",
            "server warmup failed",
            "warmup failed",
        ),
        in_source=True,
        weight=Weight.VERDICT,
        phase=Phase.WARMUP,
        certainty=0.85,
    ),
    Signature(
        name="tokenizer cannot serve a text",
        kind=Kind.UNSUPPORTED_MODEL,
        literals=("chat template", "chat_template"),
        pattern=r"(?:Error|Exception)\b.*(?:chat.template).*(?:not set|invalid|missing|cannot)",
        weight=Weight.GENERIC,
        certainty=0.5,
    ),
    Signature(
        name="shut down by a signal",
        kind=Kind.KILLED,
        literals=(
            "died due to signal",
            "terminated by signal",
            "received signal",
            "slurmstepd",
            "job was cancelled",
            "preempted",
        ),
        pattern=r"died due to signal|terminated by signal|slurmstepd: error.*(?:cancelled|killed"
        r"|time limit)|(?:received|caught) signal (?:15|2|9|sigterm|sigint|sigkill)\b",
        weight=Weight.AFTERMATH,
        certainty=0.75,
    ),
)
