"""The process that asks SGLang, against fakes with every habit that would confuse it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.preflight import fake_sglang as fake
from tuner.preflight.validator import Accepted, Question, Refused, Unknown, Validator

Make = Callable[..., Validator]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Validator] = []

    def new(source: str, **limits: float) -> Validator:
        made.append(fake.validator(tmp_path, source, **limits))
        return made[-1]

    yield new
    for item in made:
        item.end()


def asked(*words: str) -> Question:
    return Question(words)


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.mark.parametrize("source", [fake.NEW, fake.OLD], ids=["resolve_once", "post_init"])
def test_it_tells_the_good_from_the_bad_whatever_is_printed(make: Make, source: str) -> None:
    validator = make(source)
    good, bad, unknown_flag, again = validator.ask(
        [
            asked("--page-size", "16"),
            asked("--page-size", "48"),
            asked("--no-such-flag"),
            asked("--page-size", "32"),
        ]
    )
    assert isinstance(good, Accepted) and good.resolved["page_size"] == 16
    assert not any(name.startswith("_") for name in good.resolved)
    assert bad == Refused("AssertionError", "chunk must be divisible by page_size")
    assert unknown_flag == Refused("SystemExit", "unrecognized arguments: --no-such-flag")
    assert isinstance(again, Accepted) and again.resolved["page_size"] == 32


def test_a_bare_assertion_is_told_by_its_line(make: Make) -> None:
    assert make(fake.NEW).ask([asked("--do", "assert")]) == [
        Refused("AssertionError", "assert self.page_size == 7")
    ]


@pytest.mark.parametrize(
    ("do", "why"), [("files", "OSError: no such model"), ("leave", "it ended with exit code 0")]
)
def test_what_is_of_the_moment_is_held_against_nobody(make: Make, do: str, why: str) -> None:
    assert make(fake.NEW).ask([asked("--do", do)]) == [Unknown(why)]


def test_flags_of_the_command_are_part_of_every_question(tmp_path: Path) -> None:
    validator = fake.validator(tmp_path, fake.NEW, words=("--page-size", "48"))
    try:
        assert isinstance(validator.ask([asked()])[0], Refused)
    finally:
        validator.end()


def test_variables_count_for_their_candidate_and_for_no_other(make: Make) -> None:
    changed, other, plain = make(fake.NEW).ask(
        [asked("--do", "change"), Question((), {"ASKED": "1"}), asked()]
    )
    assert isinstance(changed, Accepted) and changed.resolved["variables"] == ["SGLANG_LEFT_BEHIND"]
    assert isinstance(other, Accepted) and other.resolved["variables"] == ["ASKED"]
    assert isinstance(plain, Accepted) and plain.resolved["variables"] == []


@pytest.mark.parametrize(("do", "code"), [("die", "3"), ("kill", "-9")])
def test_a_candidate_that_kills_the_process_is_unknown_and_the_next_is_answered(
    make: Make, do: str, code: str
) -> None:
    validator = make(fake.NEW)
    dead, alive = validator.ask([asked("--do", do), asked()])
    assert isinstance(dead, Unknown) and f"exit code {code}" in dead.why
    assert isinstance(alive, Accepted)
    assert not validator.absent


def test_a_candidate_that_takes_too_long_is_unknown_and_the_next_is_answered(make: Make) -> None:
    validator = make(fake.NEW, check_limit_s=2.0)
    stuck, alive = validator.ask([asked("--do", "hang"), asked()])
    assert isinstance(stuck, Unknown) and "no answer within 2 s" in stuck.why
    assert isinstance(alive, Accepted)


def test_after_three_losses_nobody_is_asked_any_more(make: Make) -> None:
    validator = make(fake.NEW)
    answers = validator.ask([asked("--do", "die")] * 4 + [asked()])
    assert all(isinstance(answer, Unknown) for answer in answers)
    assert "lost 3 times" in validator.absent
    assert children() == []


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (fake.NONE, "no ServerArgs"),
        (fake.BROKEN, "No module named 'no_such_dependency'"),
        (fake.DEAD, "exit code 9: a last word"),
    ],
    ids=["without", "broken", "dead"],
)
def test_an_installation_that_cannot_be_asked_says_why_and_is_left_alone(
    make: Make, source: str, why: str
) -> None:
    validator = make(source)
    (answer,) = validator.ask([asked()])
    assert isinstance(answer, Unknown) and why in validator.absent
    assert children() == []
    assert validator.ask([asked()]) == [answer]


def test_an_import_that_takes_too_long_is_ended(make: Make) -> None:
    validator = make(fake.SLOW, start_limit_s=1.0)
    validator.ask([asked()])
    assert "no answer within 1 s" in validator.absent
    assert children() == []


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    validator = Validator(tmp_path / "python", {})
    assert isinstance(validator.ask([asked()])[0], Unknown)
    assert "cannot be asked" in validator.absent


def test_its_end_leaves_nobody_behind_and_the_next_question_begins_anew(make: Make) -> None:
    validator = make(fake.NEW)
    assert not validator.end()
    validator.ask([asked("--do", "child")])
    left = children()
    assert len(left) == 2
    assert validator.end()
    deadline_s = time.monotonic() + 10
    while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in left):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    assert not validator.end()
    assert isinstance(validator.ask([asked()])[0], Accepted)
