"""The tables hold together."""

from __future__ import annotations

from collections import Counter

import pytest

from tuner.diagnosis.failure import Hint, Kind
from tuner.diagnosis.kinds import MEANINGS
from tuner.diagnosis.signature import Signature
from tuner.diagnosis.signatures import ALL

DIRECTIONS = {"increase", "decrease", "set", "unset", "change"}
NEVER_FROM_A_LOG = {Kind.WRONG_OUTPUT, Kind.SLOW, Kind.MEASUREMENT_VOID}


@pytest.mark.parametrize("signature", ALL, ids=lambda signature: signature.name)
def test_form(signature: Signature) -> None:
    assert signature.literals
    assert all(literal == literal.lower() and len(literal) > 2 for literal in signature.literals)
    assert 0 < signature.certainty < 1
    assert signature.kind not in NEVER_FROM_A_LOG


def test_names_are_unique() -> None:
    assert not [name for name, times in Counter(signature.name for signature in ALL).items() if times > 1]


def test_every_kind_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Kind) - NEVER_FROM_A_LOG


def test_hints_are_canonical() -> None:
    hints: list[Hint] = [hint for meaning in MEANINGS.values() for hint in meaning.hints]
    hints += [hint for signature in ALL for hint in signature.hints]

    for hint in hints:
        assert hint.direction in DIRECTIONS
        assert hint.target in {"param", "env", "action"}
        if hint.target == "param":
            assert "-" not in hint.name
            assert hint.name.islower()
