# log lines are quoted whole
from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.sglang.events import (
    DecodeBatch,
    GraphsCaptured,
    KvAllocated,
    Limits,
    LogEvent,
    PhaseSeen,
    PortBusy,
    PrefillBatch,
    Progress,
    ReadyLine,
    Retraction,
    WeightsLoaded,
    leads,
)
from tuner.sglang.log import LogReader
from tuner.sglang.phases import Phase

Event = TypeVar("Event")

AT = "[2026-03-01 12:00:00"


def events_of(*lines: str) -> list[LogEvent]:
    reader = LogReader()
    return [*reader.feed("".join(f"{line}\n" for line in lines).encode()), *reader.finish()]


def only(kind: type[Event], *lines: str) -> Event:
    found = [event for event in events_of(*lines) if isinstance(event, kind)]
    assert len(found) == 1, found
    return found[0]


def phases_of(*lines: str, rank: str | None = None) -> list[str]:
    seen = [event for event in events_of(*lines) if isinstance(event, PhaseSeen)]
    return [str(event.phase) for event in seen if rank is None or event.rank == rank]


# --- phases ----------------------------------------------------------------------------------------------

START_0_4_6 = (
    f"{AT}] server_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE', tp_size=2)",
    f"{AT} TP0] Init torch distributed begin.",
    f"{AT} TP0] Init torch distributed ends. mem usage=0.51 GB",
    f"{AT} TP0] Load weight begin. avail mem=78.50 GB",
    "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03,  1.9it/s]",
    f"{AT} TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.40 GB, mem usage=15.10 GB.",
    f"{AT} TP0] KV Cache is allocated. #tokens: 353268, K size: 21.56 GB, V size: 21.56 GB",
    f"{AT} TP0] Memory pool end. avail mem=19.84 GB",
    f"{AT} TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=19.26 GB",
    "Capturing batches (bs=8 avail_mem=18.99 GB):  25%|██▌       | 1/4 [00:01<00:03,  1.1s/it]",
    f"{AT} TP0] Registering 290 cuda graph addresses",
    f"{AT} TP0] Capture cuda graph end. Time elapsed: 9.51 s. mem usage=0.60 GB. avail mem=18.66 GB.",
    f"{AT} TP0] Init torch distributed begin.",
    f"{AT} TP0] Load weight begin. avail mem=18.60 GB",
    "Loading pt checkpoint shards: 100% Completed | 1/1 [00:00<00:00,  3.1it/s]",
    f"{AT} TP0] Load weight end. type=LlamaForCausalLMEagle, dtype=torch.float16, avail mem=17.10 GB, mem usage=1.50 GB.",
    f"{AT} TP0] KV Cache is allocated. #tokens: 353268, K size: 0.67 GB, V size: 0.67 GB",
    f"{AT} TP0] Capture draft cuda graph begin. This can take up to several minutes. avail mem=15.70 GB",
    f"{AT} TP0] Capture draft cuda graph end. Time elapsed: 3.10 s. avail mem=15.50 GB.",
    f"{AT} TP0] max_total_num_tokens=353268, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=48, context_len=131072",
    f"{AT}] INFO:     Started server process [4711]",
    f"{AT}] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    f"{AT} TP0] Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0",
    f"{AT}] The server is fired up and ready to roll!",
    f"{AT} TP0] Prefill batch. #new-seq: 1, #new-token: 9, #cached-token: 1, token usage: 0.00, #running-req: 0, #queue-req: 0",
    f"{AT}] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
    f"{AT} TP0] Decode batch. #running-req: 1, #token: 9, token usage: 0.00, gen throughput (token/s): 1.06, #queue-req: 0",
)

START_0_5_23 = (
    "  Example: sglang serve --model-path <model> [options]",
    f"{AT}] server_args={{'model_path': '/m', 'speculative_algorithm': 'EAGLE3', 'cuda_graph_config': {{}}}}",
    f"{AT} TP0 EP0] Init parallel begin.",
    f"{AT} TP0 EP0] Init parallel ends. elapsed=4.02 s",
    f"{AT} TP0 EP0] Memory baseline taken. mem usage=0.61 GB",
    f"{AT} TP0 EP0] Load weight begin. avail mem=93.90 GB",
    "Multi-thread loading shards:  12% Completed | 8/64 [00:03<00:31,  1.9it/s]",
    f"{AT} TP0 EP0] Load weight end. elapsed=41.30 s, type=KimiK25ForConditionalGeneration, quant=compressed-tensors, "
    "avail mem=20.98 GB, mem usage=72.92 GB.",
    f"{AT} TP0 EP0] Load weight begin. avail mem=20.98 GB",
    f"{AT} TP0 EP0] Load weight end. elapsed=2.00 s, type=LlamaForCausalLMEagle3, avail mem=19.70 GB, mem usage=1.28 GB.",
    f"{AT} TP0 EP0] Target KV Cache is allocated. dtype: torch.bfloat16, #tokens: 134144, KV size: 8.78 GB",
    f"{AT} TP0 EP0] Memory pool end. avail mem=10.70 GB",
    f"{AT} TP0 EP0] Running FlashInfer autotune with cache: /root/.cache/x",
    f"{AT} TP0 EP0] FlashInfer autotune completed.",
    f"{AT} TP0 EP0] Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=10.10 GB",
    "Capturing batches (bs=128 avail_mem=9.91 GB):   0%|          | 0/35 [00:00<?, ?it/s]",
    f"{AT} TP0 EP0] Capture target verify CUDA graph end. bs=[1, 2, 4], elapsed=31.20 s, mem usage=1.20 GB, avail mem=8.90 GB.",
    f"{AT} TP0 EP0] max_total_num_tokens=134144, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=48, context_len=262144, available_gpu_mem=8.85 GB",
    f"{AT}] INFO:     Application startup complete.",
    f"{AT}] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    f"{AT}] The server is fired up and ready to roll!",
)


def test_the_old_order_target_complete_before_the_draft() -> None:
    assert phases_of(*START_0_4_6) == [
        *("import", "distributed-init", "weight-load", "kv-cache-alloc", "graph-capture"),
        *("draft-model", "graph-capture", "warmup", "ready", "serving", "shutdown"),
    ]


def test_the_new_order_all_weights_before_the_pools() -> None:
    assert phases_of(*START_0_5_23) == [
        *("import", "distributed-init", "weight-load", "draft-model", "kv-cache-alloc", "jit-compile"),
        *("kv-cache-alloc", "graph-capture", "warmup", "ready"),
    ]


def test_what_was_loaded_allocated_and_captured_is_told() -> None:
    loaded = [event for event in events_of(*START_0_5_23) if isinstance(event, WeightsLoaded)]
    assert loaded == [
        WeightsLoaded("TP0 EP0", False, 41.3, 72.92, 20.98),
        WeightsLoaded("TP0 EP0", True, 2.0, 1.28, 19.7),
    ]
    pool = only(KvAllocated, *START_0_5_23)
    assert pool == KvAllocated("TP0 EP0", "Target", 134144, 8.78, "torch.bfloat16")
    assert only(GraphsCaptured, *START_0_5_23) == GraphsCaptured("TP0 EP0", "target verify", 31.2, 1.2, 8.9)
    assert only(Limits, *START_0_5_23) == Limits("TP0 EP0", 134144, 8192, 16384, 48, 262144, 8.85)


def test_old_lines_tell_what_they_hold() -> None:
    loaded = [event for event in events_of(*START_0_4_6) if isinstance(event, WeightsLoaded)]
    assert [(event.draft, event.seconds, event.weights_gib) for event in loaded] == [
        (False, None, 15.1),
        (True, None, 1.5),
    ]
    pools = [event for event in events_of(*START_0_4_6) if isinstance(event, KvAllocated)]
    assert [(pool.tokens, pool.size_gib) for pool in pools] == [(353268, 43.12), (353268, 1.34)]
    graphs = [event for event in events_of(*START_0_4_6) if isinstance(event, GraphsCaptured)]
    assert [(graph.what, graph.seconds, graph.memory_gib) for graph in graphs] == [
        ("", 9.51, 0.6),
        ("draft", 3.1, None),
    ]


def test_progress_is_counted_under_its_phase() -> None:
    counted = [event for event in events_of(*START_0_4_6) if isinstance(event, Progress)]
    assert counted == [
        Progress(Phase.WEIGHT_LOAD, 2, 4),
        Progress(Phase.GRAPH_CAPTURE, 1, 4),
        Progress(Phase.DRAFT_MODEL, 1, 1),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins)",
        "Running FlashInfer autotune with cache: /root/.cache/sglang",
        "ninja: Entering directory `/root/.cache/flashinfer'",
    ],
)
def test_compiling_is_a_phase_of_its_own_and_capture_resumes_after_it(line: str) -> None:
    assert phases_of(
        f"{AT} TP0] Capture cuda graph begin. avail mem=9.00 GB",
        f"{AT} TP0] {line}" if not line.startswith("ninja") else line,
        "Capturing batches (bs=1 avail_mem=9.00 GB):  50%|█████     | 1/2 [00:01<00:01]",
    ) == ["graph-capture", "jit-compile", "graph-capture"]


def test_a_draft_that_needs_no_weights_is_not_awaited() -> None:
    lines = (
        f"{AT}] server_args={{'speculative_algorithm': 'NGRAM', 'cuda_graph_config': {{}}}}",
        f"{AT}] Load weight begin. avail mem=9.00 GB",
        f"{AT}] Load weight end. elapsed=1.0 s, type=X, avail mem=1.00 GB, mem usage=8.00 GB.",
    )
    assert phases_of(*lines) == ["import", "weight-load", "kv-cache-alloc"]


def test_weights_that_are_committed_after_the_graphs_do_not_turn_the_phase_back() -> None:
    reader = LogReader()
    reader.feed(f"{AT}] Capture target decode CUDA graph begin. backend=full, avail mem=9.00 GB\n".encode())
    reader.feed(
        f"{AT}] Load weight end. Committed real weights after CUDA graph capture in 3.10 s\n".encode()
    )
    assert reader.phase is Phase.GRAPH_CAPTURE


# --- ranks -----------------------------------------------------------------------------------------------


def test_every_rank_has_its_own_phase_and_the_first_speaks_for_all() -> None:
    reader = LogReader()
    reader.feed(
        f"{AT} DP0 PP0 TP1] Load weight begin. avail mem=9.00 GB\n{AT} DP0 PP0 TP0] Init parallel begin.\n".encode()
    )
    assert reader.phase is Phase.DISTRIBUTED_INIT
    assert phases_of(
        f"{AT} TP1] Load weight begin. avail mem=9.00 GB", f"{AT} TP0] Load weight begin. avail mem=9.00 GB"
    ) == ["weight-load", "weight-load"]


def test_where_only_another_rank_has_spoken_it_speaks_for_all() -> None:
    reader = LogReader()
    reader.feed(f"{AT}] server_args=ServerArgs(x)\n{AT} TP2] Init parallel begin.\n".encode())
    assert reader.phase is Phase.DISTRIBUTED_INIT


@pytest.mark.parametrize(
    ("rank", "first"), [("", True), ("TP0", True), ("DP0 TP0 EP0", True), ("TP3", False), ("PP1 TP0", False)]
)
def test_the_first_of_every_kind_leads(rank: str, first: bool) -> None:
    assert leads(rank) is first


# --- serving ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "Decode batch. #running-req: 32, #token: 137, token usage: 0.41, accept len: 2.31, cuda graph: True, "
            "gen throughput (token/s): 1024.20, #queue-req: 3, ",
            DecodeBatch("TP0", 32, 3, 1024.2, 2.31, True, 0.41),
        ),
        (
            "Decode batch, #running-req: 8, #token: 137, token usage: 0.02, accept len: 3.10, accept rate: 0.70, "
            "cuda graph: False, gen throughput (token/s): 84.20, #queue-req: 0",
            DecodeBatch("TP0", 8, 0, 84.2, 3.1, False, 0.02),
        ),
        (
            "Decode batch [120], #running-req: 1, #full token: 10, full token usage: 0.10, #swa token: 5, swa token "
            "usage: 0.90, cpu graph: False, gen throughput (token/s): 9.00, #queue-req: 0, fwd occupancy: 0.5",
            DecodeBatch("TP0", 1, 0, 9.0, None, False, 0.1),
        ),
        (
            "Decode batch. #running-req: 1, #token: 9, token usage: 0.00, gen throughput (token/s): 1.06, #queue-req: 0",
            DecodeBatch("TP0", 1, 0, 1.06, None, None, 0.0),
        ),
        (
            "Prefill batch. #new-seq: 2, #new-token: 2266, #cached-token: 11, token usage: 0.00, #running-req: 4, "
            "#queue-req: 5",
            PrefillBatch("TP0", 2266, 11, 4, 5),
        ),
        (
            "Prefill batch, #new-seq: 1, #new-token: 20, #cached-token: 0, token usage: 0.00, #running-req: 0, "
            "#queue-req: 0, #pending-token: 0, cpu graph: False, input throughput (token/s): 18.24",
            PrefillBatch("TP0", 20, 0, 0, 0),
        ),
        (
            "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 60, #new_token_ratio: "
            "0.1427 -> 0.3414",
            Retraction("TP0", 3),
        ),
        (
            "Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.4 -> 0.9",
            Retraction("TP0", 1),
        ),
    ],
)
def test_lines_of_a_serving_server_are_read_in_every_layout(line: str, expected: LogEvent) -> None:
    told = [event for event in events_of(f"{AT} TP0] {line}") if not isinstance(event, PhaseSeen)]
    assert told == [expected]


def test_ready_and_a_busy_port_are_told() -> None:
    assert only(ReadyLine, f"{AT}] The server is fired up and ready to roll!") == ReadyLine()
    busy = "[Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use"
    assert "30000" in only(PortBusy, f"{AT}] ERROR:    {busy}").text


def test_words_that_only_look_like_signals_say_nothing() -> None:
    assert not events_of(
        '  File "/x/scheduler.py", line 1, in load: Load weight begin',
        f"{AT}] Ignore import error when loading sglang.srt.models.x: No module named 'cuda'",
        f'{AT}] INFO:     127.0.0.1:53498 - "GET /model_info HTTP/1.1" 200 OK',
        "[Gloo] Rank 0 is connected to 3 peer ranks.",
        f"{AT} TP0] Capture cuda graph bs [1, 2, 4]",
    )


def test_answers_to_requests_are_no_sign_of_a_server_at_work() -> None:
    reader = LogReader()
    reader.feed(f'{AT}] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable\n\n'.encode())
    assert reader.lines_of_life == 0
    reader.feed(f"{AT} TP0] anything else\n".encode())
    assert reader.lines_of_life == 1


# --- bytes -----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4000), max_size=8))
def test_the_cuts_between_reads_do_not_matter(cuts: list[int]) -> None:
    data = "\n".join(START_0_5_23).encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = LogReader()
    pieces = [data[begin:end] for begin, end in pairwise(edges)]
    found = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    assert found == events_of(*START_0_5_23)


def test_a_bar_that_redraws_itself_is_read_at_every_return() -> None:
    reader = LogReader()
    found = reader.feed(
        b"\rCapturing batches:  20%|##        | 1/5 [00:01<00:04]\rCapturing batches:  40%|####      | 2/5 [00:02<"
    )
    assert found[-1] == Progress(Phase.GRAPH_CAPTURE, 1, 5)
    assert reader.feed(b"00:03]\n")[-1] == Progress(Phase.GRAPH_CAPTURE, 2, 5)


def test_a_line_of_megabytes_costs_no_memory_and_the_next_is_read() -> None:
    reader = LogReader()
    for _ in range(64):
        assert reader.feed(b"x" * 65536) == []
    assert reader.feed(f"\n{AT}] The server is fired up and ready to roll!\n".encode())[-1] == ReadyLine()


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(st.binary(max_size=80), st.sampled_from([line.encode() for line in START_0_4_6])),
        max_size=20,
    )
)
def test_no_bytes_upset_the_reader(chunks: list[bytes]) -> None:
    reader = LogReader()
    for chunk in chunks:
        reader.feed(chunk + b"\n")
    reader.finish()


@pytest.mark.parametrize("before", ["", "sglang-1  | ", "[sglang]     | ", "sglang-1  | \x1b[32m"])
def test_colours_and_container_prefixes_are_ignored(before: str) -> None:
    line = f"{before}{AT} TP0]\x1b[0m Load weight begin. avail mem=9.00 GB"
    assert events_of(line) == [PhaseSeen(Phase.WEIGHT_LOAD, "TP0")]


def test_a_log_whose_beginning_is_missing_is_of_a_server_that_serves() -> None:
    line = f"{AT} TP0] Prefill batch, #new-seq: 1, #new-token: 20, #cached-token: 0, #running-req: 0, #queue-req: 0"
    assert phases_of(line) == ["serving"]
