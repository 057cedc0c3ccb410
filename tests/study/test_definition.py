"""A study comes from its file and the command line: every field has an option, and the option wins."""

from __future__ import annotations

import argparse
import itertools
from datetime import datetime
from pathlib import Path

import pytest

from tuner.errors import InputError
from tuner.measure import reading, reading_objective
from tuner.sglang.phases import Phase
from tuner.study import definition as module
from tuner.study.definition import Budget, StudyDefinition
from tuner.study.finding import load_study
from tuner.study.overrides import OVERRIDES, add_overrides

SPACE = "parameters:\n  page_size: {type: choice, choices: [1, 16]}\n"
STUDY = """
search_space: space.yaml
server:
  command: python -m sglang.launch_server
  model: m
  flags: {tp_size: 8, quantization: fp8}
  environment: {A: 1, B: true}
workload: {input_tokens: 64, output_tokens: 32, concurrency: [1, 8]}
"""


def load(folder: Path, *options: str, study: str = STUDY) -> StudyDefinition:
    (folder / "space.yaml").write_text(SPACE)
    (folder / "night.yaml").write_text(study)
    parser = argparse.ArgumentParser()
    add_overrides(parser)
    return load_study(str(folder / "night.yaml"), parser.parse_args(list(options)))


def test_every_field_has_an_option() -> None:
    sections = {
        "server": module._SERVER,
        "workload": reading._WORKLOAD,
        "objective": reading_objective._OBJECTIVE,
        "least": module._LEAST,
        "baseline": ("command", "flags"),
        "guard": ("enabled", "prompts", "allow_lossy", "accuracy.command", "accuracy.limit_s"),
        "budget": module._BUDGET,
    }
    fields = {key for key in module._TOP if key not in sections}
    fields |= {f"{section}.{key}" for section, keys in sections.items() for key in keys}
    assert {override.path for override in OVERRIDES} == fields


def test_defaults_then_file_then_command_line(tmp_path: Path) -> None:
    plain = load(tmp_path)
    assert plain.name == "night" and plain.folder == tmp_path / "night"
    assert plain.server.label == "m" and plain.budget.launches == 40 and plain.seed == 0
    assert plain.storage == f"sqlite:///{tmp_path / 'night' / 'study.db'}"
    assert plain.server.environment == {"A": "1", "B": "1"}
    changed = load(
        tmp_path, "--label", "box", "--flag", "tp_size=4", "dp_size=2", "--env", "A=x y", "--concurrency", "8", "32",
        "--objective-concurrency", "32", "--launches", "3", "--seed", "7", "--gpus", "0", "3", "--stall-limit-s", "import=9",
    )  # fmt: skip
    assert changed.server.label == "box"
    assert changed.server.flags == {"tp_size": 4, "quantization": "fp8", "dp_size": 2}
    assert changed.server.environment == {"A": "x y", "B": "1"}
    assert changed.workload.concurrency == (8, 32) and changed.objective.name == "decode tok/s at C=32"
    assert changed.budget.launches == 3 and changed.seed == 7 and changed.server.gpus == (0, 3)
    assert changed.server.stall_limits_s == {Phase.IMPORT: 9}


def test_without_an_objective_all_levels_count(tmp_path: Path) -> None:
    assert load(tmp_path).objective.name == "geometric mean decode tok/s at C=1,8"


def test_the_command_may_be_a_line_or_a_list_and_names_our_own_python_by_a_placeholder(
    tmp_path: Path,
) -> None:
    line = load(tmp_path, "--command", "'/a b/python' -m sglang.launch_server")
    assert line.server.argv == ("/a b/python", "-m", "sglang.launch_server")
    listed = load(tmp_path, study=STUDY.replace("python -m sglang.launch_server", "['{python}', -m, x]"))
    assert listed.server.argv[0].endswith("python") or "python3" in listed.server.argv[0]


def test_what_makes_a_study_the_same_leaves_limits_budget_and_label_out(tmp_path: Path) -> None:
    base = load(tmp_path).identity()
    same = load(
        tmp_path,
        "--label",
        "x",
        "--launches",
        "1",
        "--ready-limit-s",
        "9",
        "--level-limit-s",
        "9",
        "--seed",
        "3",
    )
    assert same.identity() == base
    for option in (
        ("--input-tokens", "65"),
        ("--flag", "tp_size=4"),
        ("--env", "A=2"),
        ("--min-kv-tokens", "5"),
    ):
        assert load(tmp_path, *option).identity() != base


def test_secrets_are_no_part_of_what_is_stored(tmp_path: Path) -> None:
    identity = str(load(tmp_path, "--flag", "api_key=sk-123456", "--env", "HF_TOKEN=hf_123456").identity())
    assert "sk-123456" not in identity and "hf_123456" not in identity


@pytest.mark.parametrize(
    ("until", "now", "expected"),
    [
        ("07:00", "2030-01-01T22:00", "2030-01-02T07:00"),
        ("07:00", "2030-01-01T06:00", "2030-01-01T07:00"),
        ("07:00", "2030-01-01T07:00", "2030-01-02T07:00"),
        ("2030-02-01T07:30", "2030-01-01T07:00", "2030-02-01T07:30"),
    ],
)
def test_until_is_the_next_such_moment(until: str, now: str, expected: str) -> None:
    deadline = Budget(until=until).deadline(datetime.fromisoformat(now))
    assert deadline == datetime.fromisoformat(expected)


def test_a_baseline_is_a_command_or_flags_and_not_both(tmp_path: Path) -> None:
    by_command = load(tmp_path, "--baseline-command", "A=1 python -m sglang.launch_server --model m --tp 8")
    assert by_command.baseline.command is not None and by_command.baseline.command[0] == "A=1"
    assert load(tmp_path, "--baseline-flag", "page_size=16").baseline.flags == {"page_size": 16}
    with pytest.raises(InputError, match="either a command or flags"):
        load(tmp_path, "--baseline-flag", "page_size=16", "--baseline-command", "x")


def test_options_are_unique() -> None:
    options = [override.option for override in OVERRIDES]
    assert all(first != second for first, second in itertools.combinations(options, 2))


def test_an_option_can_be_as_rich_as_the_file(tmp_path: Path) -> None:
    changed = load(
        tmp_path, "--input-tokens", "{low: 16, high: 64}", "--limit", "ttft_p99_ms=500", "--goal", "goodput"
    )
    assert changed.workload.input_tokens is not None and changed.workload.input_tokens.to_json() != 64
    assert changed.objective.name.startswith("geometric mean goodput")
    with pytest.raises(InputError, match="command line: --input-tokens hgih"):
        load(tmp_path, "--input-tokens", "{low: 16, hgih: 64}")
