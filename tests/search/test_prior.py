"""What another program ranks is tried early, and nothing that it says or does stops a study."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from tests.search.scripted import Run, measured, renamed, summary
from tuner.clock import SystemClock
from tuner.measure.measurement import Measurement
from tuner.search.prior import Layout, Prior, ask_prior
from tuner.study.definition import StudyDefinition
from tuner.telemetry.audit import PlatformAudit
from tuner.telemetry.finding import Finding

SPACE = """
parameters:
  tp_size: {type: choice, choices: [2, 4, 8], default: 8}
  dp_size: {type: choice, choices: [1, 2, 4], default: 1}
  enable_dp_attention: {type: boolean}
  ep_size: {type: choice, choices: [1, 8], default: 1}
  bs: {type: choice, choices: [8, 512], default: 512}
rules:
  - {forbid: ep_size == 8 and dp_size == 4, because: it asserts}
known_good:
  - {name: small, values: {bs: 8}}
"""
STUDY = """
search_space: given
server: {command: [server], model: moonshotai/Kimi-K2.5, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}
workload: {input_tokens: 1024, output_tokens: 512, concurrency: 32}
budget: {launches: 6, confirm: 0}
prior: aiconfigurator
"""
CARD = "NVIDIA RTX PRO 6000 Blackwell Server Edition"

STAND_IN = '''#!{python} -SE
"""Prints what aiconfigurator 0.12.0 prints for one layout, shortened."""
import os, sys, time
words = sys.argv[1:]
open({log!r}, "a").write(" ".join(words) + "\\n")
given = dict(zip(words[2:], words[3:]))
mode = {mode!r}
if mode == "hangs":
    time.sleep(60)
if mode == "refuses the model":
    sys.stderr.write("usage: aiconfigurator estimate [-h]\\naiconfigurator estimate: error: argument "
        "--model-path/--model: 'm' is not a valid HuggingFace model path or local path with config.json.\\n")
    sys.exit(2)
if mode == "says nothing of use":
    print("Performance Estimate (agg)")
    sys.exit(0)
if given["--tp-size"] == "2" and given["--attention-dp-size"] == "1":
    sys.stderr.write("    raise RuntimeError(\\nRuntimeError: OOM: the model does not fit in GPU memory\\n")
    sys.exit(1)
tok_s = 400.0 * int(given["--attention-dp-size"]) + 3 * int(given["--moe-ep-size"]) + 1000 * (mode == "thousands")
if mode == "likes the defaults" and given["--attention-dp-size"] == given["--moe-ep-size"] == "1":
    tok_s = 5000.0 if given["--tp-size"] == "8" else 10.0
sys.stderr.write("/bin/aiconfigurator:8: DeprecationWarning: `aiconfigurator cli` is running from ...\\n")
print(f"""
============================================================
  Performance Estimate (agg)
============================================================
  Model:            moonshotai/Kimi-K2.5
  System:           rtx_pro_6000_server
  Backend:          sglang (0.5.14)
------------------------------------------------------------
  TTFT:             {{9999 - tok_s:.3f}} ms
  TPOT:             35.830 ms
  Request Latency:  5,528.458 ms
  Power (per GPU):  unavailable (0.0% coverage)
------------------------------------------------------------
  tokens/s:         {{tok_s:,.2f}}
  tokens/s/gpu:     51.14
  tokens/s/user:    27.91
  Concurrency:      16
  Memory (GPU):     78.71 GB
============================================================
""")
'''


class StandIn:
    """The program on PATH, and what it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str = "") -> None:
        self._log = folder / "asked"
        program = folder / "bin" / "aiconfigurator"
        program.parent.mkdir()
        program.write_text(STAND_IN.format(python=sys.executable, log=str(self._log), mode=mode))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    def asked(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


def study(folder: Path, text: str = STUDY, space: str = SPACE) -> StudyDefinition:
    return Run(folder, lambda _: measured(80.0), study=text, space=space).definition


def asked(definition: StudyDefinition, gpus: str = f"8x {CARD}", limit_s: float = 60.0) -> Prior:
    platform = PlatformAudit((Finding("GPUs", gpus),))
    return ask_prior(definition, definition.space, platform, SystemClock(), limit_s=limit_s)


def test_the_best_layouts_are_tried_after_what_the_space_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn(tmp_path, monkeypatch)
    prior = asked(study(tmp_path / "asking"))
    served = renamed(measured(80.0), measurement=Measurement((summary(80.0, concurrency=32),)))

    run = Run(tmp_path, lambda _: served, study=STUDY, space=SPACE, prior=prior.given)
    end = run.search.run()

    assert [record.source for record in end.records[1:5]] == ["small", *(one.name for one in prior.given)]
    assert [dict(values) for values in run.asked()[2:5]] == [
        {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True, "ep_size": 1, "bs": 512},
        {"tp_size": 8, "dp_size": 2, "enable_dp_attention": True, "ep_size": 8, "bs": 512},
        {"tp_size": 4, "dp_size": 2, "enable_dp_attention": False, "ep_size": 1, "bs": 512},
    ]
    assert len(prior.told) == 1 and prior.told[0].startswith(
        "prior: aiconfigurator ranks 10 of 13 layouts of the GPUs; tried early: tp_size=8 dp_size=4"
    )


def test_it_is_asked_for_what_the_space_can_express_on_these_gpus_under_this_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = StandIn(tmp_path, monkeypatch)

    asked(study(tmp_path / "asking"))

    first = program.asked()[0]
    assert first.startswith("cli estimate ")
    for words in (
        "--backend sglang",
        "--system rtx_pro_6000_server",
        "--model-path moonshotai/Kimi-K2.5",
        "--isl 1024 --osl 512",
        "--batch-size 32 --tp-size 8 --pp-size 1 --attention-dp-size 1 --moe-tp-size 8 --moe-ep-size 1",
    ):
        assert words in first
    forbidden = [line for line in program.asked() if "--attention-dp-size 4" in line and "ep-size 8" in line]
    assert forbidden == []


@pytest.mark.parametrize(
    ("flags", "load", "words"),
    [
        ({}, 8, "8 1 1 1 1 1"),
        ({"tp_size": 8, "ep_size": 4}, 8, "8 8 1 1 2 4"),
        ({"tp_size": 8, "dp_size": 4, "enable_dp_attention": True, "ep_size": 8}, 10, "3 2 1 4 1 8"),
        ({"tp_size": 2, "dp_size": 4}, 8, "2 2 1 1 2 1"),
        ({"tp_size": 4, "pp_size": 2}, 1, "1 4 2 1 4 1"),
        ({"tp_size": 4, "dp_size": 1, "enable_dp_attention": True}, 1, "1 4 1 1 4 1"),
    ],
    ids=["one GPU", "experts", "attention in parallel", "copies", "pipeline", "one rank"],
)
def test_a_layout_is_told_in_the_programs_own_words(flags: dict[str, object], load: int, words: str) -> None:
    assert Layout.of(flags).words(load)[1::2] == words.split()


def test_copies_of_the_model_serve_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two copies is slower than the one server over all GPUs, and both together are faster."""
    StandIn(tmp_path, monkeypatch)
    space = "parameters:\n  tp_size: {type: choice, choices: [4, 8], default: 8}\n"
    space += "  dp_size: {type: choice, choices: [1, 2], default: 1}\n"

    prior = asked(study(tmp_path / "asking", space=space))

    assert [dict(one.values) for one in prior.given] == [{"tp_size": 4, "dp_size": 2}]


def test_ranks_without_a_request_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program takes each rank to have a request of its own: of four ranks three would be idle."""
    StandIn(tmp_path, monkeypatch)

    prior = asked(study(tmp_path / "asking", STUDY.replace("concurrency: 32", "concurrency: 1")))

    first = {"tp_size": 8, "dp_size": 1, "enable_dp_attention": False, "ep_size": 8, "bs": 512}
    assert dict(prior.given[0].values) == first


def test_the_layout_of_the_reference_is_not_tried_twice_nor_what_is_ranked_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn(tmp_path, monkeypatch, "likes the defaults")
    space = SPACE.partition("  bs:")[0].replace("[1, 2, 4]", "[1, 2]")

    assert asked(study(tmp_path / "one", space=space)).told == (
        "prior: aiconfigurator ranks 8 of 10 layouts of the GPUs, none above the reference's",
    )

    other = study(tmp_path / "two", STUDY + "baseline: {flags: {ep_size: 8}}\n", space)
    assert asked(other).given[0].values["ep_size"] == 1


def test_a_latency_is_ranked_by_that_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, "thousands")
    goal = "objective: {goal: latency, of: ttft_p99_ms}\n"

    prior = asked(study(tmp_path / "asking", STUDY + goal))

    assert dict(prior.given[0].values)["dp_size"] == 4


@pytest.mark.parametrize(
    ("mode", "study_text", "gpus", "words"),
    [
        ("", STUDY, "8x NVIDIA GeForce RTX 5090", "no data for SGLang on 8x NVIDIA GeForce RTX 5090"),
        ("", STUDY, "", "which GPUs this box has is not known"),
        ("", STUDY.replace(", gpus: [0, 1, 2, 3, 4, 5, 6, 7]", ""), CARD, "name them in server.gpus"),
        ("", STUDY.replace("concurrency: 32", "kind: open, rate: 2, requests: 9"), f"8x {CARD}", "a rate"),
        ("refuses the model", STUDY, f"8x {CARD}", "no layout of this space: aiconfigurator estimate: error"),
        ("says nothing of use", STUDY, f"8x {CARD}", "no layout of this space: Performance Estimate"),
    ],
    ids=["no data", "no GPUs", "unnamed GPUs", "an open load", "another model", "another format"],
)
def test_where_it_has_nothing_to_say_a_sentence_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, study_text: str, gpus: str, words: str
) -> None:
    StandIn(tmp_path, monkeypatch, mode)

    prior = asked(study(tmp_path / "asking", study_text), gpus)

    assert prior.given == ()
    (line,) = prior.told
    assert line.startswith("warning  prior: ") and words in line and line.endswith("goes without")


def test_a_space_without_layouts_has_nothing_to_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = StandIn(tmp_path, monkeypatch)
    space = "parameters:\n  bs: {type: choice, choices: [8, 512]}\n"

    prior = asked(study(tmp_path / "asking", space=space))

    assert "this space leaves nothing of it open" in prior.told[0]
    assert program.asked() == []


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = StandIn(tmp_path, monkeypatch, "hangs")

    prior = asked(study(tmp_path / "asking"), limit_s=1.0)

    assert "it took too long" in prior.told[0]
    assert len(program.asked()) == 1


def test_without_the_program_or_the_key_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert asked(study(tmp_path / "one", STUDY.replace("prior: aiconfigurator\n", ""))) == Prior()
    assert "there is no aiconfigurator on PATH" in asked(study(tmp_path / "two")).told[0]


@pytest.mark.skipif(shutil.which("aiconfigurator") is None, reason="aiconfigurator is not installed")
def test_the_real_program_ranks_layouts_of_a_model_whose_config_it_has(tmp_path: Path) -> None:
    space = "parameters:\n  tp_size: {type: choice, choices: [4, 8], default: 4}\n"
    text = STUDY.replace("moonshotai/Kimi-K2.5", "Qwen/Qwen3-8B").replace("concurrency: 32", "concurrency: 1")

    prior = asked(study(tmp_path, text, space), "8x NVIDIA H200", limit_s=120.0)

    assert prior.told[0].startswith("prior: aiconfigurator ranks 2 of 2 layouts of the GPUs")
