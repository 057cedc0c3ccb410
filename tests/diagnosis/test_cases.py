"""Every file in `cases` is a log and what has to be made of it: to add a failure, add a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis.cases_on_disk import CASES, Case, read_case
from tuner.diagnosis.diagnose import diagnose
from tuner.diagnosis.failure import Hint, Kind

MEASURED = {Kind.WRONG_OUTPUT, Kind.SLOW, Kind.MEASUREMENT_VOID}


def _shown(hint: Hint) -> dict[str, Any]:
    return {key: value for key, value in hint.to_json().items() if key != "value"}


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Case:
    path = request.param
    assert isinstance(path, Path)
    return read_case(path)


def test_kind_cause_and_phase(case: Case) -> None:
    failure = diagnose(case.log, exit_code=case.exit_code)

    assert (str(failure.kind), str(failure.cause)) == (case.kind, case.cause)
    if case.phase is not None:
        assert failure.to_json()["phase"] == case.phase


def test_hints_point_the_right_way(case: Case) -> None:
    hints = diagnose(case.log, exit_code=case.exit_code).hints
    shown = [_shown(hint) for hint in hints]
    values = [hint.to_json() for hint in hints]

    for expected in case.hints:
        assert expected in (values if "value" in expected else shown)
    assert not {f"{hint.name} {hint.direction}" for hint in hints} & set(case.never)


def test_numbers_are_read(case: Case) -> None:
    if case.shortage_gib is not None:
        assert diagnose(case.log).shortage_gib == pytest.approx(case.shortage_gib, abs=0.01)


def test_evidence_is_in_the_log(case: Case) -> None:
    failure = diagnose(case.log, exit_code=case.exit_code)
    lines = case.log.split("\n")

    assert failure.evidence
    for evidence in failure.evidence:
        if evidence.line:
            assert evidence.text[:60] in lines[evidence.line - 1]


def test_every_kind_that_a_log_can_show_has_a_case() -> None:
    told = {read_case(path).kind for path in CASES}

    assert {str(kind) for kind in Kind if kind not in MEASURED} == told
