"""What a look launches: the same server without weights, with fewer layers, and without speculation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tuner.evaluate.looks import fidelities_of, look_of
from tuner.sglang.flags import parse_help
from tuner.sglang.installation import Installation
from tuner.sglang.plan import LaunchPlan
from tuner.simulator.profile import read_box
from tuner.simulator.virtual_start import VirtualStarts

NAMES = (
    "NCCL_PROTO",
    "all_reduce",
    "attention_backend",
    "mem_fraction_static",
    "speculative",
    "max_running_requests",
)


@pytest.fixture(scope="module")
def sglang() -> Installation:
    return VirtualStarts(read_box("dense-small")).installation(("server",))


def plan(*flags: tuple[str, tuple[str, ...]]) -> LaunchPlan:
    return LaunchPlan(("server",), (("--model-path", ("m",)), *flags), (("NCCL_PROTO", "LL"),))


@pytest.mark.parametrize(
    ("facts", "override"),
    [
        (
            {"layers": 61, "dense_layers": 1, "language_part": "text_config"},
            {"text_config": {"num_hidden_layers": 16}},
        ),
        ({"layers": 61, "dense_layers": 20}, {"num_hidden_layers": 21}),
        ({"layers": 24}, {"num_hidden_layers": 8}),
        ({"layers": 8}, None),  # a part of it would be all
        ({}, None),
    ],
)
def test_a_model_keeps_enough_layers_to_be_like_itself(
    facts: dict[str, Any], override: dict[str, Any] | None
) -> None:
    cheapest = fidelities_of(NAMES, {}, facts)[0]

    told = cheapest.flags.get("json_model_override_args")
    assert (json.loads(str(told)) if told else None) == override
    assert cheapest.flags["load_format"] == "dummy"


def test_a_look_judges_kernels_and_collectives_alone() -> None:
    (look,) = fidelities_of(NAMES, {}, {})

    assert look.blind_to == {"mem_fraction_static", "speculative", "max_running_requests"}


def test_where_every_launch_has_speculation_no_look_is_made() -> None:
    assert fidelities_of(NAMES, {"speculative_algorithm": "EAGLE3"}, {"layers": 61}) == ()


def test_the_flags_of_a_look_take_the_place_of_the_launchs_own(sglang: Installation) -> None:
    given = plan(
        ("--load-format", ("safetensors",)),
        ("--speculative-algorithm", ("EAGLE3",)),
        ("--speculative-num-steps", ("3",)),
        ("--json-model-override-args", ('{"index_topk": 7, "text_config": {"a": 1}}',)),
        ("--tp", ("8",)),
    )
    facts = {"layers": 61, "language_part": "text_config"}

    found = look_of(given, fidelities_of(NAMES, {}, facts)[0], sglang)

    flags = dict(found.flags)
    assert flags["--load-format"] == ("dummy",)
    assert flags["--tp"] == ("8",)
    assert not any("speculative" in word for word in found.argv)
    (override,) = flags["--json-model-override-args"]
    assert json.loads(override) == {"index_topk": 7, "text_config": {"a": 1, "num_hidden_layers": 16}}
    assert found.variables == given.variables
    assert found.fingerprint != given.fingerprint


def test_an_override_that_is_no_json_is_left_to_sglang(sglang: Installation) -> None:
    given = plan(("--json-model-override-args", ("{layers",)))

    found = look_of(given, fidelities_of(NAMES, {}, {"layers": 61})[0], sglang)

    assert dict(found.flags)["--json-model-override-args"] == ("{layers",)


def test_a_version_without_the_flag_cannot_be_looked_at() -> None:
    bare = Installation(
        ("server",), parse_help("usage: server [--model-path P]\n\noptions:\n  --model-path P  It.\n")
    )

    with pytest.raises(Exception, match="load_format"):
        look_of(plan(), fidelities_of(NAMES, {}, {})[0], bare)
