from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sglang import help_texts
from tuner.errors import InputError
from tuner.sglang.flags import parse_help
from tuner.sglang.installation import Installation
from tuner.sglang.plan import LaunchPlan
from tuner.sglang.planning import FlagValue, check_space, number_text, plan_launch
from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import Boolean, Choice, Composite, Effect, Float, Integer, Parameter

OLD = help_texts.installed(help_texts.old(), "0.5.2")
NEW = help_texts.installed(help_texts.new(), "0.5.23")

GRAPHS = Integer(name="cuda_graph_max_bs", low=8, high=512, log=True)
MEMORY = Float(name="mem_fraction_static", low=0.5, high=0.95)
SPECULATIVE = Composite(name="speculative", choices=("off", "eagle3", "ngram"), effects={})
STEPS = Integer(name="speculative_num_steps", low=1, high=8, when="speculative != off")
TOPK = Integer(name="speculative_eagle_topk", low=1, high=8)


def plan(
    *parameters: Parameter,
    chosen: dict[str, Value] | None = None,
    fixed: dict[str, FlagValue] | None = None,
    variables: dict[str, str] | None = None,
    installation: Installation = NEW,
) -> LaunchPlan:
    return plan_launch(
        command=installation.command,
        fixed_flags=fixed or {},
        fixed_variables=variables or {},
        parameters=parameters,
        configuration=Configuration(chosen),
        installation=installation,
    )


def words(made: LaunchPlan) -> list[str]:
    return [word for flag, values in made.flags for word in (flag, *values)]


def test_a_renamed_flag_is_written_for_the_installed_version() -> None:
    chosen: dict[str, Value] = {"cuda_graph_max_bs": 64}
    assert words(plan(GRAPHS, chosen=chosen, installation=OLD)) == ["--cuda-graph-max-bs", "64"]
    assert words(plan(GRAPHS, chosen=chosen, installation=NEW)) == ["--cuda-graph-max-bs-decode", "64"]


def test_fixed_flags_come_first_and_what_is_not_chosen_is_left_out() -> None:
    made = plan(
        GRAPHS,
        Choice(name="attention_backend", choices=("auto", "triton")),
        Float(name="NCCL_SCALE", low=0, high=1),
        chosen={"attention_backend": "auto", "NCCL_SCALE": 0.5},
        fixed={"model": "/models/x y", "tp_size": 8, "disable_radix_cache": True},
        variables={"NCCL_DEBUG": "WARN"},
    )
    assert made.command == ("python", "-m", "sglang.launch_server")
    assert words(made) == ["--model-path", "/models/x y", "--tp-size", "8", "--disable-radix-cache"]
    assert made.variables == (("NCCL_DEBUG", "WARN"), ("NCCL_SCALE", "0.5"))


def test_switches_numbers_lists_and_negations_become_words() -> None:
    made = plan(
        Boolean(name="disable_radix_cache"),
        Boolean(name="enable_tf32_matmul"),
        Float(name="mem_fraction_static", low=0, high=1),
        Choice(name="cuda_graph_bs", choices=("1 2 4", "1 8")),
        Boolean(name="NCCL_FLAG"),
        chosen={
            "disable_radix_cache": False,
            "enable_tf32_matmul": False,
            "mem_fraction_static": 0.1 + 0.2,
            "cuda_graph_bs": "1 2 4",
            "NCCL_FLAG": True,
        },
        fixed={"chunked_prefill_size": -1, "uvicorn_access_log_exclude_prefixes": ("/metrics", "/health")},
    )
    assert words(made) == [
        *("--chunked-prefill-size", "-1"),
        *("--uvicorn-access-log-exclude-prefixes", "/metrics", "/health"),
        "--no-enable-tf32-matmul",
        *("--mem-fraction-static", "0.3"),
        *("--cuda-graph-bs-decode", "1", "2", "4"),
    ]
    assert made.variables == (("NCCL_FLAG", "1"),)


def test_a_composite_sets_its_flags_and_variables() -> None:
    mode = Composite(
        name="mode",
        choices=("calm", "wild"),
        effects={
            "calm": Effect(),
            "wild": Effect((("schedule_policy", "lpm"),), (("OMP_NUM_THREADS", "1"),)),
        },
    )
    reduce = Composite(name="all_reduce", choices=("nccl", "pcie-ipc"), effects={})
    made = plan(mode, reduce, chosen={"mode": "wild", "all_reduce": "pcie-ipc"})
    assert words(made)[:3] == ["--schedule-policy", "lpm", "--disable-custom-all-reduce"]
    assert made.variables == (("OMP_NUM_THREADS", "1"), ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "1"))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"speculative": "off", "speculative_num_steps": 3}, []),
        ({"speculative_num_steps": 3}, []),
        ({"speculative": "eagle3"}, ["--speculative-algorithm", "EAGLE3"]),
        (
            {"speculative": "eagle3", "speculative_num_steps": 3},
            [
                "--speculative-num-steps",
                "3",
                "--speculative-eagle-topk",
                "1",
                "--speculative-num-draft-tokens",
                "4",
            ],
        ),
        (
            {"speculative": "eagle3", "speculative_num_steps": 5, "speculative_eagle_topk": 4},
            ["--speculative-num-steps", "5", "--speculative-eagle-topk", "4"],
        ),
    ],
)
def test_the_numbers_of_speculation_are_completed_or_left_out(
    chosen: dict[str, Value], expected: list[str]
) -> None:
    made = plan(SPECULATIVE, STEPS, TOPK, chosen=chosen)
    assert words(made)[-len(expected) :] == expected if expected else words(made) == []


def test_with_one_branch_the_draft_tokens_are_what_sglang_makes_of_them() -> None:
    fixed: dict[str, FlagValue] = {"speculative_num_draft_tokens": 16, "speculative_eagle_topk": 1}
    made = plan(SPECULATIVE, STEPS, chosen={"speculative": "eagle3", "speculative_num_steps": 2}, fixed=fixed)
    assert dict(made.flags)["--speculative-num-draft-tokens"] == ("3",)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6))
def test_numbers_are_written_without_noise_and_without_exponent(value: float) -> None:
    text = number_text(value)
    assert float(text) == pytest.approx(value, rel=1e-11, abs=1e-300)
    assert "e" not in text.lower()


# --- the check beforehand --------------------------------------------------------------------------------


def test_a_space_that_fits_passes_without_remarks() -> None:
    check = check_space((GRAPHS, MEMORY, Boolean(name="disable_radix_cache")), {"tp_size": 8}, NEW)
    assert (dict(check.unavailable), check.notes) == ({}, ())


@pytest.mark.parametrize(
    ("parameters", "fixed", "said", "hint"),
    [
        ((Float(name="mem_fraction_sttic", low=0, high=1),), {}, "no flag for it", "mem_fraction_static"),
        ((), {"mem_fractoin_static": 0.8}, "the fixed flag mem_fractoin_static", "mem_fraction_static"),
        ((), {"attention_backend": "flashinfr"}, "cannot be 'flashinfr'", "flashinfer"),
        ((Choice(name="schedule_policy", choices=("fcfs", "lmp")),), {}, "cannot be 'lmp'", "lpm"),
        ((), {"tp_size": True}, "takes a value", ""),
        ((), {"disable_radix_cache": "yes"}, "is a switch", "true or false"),
        ((), {"served_model_name": "--x"}, "begins with a dash", ""),
        ((), {"tp_size": (4, 8)}, "takes one value", ""),
        ((Boolean(name="tp_size"),), {}, "takes a value", ""),
        ((Integer(name="disable_radix_cache", low=0, high=1),), {}, "is a switch", "boolean"),
        ((GRAPHS,), {"cuda_graph_max_bs_decode": 8}, "is set twice", "fixed or tuned"),
        ((MEMORY, MEMORY), {}, "is set twice", ""),
        (
            (Composite(name="all_reduce", choices=("nccl",), effects={}),),
            {"disable_custom_all_reduce": True},
            "twice",
            "",
        ),
        ((), {"port": 30000}, "place of its own", "remove port"),
        ((TOPK,), {}, "without speculative_num_steps", "add speculative_num_steps"),
        (
            (Composite(name="mine", choices=("a",), effects={"a": Effect((("schedule_polcy", "lpm"),))}),),
            {},
            "mine=a",
            "schedule_policy",
        ),
    ],
)
def test_what_cannot_be_launched_is_refused_with_a_hint(
    parameters: tuple[Parameter, ...], fixed: dict[str, FlagValue], said: str, hint: str
) -> None:
    with pytest.raises(InputError, match=said) as refused:
        check_space(parameters, fixed, NEW)
    assert refused.value.exit_code == 2
    assert hint in refused.value.hint


def test_a_variable_that_is_fixed_and_tuned_is_refused() -> None:
    proto = Choice(name="NCCL_PROTO", choices=("auto", "LL"))
    with pytest.raises(InputError, match="NCCL_PROTO is set twice"):
        check_space((proto,), {}, NEW, fixed_variables={"NCCL_PROTO": "LL128"})


def test_choices_of_composites_that_the_version_lacks_are_listed() -> None:
    reduce = Composite(name="all_reduce", choices=("nccl", "pcie-ipc", "torch-symm-mem"), effects={})
    check = check_space((reduce, SPECULATIVE), {"speculative_draft_model_path": "/d"}, OLD)
    assert {name: sorted(lacking) for name, lacking in check.unavailable.items()} == {
        "all_reduce": ["pcie-ipc", "torch-symm-mem"],
        "speculative": ["ngram"],
    }


def test_a_parameter_that_only_other_versions_have_is_absent() -> None:
    runner = Choice(name="moe_runner_backend", choices=("auto", "triton"))
    check = check_space((runner, MEMORY), {}, OLD)
    assert dict(check.absent) == {"moe_runner_backend": "SGLang 0.5.2 has no flag for it"}
    mine = Composite(
        name="mine",
        choices=("plain", "novel"),
        effects={"plain": Effect(), "novel": Effect((("moe_runner_backend", "triton"),))},
    )
    assert list(check_space((mine,), {}, OLD).unavailable["mine"]) == ["novel"]
    with pytest.raises(InputError, match="the fixed flag moe_runner_backend"):
        check_space((), {"moe_runner_backend": "triton"}, OLD)


def test_choices_that_a_flag_does_not_list_are_unavailable_unless_they_are_misspelt() -> None:
    backend = Choice(name="attention_backend", choices=("auto", "triton", "aiter"))
    check = check_space((backend,), {}, NEW)
    assert list(check.unavailable["attention_backend"]) == ["aiter"]


def test_numbers_of_speculation_that_a_server_has_no_flag_for_are_not_filled_in() -> None:
    flags = parse_help("options:\n  --speculative-algorithm NAME\n  --speculative-num-steps N\n")
    chosen: dict[str, Value] = {"speculative": "eagle3", "speculative_num_steps": 2}
    made = plan(SPECULATIVE, STEPS, chosen=chosen, installation=help_texts.installed(flags))
    assert words(made) == ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "2"]


def test_a_composite_without_any_available_choice_is_refused() -> None:
    reduce = Composite(name="all_reduce", choices=("pcie-ipc",), effects={})
    with pytest.raises(InputError, match="no choice of the parameter all_reduce is available here"):
        check_space((reduce,), {}, OLD)
    with pytest.raises(InputError, match="all_reduce=pcie-ipc cannot be launched"):
        plan(reduce, chosen={"all_reduce": "pcie-ipc"}, installation=OLD)


def test_what_is_allowed_but_unwise_is_noted() -> None:
    check = check_space((SPECULATIVE,), {"disable_cuda_graph": True}, NEW)
    assert any("--disable-cuda-graph is deprecated" in note for note in check.notes)
    assert any("eagle3" in note and "speculative_draft_model_path" in note for note in check.notes)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "cuda_graph_max_bs": st.integers(8, 512),
            "mem_fraction_static": st.floats(0.5, 0.95),
            "speculative": st.sampled_from(["off", "eagle3", "ngram"]),
            "speculative_num_steps": st.integers(1, 8),
            "speculative_eagle_topk": st.integers(1, 8),
        },
    )
)
def test_every_configuration_of_a_checked_space_can_be_planned(chosen: dict[str, Value]) -> None:
    parameters = (GRAPHS, MEMORY, SPECULATIVE, STEPS, TOPK)
    check_space(parameters, {"tp_size": 8}, NEW)
    made = plan(*parameters, chosen=chosen, fixed={"tp_size": 8})
    again = plan(*parameters, chosen=dict(reversed(chosen.items())), fixed={"tp_size": 8})
    assert made.fingerprint == again.fingerprint
    assert all(NEW.flags.exact(flag) is not None for flag, _ in made.flags)
