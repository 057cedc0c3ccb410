"""What an earlier study is worth, on less than the benchmark takes."""

from __future__ import annotations

import pytest

from benchmarks.warm_start import HOURS, PAIRS, earlier_study, main, shuffled
from tuner.results.record import COMPLETE
from tuner.search.past import best_of_past


def test_a_sibling_is_another_box_and_another_release() -> None:
    for pair in PAIRS:
        assert pair.now.box != pair.before.box
        now, before = (scenario.evaluator()[0].box for scenario in (pair.now, pair.before))
        assert now.sglang_version != before.sglang_version
        assert now.step.fixed_ms < before.step.fixed_ms


def test_scores_dealt_out_anew_are_the_same_scores() -> None:
    past = earlier_study(PAIRS[2].before, 0, hours=2.5)
    misleading = shuffled(past, 3)

    def scores(records: tuple[object, ...]) -> list[float]:
        return [record.score for record in records if record.state == COMPLETE]  # type: ignore[attr-defined]

    assert scores(misleading.records) != scores(past.records)
    assert sorted(scores(misleading.records)) == sorted(scores(past.records))
    _, definition = PAIRS[2].now.evaluator()
    assert 1 <= len(best_of_past([past], past.space, definition)) <= 3


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--boxes", "long context", "--hours", "2.5"]) == 0

    printed = capsys.readouterr().out
    assert all(f"{hours:g} h" in printed for hours in HOURS)
    assert all(f"long context       {way}" in printed for way in ("cold", "warm", "misled"))
