"""A configuration of another space finds its place in this one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.space.spaces import space
from tuner.space.cutting import cut_to

SPACE = space("""
parameters:
  fraction: {type: float, low: 0.7, high: 0.9, step: 0.1, auto: true}
  batch: {type: integer, low: 8, high: 96, step: 8}
  backend: {type: choice, choices: [auto, triton, fa3]}
  drafts: {type: composite, choices: {off: {}, on: {flags: {speculative_algorithm: EAGLE3}}}}
  steps: {type: integer, low: 1, high: 3, default: 2, when: drafts != off}
""")


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({}, {"batch": 8, "drafts": "off"}),
        ({"fraction": 0.8, "batch": 16, "backend": "fa3", "drafts": "off"},
         {"fraction": 0.8, "batch": 16, "backend": "fa3", "drafts": "off"}),
        ({"fraction": 0.99, "batch": 4096}, {"fraction": 0.9, "batch": 96, "drafts": "off"}),
        ({"fraction": 0.1, "batch": 21}, {"fraction": 0.7, "batch": 24, "drafts": "off"}),
        ({"backend": "aiter", "gone": 3}, {"batch": 8, "drafts": "off"}),
        ({"batch": "many", "fraction": True}, {"batch": 8, "drafts": "off"}),
        ({"steps": 3}, {"batch": 8, "drafts": "off"}),
        ({"drafts": "on"}, {"batch": 8, "drafts": "on", "steps": 2}),
        ({"drafts": "on", "steps": 7}, {"batch": 8, "drafts": "on", "steps": 3}),
    ],
)  # fmt: skip
def test_numbers_go_to_the_nearest_and_what_is_not_there_is_left_out(
    values: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert cut_to(SPACE, values).to_json() == dict(sorted(kept.items()))


@given(
    st.dictionaries(
        st.sampled_from(["fraction", "batch", "backend", "drafts", "steps", "gone"]),
        st.one_of(
            st.booleans(),
            st.integers(-100, 1000),
            st.floats(-1, 2),
            st.sampled_from(["auto", "on", "off", "fa3", "?"]),
        ),
    )
)
def test_whatever_comes_the_answer_is_a_point_of_the_space(values: dict[str, Any]) -> None:
    found = cut_to(SPACE, values)

    assert SPACE.configuration(SPACE.assignment(found)) == found
    assert cut_to(SPACE, found) == found
