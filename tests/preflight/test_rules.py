"""What the tuner's own rules refuse, and where they are silent because something is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.errors import BrokenEnvironment, InputError
from tuner.launch.meter import FakeMeter, GpuFacts, GpuLink, NullMeter
from tuner.preflight.facts import facts_of_box, facts_of_model
from tuner.preflight.rules import read_rules, refusal_by_rules

RULES = read_rules()

REFUSED = [
    ({"attention_heads": 64, "tp_size": 3}, "heads-by-tp", "64 attention heads cannot be shared by 3 ranks"),
    ({"kv_heads": 8, "attention_heads": 96, "tp_size": 3}, "kv-heads-by-tp", "8 key and value heads"),
    ({"kv_heads": 2, "attention_heads": 12, "tp_size": 3}, "kv-heads-by-tp", "nor repeated"),
    ({"experts": 384, "ep_size": 7}, "experts-by-ep", "384 experts"),
    ({"tp_size": 8, "ep_size": 3}, "ep-by-tp", "3 expert-parallel ranks"),
    ({"tp_size": 8, "gpus": 4}, "tp-by-gpus", "8 ranks"),
    ({"mem_fraction_static": 1.5}, "memory-fraction", "1.5"),
    ({"mem_fraction_static": 0}, "memory-fraction", "0"),
    ({"max_running_requests": 0}, "running-requests", "0 requests"),
    ({"stream_interval": 0}, "stream-interval", "0"),
    (
        {"speculative_eagle_topk": 1, "speculative_num_steps": 3, "speculative_num_draft_tokens": 8},
        "draft-tokens-of-topk-1",
        "with 3 steps under another name",
    ),
    ({"speculative_algorithm": "EAGLE3", "draft_layers": 0}, "eagle3-without-draft", "draft model"),
    ({"sm": 120, "attention_backend": "fa3"}, "attention-without-kernels", "SM120"),
    ({"sm": 121, "decode_attention_backend": "trtllm_mla"}, "attention-without-kernels", "SM121"),
    ({"sm": 120, "moe_runner_backend": "flashinfer_trtllm"}, "moe-without-kernels", "SM120"),
    ({"sm": 120, "enable_torch_symm_mem": True}, "torch-symm-mem", "NCCL would run instead"),
    ({"sm": 89, "enable_torch_symm_mem": True}, "torch-symm-mem", "SM89"),
    ({"sm": 120, "all_reduce": "flashinfer-fusion"}, "flashinfer-fusion", "SM120"),
    ({"sm": 120, "flashinfer_allreduce_fusion_backend": "trtllm"}, "flashinfer-fusion", "SM120"),
    ({"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": 1, "tp_size": 6}, "pcie-ipc", "not for 6"),
    ({"enable_nccl_nvls": True, "nvlink": False}, "nvls", "NVSwitch"),
]

SILENT = [
    {},
    {"tp_size": 3, "ep_size": 3},
    {"attention_heads": 64, "tp_size": 8, "kv_heads": 64},
    {"attention_heads": 64, "tp_size": 8, "kv_heads": 4},
    {"attention_heads": 64, "tp_size": 3, "enable_dp_attention": True},
    {"attention_heads": 64, "tp_size": 12, "attn_dp_size": 3},
    {"experts": 384, "ep_size": 8, "tp_size": 8},
    {"experts": 127, "ep_size": 8, "tp_size": 8, "ep_num_redundant_experts": 1},
    {"tp_size": 16, "gpus": 8, "nnodes": 2},
    {"speculative_eagle_topk": 1, "speculative_num_steps": 3, "speculative_num_draft_tokens": 4},
    {"speculative_eagle_topk": 4, "speculative_num_steps": 3, "speculative_num_draft_tokens": 16},
    {"speculative_algorithm": "EAGLE3", "draft_layers": 0, "speculative_draft_model_path": "some/draft"},
    {"speculative_algorithm": "EAGLE3", "draft_layers": 1},
    {"speculative_algorithm": "EAGLE3"},
    {"attention_backend": "fa3"},
    {"sm": 90, "attention_backend": "fa3", "enable_torch_symm_mem": True},
    {"sm": 100, "moe_runner_backend": "flashinfer_trtllm", "all_reduce": "flashinfer-fusion"},
    {"sm": 120, "attention_backend": "flashinfer", "moe_runner_backend": "triton"},
    {"sm": 120, "enable_torch_symm_mem": False},
    {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": 0, "tp_size": 6},
    {"enable_nccl_nvls": True},
]


@pytest.mark.parametrize(("values", "by", "reason"), REFUSED)
def test_what_cannot_run_is_refused_with_its_numbers(values: dict[str, object], by: str, reason: str) -> None:
    refusal = refusal_by_rules(RULES, values)
    assert refusal is not None and not refusal.sure
    assert (refusal.by, reason in refusal.reason) == (by, True), refusal
    # Each of the values is needed: where one of them is not known the rule is silent.
    needed = [name for name in values if name != "attention_heads" or by == "heads-by-tp"]
    for name in needed:
        less = {key: value for key, value in values.items() if key != name}
        silent = refusal_by_rules(RULES, less)
        assert silent is None or silent.by != by, (name, silent)


@pytest.mark.parametrize("values", SILENT)
def test_what_may_run_is_not(values: dict[str, object]) -> None:
    assert refusal_by_rules(RULES, values) is None


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    names = [rule.name for rule in RULES]
    assert sorted(set(names)) == sorted(names)
    assert {by for _, by, _ in REFUSED} == set(names)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("{name: r, forbid: a > 1, because: 'b is {b}', source: s}", "names what the condition does not"),
        ("{name: r, forbid: x > 1, because: w, source: s}", "'x' is no parameter"),
        ("{name: r, forbid: a > 1, because: w}", "'source' is missing"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(tmp_path: Path, rule: str, told: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(f"numbers: [a]\nswitches: []\nchoices: {{}}\nrules:\n  - {rule}\n")
    with pytest.raises(InputError, match=told):
        read_rules(file)


# --- facts ----------------------------------------------------------------------------------------------

KIMI = {
    "text_config": {
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "n_routed_experts": 384,
        "kv_lora_rank": 512,
    }
}


def test_heads_and_experts_are_read_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(KIMI))
    facts = {"attention_heads": 64, "experts": 384, "draft_layers": 0, "language_part": "text_config"}
    assert facts_of_model(str(tmp_path), {}) == facts


def test_layers_that_may_be_cut_off_are_counted_unless_a_list_goes_by_layer(tmp_path: Path) -> None:
    text = {**KIMI["text_config"], "num_hidden_layers": 3, "first_k_dense_replace": 1, "eos_token_id": [1, 2]}
    for more, layers in (({}, 3), ({"layer_types": ["full", "sliding", "full"]}, None)):
        (tmp_path / "config.json").write_text(json.dumps({"text_config": {**text, **more}}))
        facts = facts_of_model(str(tmp_path), {})
        assert facts.get("layers") == layers
        assert (facts["dense_layers"], facts["language_part"]) == (1, "text_config")


def test_and_from_the_cache_of_what_was_downloaded(tmp_path: Path) -> None:
    model = tmp_path / "hub" / "models--some--model"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc\n")
    (model / "snapshots" / "abc").mkdir(parents=True)
    (model / "snapshots" / "abc" / "config.json").write_text(
        '{"num_attention_heads": 32, "num_key_value_heads": 8, "num_nextn_predict_layers": 1}'
    )
    facts = {"attention_heads": 32, "kv_heads": 8, "draft_layers": 1}
    assert facts_of_model("some/model", {"HF_HOME": str(tmp_path)}) == facts
    assert facts_of_model("some/other", {"HF_HOME": str(tmp_path)}) == {}


@pytest.mark.parametrize("text", ["[1]", "no json", '{"text_config": 3}', '{"num_attention_heads": "many"}'])
def test_a_config_that_says_nothing_is_silence(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert "attention_heads" not in facts_of_model(str(tmp_path), {})


def test_the_box_is_what_its_weakest_gpu_and_link_are() -> None:
    meter = FakeMeter(
        {},
        facts=[GpuFacts(0, sm=120), GpuFacts(1, sm=90)],
        links=[GpuLink(0, 1, nvlink=True)],
    )
    assert facts_of_box(meter, (0, 1)) == {"gpus": 2, "sm": 90, "nvlink": True}
    assert facts_of_box(FakeMeter({}, facts=[GpuFacts(0)]), (0,)) == {"gpus": 1}
    assert facts_of_box(NullMeter(), (0, 1)) == {"gpus": 2}
    assert facts_of_box(meter, ()) == {}


def test_a_driver_that_fails_leaves_the_rules_silent() -> None:
    class Broken(NullMeter):
        def facts(self, gpus: object) -> list[GpuFacts]:
            raise BrokenEnvironment("the driver is gone")

    assert facts_of_box(Broken(), (0,)) == {"gpus": 1}
