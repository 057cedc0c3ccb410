"""`python -m tuner diagnose`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tests.diagnosis.cases_on_disk import CASES, read_case
from tuner.cli.diagnose import add_arguments, run
from tuner.errors import InputError

KEYS = {"file", "kind", "cause", "phase", "evidence", "hints", "summary", "certainty"}


def _run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(words))


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    names = []
    for name in ("mem-fraction-too-low-named", "healthy-start"):
        path = tmp_path / f"{name}.log"
        path.write_text(next(read_case(case).log for case in CASES if case.stem == name))
        names.append(str(path))
    return names


def test_json_is_one_object_a_line(logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(*logs, "--json") == 0
    failed, well = (json.loads(line) for line in capsys.readouterr().out.splitlines())

    assert set(failed) >= KEYS
    assert (failed["file"], failed["kind"]) == (logs[0], "mem-fraction-too-low")
    assert failed["hints"][0] == {"param": "mem_fraction_static", "direction": "increase", "value": 0.853}
    assert failed["evidence"][0]["line"] > 0
    assert well["kind"] == "healthy"


def test_text_for_people(logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(*logs) == 0
    shown = capsys.readouterr().out

    assert "mem-fraction-too-low (config, in phase kv-cache-alloc; certainty 98%)" in shown
    assert "try: increase mem_fraction_static to 0.853" in shown
    assert "No failure in this log." in shown


def test_the_exit_code_counts(logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _run(logs[1], "--exit-code", "-9", "--json")

    assert json.loads(capsys.readouterr().out)["kind"] == "killed"


def test_a_missing_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="cannot read the log") as caught:
        _run(str(tmp_path / "no.log"))

    assert caught.value.exit_code == 2
    assert capsys.readouterr().out == ""
