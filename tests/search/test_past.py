"""An earlier study teaches a new one: what is read, what is tried, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.scripted import SPACE, STUDY, Run, definition, failed, measured, speed, with_launches
from tuner.diagnosis.failure import Cause, Kind
from tuner.errors import InputError
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.search.past import PastStudy, best_of_past, read_past, told
from tuner.sglang.phases import Phase
from tuner.space.configuration import Configuration
from tuner.study.definition import StudyDefinition
from tuner.telemetry.audit import PlatformAudit
from tuner.telemetry.finding import Finding

NOTHING_KNOWN = SPACE.partition("known_good:")[0]
FEWER_CHOICES = """
parameters:
  bs: {type: choice, choices: [8, 64, 128], ordered: true}
  backend: {type: choice, choices: [triton, flashinfer]}
  other: {type: boolean}
rules:
  - {forbid: bs == 128 and backend == flashinfer, because: it hangs here}
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study of twelve launches in which 128, flashinfer and two or three drafts are best."""
    run = Run(tmp_path_factory.mktemp("earlier"), speed, study=with_launches(12), space=NOTHING_KNOWN)
    run.search.run()
    return run.definition.folder


def taught(folder: Path, *earlier: Path, study: str = STUDY, space: str = NOTHING_KNOWN) -> StudyDefinition:
    return replace(definition(folder, study, space), warm_start=earlier)


def past_of(folder: Path, platform: PlatformAudit | None = None, **changes: str) -> PastStudy:
    (past,) = read_past(taught(folder.parent / "now", folder, **changes), platform)
    return past


def test_the_best_of_an_earlier_study_is_launched_after_what_the_space_names(
    tmp_path: Path, earlier: Path
) -> None:
    past = past_of(earlier)
    run = Run(tmp_path, speed, study=with_launches(8), space=SPACE, past=[past])

    end = run.search.run()

    roles = [(record.role, record.source) for record in end.records[:6]]
    assert [role for role, _ in roles] == ["baseline", *["known-good"] * 3, "search", "search"]
    assert [source for _, source in roles[1:4]] == ["small", "spec", f"best of {earlier}"]
    first = Configuration(end.records[3].configuration)
    assert (first["bs"], first["speculative"]) == (128, "eagle3")
    assert len(set(run.asked())) == len(run.asked())


def test_at_most_three_are_tried_and_none_that_is_known(tmp_path: Path, earlier: Path) -> None:
    past = past_of(earlier)
    now = taught(tmp_path, earlier, space=SPACE)

    given = best_of_past([past, *(replace(past, name=f"another {at}") for at in range(5))], now.space, now)

    assert len(given) == 3
    assert len({known.values for known in given} | {known.values for known in now.space.known_good}) == 5
    assert given[0].name == f"best of {earlier}"


def test_a_configuration_is_cut_to_the_new_space_and_must_keep_its_rules(
    tmp_path: Path, earlier: Path
) -> None:
    now = taught(tmp_path, earlier, space=FEWER_CHOICES)

    given = best_of_past([past_of(earlier)], now.space, now)

    assert given
    for known in given:
        assert set(known.values) == {"bs", "backend", "other"}
        assert now.space.broken_rule(known.values) is None


def test_what_all_launches_had_counts_where_the_new_space_searches_it(tmp_path: Path, earlier: Path) -> None:
    space = NOTHING_KNOWN + "  - {forbid: page == 2, because: of that}\n"
    space = space.replace("parameters:", "parameters:\n  page: {type: choice, choices: [1, 16]}").replace(
        "page == 2", "page == 1 and bs == 8"
    )
    now = taught(tmp_path, earlier, space=space)
    past = replace(past_of(earlier), fixed={"page": 16, "tp_size": 8})

    assert {known.values["page"] for known in best_of_past([past], now.space, now)} == {16}


def test_only_what_died_of_its_configuration_teaches(tmp_path: Path) -> None:
    def box(request: Request) -> Outcome:
        if request.as_baseline:
            return measured(82.0)
        cause = Cause.UNKNOWN if request.trial % 2 else Cause.CONFIG
        return failed(Kind.ASSERTION, cause, Phase.WEIGHT_LOAD)

    run = Run(tmp_path, box, study=with_launches(7), space=NOTHING_KNOWN)
    run.search.run()

    observations = past_of(run.definition.folder).observations(run.definition.space, ("maximize",))

    assert [one.trial for one in observations] == [0, 2, 4, 6]
    assert [one.death is None for one in observations] == [True, False, False, False]


def test_the_death_of_a_choice_elsewhere_takes_nothing_off_the_list(tmp_path: Path) -> None:
    def box(request: Request) -> Outcome:
        if request.configuration.get("backend") == "flashinfer":
            return failed(Kind.ASSERTION, phase=Phase.WEIGHT_LOAD)
        return speed(request)

    before = Run(tmp_path / "before", box, study=with_launches(10), space=NOTHING_KNOWN)
    assert before.search.run().ruled_out
    past = past_of(before.definition.folder)

    now = Run(tmp_path / "now", speed, study=with_launches(12), space=NOTHING_KNOWN, past=[past])
    end = now.search.run()

    assert end.ruled_out == ()
    assert any(values.get("backend") == "flashinfer" for values in now.asked())


def test_the_user_is_told_from_how_many_launches_of_what(earlier: Path) -> None:
    assert told([past_of(earlier)]) == [f"learns from 12 launches of {earlier}"]


def test_what_differs_is_told_and_does_not_keep_from_learning(tmp_path: Path, earlier: Path) -> None:
    kept = [Finding("GPUs", "8x RTX PRO 6000"), Finding("disks", "3 GB free")]
    (earlier / "platform.json").write_text(json.dumps(PlatformAudit(tuple(kept)).to_json()))
    here = PlatformAudit((Finding("GPUs", "4x H200"), Finding("disks", "9 GB free")))
    study = STUDY.replace("label:", "gpus: [0, 1, 2, 3], label:").replace(
        "input_tokens: 8", "input_tokens: 99"
    )

    lines = told([past_of(earlier, here, study=study)])

    assert lines[1:] == [
        f"warning  {earlier}: it ran on unnamed GPUs, this one on 4",
        f"warning  {earlier}: input_tokens was 8, is 99",
        f"warning  {earlier}: GPUs: was 8x RTX PRO 6000, is 4x H200",
    ]
    (earlier / "platform.json").unlink()


@pytest.mark.parametrize(
    ("now", "flags", "carried"),
    [
        ("96 GiB", "", True),
        ("80 GiB", "", False),
        (None, "", False),
        ("96 GiB", ", flags: {tp_size: 8}", False),
    ],
    ids=["the same cards", "smaller cards", "an unknown box", "other shares of the weights"],
)
def test_what_launches_took_of_a_card_counts_on_the_same_cards(
    tmp_path: Path, now: str | None, flags: str, carried: bool
) -> None:
    memory = {"weights_gib": 72.0, "available_gib": 3.0}
    run = Run(tmp_path, lambda _: measured(82.0, memory=memory), study=with_launches(4), space=NOTHING_KNOWN)
    run.search.run()
    there = PlatformAudit((Finding("GPU memory", "96 GiB"),))
    (run.definition.folder / "platform.json").write_text(json.dumps(there.to_json()))
    here = PlatformAudit((Finding("GPU memory", now),)) if now is not None else None

    past = past_of(run.definition.folder, here, study=STUDY.replace("model: m", f"model: m{flags}"))

    observations = past.observations(run.definition.space, ("maximize",))
    assert [dict(one.memory) for one in observations] == [memory if carried else {}] * 4
    assert ("what memory they took" in told([past])[0]) is carried


def test_scores_of_something_else_teach_nothing_of_speed(tmp_path: Path, earlier: Path) -> None:
    study = STUDY.replace("concurrency: 1", "concurrency: 4")
    past = past_of(earlier, study=study)
    now = taught(tmp_path, earlier, study=study)

    assert best_of_past([past], now.space, now) == ()
    assert all(one.death is not None for one in past.observations(now.space, ("maximize",)))
    assert "it scored decode tok/s at C=1; only what died there teaches" in told([past])[-1]


def test_the_model_may_lie_elsewhere(earlier: Path) -> None:
    assert past_of(earlier, study=STUDY.replace("model: m", "model: /data/models/M/")).launches


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "study.json").unlink(), ["study.json", "cannot be read"]),
        (lambda folder: (folder / "study.json").write_text("{}"), ["study.json", "does not say what"]),
        (
            lambda folder: (folder / "trial-0000" / "record.json").write_text("no json"),
            ["trial-0000/record.json", "cannot be read"],
        ),
        (
            lambda folder: (folder / "study.json").write_text(
                (folder / "study.json").read_text().replace('"model": "m"', '"model": "n"')
            ),
            ["study.json: server.model", "was of n", "of m"],
        ),
    ],
    ids=["no identity", "an empty identity", "no record", "another model"],
)
def test_what_cannot_teach_is_refused(tmp_path: Path, spoil: object, words: list[str]) -> None:
    run = Run(tmp_path, speed, study=with_launches(2))
    run.search.run()
    assert callable(spoil)
    spoil(run.definition.folder)

    with pytest.raises(InputError) as refused:
        past_of(run.definition.folder)

    assert [word for word in words if word not in refused.value.message] == []


def test_a_study_may_be_resumed_with_another_warm_start(tmp_path: Path, earlier: Path) -> None:
    Run(tmp_path, speed, study=with_launches(3), past=[past_of(earlier)]).search.run()

    end = Run(tmp_path, speed, study=with_launches(5)).search.run()

    assert len(end.records) == 5
