from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial

from tests.search.scripted import Run, definition, failed, measured, renamed, with_launches
from tuner.diagnosis.failure import Cause, Failure, Kind
from tuner.errors import InputError
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.search.opening import MEMORY
from tuner.search.sampler import Assignment
from tuner.search.samplers import sampler_of
from tuner.search.store import StudyStore
from tuner.sglang.phases import Phase

SPACE = """
parameters:
  backend: {type: choice, choices: [triton, flashinfer, fa3, other]}
  bs: {type: integer, low: 8, high: 512, log: true, auto: true, default: 512}
  chunk: {type: choice, choices: [auto, 2048, 4096, 16384], ordered: true}
  speculative: {type: composite, choices: [off, eagle3]}
  page: {type: choice, choices: [1, 16, 64]}
  policy: {type: choice, choices: [fcfs, lpm, random]}
rules:
  - {forbid: bs == 8 and backend == triton, because: too small}
"""


def box(request: Request) -> Outcome:
    """The best is flashinfer with eagle3 and graphs up to 64; fa3 dies, and says so."""
    values = request.configuration
    if values.get("backend") == "fa3":
        death = Failure(
            Kind.BACKEND_UNSUPPORTED, Cause.CONFIG, Phase.GRAPH_CAPTURE, "no kernels for backend fa3"
        )
        return replace(failed(), failure=death)
    tok_s = 80.0 * (1.25 if values.get("backend") == "flashinfer" else 1.0)
    tok_s *= 1.3 if values.get("speculative") == "eagle3" else 1.0
    tok_s *= math.exp(-0.06 * abs(math.log2(float(values.get("bs", 512)) / 64)))
    return renamed(measured(tok_s), took_s=700.0)


def test_the_best_is_found_in_a_few_launches_and_what_dies_is_tried_once(tmp_path: Path) -> None:
    run = Run(tmp_path, box, study=with_launches(16), space=SPACE)

    end = run.search.run()

    assert end.best is not None and end.best.score > 0.95 * 80 * 1.25 * 1.3
    assert sum(asked.get("backend") == "fa3" for asked in run.asked()) <= 1


def test_nothing_is_launched_twice_but_on_purpose(tmp_path: Path) -> None:
    run = Run(tmp_path, box, study=with_launches(20), space=SPACE)

    end = run.search.run()

    searched = [record.fingerprint for record in end.records if record.role == "search"]
    assert len(searched) == len(set(searched))


def test_workers_on_one_study_do_not_propose_the_same(tmp_path: Path) -> None:
    Run(tmp_path, box, study=with_launches(5), space=SPACE).search.run()
    study = definition(tmp_path, with_launches(20), SPACE)
    stores = [
        StudyStore(study, study.space, owner=name, is_alive=lambda _: True)
        for name in ("one", "two", "three")
    ]
    records = Run(tmp_path, box, study=with_launches(5), space=SPACE).search.run().records
    asked = []
    for store in stores:
        store.learn(list(records))
        proposal = store.next()
        assert proposal is not None
        asked.append(proposal.configuration.fingerprint)

    assert len(set(asked)) == 3


def test_optunas_own_samplers_can_be_had_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(sampler_of("tpe", 1)).__name__ == "TPESampler"
    assert type(sampler_of("random", 1)).__name__ == "RandomSampler"
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(InputError, match="PyTorch"):
        sampler_of("gp", 1)


def test_a_study_without_a_file_is_searched_with_the_sampler_it_names(tmp_path: Path) -> None:
    named = replace(definition(tmp_path, with_launches(6), SPACE), sampler="random", storage=MEMORY)
    store = StudyStore(named, named.space, owner="me", is_alive=lambda _: False)

    assert store.next() is not None


class Raced(RandomSampler):
    """Proposes what another worker is given in the same moment; something else when it is asked again."""

    def __init__(self, assignments: list[Assignment], other: optuna.Study) -> None:
        super().__init__(seed=0)
        self._assignments = assignments
        self._other = other

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        proposed = self._assignments.pop(0)
        if self._assignments:
            self._other.enqueue_trial(proposed)
            self._other.ask(fixed_distributions=search_space)
        return proposed


def test_workers_that_are_given_the_same_in_the_same_moment_do_not_both_launch_it(tmp_path: Path) -> None:
    Run(tmp_path, box, study=with_launches(2), space=SPACE).search.run()
    study = definition(tmp_path, with_launches(20), SPACE)
    other = StudyStore(study, study.space, owner="other", is_alive=lambda _: True)
    taken, left = (dict(study.space.assignment({"backend": name})) for name in ("triton", "other"))
    store = StudyStore(
        study, study.space, owner="me", is_alive=lambda _: True, inner=Raced([taken, left], other.study)
    )

    proposal = store.next()

    assert proposal is not None and proposal.configuration["backend"] == "other"
