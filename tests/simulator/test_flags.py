"""The flags of the releases, and SGLang's strictness with `--config` files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.simulator.config_file import ConfigFileError, merge_config_file
from tuner.simulator.flags import build_parser, flags_of, parse_count
from tuner.simulator.release import Release


def release(number: int) -> Release:
    found = Release.parse(f"0.5.{number}")
    assert found is not None
    return found


def options(number: int) -> set[str]:
    return {option for flag in flags_of(release(number)) for option in flag.options}


@pytest.mark.parametrize(
    ("flag", "first", "last"),
    [
        ("--cuda-graph-max-bs", 12, 19),
        ("--cuda-graph-max-bs-decode", 14, 23),
        ("--mem-fraction-static", 12, 23),
        ("--attn-dp-size", 22, 23),
        ("--dcp-size", 15, 23),
        ("--stream-output", 12, 19),
        ("--flashinfer-allreduce-fusion-backend", 14, 23),
        ("--disable-piecewise-cuda-graph", 12, 19),
        ("--speculative-draft-kv-cache-dtype", 18, 23),
    ],
)
def test_a_flag_is_there_from_its_first_to_its_last_release(flag: str, first: int, last: int) -> None:
    there = [number for number in range(12, 24) if flag in options(number)]
    assert there == list(range(first, last + 1))


@pytest.mark.parametrize("number", range(12, 24))
def test_no_release_lists_a_flag_twice(number: int) -> None:
    listed = [option for flag in flags_of(release(number)) for option in flag.options]
    assert len(listed) == len(set(listed))
    build_parser(release(number))


def test_the_split_flag_is_ambiguous_once_its_alias_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model-path", "m", "--cuda-graph-max-bs", "16"]
    assert build_parser(release(13)).parse_args(words).cuda_graph_max_bs == 16
    aliased = build_parser(release(19)).parse_args(words)
    assert aliased.cuda_graph_max_bs_decode == 16
    assert aliased.deprecated_options == ["--cuda-graph-max-bs"]
    with pytest.raises(SystemExit) as refused:
        build_parser(release(20)).parse_args(words)
    assert refused.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "sglang serve: error: ambiguous option: --cuda-graph-max-bs could match "
        "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill"
    )


def test_abbreviations_are_taken() -> None:
    parsed = build_parser(release(23)).parse_args(["--model", "m", "--tp", "4", "--mem-frac", "0.7"])
    assert (parsed.model_path, parsed.tp_size, parsed.mem_fraction_static) == ("m", 4, 0.7)


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-flag"],
        ["--schedule-policy", "nope"],
        ["--mem-fraction-static", "abc"],
        ["--max_running_requests", "4"],
        ["--cuda-graph-backend-decode", "tc_piecewise"],
    ],
)
def test_what_the_parser_refuses_ends_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        build_parser(release(23)).parse_args(["--model-path", "m", *words])
    assert refused.value.code == 2


@pytest.mark.parametrize(("text", "number"), [("4096", 4096), ("4k", 4000), ("4Ki", 4096), ("1m", 10**6)])
def test_counts_take_suffixes(text: str, number: int) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["1e5", "k", "4i", ""])
def test_counts_refuse_other_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_count(text)


@pytest.mark.parametrize("text", ["0.5.11", "0.5.24", "0.4.9", "latest"])
def test_releases_that_are_not_modelled(text: str) -> None:
    assert Release.parse(text) is None


def merged(folder: Path, text: str, *words: str, number: int = 23) -> list[str]:
    path = folder / "launch.yaml"
    path.write_text(text, encoding="utf-8")
    return merge_config_file([*words, "--config", str(path)], build_parser(release(number)))


def test_a_config_file_becomes_options_before_those_of_the_command_line(tmp_path: Path) -> None:
    text = (
        "model-path: m\nmem-fraction-static: 0.5\ncuda-graph-bs-decode: [1, 2, 4]\nenable-nccl-nvls: false\n"
        "disable-overlap-schedule: true\ncuda-graph-config: {decode: {max_bs: 16}}\n"
    )
    words = merged(tmp_path, text, "--mem-fraction-static", "0.6")
    parsed = build_parser(release(23)).parse_args(words)
    assert parsed.mem_fraction_static == 0.6
    assert parsed.cuda_graph_bs_decode == [1, 2, 4]
    assert parsed.disable_overlap_schedule is True
    assert parsed.enable_nccl_nvls is False
    assert parsed.cuda_graph_config == {"decode": {"max_bs": 16}}


@pytest.mark.parametrize(
    "text",
    [
        "mem_fraction_static: 0.5",
        "disable_overlap_schedule: true",
        "max-running-requests: null",
        'max-running-requests: ""',
        'disable-overlap-schedule: "true"',
        "no-such-flag: 1",
        "cuda-graph-max-bs: 16",
    ],
)
def test_config_keys_that_end_with_2(tmp_path: Path, text: str) -> None:
    words = merged(tmp_path, f"model-path: m\n{text}\n")
    with pytest.raises(SystemExit) as refused:
        build_parser(release(23)).parse_args(words)
    assert refused.value.code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("disable-cuda-graph: true", "'disable_cuda_graph' with action 'DeprecatedStoreTrueAction'"),
        ("enable-tf32-matmul: true", "'enable_tf32_matmul' with action 'BooleanOptionalAction'"),
        ("- a\n- b", "must contain a dictionary"),
    ],
)
def test_config_keys_that_raise(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigFileError, match=message):
        merged(tmp_path, text)


def test_what_else_is_wrong_with_config_options(tmp_path: Path) -> None:
    parser = build_parser(release(23))
    with pytest.raises(ConfigFileError, match="must be YAML"):
        merge_config_file(["--config", "launch.txt"], parser)
    with pytest.raises(ConfigFileError, match="not found"):
        merge_config_file(["--config", str(tmp_path / "none.yaml")], parser)
    with pytest.raises(ConfigFileError, match="Only one"):
        merge_config_file(["--config", "a.yaml", "--config", "b.yaml"], parser)
    with pytest.raises(ConfigFileError, match="No config file"):
        merge_config_file(["--config"], parser)
    ignored = ["--model-path", "m", f"--config={tmp_path / 'none.yaml'}"]
    assert merge_config_file(ignored, parser) == ignored


def test_the_old_release_takes_its_own_switch_from_a_file(tmp_path: Path) -> None:
    words = merged(tmp_path, "model-path: m\ndisable-cuda-graph: true\n", number=12)
    assert build_parser(release(12)).parse_args(words).disable_cuda_graph is True
