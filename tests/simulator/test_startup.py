"""The start: order and wording by release, and how it ends."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.simulator.boxes import EAGLE, KIMI_23, box, script, settings
from tuner.simulator.box import Rule
from tuner.simulator.checks import ArgumentError
from tuner.simulator.release import Release

OLD, NEW = box(), box(KIMI_23)
FITS = ("--mem-fraction-static", "0.88")


def milestones(events: tuple[str, ...]) -> list[str]:
    """The names of the steps in their order."""
    names = {
        "init": r"Init (?:torch distributed|parallel) begin",
        "target": r"Load weight end.*Kimi",
        "draft": r"Load weight end.*Eagle3",
        "pool": r"KV Cache is allocated",
        "graph": r"Capture (?:cuda|target \w+ CUDA) graph end",
        "draft graph": r"Capture draft (?:extend |decode )?(?:cuda|CUDA) graph end",
        "summary": r"max_total_num_tokens=\d+",
    }
    return [name for text in events for name, pattern in names.items() if re.search(pattern, text)]


def texts(*words: str, old: bool) -> tuple[str, ...]:
    return tuple(event.text for event in script(OLD if old else NEW, *words).events)


def test_before_0_5_14_the_draft_model_comes_after_the_targets_graphs() -> None:
    assert milestones(texts(*EAGLE, *FITS, old=True)) == [
        "init", "target", "pool", "graph", "draft", "pool", "draft graph", "draft graph", "summary",
    ]  # fmt: skip


def test_since_0_5_14_both_models_load_first() -> None:
    assert milestones(texts(*EAGLE, *FITS, old=False)) == [
        "init", "target", "draft", "pool", "pool", "graph", "graph", "draft graph", "draft graph", "summary",
    ]  # fmt: skip


def test_wording_of_the_releases() -> None:
    old, new = "\n".join(texts(*EAGLE, *FITS, old=True)), "\n".join(texts(*EAGLE, *FITS, old=False))
    assert "Init torch distributed begin." in old
    assert re.search(r"Init torch distributed ends\. elapsed=[\d.]+ s, mem usage=[\d.]+ GB", old)
    assert re.search(r"Init parallel begin\.\n(?s:.*)Memory baseline taken\. mem usage=[\d.]+ GB", new)
    assert re.search(r"KV Cache is allocated\. #tokens: \d+, KV size: [\d.]+ GB", old)
    assert re.search(r"KV Cache is allocated\. dtype: torch\.bfloat16, #tokens: \d+, KV size", new)
    assert re.search(r"Capture cuda graph begin\. This can take up to several minutes\. avail mem=", old)
    assert re.search(
        r"Capture target verify CUDA graph begin\. backend=full, num_tokens_per_req=4, avail", new
    )
    assert re.search(r"Capture draft extend CUDA graph end\. elapsed=[\d.]+ s, mem usage=", new)
    for text in (old, new):
        assert re.search(r"Loading safetensors checkpoint shards: +50% Completed \| 32/64 \[", text)
        assert re.search(r"Capturing batches \(bs=1 avail_mem=[\d.]+ GB\): 100%\|█+\| 23/23", text)
        assert re.search(r"max_running_requests=48, context_len=262144, available_gpu_mem=[\d.]+ GB", text)


def test_times_rise_and_a_start_takes_as_long_as_on_the_box() -> None:
    for words in ((), (*EAGLE, *FITS)):
        got = script(OLD, *words)
        times = [event.at_s for event in got.events]
        assert times == sorted(times)
        assert 600 <= got.at_s <= 900
    few = script(OLD, "--cuda-graph-max-bs", "16").at_s
    threads = ("--model-loader-extra-config", '{"enable_multithread_load": true}')
    assert script(OLD, "--cuda-graph-max-bs", "16", *threads).at_s < few - 100


def test_silent_falls_back_are_said_in_the_log() -> None:
    said = "\n".join(texts("--enable-torch-symm-mem", old=True))
    assert "CustomAllReduceV2 is disabled because it's not supported on more than two PCIe-only GPUs" in said
    assert "TorchSymmMemCommunicator: Device capability 12 not supported" in said
    assert "CustomAllReduce" not in "\n".join(texts("--disable-custom-all-reduce", old=True))
    ipc = script(NEW, SGLANG_ENABLE_PCIE_IPC_ALLREDUCE="1")
    assert any("FlashInfer PCIe-IPC workspace built (world=8" in event.text for event in ipc.events)


@pytest.mark.parametrize(
    ("old", "words", "failure", "reached"),
    [
        (True, EAGLE, r"Not enough memory\. Please try to increase --mem-f", "draft"),
        (True, ("--ep-size", "2"), r"AssertionError: ", "target"),
        (True, ("--mem-fraction-static", "0.97"), r"Capture cuda graph failed: CUDA(?s:.*)max-bs to", "pool"),
        (True, ("--speculative-algorithm", "EAGLE3"), r"torch\.OutOfMemoryError: CUDA out", "graph"),
        (False, ("--speculative-algorithm", "EAGLE3"), r"torch\.OutOfMemoryError: CUDA out", "target"),
        (False, ("--mem-fraction-static", "0.75"), r"Raise --mem-fraction-static above 0\.771 ", "target"),
        (False, ("--mem-fraction-static", "0.99"), r"Capture cuda graph fail(?s:.*)max-bs-decode to", "pool"),
        (False, ("--enable-flashinfer-allreduce-fusion",), r"ValueError: FlashInfer allreduce fus", "pool"),
        (False, ("--attention-backend", "fa3"), r"no kernel image is available", "pool"),
        (False, ("--tp", "3"), r"AssertionError: 64 is not divisible by 3", "init"),
        (False, ("--tp", "16"), r"invalid device ordinal", "init"),
        (False, ("--tp", "4"), r"torch\.OutOfMemoryError", "init"),
        (False, (*EAGLE[:-1], "some/other-draft"), r"OSError: We couldn't connect", "target"),
    ],
)  # fmt: skip
def test_how_starts_die(old: bool, words: tuple[str, ...], failure: str, reached: str) -> None:
    got = script(OLD if old else NEW, *words)
    assert got.ending == "exception"
    assert re.search(failure, got.failure)
    steps = milestones(tuple(event.text for event in got.events))
    assert reached in steps
    assert "summary" not in steps


def test_the_fraction_that_the_message_names_is_enough() -> None:
    died = script(NEW, *EAGLE, "--mem-fraction-static", "0.78")
    match = re.search(r"Raise --mem-fraction-static above ([\d.]+)", died.failure)
    assert match is not None
    assert script(NEW, *EAGLE, "--mem-fraction-static", str(float(match.group(1)) + 0.001)).ending == "ready"


def test_hidden_cards_cannot_be_used() -> None:
    assert script(NEW, CUDA_VISIBLE_DEVICES="0,1,2,3").ending == "exception"
    assert script(NEW, CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7").ending == "ready"


def test_a_box_may_hang_at_a_bad_p2p_level() -> None:
    rule = Rule("distributed-init", "hang", variable="NCCL_P2P_LEVEL", values=("SYS", "5"))
    got = script(replace(NEW, rules=(rule,)), NCCL_P2P_LEVEL="SYS")
    assert got.ending == "abort"
    assert got.events[-1].text.startswith("sglang is using nccl")
    assert got.at_s - got.events[-1].at_s == 600
    assert script(replace(NEW, rules=(rule,)), NCCL_P2P_LEVEL="PHB").ending == "ready"


@pytest.mark.parametrize(
    ("words", "failure"),
    [
        (("--page-size", "64", "--chunked-prefill-size", "100"), "must be divisible by page_size"),
        (("--schedule-conservativeness", "-1"), "must be non-negative"),
        (("--speculative-algorithm", "FOO"), "Unknown speculative algorithm name: FOO"),
        (("--speculative-algorithm", "EAGLE3", "--speculative-eagle-topk", "2"), "^AssertionError$"),
        ((*EAGLE, "--pp-size", "2"), "Pipeline parallelism currently only supports EAGLE"),
        (("--attn-dp-size", "3"), "^AssertionError$"),
        (("--context-length", "500000"), "is greater than the derived context_length"),
        (("--enable-hierarchical-cache", "--disable-radix-cache"), "mutually exclusive"),
        (("--enable-priority-scheduling", "--schedule-policy", "lpm"), "must be 'fcfs' or 'lof'"),
        (("--disable-cuda-graph-padding", "--enable-torch-compile"), "incompatible with --enable-torch"),
        (("--model-path", "/models/other"), "OSError: Repo id must be in the form"),
    ],
)  # fmt: skip
def test_what_is_refused_before_the_load(words: tuple[str, ...], failure: str) -> None:
    with pytest.raises(ArgumentError, match=failure):
        settings(NEW, *words)


def test_what_speculation_changes_is_said() -> None:
    drafts = (
        "--speculative-num-steps",
        "3",
        "--speculative-eagle-topk",
        "1",
        "--speculative-num-draft-tokens",
        "9",
    )
    got = settings(OLD, *EAGLE, *drafts)
    assert got.speculation is not None
    assert got.speculation.draft_tokens == 4
    assert any("adjusted to speculative_num_steps + 1" in warning for warning in got.warnings)
    assert any("reset to 48 for speculative decoding" in warning for warning in got.warnings)
    automatic = settings(OLD, *EAGLE).speculation
    assert automatic is not None
    assert (automatic.steps, automatic.topk, automatic.draft_tokens) == (3, 1, 4)


@pytest.mark.parametrize("number", range(12, 24))
def test_every_release_starts_with_and_without_drafts(number: int) -> None:
    release = Release.parse(f"0.5.{number}")
    assert release is not None
    where = replace(NEW, sglang_version=release)
    assert script(where).ending == "ready"
    got = script(where, *EAGLE, *FITS)
    assert got.ending == "ready"
    drafts_last = milestones(tuple(event.text for event in got.events))[3] == "graph"
    assert drafts_last == (number < 14)
