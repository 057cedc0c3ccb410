"""What the drafts' luck adds to a score is taken out before configurations are compared."""

from __future__ import annotations

import pytest

from tests.results.test_export import record
from tuner.results.record import TrialRecord
from tuner.results.standings import best_standing, standings

DRAFTS = {"speculative": "eagle3", "speculative_num_steps": 3}


def drafted(trial: int, score: float, accept_length: float, bs: int) -> TrialRecord:
    return record(
        trial, score, configuration={**DRAFTS, "cuda_graph_max_bs": bs}, accept_length=accept_length
    )


def test_a_score_that_its_drafts_made_does_not_win() -> None:
    usual = [drafted(trial, 100.0, 2.0, trial) for trial in range(1, 9)]
    lucky, faster = drafted(9, 110.0, 2.4, 9), drafted(10, 104.0, 2.0, 10)

    best = best_standing([*usual, lucky, faster])

    assert best is not None and best.record is faster
    told = next(standing for standing in standings([*usual, lucky, faster]) if standing.record is lucky)
    assert told.score == pytest.approx(110.0) and told.expected < 100.0
    assert told.shown.startswith("110.00 tok/s (one launch; ") and told.shown.endswith(
        " expected of another)"
    )


def test_what_the_search_expects_decides_where_it_says_so() -> None:
    one, other = record(1, 105.0), record(2, 103.0)

    best = best_standing([one, other], {1: 101.0, 2: 103.0})

    assert best is not None and best.record is other
    assert best.shown == "103.00 tok/s (one launch)"
