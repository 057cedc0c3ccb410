from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from tests.sglang import help_texts
from tuner.errors import InputError
from tuner.sglang.command import read_command
from tuner.sglang.planning import plan_launch
from tuner.space.configuration import Configuration

NEW = help_texts.installed(help_texts.new(), "0.5.23")


def test_a_pasted_command_is_read_into_canonical_flags() -> None:
    typed = read_command(
        shlex.split(
            "NCCL_PROTO=LL SGLANG_X='a b' python3 -m sglang.launch_server --model /models/kimi --tp 8 "
            "--mem-frac=0.90 --cuda-graph-max-bs 128 --cuda-graph-bs-decode 1 2 4 --disable-radix-cache "
            "--no-enable-tf32-matmul --chunked-prefill-size -1 --host 0.0.0.0 --port 30000 --revision 1.10"
        ),
        NEW,
    )
    assert typed.command == ("python3", "-m", "sglang.launch_server")
    assert typed.variables == {"NCCL_PROTO": "LL", "SGLANG_X": "a b"}
    assert typed.flags == {
        "model_path": "/models/kimi",
        "tp_size": 8,
        "mem_fraction_static": 0.9,
        "cuda_graph_max_bs": 128,
        "cuda_graph_bs": (1, 2, 4),
        "disable_radix_cache": True,
        "enable_tf32_matmul": False,
        "chunked_prefill_size": -1,
        "revision": "1.10",
    }


def test_the_new_entry_point_takes_the_model_without_a_flag() -> None:
    typed = read_command(["sglang", "serve", "org/model", "--tp-size", "2"], NEW)
    assert (typed.command, typed.flags) == (("sglang", "serve"), {"model_path": "org/model", "tp_size": 2})


def test_the_known_command_may_have_dashes_of_its_own() -> None:
    wrapped = replace(NEW, command=("numactl", "--interleave=all", "python", "-m", "sglang.launch_server"))
    typed = read_command([*wrapped.command, "--tp", "2"], wrapped)
    assert (typed.command, typed.flags) == (wrapped.command, {"tp_size": 2})


def test_flags_alone_are_a_command_too() -> None:
    typed = read_command(["--tp", "2"], NEW)
    assert (typed.command, typed.flags) == ((), {"tp_size": 2})


def test_what_was_read_plans_the_same_launch() -> None:
    line = "--model-path /m --mem-fraction-static 0.9 --cuda-graph-bs-decode 1 2 --disable-radix-cache"
    typed = read_command(shlex.split(line), NEW)
    made = plan_launch(
        command=("x",),
        fixed_flags=typed.flags,
        fixed_variables=typed.variables,
        parameters=(),
        configuration=Configuration(),
        installation=NEW,
    )
    assert " ".join(word for flag, values in made.flags for word in (flag, *values)) == line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x --tp-sise 8", "no flag --tp-sise"),
        ("x --speculative 8", "ambiguous"),
        ("x --tp-size", "needs a value"),
        ("x --tp-size 8 9", "'9' of the launch command belongs to no flag"),
        ("x --disable-radix-cache=1", "is a switch"),
        ("sglang serve a b --tp 1", "'b' of the launch command belongs to no flag"),
    ],
)
def test_a_command_that_means_nothing_is_refused(line: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_command(shlex.split(line), NEW)
