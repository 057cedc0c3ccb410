"""What ending in time saves, on fewer studies than the benchmark takes."""

from __future__ import annotations

import pytest

from benchmarks.stopping import compared, losses_of, main


def test_a_search_that_ends_in_time_saves_launches_and_costs_next_to_nothing() -> None:
    pairs = compared("planted +9 %", range(2))

    assert all(early.in_time and not full.in_time for early, full in pairs)
    assert sum(early.launches for early, _ in pairs) < 0.7 * sum(full.launches for _, full in pairs)
    assert max(losses_of(pairs)) < 0.02


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--boxes", "planted +9 %"]) == 0
    assert "saved" in capsys.readouterr().out
