from __future__ import annotations

import re

import pytest

from tests.sglang import help_texts
from tuner.errors import InputError
from tuner.sglang.composites import Unavailable, choices_of, effect_of
from tuner.sglang.flags import parse_help
from tuner.sglang.installation import Installation
from tuner.space.parameters import Effect

OLD = help_texts.installed(help_texts.old(), "0.5.2")
NEW = help_texts.installed(help_texts.new(), "0.5.23")

CUSTOM_OFF = ("disable_custom_all_reduce", True)
FUSION_OFF = ("enforce_disable_flashinfer_allreduce_fusion", True)


@pytest.mark.parametrize(
    ("installation", "choice", "flags", "variables"),
    [
        (OLD, "nccl", (CUSTOM_OFF,), ()),
        (NEW, "nccl", (CUSTOM_OFF, FUSION_OFF), ()),
        (OLD, "custom", (), ()),
        (NEW, "custom", (), ()),
        (NEW, "pcie-ipc", (CUSTOM_OFF, FUSION_OFF), (("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "1"),)),
        (NEW, "torch-symm-mem", (("enable_torch_symm_mem", True), CUSTOM_OFF, FUSION_OFF), ()),
        (OLD, "nccl-symm-mem", (("enable_symm_mem", True), CUSTOM_OFF), ()),
        (OLD, "mscclpp", (("enable_mscclpp", True),), ()),
        (OLD, "flashinfer-fusion", (("enable_flashinfer_allreduce_fusion", True),), ()),
        (NEW, "flashinfer-fusion", (("flashinfer_allreduce_fusion_backend", "auto"),), ()),
    ],
)
def test_an_all_reduce_backend_is_set_as_the_version_wants_it(
    installation: Installation,
    choice: str,
    flags: tuple[tuple[str, bool | str], ...],
    variables: tuple[tuple[str, str], ...],
) -> None:
    assert effect_of("all_reduce", choice, installation) == Effect(flags, variables)


def test_a_server_of_few_flags_has_what_they_can_say() -> None:
    few = help_texts.installed(
        parse_help("options:\n  --speculative-algorithm NAME\n  --enable-torch-symm-mem\n")
    )
    assert effect_of("speculative", "eagle3", few) == Effect((("speculative_algorithm", "EAGLE3"),))
    assert effect_of("all_reduce", "torch-symm-mem", few) == Effect((("enable_torch_symm_mem", True),))
    assert effect_of("all_reduce", "pcie-ipc", few) == Effect(
        (), (("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "1"),)
    )
    nothing = effect_of("all_reduce", "nccl", few)
    assert isinstance(nothing, Unavailable)
    assert "no --disable-custom-all-reduce" in nothing.reason


@pytest.mark.parametrize(
    ("name", "choice", "reason"),
    [
        ("all_reduce", "pcie-ipc", r"0\.5\.21.*this is SGLang 0\.5\.2$"),
        ("all_reduce", "torch-symm-mem", r"no --enable-torch-symm-mem"),
        ("speculative", "ngram", r"NGRAM came with SGLang 0\.5\.3"),
        ("speculative", "dflash", r"DFLASH came with SGLang 0\.5\.11"),
    ],
)
def test_what_a_version_cannot_do_is_unavailable_with_the_reason(name: str, choice: str, reason: str) -> None:
    effect = effect_of(name, choice, OLD)
    assert isinstance(effect, Unavailable)
    assert re.search(reason, effect.reason)


@pytest.mark.parametrize("choice", ["eagle", "eagle3", "nextn", "standalone", "ngram", "dflash"])
def test_a_speculative_algorithm_is_passed_in_capitals(choice: str) -> None:
    assert effect_of("speculative", choice, NEW) == Effect((("speculative_algorithm", choice.upper()),))


def test_no_speculation_sets_nothing() -> None:
    assert effect_of("speculative", "off", OLD) == Effect()


def test_an_algorithm_that_only_this_installation_lists_can_be_used() -> None:
    flags = parse_help("options:\n  --speculative-algorithm {EAGLE,MINE}\n")
    found = effect_of("speculative", "mine", help_texts.installed(flags))
    assert found == Effect((("speculative_algorithm", "MINE"),))


def test_where_help_lists_no_algorithms_the_version_decides() -> None:
    flags = parse_help("options:\n  --speculative-algorithm ALGORITHM\n")
    assert isinstance(effect_of("speculative", "uno", help_texts.installed(flags, "0.5.19")), Unavailable)
    assert isinstance(effect_of("speculative", "uno", help_texts.installed(flags, "0.5.20")), Effect)


@pytest.mark.parametrize(("name", "word"), [("all_reduce", "ncll"), ("speculative", "eagle4")])
def test_a_misspelled_choice_is_a_users_error_with_the_nearest(name: str, word: str) -> None:
    with pytest.raises(InputError, match=f"no choice '{word}'") as refused:
        effect_of(name, word, NEW)
    assert "did you mean" in refused.value.hint


def test_a_composite_that_is_not_built_in_has_to_say_what_it_sets() -> None:
    with pytest.raises(InputError, match="no built-in composite"):
        effect_of("my_mode", "fast", NEW)


@pytest.mark.parametrize("name", ["all_reduce", "speculative"])
def test_every_listed_choice_has_an_answer(name: str) -> None:
    for installation in (OLD, NEW):
        for choice in choices_of(name):
            assert isinstance(effect_of(name, choice, installation), Effect | Unavailable)
