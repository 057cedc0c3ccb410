"""What can be text, and what is a loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.guard.text import is_looping, is_strange

TEXTS = [
    "",
    "The capital of France is Paris.",
    "第一章\n\n「こんにちは」と彼は言った。",
    "Der Fluß — über 6 400 km lang — heißt „Amazonas“.",
    "| a | b |\n|-----------------------------|----------------------------------|\n| 1 | 2 |",
    "Chapter 1 ................................................ 7",
    "🎉🎉🎉 Well done! 👍🏽",
    "\tif x:\n\t\treturn\n" * 3,
    "cut in the middle of a character \ufffd",
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    assert not is_strange(text)


@pytest.mark.parametrize(
    "text",
    ["!" * 64, "So: " + "A" * 40, "\x00\x01\x02abc\x00\x00", "\ufffd" * 5 + "a" * 10, "\ue000\ue001 ok"],
)
def test_no_texts(text: str) -> None:
    assert is_strange(text)


@pytest.mark.parametrize("period", [1, 2, 7, 32])
def test_loops_of_any_length(period: int) -> None:
    assert is_looping([*range(1000, 1010), *(list(range(period)) * (160 // period))])


@pytest.mark.parametrize(
    "units",
    [
        [],
        [1],
        [1] * 23,
        [*range(100), *([7, 8] * 12)],  # the smaller half
        list(range(33)) * 4,
        [number for pair in zip(range(60), [5] * 60, strict=True) for number in pair],  # a list with commas
    ],
)
def test_no_loops(units: list[int]) -> None:
    assert not is_looping(units)


@given(st.lists(st.integers(0, 3), max_size=80))
def test_a_loop_is_what_its_words_say(units: list[int]) -> None:
    expected = any(
        all(units[-1 - place] == units[-1 - place - period] for place in range(covered - period))
        for period in range(1, min(32, len(units) // 4) + 1)
        for covered in [max(24, 4 * period, -(-len(units) // 2))]
        if covered <= len(units)
    )
    assert is_looping(units) == expected
