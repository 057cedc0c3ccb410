from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.sglang import help_texts
from tuner.document import write_document
from tuner.sglang.command import read_command
from tuner.sglang.config_file import to_config
from tuner.sglang.installation import Installation
from tuner.sglang.plan import LaunchPlan

NEW = help_texts.installed(help_texts.new(), "0.5.23")
OLD = help_texts.installed(help_texts.old(), "0.5.2")


def plan(*flags: tuple[str, ...]) -> LaunchPlan:
    return LaunchPlan(("python",), tuple((flag, tuple(values)) for flag, *values in flags), port=30000)


def as_sglang_reads(text: str, installation: Installation) -> list[str]:
    """The words that SGLang 0.5.23 makes of a file, by its documented rules."""
    words: list[str] = []
    for key, value in (yaml.safe_load(text) or {}).items():
        flag = installation.flags.exact(f"--{key}")
        assert flag is not None
        assert not flag.deprecated
        assert flag.negation is None
        if isinstance(value, bool):
            words += [f"--{key}"] if value else []
        elif isinstance(value, list):
            words += [f"--{key}", *(str(item) for item in value)] if value else []
        else:
            words += [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def test_keys_have_hyphens_and_values_have_types() -> None:
    config, leftovers = to_config(
        plan(
            ("--model-path", "/m"),
            ("--tp-size", "8"),
            ("--mem-fraction-static", "0.88"),
            ("--cuda-graph-bs-decode", "1", "2"),
            ("--disable-radix-cache",),
            ("--chunked-prefill-size", "-1"),
        ),
        NEW,
    )
    assert config == {
        "model-path": "/m",
        "tp-size": 8,
        "mem-fraction-static": 0.88,
        "cuda-graph-bs-decode": [1, 2],
        "disable-radix-cache": True,
        "chunked-prefill-size": -1,
    }
    assert leftovers == []


@pytest.mark.parametrize(
    "value",
    ["true", "null", "off", "~", "1.10", "007", "1e-5", "1:30", '{"a": 1}', "2024-01-01", "a: b", "0x10"],
)
def test_a_value_comes_back_from_the_file_as_the_same_word(value: str) -> None:
    config, leftovers = to_config(plan(("--served-model-name", value), ("--tp-size", "8")), NEW)
    words = as_sglang_reads(write_document(config), NEW)
    assert words == ["--served-model-name", value, "--tp-size", "8"]
    assert leftovers == []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            (("--disable-cuda-graph",),),
            {"cuda-graph-backend-decode": "disabled", "cuda-graph-backend-prefill": "disabled"},
        ),
        ((("--dp-size", "4"), ("--enable-dp-attention",)), {"attn-dp-size": 4}),
        ((("--enable-flashinfer-allreduce-fusion",),), {"flashinfer-allreduce-fusion-backend": "auto"}),
    ],
)
def test_deprecated_flags_are_said_with_the_keys_that_the_file_can_hold(
    flags: tuple[tuple[str, ...], ...], expected: dict[str, Any]
) -> None:
    assert to_config(plan(*flags), NEW) == (expected, [])


def test_what_the_file_cannot_hold_is_left_over_with_the_reason() -> None:
    config, leftovers = to_config(
        plan(("--no-enable-tf32-matmul",), ("--revision", ""), ("--tp-size", "2")), NEW
    )
    assert config == {"tp-size": 2}
    assert [left.words for left in leftovers] == [("--no-enable-tf32-matmul",), ("--revision", "")]
    assert "negated" in leftovers[0].reason
    assert "empty" in leftovers[1].reason


def test_without_config_support_everything_is_left_over() -> None:
    config, leftovers = to_config(plan(("--tp-size", "2")), OLD)
    assert config == {}
    assert leftovers[0].words == ("--tp-size", "2")
    assert "no --config" in leftovers[0].reason


def test_a_read_command_survives_the_way_through_the_file() -> None:
    made = plan(("--model-path", "/m"), ("--cuda-graph-max-bs-decode", "64"), ("--disable-radix-cache",))
    config, _ = to_config(made, NEW)
    typed = read_command(as_sglang_reads(write_document(config), NEW), NEW)
    assert typed.flags == {"model_path": "/m", "cuda_graph_max_bs": 64, "disable_radix_cache": True}
