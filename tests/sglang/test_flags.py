from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sglang import help_texts
from tuner.errors import InputError
from tuner.sglang.flags import FlagSet, Takes, canonical_name, parse_help

OLD = help_texts.old()
NEW = help_texts.new()


def test_what_a_flag_takes_is_read_from_its_metavar() -> None:
    taken = {flag.names[0]: flag.takes for flag in NEW.flags}
    assert taken["--disable-radix-cache"] is Takes.NONE
    assert taken["--mem-fraction-static"] is Takes.ONE
    assert taken["--attention-backend"] is Takes.ONE
    assert taken["--cuda-graph-bs-decode"] is Takes.MANY
    assert taken["--uvicorn-access-log-exclude-prefixes"] is Takes.MANY
    assert taken["--enable-tf32-matmul"] is Takes.NONE


def test_names_choices_negations_and_deprecation_are_read() -> None:
    model = NEW.exact("--model")
    assert model is not None
    assert model.names == ("--model-path", "--model")
    backend = NEW.flag("attention_backend")
    assert backend is not None
    assert backend.choices == tuple(help_texts.BACKENDS)
    tf32 = NEW.flag("enable_tf32_matmul")
    assert tf32 is not None
    assert tf32.negation == "--no-enable-tf32-matmul"
    deprecated = {flag.names[0] for flag in NEW.flags if flag.deprecated}
    assert deprecated == {
        "--disable-cuda-graph",
        "--enable-dp-attention",
        "--enable-flashinfer-allreduce-fusion",
    }
    assert not any(flag.deprecated for flag in OLD.flags)


@pytest.mark.parametrize(
    ("flags", "name", "word"),
    [
        (OLD, "cuda_graph_max_bs", "--cuda-graph-max-bs"),
        (NEW, "cuda_graph_max_bs", "--cuda-graph-max-bs-decode"),
        (OLD, "cuda_graph_max_bs_decode", "--cuda-graph-max-bs"),
        (NEW, "cuda_graph_bs", "--cuda-graph-bs-decode"),
        (OLD, "tp_size", "--tp-size"),
        (NEW, "tp_size", "--tp-size"),
        (OLD, "dsa_prefill_backend", "--nsa-prefill-backend"),
        (NEW, "nsa_prefill_backend", "--dsa-prefill-backend"),
        (NEW, "speculative_draft_model", "--speculative-draft-model-path"),
        (OLD, "boundary_reduction", None),
        (NEW, "mem_fraction", None),
    ],
)
def test_a_canonical_name_is_spelled_as_the_version_does(flags: FlagSet, name: str, word: str | None) -> None:
    assert flags.spelling(name) == word


def test_where_old_and_new_spelling_are_both_there_the_new_one_is_used() -> None:
    both = parse_help(
        "options:\n  --cuda-graph-max-bs N     Deprecated alias.\n  --cuda-graph-max-bs-decode N  New.\n"
    )
    assert both.spelling("cuda_graph_max_bs") == "--cuda-graph-max-bs-decode"
    assert both.canonical("--cuda-graph-max-bs") == "cuda_graph_max_bs"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("--tp", "tp_size"),
        ("--tensor-parallel-size", "tp_size"),
        ("--model", "model_path"),
        ("--mem-frac", "mem_fraction_static"),
        ("--cuda-graph-max-bs", "cuda_graph_max_bs"),
        ("--cuda-graph-max-bs-decode", "cuda_graph_max_bs"),
        ("--no-enable-tf32-matmul", "enable_tf32_matmul"),
    ],
)
def test_a_typed_word_is_known_by_its_canonical_name(word: str, name: str) -> None:
    assert NEW.canonical(word) == name
    assert NEW.read(word)[1] is word.startswith("--no-")


def test_an_unknown_flag_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError) as refused:
        NEW.read("--mem-fraction-sttic")
    assert refused.value.exit_code == 2
    assert "--mem-fraction-static" in refused.value.hint


def test_an_ambiguous_beginning_is_refused_with_what_it_could_be() -> None:
    with pytest.raises(InputError, match=r"--speculative-eagle-topk.*--speculative-num-steps"):
        NEW.read("--speculative")


def test_colours_groups_and_wrapped_help_do_not_disturb() -> None:
    text = (
        "usage: x [-h] [--not-here N]\n\nServer: all about it\n\n\x1b[1moptions:\x1b[0m\n"
        "  -h, --help            show this\n"
        "  \x1b[36m--alpha-size\x1b[0m ALPHA_SIZE\n"
        "                        Set it. See also\n"
        "                        --beta-size for more.\n\n"
        "kernels:\n  --gamma {a,b} [{a,b} ...]\n                        Many.\n"
    )
    flags = parse_help(text)
    assert [flag.names for flag in flags.flags] == [("--help",), ("--alpha-size",), ("--gamma",)]
    gamma = flags.flag("gamma")
    assert gamma is not None
    assert (gamma.takes, gamma.choices) == (Takes.MANY, ("a", "b"))


@given(st.text(max_size=400))
def test_any_text_can_be_read(text: str) -> None:
    parse_help(text)


@given(st.sampled_from(sorted({*OLD.canonical_names, *NEW.canonical_names})))
def test_spelling_and_canonical_are_each_others_reverse(name: str) -> None:
    for flags in (OLD, NEW):
        word = flags.spelling(name)
        if word is not None:
            assert flags.canonical(word) == canonical_name(name) == name
