"""The guard against a toy model: other kernels pass, every planted fault is seen, dummy weights are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.guard import toy
from tuner.diagnosis.failure import Cause, Kind
from tuner.errors import TunerError
from tuner.guard.answers import Answer, AnswerSet, Reference, set_to_json
from tuner.guard.judge import accept_collapse, judge, limits_of
from tuner.guard.outcome import failure_of_output, write_answers
from tuner.sglang.phases import Phase

EXACT = toy.reference()
STEADY = toy.reference(0.05)


def test_the_same_server_again_is_ok() -> None:
    verdict = judge(STEADY, toy.taken(toy.Toy(noise_nats=0.05, seed=7)))
    assert (verdict.ok, verdict.blind, verdict.reasons) == (True, "", ())
    assert verdict.agreement is not None and verdict.agreement > 0.8


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), noise_nats=st.floats(0, 0.3), concurrency=st.sampled_from([1, 8, 64]))
def test_another_kernel_that_only_rounds_differently_is_ok(
    seed: int, noise_nats: float, concurrency: int
) -> None:
    """Even where the default itself repeats to the last bit."""
    verdict = judge(EXACT, toy.taken(toy.Toy(noise_nats=noise_nats, seed=seed), concurrency))
    assert verdict.ok, verdict.reasons


FAULTS: list[tuple[str, toy.Fault, str]] = [
    ("garbled from the first token", toy.garbled(0), "part from the default's"),
    ("garbled after 20 tokens", toy.garbled(20), "part from the default's"),
    ("garbled after 60 tokens", toy.garbled(60), "part from the default's"),
    ("every third token lost", toy.drops_every(3), "lack tokens"),
    ("every thirtieth token lost", toy.drops_every(30), "lack tokens"),
    ("work skipped", toy.skips, "part from the default's"),
    ("stops after one token", toy.stops_after(1), "stop far too early"),
    ("loops", toy.loops, "end in a loop"),
    ("exclamation marks", toy.exclaims, "are no text"),
    ("not a number", toy.is_not_a_number, "are no numbers"),
    ("empty", toy.empties, "are empty"),
    ("undecodable", toy.undecodable, "are no text"),
    ("no answers", toy.fails, "got no answer"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "reason"), [item[1:] for item in FAULTS], ids=[item[0] for item in FAULTS])
@pytest.mark.parametrize("only_under_load", [False, True])
def test_a_fault_is_seen_and_named(fault: toy.Fault, reason: str, only_under_load: bool) -> None:
    broken = toy.Toy(noise_nats=0.05, seed=3, fault_under_load=fault)
    if not only_under_load:
        broken.fault = fault
        broken.fault_under_load = lambda answer: answer
    verdict = judge(STEADY, toy.taken(broken))
    assert not verdict.ok
    assert reason in " ".join(verdict.reasons)
    if only_under_load:
        assert all(found.startswith("under load: ") for found in verdict.reasons)
    else:
        assert (
            any(found.startswith("alone: ") for found in verdict.reasons)
            or reason == "part from the default's"
        )


def test_other_weights_are_seen() -> None:
    assert not judge(STEADY, toy.taken(toy.Toy(weights=2))).ok


def test_a_fault_in_one_prompt_of_four_is_within_what_rounding_does_but_not_a_single_nan() -> None:
    answers = toy.taken(toy.Toy(noise_nats=0.05, seed=5))
    one = replace(answers, under_load=(toy.garbled(4)(answers.under_load[0]), *answers.under_load[1:]))
    assert judge(STEADY, one).ok
    broken = replace(
        answers, under_load=(toy.is_not_a_number(answers.under_load[0]), *answers.under_load[1:])
    )
    assert judge(STEADY, broken).reasons == (
        "under load: 1 of 24 answers have probabilities that are no numbers",
    )


@pytest.mark.parametrize("traits", [{"with_logprobs": False}, {"with_ids": False}])
def test_servers_that_tell_less_are_judged_by_their_tokens_or_words(traits: dict[str, bool]) -> None:
    silent = toy.reference(0.05, toy.Toy(**traits))  # type: ignore[arg-type]
    assert judge(silent, toy.taken(toy.Toy(noise_nats=0.05, seed=9, **traits))).ok  # type: ignore[arg-type]
    verdict = judge(silent, toy.taken(toy.Toy(fault=toy.garbled(3), **traits)))  # type: ignore[arg-type]
    assert "agree with the default's in" in " ".join(verdict.reasons)


def test_a_configuration_without_logprobs_is_still_judged_by_how_sure_the_default_was() -> None:
    quiet = toy.taken(toy.Toy(noise_nats=0.1, seed=11, with_logprobs=False))
    assert judge(STEADY, quiet).ok
    broken = toy.taken(toy.Toy(with_logprobs=False, fault=toy.garbled(40)))
    assert "part from the default's" in " ".join(judge(STEADY, broken).reasons)


def test_what_the_default_does_itself_is_not_held_against_others() -> None:
    looping = toy.reference(default=toy.Toy(fault=toy.loops))
    assert judge(looping, toy.taken(toy.Toy(fault=toy.loops))).ok
    short = toy.reference(default=toy.Toy(fault=toy.drops_every(30)))
    assert judge(short, toy.taken(toy.Toy(fault=toy.drops_every(30)))).ok


def test_a_wavering_default_widens_the_limits_and_garbling_is_still_seen() -> None:
    wavering = toy.reference(0.3)
    own = limits_of(wavering).own
    assert own.agreement < limits_of(STEADY).own.agreement
    assert judge(wavering, toy.taken(toy.Toy(noise_nats=0.3, seed=21))).ok
    assert not judge(wavering, toy.taken(toy.Toy(fault=toy.garbled(2)))).ok


def test_log_probabilities_that_moved_are_seen_though_the_tokens_are_the_same() -> None:
    def shifted(answer: Answer) -> Answer:
        return replace(answer, logprobs=tuple(value - 0.8 for value in answer.logprobs))

    verdict = judge(STEADY, toy.taken(toy.Toy(noise_nats=0.05, fault=shifted)))
    assert "log-probabilities" in " ".join(verdict.reasons)


def blind_references() -> list[tuple[str, Reference]]:
    def alike(answer: Answer) -> Answer:
        return toy.with_text(replace(answer, token_ids=(5, 5, 5, 5), logprobs=(-6.9,) * 4, choices=()))

    def equal(answer: Answer) -> Answer:
        return replace(answer, logprobs=tuple(-6.931 for _ in answer.logprobs))

    def flat(answer: Answer) -> Answer:
        return replace(
            answer,
            choices=tuple(
                tuple((token, -6.93 - rank / 1000) for rank, (token, _) in enumerate(place))
                for place in answer.choices
            ),
        )

    return [
        ("alike", toy.reference(default=toy.Toy(fault=alike))),
        ("equally likely", toy.reference(default=toy.Toy(fault=equal))),
        ("hardly prefers", toy.reference(default=toy.Toy(fault=flat))),
        ("answered no prompt", toy.reference(default=toy.Toy(fault=toy.fails))),
        ("agree in only", Reference((toy.taken(toy.Toy(weights=1)), toy.taken(toy.Toy(weights=2))))),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("why", "blind"), blind_references(), ids=lambda item: item if isinstance(item, str) else ""
)
def test_where_nothing_can_be_told_nothing_is_held_against_a_configuration(
    why: str, blind: Reference
) -> None:
    verdict = judge(blind, toy.taken(toy.Toy(weights=9, fault=toy.loops)))
    assert verdict.ok
    assert why in verdict.blind


@pytest.mark.parametrize(
    ("accept_length", "expected", "collapsed"),
    [
        (1.06, 2.3, True),  # a missing barrier: 0.06 drafts accepted
        (1.18, 2.3, True),
        (2.2, 2.3, False),
        (1.6, 2.3, False),  # fewer steps
        (1.0, 1.0, False),
        (None, 2.3, False),
        (1.06, None, False),
        (3.1, 2.3, False),
    ],
)
def test_collapsed_acceptance(accept_length: float | None, expected: float | None, collapsed: bool) -> None:
    assert bool(accept_collapse(accept_length, expected)) == collapsed


def test_collapsed_acceptance_is_wrong_output() -> None:
    def speculating(answer: Answer) -> Answer:
        return replace(answer, verify_steps=round(answer.tokens / 1.06))

    verdict = judge(
        STEADY, toy.taken(toy.Toy(noise_nats=0.05, fault=speculating)), accept_length_expected=2.3
    )
    assert verdict.reasons == (
        "speculation accepts 1.06 tokens for each step where 2.30 were expected: 5% of the drafts",
    )


def test_a_reference_survives_its_file() -> None:
    broken = toy.reference(0.05, toy.Toy(fault=toy.is_not_a_number))
    for kept in (STEADY, broken):
        text = json.dumps(kept.to_json(), allow_nan=False)
        assert json.dumps(Reference.from_json(json.loads(text)).to_json()) == text
    assert Reference.from_json(STEADY.to_json()) == STEADY


@pytest.mark.parametrize(
    "data",
    [{}, {"version": 0, "sets": []}, {"version": 1, "sets": [1]}, {"version": 1, "sets": [{"alone": [{}]}]}],
)
def test_a_file_that_is_no_reference_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(TunerError, match="reference"):
        Reference.from_json(data)


def test_one_set_is_a_reference_too() -> None:
    single = Reference((toy.taken(toy.Toy()),))
    assert judge(single, toy.taken(toy.Toy(noise_nats=0.1, seed=4))).ok
    assert not judge(single, toy.taken(toy.Toy(fault=toy.garbled(2)))).ok


def test_wrong_output_becomes_a_failure_and_a_file_with_both_answers(tmp_path: Path) -> None:
    answers = toy.taken(toy.Toy(fault_under_load=toy.garbled(10)))
    verdict = judge(STEADY, answers)
    failure = failure_of_output(verdict.reasons)
    assert (failure.kind, failure.cause, failure.phase) == (Kind.WRONG_OUTPUT, Cause.CONFIG, Phase.SERVING)
    assert failure.telling_line == verdict.reasons[0]

    path = write_answers(tmp_path / "trial", toy.PROMPTS, STEADY, answers, verdict)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == "answers.json"
    assert data["verdict"]["ok"] is False
    assert len(data["answers"]) == 8 + 24
    loaded = next(
        item for item in data["answers"] if item["round"] == "under load" and item["prompt"] == "story"
    )
    assert loaded["text"].startswith("The lighthouse keeper")
    assert loaded["default"] != loaded["answer"]
    assert loaded["default"].split()[:10] == loaded["answer"].split()[:10]
    assert loaded["same_tokens"] == 10


def test_a_verdict_is_json_also_where_a_token_was_unthinkable() -> None:
    verdict = judge(STEADY, toy.taken(toy.Toy(fault=toy.garbled(0))))
    shown = json.loads(json.dumps(verdict.to_json(), allow_nan=False))
    assert shown["scores"]["alone"]["largest_gap"] is None
    assert shown["scores"]["alone"]["forked"] == 1.0


def test_answer_sets_are_json() -> None:
    empty = AnswerSet((), ())
    assert set_to_json(empty) == {"alone": [], "under_load": []}
    assert empty.accept_length is None
