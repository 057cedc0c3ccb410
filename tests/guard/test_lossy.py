"""Which switches give up exactness."""

from __future__ import annotations

import pytest

from tuner.guard.lossy import lossy_switches


@pytest.mark.parametrize(
    "flags",
    [
        {"speculative_accept_threshold_single": 0.5},
        {"speculative_accept_threshold_acc": 0.99},
        {"quantization": "fp8"},
        {"torchao_config": "int4wo-128"},
        {"load_format": "bitsandbytes"},
        {"kv_cache_dtype": "fp4_e2m1"},
        {"enable_double_sparsity": True},
        {"json_model_override_args": '{"num_hidden_layers": 10}'},
    ],
)
def test_lossy(flags: dict[str, object]) -> None:
    (found,) = lossy_switches(flags)
    assert next(iter(flags)) in found


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"speculative_accept_threshold_single": 1.0, "speculative_accept_threshold_acc": 1},
        {"speculative_num_steps": 3, "kv_cache_dtype": "fp8_e4m3", "load_format": "dummy"},
        {"quantization": None, "torchao_config": "", "enable_double_sparsity": False},
    ],
)
def test_not_lossy(flags: dict[str, object]) -> None:
    assert lossy_switches(flags) == []
