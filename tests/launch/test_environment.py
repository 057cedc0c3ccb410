"""What a server inherits, what it does not, and what is told and recorded of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.launch.environment import MARKER, child_environment, clean_environment, dropped, recorded

NEEDED = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "PYTHONPATH",
    "HF_HOME",
    "HF_TOKEN",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_CACHE",
    "XDG_CACHE_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "SGLANG_DG_CACHE_DIR",
    "SSL_CERT_FILE",
    "NVIDIA_VISIBLE_DEVICES",
]
CHANGES_RESULTS = [
    "NCCL_P2P_DISABLE",
    "NCCL_DEBUG",
    "SGLANG_ENABLE_JIT_DEEPGEMM",
    "SGL_FORCE_SHUTDOWN",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_CUDA_ARCH_LIST",
    "TRITON_PRINT_AUTOTUNING",
    "OMP_NUM_THREADS",
    "LD_PRELOAD",
    "http_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "PYTHONOPTIMIZE",
]
OF_NO_MEANING = ["EDITOR", "OLDPWD", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY", "PS1", MARKER]


@pytest.mark.parametrize("name", NEEDED)
def test_what_a_server_needs_is_inherited(name: str) -> None:
    assert clean_environment({name: "x"}) == {name: "x"}
    assert dropped({name: "x"}) == []


@pytest.mark.parametrize("name", CHANGES_RESULTS)
def test_what_changes_results_is_left_out_and_told(name: str) -> None:
    assert clean_environment({name: "x"}) == {}
    assert dropped({name: "x"}) == [name]


@pytest.mark.parametrize("name", OF_NO_MEANING)
def test_the_rest_is_left_out_in_silence(name: str) -> None:
    assert clean_environment({name: "x"}) == {}
    assert dropped({name: "x"}) == []


@given(st.dictionaries(st.sampled_from([*NEEDED, *CHANGES_RESULTS, *OF_NO_MEANING]), st.text()))
def test_no_variable_is_both_inherited_and_dropped(inherited: dict[str, str]) -> None:
    clean = clean_environment(inherited)
    assert clean.items() <= inherited.items()
    assert not clean.keys() & set(dropped(inherited))
    assert clean_environment(clean) == clean


def test_the_plan_has_its_way_but_for_what_finding_and_placing_rely_on() -> None:
    variables = {
        "PYTHONUNBUFFERED": "0",
        "SPT_NOENV": "",
        MARKER: "mine",
        "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
    }
    environment = child_environment({"PATH": "/bin", "LANG": "C"}, variables, marker="study:1", gpus=(0,))
    assert environment == {
        "PATH": "/bin",
        "LANG": "C",
        "PYTHONUNBUFFERED": "0",
        "SPT_NOENV": "1",
        MARKER: "study:1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_python_servers_write_their_log_at_once_unless_told_otherwise() -> None:
    environment = child_environment({}, {}, marker="study:1", gpus=())
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert "CUDA_DEVICE_ORDER" not in environment


def test_the_record_is_sorted_and_holds_no_secret() -> None:
    environment = {
        "SGLANG_API_KEY": "s1",
        "HF_TOKEN": "s2",
        "HF_ENDPOINT": "https://me:s3@mirror.example/hf",
        "HTTPS_PROXY": "http://s4@proxy.example:3128",
        "LANG": "C",
    }
    shown = recorded(environment)
    assert shown == {
        "HF_ENDPOINT": "https://***@mirror.example/hf",
        "HF_TOKEN": "***",
        "HTTPS_PROXY": "http://***@proxy.example:3128",
        "LANG": "C",
        "SGLANG_API_KEY": "***",
    }
    assert list(shown) == sorted(environment)
