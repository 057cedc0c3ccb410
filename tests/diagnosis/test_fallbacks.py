"""What was asked for and is not what runs."""

from __future__ import annotations

import pytest

from tuner.diagnosis.fallbacks import Fallback, read_fallbacks

READY = "[2026-03-01 10:00:09] The server is fired up and ready to roll!\n"
CUSTOM = "[2026-03-01 10:00:00 TP0] CustomAllreduce is disabled because it's not supported on PCIe.\n"


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        ("custom", CUSTOM),
        ("custom", "[2026-03-01 10:00:00 TP0] Setup Custom allreduce failed with invalid argument.\n"),
        (
            "torch-symm-mem",
            "TorchSymmMemCommunicator: Device capability 12 not supported, communicator is not available.\n",
        ),
        (
            "pcie-ipc",
            "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE is set but this FlashInfer build has no pcie_ipc_comm.\n",
        ),
        ("mscclpp", "PyMscclpp is disabled due to an unsupported world size: 3.\n"),
        (
            "flashinfer-fusion",
            "Failed to initialize FlashInfer workspace: x. Disabling flashinfer allreduce fusion.\n",
        ),
    ],
)
def test_an_all_reduce_that_is_not_in_use(choice: str, line: str) -> None:
    (found,) = read_fallbacks(READY + line, {"all_reduce": choice})

    assert (found.param, found.asked, found.runs, found.line) == ("all_reduce", choice, "nccl", 2)
    assert str(found) == f"all_reduce: asked for {choice}, runs nccl"


def test_what_was_not_asked_for_is_no_fallback() -> None:
    assert read_fallbacks(CUSTOM, {"all_reduce": "nccl"}) == []
    assert read_fallbacks(CUSTOM, {}) == []
    assert [found.param for found in read_fallbacks(CUSTOM)] == ["all_reduce"]


@pytest.mark.parametrize("choice", ["pcie-ipc", "flashinfer-fusion"])
def test_silence_of_a_path_that_says_when_it_runs(choice: str) -> None:
    assert read_fallbacks(READY, {"all_reduce": choice}) == [Fallback("all_reduce", choice, "nccl", 0)]


def test_a_path_that_says_that_it_runs() -> None:
    log = "FlashInfer PCIe-IPC all-reduce enabled (world=8, workspace sized on first reduction)\n" + READY

    assert read_fallbacks(log, {"all_reduce": "pcie-ipc"}) == []


@pytest.mark.parametrize(
    ("asked", "line", "runs"),
    [
        (
            {"max_running_requests": 256},
            "max_running_requests was reduced from the requested 256 to 31 (per dp worker).",
            31,
        ),
        ({"max_running_requests": 64}, "Max running requests is reset to 48 for speculative decoding.", 48),
        (
            {"speculative_num_draft_tokens": 8},
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when topk is 1",
            "speculative_num_steps + 1",
        ),
        (
            {"attention_backend": "intel_amx"},
            "The current platform does not support Intel AMX, will fallback to torch_native backend.",
            "torch_native",
        ),
        (
            {"mem_fraction_static": 0.88},
            "Automatically reduce --mem-fraction-static to 0.792 because this is a multimodal model.",
            0.792,
        ),
        (
            {"max_total_tokens": 65536},
            "max_total_tokens=65536 is larger than the profiled value 4711. Use the profiled value instead.",
            4711,
        ),
    ],
)
def test_a_value_that_was_reset(asked: dict[str, object], line: str, runs: object) -> None:
    ((param, value),) = asked.items()

    assert read_fallbacks(f"[2026-03-01 10:00:00] {line}\n", asked) == [Fallback(param, value, runs, 1)]


def test_resolved_arguments_are_compared() -> None:
    log = (
        "[2026-03-01 10:00:00] server_args={'attention_backend': 'triton', 'page_size': 64, "
        "'kv_cache_dtype': 'auto', 'mem_fraction_static': 0.85, 'max_running_requests': None}\n"
    )
    asked = {
        "attention_backend": "flashinfer",
        "page_size": 64,
        "mem_fraction_static": 0.85,
        "max_running_requests": 9,
    }

    assert read_fallbacks(log, asked) == [Fallback("attention_backend", "flashinfer", "triton", 1)]
    older = "server_args=ServerArgs(attention_backend='triton', page_size=1)\n"
    assert [found.param for found in read_fallbacks(older, asked)] == ["attention_backend", "page_size"]


def test_auto_asks_for_nothing() -> None:
    log = "server_args=ServerArgs(attention_backend='triton')\n"

    assert read_fallbacks(log, {"attention_backend": "auto"}) == []


def test_batches_beyond_the_graphs() -> None:
    line = (
        "[2026-03-01 10:00:0{} TP0] Decode batch, #running-req: {}, #token: 9, token usage: 0.1, "
        "cuda graph: {}, gen throughput (token/s): 9.0, #queue-req: 0\n"
    )
    log = line.format(1, 8, True) + line.format(2, 24, False) + line.format(3, 20, False)

    assert read_fallbacks(log, {"cuda_graph_max_bs": 16}) == [
        Fallback("cuda_graph_max_bs", 16, "eager at 24 requests", 2)
    ]
    assert read_fallbacks(line.format(2, 24, False), {"disable_cuda_graph": True}) == []
