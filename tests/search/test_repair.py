"""Exact cures become one child trial; what comes down to the same server is one point."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.search.scripted import STUDY, Run, failed, measured, renamed, with_launches
from tuner.diagnosis.failure import Cause, Hint, Kind
from tuner.diagnosis.fallbacks import Fallback
from tuner.document import parse_document
from tuner.errors import BrokenEnvironment
from tuner.evaluate.outcome import Outcome, ServerFacts
from tuner.evaluate.protocol import Request
from tuner.search.repair import repair_of
from tuner.sglang.phases import Phase
from tuner.space.configuration import Configuration
from tuner.space.reading import parse_space
from tuner.space.space import SearchSpace

SPACE = """
parameters:
  mem_fraction_static: {type: float, low: 0.80, high: 0.90, step: 0.01, auto: true}
  cuda_graph_max_bs: {type: integer, low: 8, high: 512, log: true, auto: true}
  page_size: {type: choice, choices: [1, 16, 64], ordered: true}
  all_reduce: {type: composite, choices: [nccl, custom]}
rules:
  - {forbid: "mem_fraction_static > 0.88 and page_size == 64", because: it does not fit}
known_good:
  - {name: first, values: {mem_fraction_static: 0.82, all_reduce: nccl}}
"""


def space() -> SearchSpace:
    return parse_space(parse_document(SPACE, "space.yaml"), "s")


def hinted(*hints: Hint) -> dict[str, Any]:
    failure = failed().failure
    assert failure is not None
    return replace(failure, hints=hints).to_json()


@pytest.mark.parametrize(
    ("hint", "before", "change"),
    [
        (Hint("param", "mem_fraction_static", "increase", 0.843), {"mem_fraction_static": 0.82}, {"mem_fraction_static": 0.85}),
        (Hint("param", "mem_fraction_static", "increase", 0.843), {}, {"mem_fraction_static": 0.85}),
        (Hint("param", "mem_fraction_static", "decrease", 0.866), {"mem_fraction_static": 0.9}, {"mem_fraction_static": 0.86}),
        (Hint("param", "cuda_graph_max_bs", "decrease", 128), {"cuda_graph_max_bs": 300}, {"cuda_graph_max_bs": 128}),
        (Hint("param", "page_size", "decrease", 20), {"page_size": 64}, {"page_size": 16}),
    ],
)  # fmt: skip
def test_the_value_is_put_on_the_grid_on_the_safe_side(
    hint: Hint, before: dict[str, Any], change: dict[str, Any]
) -> None:
    known = space()
    configuration = known.configuration(known.assignment(before))
    repair = repair_of(hinted(hint), configuration, known)
    assert repair is not None
    assert dict(repair.configuration) == {**configuration, **change}


@pytest.mark.parametrize(
    ("hints", "before"),
    [
        ((Hint("param", "mem_fraction_static", "increase", 0.95),), {}),  # outside the range
        ((Hint("param", "mem_fraction_static", "increase"),), {}),  # no value: no exact cure
        ((Hint("param", "tp_size", "increase", 8),), {}),  # not tuned
        ((Hint("env", "NCCL_DEBUG", "set", "INFO"),), {}),
        ((Hint("param", "mem_fraction_static", "increase", 0.885),), {"page_size": 64}),  # breaks a rule
        ((), {}),
    ],
)
def test_no_repair_without_an_exact_and_possible_cure(
    hints: tuple[Hint, ...], before: dict[str, Any]
) -> None:
    known = space()
    assert repair_of(hinted(*hints), known.configuration(known.assignment(before)), known) is None


def too_low(request: Request) -> Outcome:
    """Dies below 0.86, and says so."""
    fraction = float(request.configuration.get("mem_fraction_static", 0.8))
    if request.as_baseline or fraction >= 0.86:
        return measured(80 + 100 * fraction)
    outcome = failed(Kind.MEM_FRACTION_TOO_LOW, Cause.CONFIG, Phase.KV_CACHE_ALLOC)
    assert outcome.failure is not None
    hint = Hint("param", "mem_fraction_static", "increase", 0.8541)
    return renamed(outcome, failure=replace(outcome.failure, hints=(hint,)))


def test_a_repaired_child_is_launched_next_linked_to_its_parent_and_within_the_budget(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        too_low,
        study=with_launches(12).replace("launches: 12", "launches: 12, repairs: 1") + "sampler: random\n",
        space=SPACE,
    )
    end = run.search.run()
    _, parent, child = end.records[:3]
    assert parent.role == "known-good" and parent.state == "pruned"
    assert child.role == "repair" and child.repair_of == parent.trial and child.state == "complete"
    assert child.configuration["mem_fraction_static"] == 0.86
    assert child.source == "trial 1 with mem_fraction_static 0.82 → 0.86"
    assert run.trials[2].user_attrs["repair_of"] == 1
    assert [record.role for record in end.records].count("repair") == 1
    assert any(record.state == "pruned" for record in end.records[3:])


def test_a_repair_that_fails_is_not_repaired_again(tmp_path: Path) -> None:
    def stubborn(request: Request) -> Outcome:
        return measured(80.0) if request.as_baseline else too_low_always(request)

    def too_low_always(request: Request) -> Outcome:
        value = float(request.configuration.get("mem_fraction_static", 0.8)) + 0.012
        outcome = failed(Kind.MEM_FRACTION_TOO_LOW)
        assert outcome.failure is not None
        return renamed(
            outcome,
            failure=replace(
                outcome.failure, hints=(Hint("param", "mem_fraction_static", "increase", value),)
            ),
        )

    end = Run(tmp_path, stubborn, study=with_launches(8), space=SPACE).search.run()
    parents = [record.repair_of for record in end.records if record.role == "repair"]
    roles = {record.trial: record.role for record in end.records}
    assert parents and all(roles[parent] != "repair" for parent in parents if parent is not None)


def test_choices_that_come_down_to_the_same_server_are_one_point(tmp_path: Path) -> None:
    """Custom all-reduce falls back to NCCL: once that was seen, neither is proposed where the other is known."""
    small = """
parameters:
  all_reduce: {type: composite, choices: [nccl, custom]}
  page_size: {type: choice, choices: [1, 16]}
"""

    def script(request: Request) -> Outcome:
        values = request.configuration
        runs_as = f"nccl/{values.get('page_size', 1)}"
        fallbacks = (
            (Fallback("all_reduce", "custom", "nccl", 7),)
            if values.get("all_reduce", "custom") == "custom"
            else ()
        )
        return renamed(measured(50.0), facts=ServerFacts(runs_as=runs_as), fallbacks=fallbacks)

    end = Run(tmp_path, script, study=with_launches(20), space=small).search.run()
    searched = [Configuration(record.configuration) for record in end.records if record.role == "search"]
    assert end.reason == "every configuration that the rules allow is known"
    assert sorted(str(values["page_size"]) for values in searched) == ["1", "16"]
    assert end.records[0].fallbacks[0]["runs"] == "nccl"
    twin = next(record for record in end.records if record.configuration.get("page_size") == 1)
    assert twin.same_as == 0  # the engine's defaults, said in other words


def test_a_study_in_which_nothing_starts_stops_and_says_what_the_deaths_had_in_common(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        lambda request: failed(),
        study=with_launches(20).replace("launches: 20", "launches: 20, give_up_after: 3"),
    )
    with pytest.raises(
        BrokenEnvironment,
        match=r"3 launches failed and none has succeeded \(all of them: oom-graph-capture in graph-capture",
    ):
        run.search.run()
    states = [trial.state for trial in run.trials]
    assert states.count(TrialState.PRUNED) == 3


def test_a_first_launch_that_fails_twice_for_no_fault_of_its_own_stops_the_study(tmp_path: Path) -> None:
    run = Run(
        tmp_path, lambda request: failed(Kind.RENDEZVOUS, Cause.TRANSIENT, Phase.GRAPH_CAPTURE), study=STUDY
    )
    with pytest.raises(
        BrokenEnvironment, match="the first launch failed twice, and not for its configuration"
    ):
        run.search.run()
    assert len(run.evaluator.requests) == 2
