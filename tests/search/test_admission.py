"""What is refused before launch costs nothing, and a vetter that is wrong cannot empty a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.search.scripted import STUDY, Run, ScriptedEvaluator, failed, measured, speed, with_launches
from tuner.clock import ManualClock
from tuner.diagnosis.failure import Kind
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Listener, Request
from tuner.preflight.refusal import Refusal
from tuner.results.note import study_note
from tuner.search.admission import Admission
from tuner.search.loop import Search, SearchEnd, SearchListener
from tuner.search.repair import Repair
from tuner.search.store import StudyStore
from tuner.space.configuration import Configuration
from tuner.space.space import KnownGood

Verdict = Callable[[Configuration], Refusal | None]

WIDE = """
parameters:
  bs: {type: integer, low: 1, high: 400}
  page: {type: choice, choices: [1, 64]}
known_good:
  - {name: paged, values: {bs: 8, page: 64}}
"""


class VettingEvaluator(ScriptedEvaluator):
    """A scripted evaluator that also vets, and keeps what it was asked."""

    def __init__(self, script: Callable[[Request], Outcome], clock: ManualClock, verdict: Verdict) -> None:
        super().__init__(script, clock)
        self.verdict = verdict
        self.vetted: list[Configuration] = []
        self.batches: list[int] = []

    def vet(self, configurations: Sequence[Configuration], listener: Listener) -> list[Refusal | None]:
        self.vetted += configurations
        self.batches.append(len(configurations))
        return [self.verdict(configuration) for configuration in configurations]


@dataclass
class Ears(SearchListener):
    refusals: list[tuple[Configuration, Refusal]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def on_refusal(self, configuration: Configuration, refusal: Refusal) -> None:
        self.refusals.append((configuration, refusal))

    def on_note(self, text: str) -> None:
        self.notes.append(text)


class Vetted(Run):
    """A run whose evaluator vets."""

    def __init__(
        self,
        folder: Path,
        script: Callable[[Request], Outcome],
        verdict: Verdict,
        *,
        study: str = STUDY,
        space: str = WIDE,
    ) -> None:
        super().__init__(folder, script, study=study, space=space)
        self.vetting = VettingEvaluator(script, self.clock, verdict)
        self.evaluator = self.vetting
        self.ears = Ears()
        self.search = Search(self.definition, self.store, self.evaluator, self.clock, self.ears)

    def run(self) -> SearchEnd:
        return self.search.run()


def no_pages(sure: bool = True, by: str = "SGLang") -> Verdict:
    def verdict(configuration: Configuration) -> Refusal | None:
        return Refusal("no pages here", by=by, sure=sure) if configuration.get("page") == 64 else None

    return verdict


def fast(request: Request) -> Outcome:
    return measured(82.0)


def test_what_is_refused_is_never_launched_and_costs_nothing_of_the_budget(tmp_path: Path) -> None:
    run = Vetted(tmp_path, fast, no_pages(), study=with_launches(9))
    end = run.run()
    assert len(end.records) == len(run.asked()) == 9
    assert not any(values.get("page") == 64 for values in run.asked())
    assert [trial.number for trial in run.trials] == list(range(9))
    assert {refusal.shown() for _, refusal in run.ears.refusals} == {"no pages here (SGLang)"}
    assert run.store.admission.refused == {"no pages here (SGLang)": len(run.ears.refusals)}


def test_all_known_good_ones_are_asked_of_at_once(tmp_path: Path) -> None:
    more = f"{WIDE}  - {{name: other, values: {{bs: 9, page: 1}}}}\n"
    run = Vetted(tmp_path, fast, no_pages(), study=with_launches(2), space=more)
    run.run()
    assert run.vetting.batches[0] == 2
    assert run.asked() == [Configuration(), Configuration({"bs": 9, "page": 1})]


def test_each_configuration_is_asked_of_once(tmp_path: Path) -> None:
    run = Vetted(tmp_path, fast, no_pages(), study=with_launches(12))
    run.run()
    assert len(run.vetting.vetted) == len(set(run.vetting.vetted))


@pytest.mark.parametrize("sure", [True, False])
def test_a_known_good_one_is_skipped_only_where_the_engine_itself_refuses_it(
    tmp_path: Path, sure: bool
) -> None:
    run = Vetted(tmp_path, lambda _: failed(), no_pages(sure=sure), study=with_launches(2))
    run.run()
    launched = any(values.get("page") == 64 for values in run.asked())
    assert launched is not sure
    told = [values for values, _ in run.ears.refusals if values.get("bs") == 8]
    assert bool(told) is sure
    word = "skipped: SGLang refuses it" if sure else "launched, against the rule: no pages here"
    assert [note for note in run.ears.notes if f"'paged' is {word}" in note]


def test_a_vetter_that_refuses_everything_does_not_end_the_search_and_is_disproved_by_what_runs(
    tmp_path: Path,
) -> None:
    run = Vetted(
        tmp_path, fast, lambda _: Refusal("never", by="a bad rule", sure=False), study=with_launches(8)
    )
    end = run.run()
    assert [record.state for record in end.records] == ["complete"] * 8
    # The known-good one runs against the rule; nothing is refused from then on.
    assert any("nothing is refused by a bad rule" in note for note in run.ears.notes)
    assert run.ears.refusals == []


def test_after_fifty_refusals_in_a_row_one_is_launched_and_says_so(tmp_path: Path) -> None:
    run = Vetted(tmp_path, fast, lambda _: Refusal("never"), study=with_launches(6))
    end = run.run()
    assert len(end.records) == 6
    assert len(run.ears.refusals) == 51  # The known-good one, and fifty proposals.
    assert any("50 proposals in a row" in note for note in run.ears.notes)
    assert any("nothing is refused by SGLang" in note for note in run.ears.notes)


def test_where_the_refusals_are_right_one_launch_in_fifty_is_the_price(tmp_path: Path) -> None:
    def dies_as_foretold(request: Request) -> Outcome:
        return measured(82.0) if request.as_baseline else failed(Kind.ASSERTION)

    run = Vetted(tmp_path, dies_as_foretold, lambda _: Refusal("never"), study=with_launches(4))
    end = run.run()
    assert [record.state for record in end.records] == ["complete", "pruned", "pruned", "pruned"]
    assert len(run.ears.refusals) == 1 + 3 * 50


def test_a_small_space_of_which_the_rest_is_refused_is_exhausted(tmp_path: Path) -> None:
    small = WIDE.replace("high: 400", "high: 9")
    end = Vetted(tmp_path, fast, no_pages(), study=with_launches(40), space=small).run()
    assert len(end.records) == 1 + 9
    assert end.reason == "every configuration that the rules allow is known, or was refused before launch (9)"


def test_a_repair_is_vetted_too(tmp_path: Path) -> None:
    run = Vetted(tmp_path, fast, no_pages())
    assert not run.store.queue_repair(0, Repair(Configuration({"bs": 3, "page": 64}), "page 1 → 64"))
    assert run.store.queue_repair(0, Repair(Configuration({"bs": 3, "page": 1}), "bs 4 → 3"))


def test_a_vetter_that_fails_is_not_asked_again_and_the_study_goes_on(tmp_path: Path) -> None:
    def broken(_: Configuration) -> Refusal | None:
        raise KeyError("oops")

    run = Vetted(tmp_path, fast, broken, study=with_launches(4))
    end = run.run()
    assert len(end.records) == 4
    assert len(run.vetting.vetted) == 1
    assert [note for note in run.ears.notes if "KeyError" in note]


def test_without_preflight_nobody_is_asked(tmp_path: Path) -> None:
    run = Vetted(tmp_path, fast, no_pages(), study=f"{with_launches(4)}preflight: false\n")
    run.run()
    assert run.vetting.vetted == []


def test_an_evaluator_that_cannot_vet_admits_everything(tmp_path: Path) -> None:
    admission = Admission(ScriptedEvaluator(speed, ManualClock()), Listener())
    assert admission.admits(Configuration({"bs": 8}))
    assert admission.admits_known_good(KnownGood("paged", Configuration({"bs": 8})))


def test_the_study_shows_what_was_refused(tmp_path: Path) -> None:
    note = study_note([], None, "a box", "", refused={"no pages here (SGLang)": 7})
    assert "| no pages here (SGLang) | 7 |" in note


def test_a_store_of_its_own_admits_everything(tmp_path: Path) -> None:
    run = Run(tmp_path, speed)
    store = StudyStore(run.definition, run.definition.space, owner="me", is_alive=lambda _: False)
    assert store.admission.admits(Configuration({"bs": 8}))
