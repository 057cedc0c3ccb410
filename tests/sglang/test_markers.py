# log lines are quoted whole
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.sglang.markers import Marker, mark_of

LINES: list[tuple[str, Marker]] = [
    ("server_args=ServerArgs(model_path='/m', tp_size=2)", Marker.ARGUMENTS),
    ("server_args={'model_path': '/m'}", Marker.ARGUMENTS),
    ("Init torch distributed begin.", Marker.DISTRIBUTED_BEGIN),
    ("Init parallel begin.", Marker.DISTRIBUTED_BEGIN),
    ("Init nccl begin.", Marker.DISTRIBUTED_BEGIN),
    ("Load weight begin. avail mem=78.50 GB", Marker.WEIGHTS_BEGIN),
    ("Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03]", Marker.WEIGHTS_PROGRESS),
    ("Multi-thread loading shards:  12% Completed | 8/64 [00:03<00:31]", Marker.WEIGHTS_PROGRESS),
    ("Loading pt checkpoint shards: 100% Comple", Marker.WEIGHTS_PROGRESS),
    ("Load weight end. elapsed=41.30 s, type=X, avail mem=20.98 GB, mem usage=72.92 GB.", Marker.WEIGHTS_END),
    ("Load weight end. Committed real weights after CUDA graph capture in 3.10 s", Marker.WEIGHTS_END),
    ("KV Cache is allocated. #tokens: 353268, K size: 21.56 GB, V size: 21.56 GB", Marker.KV_POOL),
    ("Target KV Cache is allocated. dtype: torch.bfloat16, #tokens: 9, KV size: 8.78 GB", Marker.KV_POOL),
    ("KV Cache is allocated. K size: 27.13 GB, V size: 27.13 GB.", Marker.OTHER_POOL),
    ("Mamba Cache is allocated. max_mamba_cache_size: 36", Marker.OTHER_POOL),
    ("Memory pool end. avail mem=19.84 GB", Marker.POOLS_END),
    ("Capture cuda graph begin. This can take up to several minutes.", Marker.GRAPHS_BEGIN),
    ("Capture target verify CUDA graph begin. backend=full", Marker.GRAPHS_BEGIN),
    (
        "Capturing batches (bs=8 avail_mem=18.99 GB):  25%|██▌       | 1/4 [00:01<00:03]",
        Marker.GRAPHS_PROGRESS,
    ),
    ("Capturing batches (bs=4 avail_mem=26.85 GB): 0%", Marker.GRAPHS_PROGRESS),
    ("Capture cuda graph end. Time elapsed: 9.51 s. mem usage=0.60 GB.", Marker.GRAPHS_END),
    ("Entering DeepGEMM JIT Pre-Compile session.", Marker.JIT_BEGIN),
    ("Running FlashInfer autotune with cache: /root/.cache/x", Marker.JIT_BEGIN),
    ("ninja: Entering directory `/root/.cache/flashinfer'", Marker.JIT_BEGIN),
    ("DeepGEMM warmup:  50%|█████     | 8/16 [00:01<00:01]", Marker.JIT_PROGRESS),
    ("FlashInfer autotune completed.", Marker.JIT_END),
    (
        "max_total_num_tokens=9, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=131072",
        Marker.LIMITS,
    ),
    ("INFO:     Application startup complete.", Marker.HTTP_STARTS),
    ("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)", Marker.HTTP_STARTS),
    ("The server is fired up and ready to roll!", Marker.READY),
    ("Decode batch. #running-req: 1, #token: 9, gen throughput (token/s): 1.06", Marker.BATCH),
    ("Prefill batch [12], #new-seq: 1, #new-token: 7", Marker.BATCH),
    ("KV cache pool is full. Retract requests. #retracted_reqs: 3", Marker.RETRACTION),
    ("Decode out of memory happened. #retracted_reqs: 1", Marker.RETRACTION),
    ("SIGTERM received. signum=None frame=None.", Marker.SHUTDOWN),
    ("Gracefully exiting... remaining number of requests 0", Marker.SHUTDOWN),
]


@pytest.mark.parametrize(("line", "marker"), LINES)
def test_a_line_says_where_the_server_stands(line: str, marker: Marker) -> None:
    mark = mark_of(line)
    assert mark is not None
    assert mark[0] is marker


def test_every_marker_has_a_line() -> None:
    assert {marker for _, marker in LINES} == set(Marker)


@pytest.mark.parametrize(
    "line",
    [
        "Init torch distributed ends. mem usage=0.51 GB",
        "Registering 290 cuda graph addresses",
        "Capture cuda graph failed: CUDA out of memory",
        "the server was not fired up and ready to roll",
        'INFO:     127.0.0.1:4711 - "POST /generate HTTP/1.1" 200 OK',
        "Using KV cache dtype: torch.bfloat16",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert mark_of(line) is None


@given(st.text(max_size=80), st.sampled_from([line for line, _ in LINES]), st.integers(0, 120))
def test_any_line_can_be_read(garbage: str, line: str, cut: int) -> None:
    for text in (garbage, line[:cut], garbage + line, line + garbage):
        mark_of(text)
