"""A study that learns from an earlier one, as a user starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run import tuner

VIRTUAL = ("--evaluator", "tuner.simulator.virtual:from_study", "--concurrency", "32", "--confirm", "0")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("virtual") / "earlier"
    done = tuner("optimize", "--folder", str(folder), "--launches", "12", *VIRTUAL)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_says_what_it_learns_from_and_tries_its_best(earlier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    done = tuner(
        "optimize", "--folder", str(folder), "--launches", "9", "--warm-start", str(earlier), *VIRTUAL
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "learns from " in done.stdout and f"launches of {earlier}" in done.stdout
    sources = [json.loads(path.read_text())["source"] for path in sorted(folder.glob("trial-*/record.json"))]
    assert f"best of {earlier}" in sources
    assert "warm_start" not in json.loads((folder / "study.json").read_text())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--warm-start", "nowhere"), ["--warm-start", "'nowhere': there are no results of such a study"]),
        (("--warm-start", "{earlier}", "--model", "some/other"), ["server.model", "some/other"]),
        (("--warm-start", "{earlier}", "--folder", "{earlier}"), ["--warm-start", "knows its own launches"]),
    ],
    ids=["nothing there", "another model", "itself"],
)
def test_what_cannot_teach_ends_with_code_2_before_anything_is_launched(
    earlier: Path, tmp_path: Path, options: tuple[str, ...], told: list[str]
) -> None:
    before = len(list(earlier.glob("trial-*")))
    given = [word.format(earlier=earlier) for word in options]

    done = tuner("optimize", "--folder", str(tmp_path / "new"), *VIRTUAL, *given)

    assert done.returncode == 2, done.stdout + done.stderr
    assert [words for words in told if words not in done.stderr] == []
    assert not list(tmp_path.glob("new/trial-*")) and len(list(earlier.glob("trial-*"))) == before


def test_a_study_names_them_in_its_file_from_beside_it(earlier: Path, tmp_path: Path) -> None:
    text = f"""
search_space: kimi-k2.5-8x-rtx-pro-6000
warm_start: [{earlier}, gone]
server: {{command: [server], model: moonshotai/Kimi-K2.5}}
workload: {{input_tokens: 8, output_tokens: 8, concurrency: 1}}
"""
    (tmp_path / "night.yaml").write_text(text)

    done = tuner("optimize", str(tmp_path / "night.yaml"), "--dry-run", *VIRTUAL)

    assert done.returncode == 2
    assert "night.yaml:3: warm_start[1]: 'gone'" in done.stderr
