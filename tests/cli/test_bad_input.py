"""Whatever a user gets wrong: exit code 2, one clear message, nothing launched, nothing lost."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.run import ROOT, tuner
from tuner.study.overrides import OVERRIDES

SPACE = """
parameters:
  cuda_graph_max_bs: {type: integer, low: 8, high: 512, log: true, auto: true}
  all_reduce: {type: composite, choices: [nccl, custom]}
rules:
  - {forbid: "cuda_graph_max_bs > 256 and all_reduce == custom", because: slow}
"""

STUDY = """
search_space: space.yaml
server:
  command: ["{python}", -m, tuner.simulator, --box, kimi-k2.5-8x-rtx-pro-6000-0.5.12]
  label: a box
  model: moonshotai/Kimi-K2.5
  flags: {tp_size: 8, trust_remote_code: true}
workload: {input_tokens: 64, output_tokens: 32, concurrency: [1, 8]}
budget: {launches: 2}
"""


def optimize(folder: Path, *, study: str = STUDY, space: str = SPACE, options: tuple[str, ...] = ()) -> str:
    """Runs the study, which must be refused, and returns the message."""
    (folder / "space.yaml").write_text(space)
    (folder / "night.yaml").write_text(study)
    done = tuner("optimize", str(folder / "night.yaml"), *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.glob("night/trial-*"))
    return done.stderr


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("label: a box", "lable: a box", ["night.yaml:5", "server.lable: unknown key", "did you mean 'label'?"]),
        ("input_tokens: 64", "input_tokens: many", ["workload.input_tokens", "expected a whole number, got str 'many'"]),
        ("input_tokens: 64", "input_tokens: 0", ["0 is below the least possible, 1"]),
        ("concurrency: [1, 8]", "concurrency: [1, 1]", ["workload.concurrency", "a level stands here twice"]),
        ("concurrency: [1, 8]", "concurrency: []", ["workload.concurrency", "at least 1 item"]),
        ("budget: {launches: 2}", "budget: {}", ["budget: names no limit", "launches, hours or until"]),
        ("budget: {launches: 2}", "budget: {launches: 2, looks: often}", ["budget.looks", "'often'", "auto, off"]),
        ("budget: {launches: 2}", "budget: {until: soon}", ["budget.until: 'soon' is no time"]),
        ("budget: {launches: 2}", "objective: {concurrency: 4}", ["objective.concurrency", "does not measure concurrency 4"]),
        ("model: moonshotai/Kimi-K2.5", "", ["server: the key 'model' is missing"]),
        ("tp_size: 8", "tp-size: 8", ["'tp-size' is not the name of a flag", "did you mean 'tp_size'?"]),
        ("tp_size: 8", "port: 8", ["server.flags.port", "fresh free port"]),
        ("tp_size: 8", "tp_sise: 8", ["tp_sise", "did you mean 'tp_size'?"]),
        ("tp_size: 8", "schedule_policy: fcsf", ["--schedule-policy cannot be 'fcsf'", "did you mean 'fcfs'?"]),
        ("tp_size: 8", "cuda_graph_max_bs: 8", ["cuda_graph_max_bs is set twice"]),
        ("search_space: space.yaml", "search_space: spcae", ["search_space", "no search space 'spcae'"]),
        ("search_space: space.yaml", "search_space: [a]", ["search_space: expected text, got a list"]),
        ("  label: a box", "  label: a box\n  label: b", ["server.label: this key stands here twice"]),
        ("  label: a box", "  label: 'a box", ["night.yaml", "not valid YAML"]),
        ("[\"{python}\", -m, tuner.simulator", "[nosuchprogram, tuner.simulator", ["there is no program nosuchprogram"]),
        ("budget: {launches: 2}", "baseline: {command: 'python -m x --no-such-flag 1'}", ["baseline", "--no-such-flag"]),
        ("budget: {launches: 2}", "storage: 'nosuch://here'", ["storage nosuch://here", "cannot be opened"]),
        ("budget: {launches: 2}", "budget: {launches: 2}\nprior: aiconfigurater", ["night.yaml", "prior", "did you mean 'aiconfigurator'?"]),
        ("budget: {launches: 2}", "budget: {launches: 2}\nsampler: surogate", ["night.yaml", "sampler", "did you mean 'surrogate'?"]),
        ("budget: {launches: 2}", "server: {}", ["server: this key stands here twice"]),
    ],
)  # fmt: skip
def test_a_study_that_cannot_be_meant_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, told: list[str]
) -> None:
    assert old in STUDY
    message = optimize(tmp_path, study=STUDY.replace(old, new))
    for part in told:
        assert part in message


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "cuda_graph_max_bs:",
            "cuda-graph-max-bs:",
            ["cuda-graph-max-bs", "did you mean 'cuda_graph_max_bs'?"],
        ),
        ("low: 8, high: 512", "low: 512, high: 8", ["space.yaml", "cuda_graph_max_bs"]),
        ("type: integer", "type: int", ["parameters.cuda_graph_max_bs.type", "did you mean 'integer'?"]),
        ("[nccl, custom]", "[nccl, costum]", ["all_reduce", "did you mean 'custom'?"]),
        (
            "cuda_graph_max_bs > 256",
            "cuda_graph_max_b > 256",
            ["rules[0].forbid", "did you mean 'cuda_graph_max_bs'?"],
        ),
        ("cuda_graph_max_bs > 256", "cuda_graph_max_bs > ", ["rules[0].forbid"]),
        ("cuda_graph_max_bs > 256", "__import__('os')", ["rules[0].forbid"]),
    ],
)
def test_a_search_space_that_cannot_be_meant_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, told: list[str]
) -> None:
    message = optimize(tmp_path, space=SPACE.replace(old, new, 1))
    for part in told:
        assert part in message


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param(
            ("--sampler", "gp"),
            "'gp' needs PyTorch and SciPy, and torch",
            marks=pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed"),
        ),
        (("--launches", "none"), "command line: --launches: expected a whole number"),
        (("--concurrency", "0"), "command line: --concurrency: 0 is below the least possible, 1"),
        (("--flag", "tp_size"), "--flag: 'tp_size' is not NAME=VALUE"),
        (("--gpus", "0", "0"), "a GPU stands here twice"),
        (("--no-such-option",), "unrecognized arguments: --no-such-option"),
        (("--until", "25:99"), "'25:99' is no time"),
        (("--stall-limit-s", "wieght-load=5"), "did you mean 'weight-load'?"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_by_its_name(
    tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    assert told in optimize(tmp_path, options=options)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("optimize", "nosuchstudy"), "there is no study 'nosuchstudy'"),
        (("optimize", "simulated-kimi-k25"), "did you mean 'simulated-kimi-k2.5'?"),
        (("optimize", "no/such/file.yaml"), "no/such/file.yaml: there is no such study file"),
        (("export", "nosuchstudy"), "there are no results of such a study"),
        (("explain", "nosuchstudy"), "there are no results of such a study"),
        (("diagnose", "no/such.log"), "no/such.log"),
        (("optimise",), "invalid choice: 'optimise'"),
        ((), "required"),
    ],
)
def test_names_that_lead_nowhere(arguments: tuple[str, ...], told: str) -> None:
    done = tuner(*arguments)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize("command", ["optimize", "export", "explain", "diagnose"])
def test_every_command_tells_what_it_takes(command: str) -> None:
    done = tuner(command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: tuner {command}")
    if command == "optimize":
        assert all(override.option in done.stdout for override in OVERRIDES)


def test_dry_run_shows_what_would_be_launched_and_launches_nothing(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "night.yaml").write_text(STUDY)
    done = tuner(
        "optimize",
        str(tmp_path / "night.yaml"),
        "--dry-run",
        "--env",
        "HF_TOKEN=hf_secret",
        "--flag",
        "api_key=sk-1",
    )
    assert done.returncode == 0, done.stderr
    assert "--tp-size 8" in done.stdout and "nothing was launched" in done.stdout
    assert "hf_secret" not in done.stdout and "sk-1" not in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["night.yaml", "space.yaml"]


def test_every_shipped_study_can_be_read() -> None:
    for study in sorted((ROOT / "studies").glob("*.yaml")):
        python = ("--command", "{python} -m tuner.simulator --box kimi-k2.5-8x-rtx-pro-6000-0.5.23")
        command = () if study.stem.startswith("simulated") else python
        done = tuner("optimize", str(study), "--dry-run", *command)
        assert done.returncode == 0, f"{study}: {done.stderr}"
