"""What a search-space file says of a parameter beforehand."""

from __future__ import annotations

import pytest

from tests.space.spaces import space
from tuner.errors import InputError
from tuner.space.parameters import Expectation

TEXT = """
parameters:
  batch: {type: integer, low: 8, high: 512, log: true, expect: smaller is faster}
  page: {type: choice, choices: [auto, 1, 64], ordered: true, expect: larger is faster}
  backend: {type: choice, choices: [auto, triton, fa3], expect: {triton: -0.05}}
  all_reduce: {type: composite, choices: [nccl, pcie-ipc], expect: {pcie-ipc: 0.1}}
  enable_mixed_chunk: {type: boolean, expect: {true: 0.02}}
  plain: [1, 2]
"""


def test_every_kind_of_parameter_takes_one() -> None:
    assert {one.name: one.expect for one in space(TEXT).parameters} == {
        "batch": Expectation(larger_is_faster=False),
        "page": Expectation(larger_is_faster=True),
        "backend": Expectation(gains={"triton": -0.05}),
        "all_reduce": Expectation(gains={"pcie-ipc": 0.1}),
        "enable_mixed_chunk": Expectation(gains={"true": 0.02}),
        "plain": None,
    }


def test_it_is_no_part_of_the_identity_so_that_a_study_may_learn_better() -> None:
    without = TEXT.replace(", expect: smaller is faster", "").replace(", expect: {triton: -0.05}", "")
    assert without != TEXT
    assert space(without).fingerprint == space(TEXT).fingerprint


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("smaller is faster", "smaller is better", ["parameters.batch.expect", "'smaller is better' is not possible here"]),
        ("smaller is faster", "{8: 0.1}", ["parameters.batch.expect", "a range has no choices"]),
        ("{triton: -0.05}", "smaller is faster", ["parameters.backend.expect", "only numbers are smaller or larger"]),
        ("{triton: -0.05}", "{tritno: -0.05}", ["parameters.backend.expect.tritno", "did you mean 'triton'?"]),
        ("{triton: -0.05}", "{auto: 0.05}", ["parameters.backend.expect.auto", "over leaving it out"]),
        ("{triton: -0.05}", "{triton: fast}", ["parameters.backend.expect.triton", "expected a number"]),
        ("{triton: -0.05}", "{triton: 50}", ["parameters.backend.expect.triton", "50"]),
        ("{triton: -0.05}", "{}", ["parameters.backend.expect", "names no choice"]),
        ("{triton: -0.05}", "[triton]", ["parameters.backend.expect", "expected text"]),
        ("{true: 0.02}", "{false: 0.02}", ["parameters.enable_mixed_chunk.expect.false", "no choice"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(old: str, new: str, told: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        space(TEXT.replace(old, new))
    assert [words for words in told if words not in str(refused.value)] == []
