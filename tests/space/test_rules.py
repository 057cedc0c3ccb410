"""The comparison language: what it means, what it refuses, and that nothing gets past it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.space.spaces import space
from tuner.errors import InputError
from tuner.space.parameters import Choice, Composite, Integer
from tuner.space.rules import Condition, parse_condition

PARAMETERS = space().parameters


def condition(text: str) -> Condition:
    return parse_condition(text, PARAMETERS)


HERE = {
    "cuda_graph_max_bs": 128,
    "mem_fraction_static": 0.88,
    "all_reduce": "pcie-ipc",
    "speculative": "eagle3",
    "speculative_num_steps": 3,
    "ep_size": 8,
    "enable_mixed_chunk": True,
    "NCCL_PROTO": "LL,LL128,Simple",
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("cuda_graph_max_bs == 128", True),
        ("cuda_graph_max_bs != 128", False),
        ("cuda_graph_max_bs > 127.5 and cuda_graph_max_bs <= 128", True),
        ("128 <= cuda_graph_max_bs", True),
        ("cuda_graph_max_bs < 128 or mem_fraction_static >= 0.88", True),
        ("not cuda_graph_max_bs == 128", False),
        ("not (cuda_graph_max_bs > 1 and ep_size > 9)", True),
        # `and` binds tighter than `or`, `not` tighter than both
        ("ep_size == 8 or ep_size == 1 and ep_size == 1", True),
        ("not ep_size == 1 and ep_size == 8", True),
        # arithmetic: * before +, left to right, minus with spaces
        ("cuda_graph_max_bs == 2 + 3 * 42", True),
        ("cuda_graph_max_bs - 100 - 8 == 20", True),
        ("cuda_graph_max_bs / 3 > 42", True),
        ("cuda_graph_max_bs % 100 == 28", True),
        ("-cuda_graph_max_bs < -(100 + 27)", True),
        ("cuda_graph_max_bs >= ep_size * speculative_num_steps", True),
        # words: hyphens belong to them; quotes are for the rest
        ("all_reduce == pcie-ipc", True),
        ("all_reduce in [nccl, pcie-ipc]", True),
        ("all_reduce not in [nccl, custom]", True),
        ("ep_size in [1, 8]", True),
        ("cuda_graph_max_bs in [-1, 128]", True),
        ("NCCL_PROTO == 'LL,LL128,Simple'", True),
        ('NCCL_PROTO in ["LL128"]', False),
        ("speculative != off", True),
        ("off == speculative", False),
        # switches
        ("enable_mixed_chunk", True),
        ("enable_mixed_chunk == false", False),
        ("not enable_mixed_chunk", False),
        # a division by zero makes its comparison false, whatever the sign
        ("cuda_graph_max_bs / 0 == 1", False),
        ("cuda_graph_max_bs % 0 != 1", False),
        ("not cuda_graph_max_bs / 0 == 1", True),
    ],
)
def test_what_a_condition_means(text: str, holds: bool) -> None:
    assert condition(text).holds(HERE) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("cuda_graph_max_bs == auto", True),
        ("cuda_graph_max_bs != auto", False),
        ("auto == kv_cache_dtype", True),
        ("kv_cache_dtype in [fp8_e4m3, auto]", True),
        ("kv_cache_dtype not in [fp8_e4m3, auto]", False),
        ("kv_cache_dtype != fp8_e4m3", False),
        ("not kv_cache_dtype == fp8_e4m3", True),
        ("cuda_graph_max_bs < 1000", False),
        ("cuda_graph_max_bs != 3", False),
        ("cuda_graph_max_bs * 0 == 0", False),
        ("cuda_graph_max_bs != ep_size", False),
        ("enable_mixed_chunk", False),
        ("enable_mixed_chunk == false", False),
        ("speculative_num_steps == auto", True),
    ],
)
def test_an_absent_parameter_is_auto_and_compares_with_nothing_else(text: str, holds: bool) -> None:
    assert condition(text).holds({}) is holds


def test_the_word_auto_as_a_value_is_absence_too() -> None:
    assert condition("kv_cache_dtype == auto").holds({"kv_cache_dtype": "auto"})
    assert not condition("kv_cache_dtype != fp8_e4m3").holds({"kv_cache_dtype": "auto"})


def test_a_word_is_a_parameter_before_it_is_a_value() -> None:
    parameters = (
        Composite(name="mode", choices=("other", "page_size"), effects={}),
        Composite(name="other", choices=("page_size",), effects={}),
    )
    assert parse_condition("mode == other", parameters).holds({"mode": "page_size", "other": "page_size"})
    assert not parse_condition("mode == 'other'", parameters).holds(
        {"mode": "page_size", "other": "page_size"}
    )


def test_a_condition_knows_what_it_names_and_is_spelled_one_way() -> None:
    one = condition("all_reduce   in[nccl,custom]and not(ep_size>1)")
    assert one.names == {"all_reduce", "ep_size"}
    assert one.text == "all_reduce in [nccl, custom] and not (ep_size > 1)"
    assert one == condition(one.text)


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("cuda_graph_max_bss > 3", ["character 1", "no parameter", "did you mean 'cuda_graph_max_bs'?"]),
        ("mem-fraction-static > 0.9", ["did you mean 'mem_fraction_static'?"]),
        ("speculative != of", ["character 16", "'of' is no choice of 'speculative'", "did you mean 'off'?"]),
        ("all_reduce == 'ncll'", ["'ncll' is no choice of 'all_reduce'", "did you mean 'nccl'?"]),
        ("all_reduce in [nccl, pcieipc]", ["did you mean 'pcie-ipc'?"]),
        ("all_reduce == everything", ["its choices: nccl, custom, pcie-ipc"]),
        ("ncll in [nccl]", ["'ncll' is no parameter"]),
        ("ep_size == 4", ["'4' is no choice of 'ep_size'", "its choices: 1, 8"]),
        ("ep_size in [4]", ["'4' is no choice of 'ep_size'"]),
        ("all_reduce == ep_size", ["of different kinds"]),
        ("all_reduce > 3", ["'all_reduce' has no order"]),
        ("all_reduce < custom", ["'all_reduce' has no order", "use ==, != or in"]),
        ("all_reduce + 1 == 2", ["'all_reduce' is no number", "its choices: nccl"]),
        ("all_reduce == 2 + 1", ["'all_reduce' is no number"]),
        ("enable_mixed_chunk == 1", ["is a switch: true or false"]),
        ("enable_mixed_chunk + 1 == 2", ["is no number", "it is a switch"]),
        ("enable_mixed_chunk == all_reduce", ["of different kinds"]),
        ("cuda_graph_max_bs == off", ["is a number", "neither that nor a parameter"]),
        ("cuda_graph_max_bs == true", ["is a number"]),
        ("cuda_graph_max_bs > auto", ["use == or !="]),
        ("cuda_graph_max_bs", ["no condition by itself", "compare it with something"]),
        ("ep_size > 1 and 3", ["no condition by itself"]),
        ("nonsense", ["'nonsense' is no parameter"]),
        ("2 in [1, 2]", ["only a parameter can be looked up in a list"]),
        ("1 < 2", ["names no parameter"]),
        ("(ep_size > 1) + 1 == 2", ["expected a number here"]),
        ("1 < ep_size < 8", ["character 13", "cannot be chained", "and"]),
        ("ep_size = 8", ["'=' has no meaning", "write =="]),
        ("ep_size == 8 && ep_size == 1", ["write and"]),
        ("!enable_mixed_chunk", ["write not"]),
        ("all_reduce == 'nccl", ["closing quote is missing"]),
        ("ep_size-cuda_graph_max_bs > 3", ["one word", "a minus needs a space"]),
        ("ep_size > 8x", ["'8x' has no meaning"]),
        ("ep_size > 1e999", ["too large"]),
        ("ep_size > " + "9" * 5000, ["too long"]),
        ("ep_size >", ["stops too early"]),
        ("", ["stops too early"]),
        ("(ep_size > 1", ["expected ')', got 'the end'"]),
        ("ep_size > 1)", ["')' is not expected"]),
        ("ep_size > 1 ep_size > 2", ["'ep_size' is not expected", "and / or"]),
        ("ep_size not 3", ["'not' stands before a condition"]),
        ("ep_size in 3", ["expected '[', got '3'"]),
        ("ep_size in []", ["expected a parameter or a value, got ']'"]),
        ("ep_size in [-off]", ["a list holds"]),
        ("ep_size in [(ep_size > 1)]", ["a list holds"]),
        ("ep_size == and", ["got 'and'"]),
        ("(" * 30 + "ep_size > 1" + ")" * 30, ["nested more than 20 deep"]),
        ("not " * 30 + "ep_size > 1", ["nested more than 20 deep"]),
        (" and ".join(["ep_size > 1"] * 100), ["more than 200 words"]),
        ("ep_size > 1; import os", ["';' has no meaning"]),
        ("__import__('os')", ["'(' is not expected"]),
    ],
)
def test_what_is_refused_says_where_and_what_instead(text: str, fragments: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        condition(text)
    for fragment in fragments:
        assert fragment in str(caught.value)


_WORDS = [parameter.name for parameter in PARAMETERS] + [
    *(
        "and",
        "or",
        "not",
        "in",
        "auto",
        "true",
        "false",
        "off",
        "nccl",
        "pcie-ipc",
        "8",
        "0",
        "0.9",
        "'x'",
        '"',
    ),
    *("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",", "1e300", "9" * 400),
]
_SENSELESS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(_WORDS), max_size=25).map(" ".join))
_ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("auto"), st.just(0)
)


@settings(deadline=None)
@given(text=_SENSELESS, values=st.dictionaries(st.sampled_from(_WORDS), _ANYTHING))
def test_any_text_is_a_condition_or_an_input_error_and_deciding_never_fails(
    text: str, values: dict[str, object]
) -> None:
    try:
        parsed = condition(text)
    except InputError:
        return
    assert parsed.holds(values) in (True, False)
    assert condition(parsed.text).holds(values) is parsed.holds(values)


_NUMBERS = st.one_of(st.integers(), st.floats(), st.just(0), st.just(10**400))


@settings(deadline=None)
@given(
    sum_=st.lists(st.sampled_from([*"+-*/%"]), min_size=1, max_size=8),
    words=st.lists(st.sampled_from(["a", "b", "0", "1e300", "9" * 400]), min_size=9, max_size=9),
    values=st.fixed_dictionaries({"a": _NUMBERS, "b": _NUMBERS}),
)
def test_calculating_with_any_numbers_never_fails(
    sum_: list[str], words: list[str], values: dict[str, float]
) -> None:
    text = "a" + "".join(f" {sign} {word}" for sign, word in zip(sum_, words, strict=False)) + " < b"
    parsed = parse_condition(text, [Integer(name=name, low=0, high=9) for name in ("a", "b")])
    assert parsed.holds(values) in (True, False)


def test_a_choice_of_numbers_and_words_compares_by_equality_only() -> None:
    parameters = (Choice(name="NCCL_P2P_LEVEL", choices=("auto", "SYS", 4)),)
    assert parse_condition("NCCL_P2P_LEVEL == 4", parameters).holds({"NCCL_P2P_LEVEL": 4})
    with pytest.raises(InputError, match="has no order"):
        parse_condition("NCCL_P2P_LEVEL > 3", parameters)
