"""What killed launches is not launched again, whoever proposes; and the user is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.search.scripted import Run, ScriptedEvaluator, definition, failed, measured, with_launches
from tuner.clock import ManualClock
from tuner.diagnosis.failure import Cause, Failure, Kind
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.learn.ruled_out import RuledOut
from tuner.search.loop import Search, SearchListener
from tuner.search.store import StudyStore
from tuner.sglang.phases import Phase

SPACE = """
parameters:
  ep_size: {type: choice, choices: [1, 4, 8], default: 1}
  backend: {type: choice, choices: [triton, flashinfer]}
  mem_fraction_static: {type: float, low: 0.7, high: 0.96, step: 0.01}
  cuda_graph_max_bs: {type: choice, choices: [8, 64, 256], ordered: true}
known_good:
  - {name: experts, values: {ep_size: 8, backend: triton, mem_fraction_static: 0.8, cuda_graph_max_bs: 8}}
  - {name: more experts, values: {ep_size: 8, backend: flashinfer, mem_fraction_static: 0.8, cuda_graph_max_bs: 8}}
  - {name: most experts, values: {ep_size: 8, backend: flashinfer, mem_fraction_static: 0.9, cuda_graph_max_bs: 8}}
"""


def is_full(values: Mapping[str, Any]) -> bool:
    return bool(values.get("mem_fraction_static", 0) >= 0.9 and values["cuda_graph_max_bs"] >= 64)


def is_heavier(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    same = all(one[name] == other[name] for name in ("backend", "ep_size"))
    return same and all(one[name] >= other[name] for name in ("mem_fraction_static", "cuda_graph_max_bs"))


def box(request: Request) -> Outcome:
    """Expert parallelism dies; so does what takes more memory than there is."""
    values = request.configuration
    if request.as_baseline:
        return measured(80.0)
    if values["ep_size"] == 8:
        death = Failure(Kind.ASSERTION, Cause.CONFIG, Phase.WEIGHT_LOAD, "a check inside the server failed")
        return replace(failed(), failure=death)
    return failed() if is_full(values) else measured(80.0 + 10 * float(values["mem_fraction_static"]))


class Told(SearchListener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_ruled_out(self, ruled_out: RuledOut) -> None:
        self.lines.append(ruled_out.shown)


@pytest.mark.parametrize("sampler", ["surrogate", "tpe", "random"])
def test_what_died_twice_is_not_proposed_again(tmp_path: Path, sampler: str) -> None:
    study = replace(definition(tmp_path, with_launches(30), SPACE), sampler=sampler)
    evaluator, told = ScriptedEvaluator(box, ManualClock()), Told()
    store = StudyStore(study, study.space, owner="me", is_alive=lambda _: False)

    end = Search(study, store, evaluator, ManualClock(), told).run()

    asked = [request.configuration for request in evaluator.requests]
    assert sum(one.get("ep_size") == 8 for one in asked) == 2, "the third known-good one is passed over, too"
    dead = [one for one in asked if one.get("ep_size") != 8 and is_full(one)]
    for index, one in enumerate(dead):
        assert not any(is_heavier(one, earlier) for earlier in dead[:index])
    assert told.lines[0] == "ep_size=8 is off the list: trials 1 and 2 died of it (assertion)"
    assert [one.shown for one in end.ruled_out] == told.lines
    notes = store.study._storage.get_study_system_attrs(store.study._study_id)
    assert told.lines[0] in str(notes), "the study's note in the dashboard keeps it"


def test_a_resumed_study_remembers_and_says_so(tmp_path: Path) -> None:
    Run(tmp_path, box, study=with_launches(6), space=SPACE).search.run()
    study = definition(tmp_path, with_launches(12), SPACE)
    evaluator, told = ScriptedEvaluator(box, ManualClock()), Told()
    store = StudyStore(study, study.space, owner="me", is_alive=lambda _: False)

    Search(study, store, evaluator, ManualClock(), told).run()

    assert told.lines[0].startswith("ep_size=8 is off the list")
    assert not any(request.configuration.get("ep_size") == 8 for request in evaluator.requests)


def test_kernels_missing_for_a_choice_do_not_stop_a_study_in_which_others_ran(tmp_path: Path) -> None:
    def without_flashinfer(request: Request) -> Outcome:
        if request.configuration.get("backend") != "flashinfer":
            return measured(80.0)
        death = Failure(Kind.ARCH_UNSUPPORTED, Cause.ENVIRONMENT, Phase.GRAPH_CAPTURE, "no kernel image")
        return replace(failed(), failure=death)

    study = with_launches(20).replace("confirm: 0", "confirm: 0, stop_when_idle: false")
    end = Run(tmp_path, without_flashinfer, study=study, space=SPACE).search.run()

    dead = [record.configuration for record in end.records if record.failure]
    assert len(end.records) == 20
    assert len(dead) == 2 and all(values["backend"] == "flashinfer" for values in dead)
    assert end.ruled_out[0].shown.startswith("backend=flashinfer is off the list")
