"""Between a sampler's dimensions and configurations, and what a space knows about itself."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.space.spaces import TEXT, space
from tuner.errors import InputError
from tuner.space.configuration import Configuration, Value
from tuner.space.space import ChoiceDimension, Dimension, NumberDimension, differences

SPACE = space()
DIMENSIONS = {dimension.name: dimension for dimension in SPACE.dimensions}


def _values_of(dimension: Dimension) -> st.SearchStrategy[Value]:
    if isinstance(dimension, ChoiceDimension):
        return st.sampled_from(dimension.choices)
    low, high, step = dimension.low, dimension.high, dimension.step
    if step is None:
        return st.floats(low, high)
    # a sampler adds up steps in binary: 0.8 + 7 * 0.01 is 0.8700000000000001
    return st.integers(0, round((high - low) / step)).map(lambda steps: low + steps * step)


ASSIGNMENTS: st.SearchStrategy[dict[str, Value]] = st.fixed_dictionaries(
    {name: _values_of(dimension) for name, dimension in DIMENSIONS.items()}
)


# --- dimensions -------------------------------------------------------------------------------------------


def test_a_number_that_may_be_auto_is_two_dimensions_and_everything_else_is_one() -> None:
    assert list(DIMENSIONS) == [
        *("cuda_graph_max_bs.auto", "cuda_graph_max_bs", "mem_fraction_static.auto", "mem_fraction_static"),
        *(
            "schedule_conservativeness",
            "decode_log_interval",
            "all_reduce",
            "numa",
            "kv_cache_dtype",
            "ep_size",
        ),
        *("enable_mixed_chunk", "NCCL_PROTO", "speculative", "speculative_num_steps", "speculative_adaptive"),
    ]
    assert DIMENSIONS["cuda_graph_max_bs"] == NumberDimension("cuda_graph_max_bs", 8, 512, 1, True, True)
    assert DIMENSIONS["mem_fraction_static"] == NumberDimension(
        "mem_fraction_static", 0.8, 0.94, 0.01, False, False
    )
    assert DIMENSIONS["schedule_conservativeness"] == NumberDimension(
        "schedule_conservativeness", 0.1, 2.0, None, False, False
    )
    assert DIMENSIONS["mem_fraction_static.auto"] == ChoiceDimension(
        "mem_fraction_static.auto", (True, False)
    )
    assert DIMENSIONS["ep_size"] == ChoiceDimension("ep_size", (1, 8), ordered=True)
    assert DIMENSIONS["enable_mixed_chunk"] == ChoiceDimension("enable_mixed_chunk", (False, True))
    assert DIMENSIONS["kv_cache_dtype"] == ChoiceDimension("kv_cache_dtype", ("auto", "fp8_e4m3"))


@settings(deadline=None)
@given(ASSIGNMENTS)
def test_every_configuration_comes_back_with_the_same_dimensions(assignment: dict[str, Value]) -> None:
    configuration = SPACE.configuration(assignment)
    again = SPACE.assignment(configuration)
    assert again.keys() == DIMENSIONS.keys()
    assert SPACE.configuration(again) == configuration


@settings(deadline=None)
@given(ASSIGNMENTS)
def test_an_assignment_comes_back_where_it_applies(assignment: dict[str, Value]) -> None:
    configuration = SPACE.configuration(assignment)
    again = SPACE.assignment(configuration)
    for name in configuration:
        assert again[name] == pytest.approx(assignment[name]) if name != "ep_size" else assignment[name]
    for name, value in assignment.items():
        if name.endswith(".auto"):
            assert again[name] == value


# --- configurations ---------------------------------------------------------------------------------------


def test_auto_and_what_does_not_apply_are_left_out() -> None:
    assignment = SPACE.assignment({"speculative": "off"})
    assignment |= {"speculative_num_steps": 5, "kv_cache_dtype": "auto", "mem_fraction_static.auto": True}
    configuration = SPACE.configuration(assignment)
    left_out = {"speculative_num_steps", "speculative_adaptive", "kv_cache_dtype", "mem_fraction_static"}
    assert not left_out & set(configuration)


def test_a_condition_sees_what_the_conditions_before_it_left() -> None:
    assignment = SPACE.assignment({"speculative": "eagle3", "speculative_num_steps": 3})
    assert "speculative_adaptive" in SPACE.configuration(assignment)
    # dropped with speculation, the steps are absent, and a comparison with them is false
    assert "speculative_adaptive" not in SPACE.configuration({**assignment, "speculative": "off"})


def test_numbers_are_put_on_their_step_and_whole_numbers_are_whole() -> None:
    assignment = SPACE.assignment({"mem_fraction_static": 0.88, "cuda_graph_max_bs": 128})
    assignment |= {"mem_fraction_static": 0.8 + 7 * 0.01, "cuda_graph_max_bs": 128.0}
    configuration = SPACE.configuration(assignment)
    assert repr(configuration["mem_fraction_static"]) == "0.87"
    assert repr(configuration["cuda_graph_max_bs"]) == "128"


def test_an_assignment_that_lacks_a_dimension_is_refused() -> None:
    assignment = SPACE.assignment({})
    del assignment["all_reduce"]
    with pytest.raises(InputError, match="no value for 'all_reduce'"):
        SPACE.configuration(assignment)


def test_what_is_left_unsaid_is_auto_or_the_default_or_the_first() -> None:
    assert SPACE.assignment({}) == {
        "cuda_graph_max_bs.auto": True,
        "cuda_graph_max_bs": 512,
        "mem_fraction_static.auto": True,
        "mem_fraction_static": 0.8,
        "schedule_conservativeness": 1.0,
        "decode_log_interval": 10,
        "all_reduce": "custom",
        "numa": "off",
        "kv_cache_dtype": "auto",
        "ep_size": 1,
        "enable_mixed_chunk": False,
        "NCCL_PROTO": "auto",
        "speculative": "off",
        "speculative_num_steps": 1,
        "speculative_adaptive": False,
    }


@pytest.mark.parametrize(
    ("values", "fragments"),
    [
        ({"cuda_graph_max_bs": 1024}, ["1024 is outside the range of 'cuda_graph_max_bs', 8 to 512"]),
        ({"cuda_graph_max_bs": 8.5}, ["a whole number and cannot be 8.5"]),
        ({"cuda_graph_max_bs": "many"}, ["is a number and cannot be 'many'"]),
        ({"cuda_graph_max_bs": True}, ["is a number and cannot be True"]),
        ({"mem_fraction_static": 0.885}, ["0.885 is not on the grid", "0.8, then steps of 0.01"]),
        ({"mem_fraction_static": float("nan")}, ["outside the range"]),
        ({"decode_log_interval": 15}, ["15 is not on the grid", "10, then steps of 10"]),
        ({"decode_log_interval": "auto"}, ["cannot be auto in this space", "auto: true"]),
        ({"all_reduce": "ncll"}, ["'ncll' is no choice of 'all_reduce'", "did you mean 'nccl'?"]),
        ({"ep_size": 2}, ["2 is no choice of 'ep_size'", "known: 1, 8"]),
        ({"ep_size": True}, ["True is no choice"]),
        ({"enable_mixed_chunk": 1}, ["is a switch and cannot be 1"]),
        ({"mem_fraction": 0.9}, ["'mem_fraction' is no parameter", "did you mean 'mem_fraction_static'?"]),
    ],
)
def test_a_value_outside_the_space_is_refused_or_answered_with_none(
    values: dict[str, Value], fragments: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        SPACE.assignment(values)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert SPACE.assignment(values, strict=False) is None


def test_values_at_the_edges_and_with_the_dust_of_binary_arithmetic_are_inside() -> None:
    for value in (0.8, 0.94, 0.8 + 7 * 0.01, 0.1 + 0.7 + 0.04):
        assert SPACE.assignment({"mem_fraction_static": value}, strict=False) is not None
    assert SPACE.assignment({"cuda_graph_max_bs": 512.0})["cuda_graph_max_bs"] == 512
    assert SPACE.assignment({"cuda_graph_max_bs": "auto"})["cuda_graph_max_bs.auto"] is True


def test_a_broken_rule_is_told_with_its_reason() -> None:
    broken = SPACE.broken_rule(Configuration({"cuda_graph_max_bs": 512, "mem_fraction_static": 0.92}))
    assert broken is not None
    assert broken.because == "no room for the graphs"
    assert SPACE.broken_rule(Configuration({"cuda_graph_max_bs": 512})) is None


# --- size ---------------------------------------------------------------------------------------------------


def test_the_size_counts_different_configurations() -> None:
    small = space(
        """
        parameters:
          a: {type: integer, low: 1, high: 9, step: 4, auto: true}
          b: [x, y]
          c: {type: boolean, when: b == y}
          d: {type: float, low: 0.1, high: 0.3, step: 0.1, when: c and a > 1}
        """
    )
    choices = [
        dimension.choices
        if isinstance(dimension, ChoiceDimension)
        else [dimension.low, (dimension.low + dimension.high) / 2, dimension.high]
        for dimension in small.dimensions
    ]
    names = [dimension.name for dimension in small.dimensions]
    points = {small.configuration(dict(zip(names, values, strict=True))) for values in product(*choices)}
    assert small.size() == len(points)


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        ("{a: {type: float, low: 0.5, high: 0.9}}", None),
        ("{a: {type: float, low: 0.5, high: 0.9, log: true}}", None),
        ("{a: {type: float, low: 0.5, high: 0.5, auto: true}}", 2),
        ("{a: {type: integer, low: 8, high: 512, log: true}}", 505),
        ("{a: {type: integer, low: 1, high: 1000000}, b: {type: boolean, when: a > 3}}", None),
    ],
)
def test_the_size_is_unknown_where_counting_has_no_end(parameters: str, size: int | None) -> None:
    assert space(f"parameters: {parameters}").size() == size


# --- narrowing ----------------------------------------------------------------------------------------------

OLD = {"all_reduce": {"pcie-ipc": "needs SGLang 0.5.21"}, "speculative": {"off": "not wanted"}}


def test_choices_that_cannot_be_had_go_with_what_used_them_and_are_named() -> None:
    narrowed = SPACE.without(OLD)
    by_name = {dimension.name: dimension for dimension in narrowed.dimensions}
    assert by_name["all_reduce"] == ChoiceDimension("all_reduce", ("nccl", "custom"))
    assert by_name["speculative"] == ChoiceDimension("speculative", ("eagle3",))
    assert [known.name for known in narrowed.known_good] == ["by hand"]
    assert narrowed.dropped == (
        "all_reduce=pcie-ipc: needs SGLang 0.5.21",
        "speculative=off: not wanted",
        "known-good configuration 'ipc': it uses all_reduce=pcie-ipc",
    )
    assert SPACE.dropped == ()
    # conditions on a choice that went still mean what they meant
    assert "speculative_num_steps" in narrowed.configuration(narrowed.assignment({}))


def test_rules_that_name_a_removed_choice_stay() -> None:
    ruled = space(
        """
        parameters: {all_reduce: [nccl, pcie-ipc]}
        rules: [{forbid: all_reduce == pcie-ipc, because: it hung}]
        """
    )
    assert ruled.without(OLD).rules == ruled.rules


def test_a_parameter_that_cannot_be_had_goes_and_known_good_stay_where_it_is_at_its_default() -> None:
    whole = space(
        """
        parameters:
          ep_size: {type: choice, choices: [1, 8], default: 1}
          page_size: {type: choice, choices: [auto, 64], when: ep_size == 8}
          graphs: {type: integer, low: 1, high: 8}
        rules: [{forbid: ep_size == 8 and graphs > 4, because: it hung}]
        known_good:
          - {name: plain, values: {graphs: 8}}
          - {name: spread, values: {ep_size: 8, graphs: 2}}
        """
    )
    narrowed = whole.without({}, {"ep_size": "no flag for it", "other": "x"})
    assert [dimension.name for dimension in narrowed.dimensions] == ["page_size", "graphs"]
    assert [(known.name, dict(known.values)) for known in narrowed.known_good] == [("plain", {"graphs": 8})]
    assert narrowed.dropped == (
        "ep_size: no flag for it",
        "known-good configuration 'spread': it uses ep_size=8",
    )
    assert dict(narrowed.configuration({"page_size": 64, "graphs": 8})) == {"graphs": 8}
    assert narrowed.broken_rule({"graphs": 8}) is None
    assert narrowed.size() == 8


def test_a_default_that_went_is_no_default_any_more() -> None:
    narrowed = SPACE.without({"all_reduce": {"custom": "gone"}})
    assert narrowed.assignment({})["all_reduce"] == "nccl"


def test_what_the_space_does_not_have_is_passed_over() -> None:
    same = SPACE.without(
        {"all_reduce": {"mscclpp": "x"}, "other": {"y": "z"}, "cuda_graph_max_bs": {"8": "x"}}
    )
    assert (same, same.dropped, same.fingerprint) == (SPACE, (), SPACE.fingerprint)


def test_a_parameter_without_any_choice_is_refused() -> None:
    with pytest.raises(InputError, match=r"box.yaml: parameters.ep_size: none of its choices .*8: too many"):
        SPACE.without({"ep_size": {"1": "too few", "8": "too many"}})


# --- identity -----------------------------------------------------------------------------------------------


def test_the_fingerprint_is_of_the_content_and_not_of_the_prose() -> None:
    lines = TEXT.replace("about: graphs", "about: other words").replace("about: it ran", "about: really")
    reordered = lines.replace("no room for the graphs", "so be it").replace("> 256 and", ">   256   and")
    assert space(f"# a comment\n{reordered}").fingerprint == SPACE.fingerprint
    assert len(SPACE.fingerprint) == 12


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("low: 8,", "low: 16,", "the parameter 'cuda_graph_max_bs': low was 8 and is now 16"),
        ("high: 0.94, step: 0.01, auto: true", "high: 0.94, step: 0.01", "auto was True and is now False"),
        ("[nccl, custom, pcie-ipc]", "[nccl, custom, mscclpp, pcie-ipc]", "the choice mscclpp is new"),
        ("[auto, fp8_e4m3]", "[fp8_e4m3]", "'kv_cache_dtype': the choice auto is gone"),
        ("[auto, fp8_e4m3]", "[fp8_e4m3, auto]", "'kv_cache_dtype': the order of its choices changed"),
        ("NUMA_STRICT: 1", "NUMA_STRICT: 0", "the parameter 'numa': effects was"),
        ("when: speculative != off", "when: speculative == eagle3", "when was speculative != off and is now"),
        ("  enable_mixed_chunk:", "  enable_torch_compile:", "the parameter 'enable_torch_compile' is new"),
        ("  enable_mixed_chunk:", "  enable_torch_compile:", "the parameter 'enable_mixed_chunk' is gone"),
        ("> 256", "> 128", "the rule 'cuda_graph_max_bs > 128 and mem_fraction_static > 0.9' is new"),
        ("> 256", "> 128", "the rule 'cuda_graph_max_bs > 256 and mem_fraction_static > 0.9' is gone"),
        ("name: ipc", "name: pcie", "the known-good configuration 'pcie' is new"),
        (
            "static: 0.88",
            "static: 0.9",
            "configuration 'by hand': mem_fraction_static was 0.88 and is now 0.9",
        ),
    ],
)
def test_a_change_changes_the_fingerprint_and_is_told_in_words(
    before: str, after: str, sentence: str
) -> None:
    assert before in TEXT
    changed = space(TEXT.replace(before, after))
    assert changed.fingerprint != SPACE.fingerprint
    # as a study stores it and reads it back
    told = differences(json.loads(json.dumps(SPACE.canonical())), changed.canonical())
    assert any(sentence in line for line in told), told


def test_the_same_space_has_no_differences() -> None:
    assert differences(json.loads(json.dumps(SPACE.canonical())), space().canonical()) == []


def test_configurations_are_the_same_whatever_their_order_and_binary_dust() -> None:
    one = Configuration({"b": 0.1 + 0.2, "a": 1})
    assert one == Configuration({"a": 1.0, "b": 0.3})
    assert len({one, Configuration({"a": 1.0, "b": 0.3})}) == 1
    assert one != Configuration({"a": True, "b": 0.3})
    assert one != Configuration({"a": "1", "b": 0.3})
    assert Configuration({"on": True, "f": 0.88}).shown() == "f=0.88 on=on"
    assert Configuration().shown() == "(engine defaults)"
