"""The verdict: what it says, how often it is right, and what it says when there is nothing to say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verdict.studies import candidate, percent, quiet, rates
from tuner.verdict.confirmation import DEFAULT, Candidate, FreshLaunch, plan_confirmation
from tuner.verdict.verdict import Verdict, VerdictKind, judge

AA = candidate(DEFAULT, 0.9, -0.9)


def judged(said: float, default: list[float], finalist: list[float], launches: int = 6) -> Verdict:
    """The verdict on a finalist of which the search said so many per cent; launches in per cent, too."""
    plan = plan_confirmation(AA, [candidate("a", said)], quiet(), launches)
    done = [
        FreshLaunch(arm, percent(gain))
        for pair in zip(default, finalist, strict=True)
        for arm, gain in zip((DEFAULT, "a"), pair, strict=True)
    ]
    return judge(plan, done)


def test_a_clear_gain_is_faster_and_says_what_the_search_had_said() -> None:
    verdict = judged(12.0, [0.0, 1.0, -1.0], [9.0, 10.0, 8.0])
    assert verdict.kind is VerdictKind.FASTER
    assert verdict.winner == "a"
    assert verdict.gain == pytest.approx(0.09, abs=0.001)
    assert verdict.low is not None
    assert verdict.high is not None
    assert 0.05 < verdict.low < 0.09 < verdict.high < 0.13
    assert verdict.shrinkage == pytest.approx(0.03, abs=0.002)
    assert verdict.launches_each == (3, 3)
    told = verdict.shown()
    assert told.startswith("faster by 9.0% (95% interval +")
    assert "search said +12.0%, confirmed +9.0%, in 6 launches" in told


def test_luck_of_the_search_is_no_winner_and_it_is_said_what_could_be_told() -> None:
    verdict = judged(4.0, [0.0, 1.0, -1.0], [1.0, 2.0, 0.0])
    assert verdict.kind is VerdictKind.NO_CLEAR_WINNER
    assert verdict.winner is None
    told = verdict.shown()
    assert told.startswith("no clear winner: +1.0% (95% interval -")
    assert "search said +4.0%, confirmed +1.0%" in told
    assert "So many launches tell a gain of 4." in told
    assert verdict.repeats_needed is not None
    assert f"+1.0% would need {verdict.repeats_needed} of each" in told


def test_a_finalist_that_lost_is_slower() -> None:
    verdict = judged(3.0, [0.0, 1.0, -1.0], [-9.0, -10.0, -8.0])
    assert verdict.kind is VerdictKind.SLOWER
    assert verdict.winner is None
    assert verdict.shown().startswith("slower by 9.0% (95% interval -")


def test_a_gain_that_no_number_of_launches_tells_says_so() -> None:
    assert "more than 100 of each" in judged(3.0, [0.0, 2.0, -2.0], [0.01, 2.01, -1.99]).shown()
    assert "would need" not in judged(3.0, [0.0, 2.0, -2.0], [-0.1, 1.9, -2.1]).shown()


def test_a_box_that_became_faster_is_no_gain_of_the_finalist() -> None:
    verdict = judged(9.0, [8.0, 9.0, 7.0], [8.0, 9.0, 7.0])
    assert verdict.kind is VerdictKind.NO_CLEAR_WINNER
    assert verdict.gain == pytest.approx(0.0, abs=1e-9)
    assert verdict.drift == pytest.approx(0.08, abs=0.001)


def test_identical_launches_are_not_believed_beyond_what_a_load_client_can_tell() -> None:
    assert judged(1.0, [0.0, 0.0], [0.05, 0.05]).kind is VerdictKind.NO_CLEAR_WINNER


@pytest.mark.parametrize(
    ("candidates", "done", "reason"),
    [
        ([-2.0], [], "saw nothing faster than the default"),
        ([], [], "saw nothing faster than the default"),
        ([5.0], [], "the default could not be launched again"),
        ([5.0], [(DEFAULT, None), (DEFAULT, None)], "the default could not be launched again"),
        ([5.0], [(DEFAULT, 0.0), ("0", None)], "no finalist could be launched again (0 failed)"),
        ([5.0], [(DEFAULT, 0.0)], "no confirming launch was measured"),
        ([5.0], [(DEFAULT, None), ("0", None)], "neither the default nor a finalist"),
    ],
)
def test_nothing_to_compare_is_no_clear_winner_with_its_reason(
    candidates: list[float], done: list[tuple[str, float | None]], reason: str
) -> None:
    plan = plan_confirmation(
        AA, [candidate(str(place), gain) for place, gain in enumerate(candidates)], quiet(), 6
    )
    verdict = judge(plan, [FreshLaunch(arm, score) for arm, score in done])
    assert verdict.kind is VerdictKind.NO_CLEAR_WINNER
    assert verdict.gain is None
    assert reason in verdict.shown()
    json.dumps(verdict.to_json())


def test_a_verdict_is_a_record_that_json_keeps() -> None:
    verdict = judged(12.0, [0.0, 1.0, -1.0], [9.0, 10.0, 8.0])
    kept = json.loads(json.dumps(verdict.to_json()))
    assert (kept["kind"], kept["winner"], kept["launches_each"]) == ("faster", "a", [3, 3])
    assert kept["sentence"] == verdict.shown()


@given(st.lists(st.floats(-5, 15), min_size=4, max_size=4), st.floats(-4, 4))
def test_the_speed_of_the_box_does_not_change_a_verdict(gains: list[float], shift: float) -> None:
    def verdict(by: float) -> Verdict:
        aa = Candidate(DEFAULT, tuple(score + by for score in AA.log_scores))
        found = Candidate("a", (percent(9) + by,))
        done = [
            FreshLaunch(arm, percent(gain) + by)
            for arm, gain in zip((DEFAULT, "a", DEFAULT, "a"), gains, strict=True)
        ]
        return judge(plan_confirmation(aa, [found], quiet(), 6), done)

    assert verdict(shift).gain == pytest.approx(verdict(0.0).gain, abs=1e-9)
    assert verdict(shift).low == pytest.approx(verdict(0.0).low, abs=1e-6)


# --- how often it is right; the standard error of a share of 3,000 studies is 0.4 % at 5 % --------------


@pytest.mark.parametrize("sd", [0.003, 0.013, 0.04])
def test_where_nothing_matters_few_studies_name_a_winner_at_any_noise(sd: float) -> None:
    found = rates(3000, sd=sd)
    assert found.named < 0.06
    assert found.faster < 0.035
    assert 0.94 < found.coverage < 0.97
    assert abs(found.bias) < 0.01
    assert found.search_bias > sd  # what the confirmation is for


@pytest.mark.parametrize(("gain", "least"), [(0.09, 0.97), (0.05, 0.85)])
def test_a_planted_gain_is_found_within_six_launches(gain: float, least: float) -> None:
    found = rates(2000, gain=gain)
    assert found.faster > least
    assert 0.93 < found.coverage < 0.97
    assert abs(found.bias) < 0.003
    assert found.launches <= 6


@pytest.mark.parametrize("launches", [4, 9, 12])
def test_other_reserves_keep_the_error_rates(launches: int) -> None:
    found = rates(2000, launches=launches)
    assert found.named < 0.065
    planted = rates(1500, gain=0.05, launches=launches)
    assert 0.93 < planted.coverage < 0.98
    assert abs(planted.bias) < 0.01


@pytest.mark.parametrize(("sd", "winner_sd"), [(0.013, 0.039), (0.039, 0.013)])
def test_a_winner_of_another_noise_is_judged_by_its_own(sd: float, winner_sd: float) -> None:
    found = rates(3000, sd=sd, winner_sd=winner_sd)
    assert found.named < 0.075
    assert 0.92 < found.coverage < 0.97


def test_finalists_that_die_make_no_winners() -> None:
    found = rates(2000, dies=0.2)
    assert found.named < 0.06
    assert found.coverage > 0.94
