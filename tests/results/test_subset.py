"""A launch with parameters left out, made of the record of the launch that had them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.space.spaces import space
from tuner.errors import InputError
from tuner.results.subset import launch_without
from tuner.space.configuration import Configuration
from tuner.space.parameters import Parameter

LAUNCH: dict[str, Any] = {
    "server_command": ["server"],
    "config": {
        "model-path": "m",
        "cuda-graph-max-bs-decode": 64,
        "ep-size": 8,
        "enable-mixed-chunk": True,
        "numa-node": [0, 1],
        "speculative-algorithm": "EAGLE3",
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
        "disable-custom-all-reduce": True,
    },
    "config_left_out": [{"words": ["--decode-log-interval", "20"], "reason": "some"}],
    "variables": {"NCCL_PROTO": "LL128", "NUMA_STRICT": "1"},
}


def parameters(*names: str) -> list[Parameter]:
    return [parameter for parameter in space().parameters if parameter.name in names]


@pytest.mark.parametrize(
    ("name", "unsaid", "gone"),
    [
        ("cuda_graph_max_bs", None, {"cuda-graph-max-bs-decode"}),
        ("enable_mixed_chunk", False, {"enable-mixed-chunk"}),
        ("NCCL_PROTO", None, {"NCCL_PROTO"}),
        ("decode_log_interval", None, {"--decode-log-interval"}),
        ("all_reduce", "custom", {"disable-custom-all-reduce"}),
        (
            "speculative",
            "off",
            {"speculative-algorithm", "speculative-num-steps", "speculative-eagle-topk"},
        ),
    ],
)
def test_what_a_parameter_set_is_gone_and_nothing_else(name: str, unsaid: Any, gone: set[str]) -> None:
    smaller = Configuration({} if unsaid is None else {name: unsaid})

    left = launch_without(LAUNCH, parameters(name), smaller)

    def names(launch: dict[str, Any]) -> set[str]:
        words = {item["words"][0] for item in launch["config_left_out"]}
        return {*launch["config"], *launch["variables"], *words}

    assert names(LAUNCH) - names(left) == gone
    assert left["server_command"] == LAUNCH["server_command"]


def test_a_value_that_is_unsaid_but_no_absence_takes_its_place() -> None:
    left = launch_without(LAUNCH, parameters("ep_size"), Configuration({"ep_size": 1}))
    assert left["config"]["ep-size"] == 1
    assert LAUNCH["config"]["ep-size"] == 8


def test_draft_tokens_follow_the_steps() -> None:
    left = launch_without(
        LAUNCH, parameters("speculative_num_steps"), Configuration({"speculative_num_steps": 1})
    )
    assert left["config"]["speculative-num-steps"] == 1
    assert left["config"]["speculative-num-draft-tokens"] == 2


@pytest.mark.parametrize(
    ("name", "unsaid"),
    [
        ("speculative_num_steps", None),  # what the engine takes then is not said
        ("mem_fraction_static", None),  # the record does not show it
        ("all_reduce", "nccl"),  # which sets something itself
        ("numa", "bind"),
    ],
)
def test_what_the_record_does_not_tell_is_refused(name: str, unsaid: Any) -> None:
    smaller = Configuration({} if unsaid is None else {name: unsaid})
    with pytest.raises(InputError, match=f"'{name}'.*record") as refused:
        launch_without(LAUNCH, parameters(name), smaller)
    assert "--explain 1" in refused.value.hint
