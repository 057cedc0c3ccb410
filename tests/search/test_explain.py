"""What the best owes its speed to: the parameters that matter are named, the others are dropped."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from benchmarks.explanation import SCENARIOS, Scenario, figures_of, main
from tests.search.scripted import (
    STUDY,
    Run,
    Script,
    ScriptedEvaluator,
    definition,
    measured,
    renamed,
    with_launches,
)
from tuner.clock import ManualClock
from tuner.errors import NothingRan
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.results.record import EXPLAIN, TrialRecord
from tuner.results.trial_log import MemoryLog
from tuner.search.budget import BudgetKeeper
from tuner.search.explain import Explainer, Explanation, explain
from tuner.search.importance import importances_of
from tuner.search.loop import Search, SearchEnd, SearchListener
from tuner.search.opening import MEMORY
from tuner.search.store import StudyStore
from tuner.space.configuration import Configuration
from tuner.study.definition import Budget

SPACE = """
parameters:
  backend: {type: choice, choices: [triton, flashinfer, other]}
  bs: {type: integer, low: 8, high: 512, log: true, auto: true, default: 512}
  chunk: {type: choice, choices: [auto, 2048, 4096, 16384], ordered: true}
  speculative: {type: composite, choices: [off, eagle3]}
  page: {type: choice, choices: [1, 16, 64]}
  policy: {type: choice, choices: [fcfs, lpm, random]}
rules:
  - {forbid: speculative == eagle3 and bs == auto, because: no room}
"""


def box(request: Request) -> Outcome:
    """The best is flashinfer with eagle3 and graphs up to 64."""
    values = request.configuration
    tok_s = 80.0 * (1.25 if values.get("backend") == "flashinfer" else 1.0)
    tok_s *= 1.3 if values.get("speculative") == "eagle3" else 1.0
    tok_s *= math.exp(-0.06 * abs(math.log2(float(values.get("bs", 512)) / 64)))
    return renamed(measured(tok_s), took_s=700.0)


def searched(script: Script, budget: str, listener: SearchListener | None = None) -> SearchEnd:
    """A study in memory whose proposals are drawn at random."""
    study = replace(
        definition(Path("nowhere"), STUDY.replace("launches: 6, confirm: 0", budget), SPACE), storage=MEMORY
    )
    inner = optuna.samplers.RandomSampler(seed=1)
    store = StudyStore(study, study.space, owner="me", is_alive=lambda _: False, inner=inner)
    clock = ManualClock()
    evaluator = ScriptedEvaluator(script, clock)
    return Search(study, store, evaluator, clock, listener or SearchListener(), log=MemoryLog()).run()


@pytest.fixture(scope="module")
def found() -> Explanation:
    """The explanation of a study of that box."""
    return explain(
        searched(box, "launches: 40, confirm: 0").records, definition(Path("nowhere"), space=SPACE).space
    )


def test_it_names_what_matters_and_drops_what_does_not(found: Explanation) -> None:
    gains = {one.parameter: one for one in found.contributions if one.effect == "gains"}
    assert {"backend", "speculative"} <= gains.keys()
    assert gains["speculative"].low <= 0.3 <= gains["speculative"].high
    assert gains["backend"].low <= 0.25 <= gains["backend"].high
    assert not {"backend", "speculative", "bs"} & set(found.smaller.left_out)
    told = {one.parameter: one.gain or 0.0 for one in found.contributions}
    assert list(told)[:2] == ["speculative", "backend"]
    assert all(abs(told.get(name, 0.0)) < 0.1 for name in ("chunk", "page", "policy"))


def test_the_largest_contribution_comes_first_and_what_a_rule_needs_stays(found: Explanation) -> None:
    told = [one.gain for one in found.contributions if one.gain is not None]
    (needed,) = [one for one in found.contributions if one.gain is None]
    assert told == sorted(told, reverse=True)
    assert needed.parameter == "bs" and "speculative == eagle3 and bs == auto" in needed.needed
    assert found.smaller.configuration["bs"] == found.choice.record.configuration["bs"]


def records_of(*rows: tuple[dict[str, object], float | str]) -> list[TrialRecord]:
    """Records of a study by hand: a configuration and its tok/s, or what it died of, or what it misses."""
    found = []
    for trial, (values, told) in enumerate(rows):
        configuration = Configuration(values)  # type: ignore[arg-type]
        role = "baseline" if not values else "search"
        plain = TrialRecord(
            trial=trial, study="s", label="a box", role=role, state="complete", started="", unit="tok/s",
            configuration=configuration.to_json(), fingerprint=configuration.fingerprint, took_s=700.0,
        )  # fmt: skip
        if isinstance(told, str):
            death = {
                "kind": "assertion",
                "phase": "weight-load",
                "summary": told,
                "evidence": [],
                "hints": [],
            }
            found.append(replace(plain, state="pruned", failure=death))
        else:
            found.append(replace(plain, score=told, scores=(told,)))
    return found


def configured(**values: object) -> dict[str, object]:
    return {"backend": "triton", "page": 1, "policy": "fcfs", "speculative": "off", "bs": 64, **values}


def test_what_keeps_the_server_alive_is_needed_though_it_gives_no_speed(tmp_path: Path) -> None:
    run = Run(tmp_path, box, space=SPACE)
    records = records_of(
        ({}, 80.0),
        (configured(page=16, policy="lpm"), 105.0),
        (configured(policy="lpm"), "pages are too small"),
        (configured(page=16), 104.5),
        (configured(page=64, policy="lpm"), 103.5),
    )
    found = {one.parameter: one for one in explain(records, run.store.space).contributions}

    assert found["page"].needed == "without it the server died of assertion (trial 2)"
    assert "page" not in explain(records, run.store.space).smaller.left_out


def test_what_keeps_a_limit_is_needed(tmp_path: Path) -> None:
    run = Run(tmp_path, box, space=SPACE)
    records = records_of(
        ({}, 80.0), (configured(page=16), 104.0), (configured(), 104.2), (configured(page=64), 103.5)
    )
    short = replace(records[2], infeasible=("KV tokens 10, at least 20 asked",), excesses={"kv_tokens": 0.5})
    records = [replace(one, excesses={"kv_tokens": -0.5}) for one in records]
    records[2] = short

    found = explain(records, run.store.space)

    (page,) = [one for one in found.contributions if one.parameter == "page"]
    assert page.needed == "without it kv_tokens is missed (trial 2)"
    assert "page" not in found.smaller.left_out


def test_choices_that_run_as_the_same_server_are_known_to_do_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, box, space=SPACE)
    records = records_of(({}, 80.0), (configured(backend="other"), 104.0), (configured(), 101.0))
    fallback = {"param": "backend", "asked": "other", "runs": "triton"}
    records[1] = replace(records[1], fallbacks=(fallback,))

    found = explain(records, run.store.space)

    (backend,) = [one for one in found.contributions if one.parameter == "backend"]
    assert backend.is_idle and "the same server runs" in backend.shown
    assert "backend" in found.smaller.left_out


def test_where_the_baseline_is_best_there_is_nothing_to_explain(tmp_path: Path) -> None:
    run = Run(tmp_path, box, space=SPACE)
    found = explain(records_of(({}, 80.0), (configured(), 70.0)), run.store.space)
    assert not found.contributions and "baseline itself" in found.why_none
    with pytest.raises(NothingRan):
        explain([], run.store.space)


def test_optunas_importance_goes_by_the_parameter_not_by_its_dimensions(tmp_path: Path) -> None:
    run = Run(tmp_path, box, space=SPACE)
    rows = [
        (
            configured(backend=backend, page=page, policy=policy),
            100.0 + 30.0 * (backend == "flashinfer") + noise,
        )
        for backend in ("triton", "flashinfer", "other")
        for page, noise in ((1, 0.2), (16, 0.0), (64, 0.1))
        for policy in ("fcfs", "lpm")
    ]
    found = importances_of(records_of(({}, 80.0), *rows), run.store.space)

    assert next(iter(found)) == "backend"
    assert set(found) == {parameter.name for parameter in run.store.space.parameters}
    assert sum(found.values()) == pytest.approx(1.0)
    assert importances_of(records_of(({}, 80.0)), run.store.space) == {}


# --- launches that explain --------------------------------------------------------------------------


class Hears(SearchListener):
    """Notes that the launches that explain have begun."""

    explaining = False

    def on_explaining(self) -> None:
        self.explaining = True


def test_what_the_confirmation_leaves_is_spent_on_what_is_not_known() -> None:
    """The launches that explain are lucky beyond belief here, and still are no candidates for the best."""
    hears = Hears()

    def script(request: Request) -> Outcome:
        return renamed(measured(500.0), took_s=700.0) if hears.explaining else box(request)

    end = searched(script, "launches: 30, confirm: 8", hears)

    roles = [record.role for record in end.records]
    explaining = [record for record in end.records if record.role == EXPLAIN]
    assert explaining and len(roles) <= 30
    assert roles[-len(explaining) :] == [EXPLAIN] * len(explaining)
    assert end.best is not None and end.best.record.role != EXPLAIN and end.best.score < 200
    winner = set(end.best.record.configuration.items())
    assert all(winner - set(record.configuration.items()) for record in explaining)


def test_launches_that_explain_can_be_asked_for_when_all_is_over(tmp_path: Path) -> None:
    first = Run(tmp_path, box, study=with_launches(9), space=SPACE).search.run()
    assert not any(record.role == EXPLAIN for record in first.records)

    again = Run(
        tmp_path, box, study=with_launches(9).replace("confirm: 0", "confirm: 0, explain: 2"), space=SPACE
    )
    end = again.search.run()

    assert [record.role for record in end.records[len(first.records) :]] == [EXPLAIN, EXPLAIN]


def test_a_launch_that_explains_and_dies_says_that_its_parameter_is_needed(tmp_path: Path) -> None:
    run = Run(tmp_path, box, space=SPACE)
    records = records_of(
        ({}, 80.0), (configured(page=16, policy="lpm"), 104.0), (configured(policy="lpm"), 103.0)
    )
    wanted = Explainer(records, run.store.space).wanted()
    assert wanted is not None

    died = replace(
        records_of((wanted.to_json(), "it needs that"))[0], trial=3, role=EXPLAIN  # type: ignore[arg-type]
    )  # fmt: skip
    after = Explainer([*records, died], run.store.space)

    assert after.wanted() != wanted
    assert after.explanation().smaller.configuration != wanted


def test_a_launch_that_left_much_out_and_was_as_good_is_the_smallest_configuration(tmp_path: Path) -> None:
    run = Run(tmp_path, box, space=SPACE)
    best = configured(page=16, policy="lpm", chunk=2048)
    records = records_of(
        ({}, 80.0), (best, 104.0), (configured(), 104.2), (best, 104.3), (configured(), 104.1)
    )
    records = [records[0], records[1], replace(records[2], role=EXPLAIN),
               replace(records[3], role="repeat", repeat_of=1), replace(records[4], role="repeat", repeat_of=2)]  # fmt: skip

    found = explain(records, run.store.space)

    assert found.choice.record.trial == 1
    assert set(found.smaller.left_out) >= {"page", "policy", "chunk"}
    assert found.smaller.trial == 2 or set(found.smaller.left_out) > {"page", "policy", "chunk"}
    assert "trial 2" in found.smaller.shown or "predicted" in found.smaller.shown


# --- how right it is --------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS[:2], ids=lambda scenario: scenario.name)
def test_what_is_planted_is_named_and_intervals_cover(scenario: Scenario) -> None:
    assert figures_of(scenario, 16, seed=3).complaints(scenario) == []


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--studies", "1"]) in (0, 1)
    printed = capsys.readouterr().out
    assert all(scenario.name in printed for scenario in SCENARIOS)


def test_what_may_give_most_is_taken_away_by_itself_first(tmp_path: Path) -> None:
    """Two values only ever came together: one of them is taken away, before what is known to do little."""
    run = Run(tmp_path, box, space=SPACE)
    best = configured(backend="flashinfer", page=16, policy="lpm")
    records = records_of(({}, 80.0), (best, 104.0), (configured(policy="lpm"), 80.2))

    wanted = Explainer(records, run.store.space).wanted()

    assert wanted is not None and wanted["policy"] == "lpm"
    assert (wanted["backend"], wanted["page"]) in (("triton", 16), ("flashinfer", 1))


def test_a_long_study_keeps_launches_to_explain_its_best_and_a_short_one_does_not() -> None:
    def reason(budget: Budget) -> str:
        return BudgetKeeper(budget, ManualClock()).search_is_over(records_of(*[({}, 80.0)] * 40))

    long, short = Budget(launches=40), Budget(launches=29)
    assert (
        reason(long) == "the budget of 40 launches, less 6 to confirm the best and 4 to explain it is used up"
    )
    assert reason(short) == "the budget of 29 launches, less 6 to confirm the best is used up"
    assert "explain" not in reason(replace(long, explain=0)) + reason(replace(long, confirm=0))
