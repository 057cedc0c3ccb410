"""The search spaces that come with the tuner."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.document import parse_document
from tuner.space.configuration import Value
from tuner.space.parameters import AUTO, Choice, Float, Integer
from tuner.space.reading import parse_space, read_space
from tuner.space.space import SearchSpace

FOLDER = Path(__file__).parents[2] / "search_spaces"
KIMI = read_space(FOLDER / "kimi-k2.5-8x-rtx-pro-6000.yaml")
CPU = read_space(FOLDER / "cpu.yaml")
SPACES = [KIMI, CPU, read_space(FOLDER / "generic.yaml")]


def test_all_of_them_are_looked_at() -> None:
    assert sorted(space.file for space in SPACES) == sorted(map(str, FOLDER.glob("*.yaml")))


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_the_baseline_and_the_known_good_configurations_can_be_asked_for(space: SearchSpace) -> None:
    names = {dimension.name for dimension in space.dimensions}
    assert space.assignment({}).keys() == names
    assert space.broken_rule(space.configuration(space.assignment({}))) is None
    for known in space.known_good:
        assert space.configuration(space.assignment(known.values)) == known.values


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_they_say_what_is_known_of_every_parameter(space: SearchSpace) -> None:
    text = Path(space.file).read_text()
    for parameter in space.parameters:
        commented = re.search(rf"^  {parameter.name}:.*?(?=^  \w)|^  {parameter.name}:.*", text, re.M | re.S)
        assert parameter.about or (commented is not None and "#" in commented.group())


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_what_stands_in_comments_can_be_switched_on(space: SearchSpace) -> None:
    """Every commented-out parameter, choice and rule must still be one when its `#` is taken away."""
    text = Path(space.file).read_text()
    offered = re.compile(r"^( *)# ((?:- )?[\w-]+(?: +#.*|: [\[{].*)?)$", re.M)
    switched_on = offered.sub(r"\1\2", text)
    switched_on = re.sub(r"^# (rules:|  - forbid:|    because:)", r"\1", switched_on, flags=re.M)
    more = parse_space(parse_document(switched_on, space.file), space.name)
    assert more.fingerprint != space.fingerprint


def test_the_kimi_space_covers_what_was_tuned_by_hand() -> None:
    by_name = {parameter.name: parameter for parameter in KIMI.parameters}
    assert by_name.keys() >= {
        *("cuda_graph_max_bs", "mem_fraction_static", "all_reduce", "speculative", "speculative_num_steps"),
        *("attention_backend", "moe_runner_backend", "kv_cache_dtype", "chunked_prefill_size"),
        *(
            "max_running_requests",
            "NCCL_PROTO",
            "NCCL_ALGO",
            "NCCL_P2P_LEVEL",
            "NCCL_MIN_NCHANNELS",
            "ep_size",
        ),
    }
    graphs, memory = by_name["cuda_graph_max_bs"], by_name["mem_fraction_static"]
    assert isinstance(graphs, Integer)
    assert graphs.auto
    assert graphs.default == 512
    assert isinstance(memory, Float)
    assert memory.auto
    steps = KIMI.configuration(KIMI.assignment({"speculative": "off"}))
    assert "speculative_num_steps" not in steps


def test_the_kimi_space_forbids_what_is_known_to_run_out_of_memory() -> None:
    forbidden: list[dict[str, Value]] = [
        {"speculative": "eagle3"},
        {"cuda_graph_max_bs": 512, "mem_fraction_static": 0.92},
    ]
    for values in forbidden:
        assert KIMI.broken_rule(KIMI.configuration(KIMI.assignment(values))) is not None
    assert KIMI.broken_rule(KIMI.configuration(KIMI.assignment({"mem_fraction_static": 0.92}))) is None


def test_the_kimi_space_holds_for_versions_without_the_newer_all_reduce() -> None:
    older = KIMI.without({"all_reduce": {"pcie-ipc": "needs SGLang 0.5.21"}})
    assert [known.name for known in older.known_good] == [known.name for known in KIMI.known_good]


def test_nothing_in_the_kimi_space_changes_the_output_unsaid() -> None:
    names = {parameter.name for parameter in KIMI.parameters}
    assert not any("accept_threshold" in name for name in names)
    lossy = next(parameter for parameter in KIMI.parameters if parameter.name == "kv_cache_dtype")
    assert isinstance(lossy, Choice)
    assert KIMI.assignment({})["kv_cache_dtype"] == AUTO
    assert "changes the output" in lossy.about


def test_the_cpu_space_never_leaves_the_size_of_the_cache_to_the_engine() -> None:
    for values in ({}, *(known.values for known in CPU.known_good)):
        tokens = CPU.configuration(CPU.assignment(values))["max_total_tokens"]
        assert isinstance(tokens, int)
        assert tokens <= 65536


def test_the_cpu_space_holds_combinations_that_sglang_refuses() -> None:
    refused = CPU.assignment({"page_size": 64, "chunked_prefill_size": 96}, strict=False)
    assert refused is not None
    assert CPU.broken_rule(CPU.configuration(refused)) is None
