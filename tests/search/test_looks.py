"""Cheap looks before dear launches: when they are made, what they teach, and what they never are."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.search.scripted import LOOK, STUDY, Run, failed, measured
from tuner.cli.progress import ProgressPrinter
from tuner.diagnosis.failure import Cause, Kind
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.learn.ruled_out import ruled_out
from tuner.results.note import trial_note
from tuner.results.record import COMPLETE, LOOKED, TrialRecord
from tuner.results.standings import standings
from tuner.search.budget import Spent
from tuner.search.looks import seen_by_a_look
from tuner.search.loop import SearchEnd, SearchListener
from tuner.sglang.phases import Phase
from tuner.space.configuration import Configuration
from tuner.study.definition import ENGINE_DEFAULTS

# Most back ends are known to run on some GPUs only, and a look is worth its time before such a choice.
SPACE = """
parameters:
  bs: {type: choice, choices: [128, 512], ordered: true, default: 512}
  attention_backend: {type: choice, choices: [triton, flashinfer, fa3, flashmla, cutlass_mla, trtllm_mla]}
  moe_runner_backend: {type: choice, choices: [auto, cutlass, deep_gemm]}
  speculative: {type: composite, choices: [off, eagle3]}
  speculative_num_steps: {type: integer, low: 1, high: 2, when: speculative != off}
known_good:
  - {name: small, values: {bs: 128, attention_backend: triton}}
  - {name: spec, values: {bs: 128, attention_backend: flashinfer, speculative: eagle3, speculative_num_steps: 2}}
"""


def study(launches: int = 12, **more: Any) -> str:
    budget = {"launches": launches, "confirm": 0, "looks": "auto", **more}
    return STUDY.replace("{launches: 6, confirm: 0}", json.dumps(budget))


def box(request: Request) -> Outcome:
    """Looks rank as full launches do; three back ends have no kernels here."""
    values = request.configuration
    if values.get("attention_backend") in ("fa3", "trtllm_mla") or "deep_gemm" in values.values():
        return renamed(failed(Kind.ARCH_UNSUPPORTED, Cause.CONFIG, Phase.GRAPH_CAPTURE), request)
    if request.as_baseline:
        return renamed(measured(80.0), request)
    tok_s = 80.0 * (1.15 if values["bs"] == 128 else 1.0)
    tok_s *= {"flashinfer": 1.3, "flashmla": 1.4}.get(str(values["attention_backend"]), 1.0)
    tok_s *= 0.7 if "cutlass" in values.values() else 1.0
    if request.fidelity is None and values.get("speculative") == "eagle3":
        tok_s *= 1.2
    return renamed(measured(3 * tok_s if request.fidelity else tok_s), request)


def renamed(outcome: Outcome, request: Request) -> Outcome:
    return replace(outcome, took_s=120.0 if request.fidelity else 700.0)


def misleading(request: Request) -> Outcome:
    """What is fast in a look is slow in full."""
    found = box(request)
    if request.fidelity is None or found.measurement is None:
        return found
    return renamed(measured(1e4 / found.measurement.levels[0].decode_tok_s), request)


class Heard(SearchListener):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def ran(
    folder: Path, script: Any = box, *, looks: bool = True, **options: Any
) -> tuple[Run, SearchEnd, Heard]:
    heard = Heard()
    run = Run(
        folder, script, space=SPACE, looks=looks, listener=heard, study=options.pop("study", study(**options))
    )
    return run, run.search.run(), heard


def looks_in(end: SearchEnd) -> list[TrialRecord]:
    return [record for record in end.records if record.role == "look"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, SearchEnd, Heard]:
    return ran(tmp_path_factory.mktemp("looks"))


def test_the_first_looks_repeat_what_was_launched_in_full(done: tuple[Run, SearchEnd, Heard]) -> None:
    _, end, _ = done
    roles = [record.role for record in end.records]
    first = roles.index("look")

    assert roles[:3] == ["baseline", "known-good", "known-good"]
    assert roles[first : first + 3] == ["look"] * 3
    seen = [Configuration(record.configuration) for record in end.records[first : first + 3]]
    assert [(one["bs"], one["attention_backend"], one["speculative"]) for one in seen] == [
        (512, "triton", "off"),
        (128, "triton", "off"),
        (128, "flashinfer", "off"),
    ]


def test_how_far_looks_agree_with_full_launches_is_told(done: tuple[Run, SearchEnd, Heard]) -> None:
    run, end, heard = done

    assert f"{len(looks_in(end))} looks (without weights)" in end.looks
    assert "rank agreement 1.00 with full launches" in end.looks
    assert not any("no further looks" in note for note in heard.notes)
    notes = run.store.study._storage.get_study_system_attrs(run.store.study._study_id)
    assert f"**Looks:** {end.looks}" in str(notes), "the study's note in the dashboard tells it too"


def test_a_look_is_never_launched_twice_and_never_with_speculation(
    done: tuple[Run, SearchEnd, Heard],
) -> None:
    run, end, _ = done
    looked = [request.configuration for request in run.evaluator.requests if request.fidelity is not None]

    assert looked and len(set(looked)) == len(looked) == len(looks_in(end))
    assert {one["speculative"] for one in looked} == {"off"}


def test_a_look_is_no_launch_of_the_study(done: tuple[Run, SearchEnd, Heard]) -> None:
    run, end, _ = done
    looks = looks_in(end)

    assert {record.state for record in looks} == {LOOKED}
    assert all(record.score is None and not record.scores and record.gain is None for record in looks)
    fastest = max(record.looked[0] for record in looks if record.looked)
    assert end.best is not None and fastest > 2 * end.best.expected
    assert all(standing.record.role != "look" for standing in standings(end.records, end.expected))
    assert not set(end.expected) & {record.trial for record in looks}
    trials = {trial.number: trial for trial in run.trials}
    assert {trials[record.trial].state for record in looks} == {TrialState.FAIL}
    assert not any("decode" in name for record in looks for name in trials[record.trial].user_attrs)
    assert (run.definition.folder / "best.yaml").read_text().count(f"trial {end.best.record.trial} ") == 1


def test_a_look_is_shown_as_one(done: tuple[Run, SearchEnd, Heard]) -> None:
    run, end, _ = done
    look = looks_in(end)[0]
    printed = io.StringIO()
    printer = ProgressPrinter(printed, run.clock, label="a box", terminal=False)

    printer.on_record(look, end.best)

    told = f"{look.looked[0]:.2f} tok/s, against other looks alone"
    assert f"=> a look: {told}" in printed.getvalue()
    assert f"a look without weights: {told}" in trial_note(look)


def test_a_look_costs_its_time_and_no_launch(done: tuple[Run, SearchEnd, Heard]) -> None:
    _, end, _ = done
    full = [record for record in end.records if record.role != "look"]

    assert Spent.of(end.records).launches == len(full) == 12
    assert Spent.of(end.records).seconds == sum(record.took_s or 0 for record in end.records)


def test_what_killed_two_looks_is_off_the_list(tmp_path: Path) -> None:
    """A look bears witness against the choices that it judges, whatever it was blind to."""
    run = Run(tmp_path, box, space=SPACE)
    reference = TrialRecord(0, "s", "", "baseline", COMPLETE, "", {}, "f", score=80.0, scores=(80.0,))
    failure = {"kind": "assertion", "cause": "config", "phase": "weight-load", "summary": "no kernels"}
    dead = TrialRecord(
        1, "s", "", "look", LOOKED, "", {"bs": 128, "attention_backend": "fa3", "speculative": "off"}, "f",
        failure=failure, fidelity="without weights", blind_to=("speculative", "speculative_num_steps"),
    )  # fmt: skip
    other = replace(
        dead, trial=2, configuration={"bs": 512, "attention_backend": "fa3", "speculative": "off"}
    )
    space = run.definition.space

    (blamed,) = ruled_out(space, run.store.observations([reference, dead, other]))

    assert blamed.shown == "attention_backend=fa3 is off the list: trials 1 and 2 died of it (assertion)"
    assert blamed.forbids(Configuration({"bs": 128, "attention_backend": "fa3", "speculative": "eagle3"}))
    for kind in ("oom-graph-capture", "measurement-void", "killed"):
        vague = [replace(one, failure={**failure, "kind": kind}) for one in (dead, other)]
        assert ruled_out(space, run.store.observations([reference, *vague])) == ()


def test_a_look_that_runs_out_of_memory_says_nothing_of_a_full_launch(tmp_path: Path) -> None:
    def cramped(request: Request) -> Outcome:
        if request.fidelity is not None and request.trial > 5:
            return renamed(failed(Kind.OOM_GRAPH_CAPTURE), request)
        return box(request)

    run, end, _ = ran(tmp_path, cramped)
    oom = [record for record in looks_in(end) if record.failure]

    assert oom
    taught = {one.trial for one in run.store.observations(end.records)}
    assert not taught & {record.trial for record in oom}


def test_looks_that_mislead_are_dropped_and_forgotten(tmp_path: Path) -> None:
    run, end, heard = ran(tmp_path, misleading)

    assert 3 <= len(looks_in(end)) <= 5
    assert [note for note in heard.notes if note.startswith("no further looks: they mislead")]
    assert "no further ones: they mislead" in end.looks
    assert run.store.lesson(end.records).past == ()
    assert end.best is not None
    assert end.best.record.configuration["attention_backend"] in ("flashinfer", "flashmla")


def test_looks_are_dropped_where_one_dies_of_what_runs_in_full(tmp_path: Path) -> None:
    def refuses_dummies(request: Request) -> Outcome:
        if request.fidelity is not None:
            return renamed(failed(Kind.ASSERTION, Cause.CONFIG, Phase.WEIGHT_LOAD), request)
        return box(request)

    _, end, heard = ran(tmp_path, refuses_dummies)

    assert len(looks_in(end)) == 1
    assert "died (assertion), and trial 0 runs" in end.looks
    assert len([note for note in heard.notes if "no further looks" in note]) == 1
    assert end.ruled_out == () or all(looks_in(end)[0].trial not in one.witnesses for one in end.ruled_out)


def test_looks_are_dropped_where_they_save_little(tmp_path: Path) -> None:
    def slow_to_start(request: Request) -> Outcome:
        return replace(box(request), took_s=500.0 if request.fidelity else 700.0)

    _, end, _ = ran(tmp_path, slow_to_start)

    assert len(looks_in(end)) == 1
    assert "no further ones: one takes 500 s, a full launch 700 s" in end.looks


@pytest.mark.parametrize(
    ("looks", "options", "sampler"),
    [(False, {}, ""), (True, {"looks": "off"}, ""), (True, {}, "tpe")],
    ids=["an evaluator that makes none", "not wanted", "a sampler of Optuna's"],
)
def test_where_no_looks_are_made(tmp_path: Path, looks: bool, options: dict[str, Any], sampler: str) -> None:
    text = study(**options) + (f"sampler: {sampler}\n" if sampler else "")
    _, end, _ = ran(tmp_path, looks=looks, study=text)

    assert looks_in(end) == []
    assert end.looks == ""


def test_a_study_that_was_interrupted_in_a_look_decides_anew_and_forgets_nothing(tmp_path: Path) -> None:
    def interrupted(request: Request) -> Outcome:
        if request.fidelity is not None and request.trial >= 4:
            raise KeyboardInterrupt
        return box(request)

    first = Run(tmp_path, interrupted, space=SPACE, looks=True, study=study())
    with pytest.raises(KeyboardInterrupt):
        first.search.run()
    assert not any(trial.state == TrialState.WAITING for trial in first.trials)

    _, end, _ = ran(tmp_path)

    whole = [record for record in looks_in(end) if record.state == LOOKED]
    assert [record.trial for record in looks_in(end) if record.state == "failed"] == [4]
    seen = [Configuration(record.configuration) for record in whole]
    assert len(set(seen)) == len(seen) >= 3
    assert f"{len(whole)} looks" in end.looks


def test_looks_that_were_dropped_stay_so_when_the_study_goes_on(tmp_path: Path) -> None:
    _, before, _ = ran(tmp_path, misleading, launches=10)

    _, end, heard = ran(tmp_path, box, launches=16)

    assert len(looks_in(end)) == len(looks_in(before))
    assert not any("no further looks" in note for note in heard.notes)
    assert "they mislead" in end.looks


def test_what_a_look_sees_is_the_baseline_but_for_what_it_judges(tmp_path: Path) -> None:
    space = Run(tmp_path, box, space=SPACE).definition.space
    given = Configuration(
        {"bs": 128, "attention_backend": "fa3", "speculative": "eagle3", "speculative_num_steps": 3}
    )

    seen = seen_by_a_look(given, space, LOOK, ENGINE_DEFAULTS)

    assert seen == Configuration({"bs": 128, "attention_backend": "fa3", "speculative": "off"})
