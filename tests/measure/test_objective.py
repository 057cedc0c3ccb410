from __future__ import annotations

from dataclasses import replace

import pytest

from tests.measure.test_level import GOOD, level
from tuner.errors import InputError
from tuner.measure.highest import highest_level, next_level
from tuner.measure.latency import LIMIT_NAMES, Latencies, Limit
from tuner.measure.lengths import Lengths
from tuner.measure.measurement import LevelSummary, Measurement, Workload
from tuner.measure.objective import Goal, Objective, nearest_to_limits
from tuner.measure.summary import summarise

FAST = Limit("ttft_p99_ms", 500.0)
SMOOTH = Limit("tpot_p95_ms", 20.0)


def at(
    concurrency: int, tok_s: float = 100.0, *, ttft_ms: float = 100.0, **more: float | None
) -> LevelSummary:
    summary = summarise(level(GOOD))
    latency_ms = {**summary.latency_ms, "ttft_p99_ms": ttft_ms}
    return replace(
        summary,
        concurrency=concurrency,
        decode_tok_s=tok_s,
        latency_ms=latency_ms,
        **more,  # type: ignore[arg-type]
    )


def measured(*levels: LevelSummary) -> Measurement:
    return Measurement(levels)


def test_the_objective_is_one_level_or_the_geometric_mean() -> None:
    measurement = measured(at(1, 10.0), at(8, 40.0), at(32, 400.0))
    one, both = Objective.of_levels([8]), Objective.of_levels([1, 8])
    assert one.name == "decode tok/s at C=8"
    assert one.score(measurement) == pytest.approx(40.0)
    assert both.name == "geometric mean decode tok/s at C=1,8"
    assert both.score(measurement) == pytest.approx(20.0)
    assert (both.names, both.directions, both.units) == ((both.name,), ("maximize",), ("tok/s",))
    with pytest.raises(KeyError):
        Objective.of_levels([2]).score(measurement)


def test_two_goals_are_a_tuple_with_their_directions() -> None:
    both = Objective((Goal((8,)), Goal((1,), "latency", "ttft_p99_ms")))
    assert both.scores(measured(at(1, ttft_ms=70.0), at(8, 300.0))) == pytest.approx((300.0, 70.0))
    assert both.directions == ("maximize", "minimize")
    assert both.names == ("decode tok/s at C=8", "ttft p99 ms at C=1")
    assert both.score(measured(at(1), at(8, 300.0))) == pytest.approx(300.0)


def test_goodput_and_joules_come_from_the_level_and_are_missed_where_they_are_not_there() -> None:
    goodput = Objective((Goal((8,), "goodput"),), (FAST,))
    joules = Objective((Goal((8,), "tokens-per-joule"),))
    level_8 = at(8, goodput_req_s=3.0, tok_per_j=0.25)
    assert goodput.score(measured(level_8)) == pytest.approx(3.0)
    assert joules.score(measured(level_8)) == pytest.approx(0.25)
    assert goodput.name == "goodput req/s at C=8 with ttft p99 <= 500 ms"
    assert goodput.score(measured(replace(level_8, goodput_req_s=0.0))) == 0.0
    with pytest.raises(InputError, match="knows nothing of the energy"):
        joules.score(measured(replace(level_8, tok_per_j=None)))
    with pytest.raises(InputError, match="knows nothing of limits"):
        goodput.score(measured(replace(level_8, goodput_req_s=None)))


def test_a_rate_is_named_as_one() -> None:
    assert (
        Objective.of_levels([0.5, 2], by_rate=True).name == "geometric mean decode tok/s at 0.5,2 requests/s"
    )


def test_the_excess_is_that_of_the_worst_judged_level() -> None:
    objective = Objective((Goal((1, 8)),), (FAST, SMOOTH))
    found = objective.excesses(measured(at(1, ttft_ms=400), at(8, ttft_ms=600), at(64, ttft_ms=5000)))
    assert found == {"ttft_p99_ms": pytest.approx(0.2), "tpot_p95_ms": pytest.approx(-0.5)}
    assert Objective((Goal((1,), "goodput"),), (FAST,)).excesses(measured(at(1, ttft_ms=600))) == {}
    assert Objective.of_levels([1]).excesses(measured(at(1, ttft_ms=600))) == {}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Goal(()),
        lambda: Goal((8, 8)),
        lambda: Goal((8,), "speed"),
        lambda: Goal((8,), "latency"),
        lambda: Goal((8,), "decode", "ttft_p99_ms"),
        lambda: Objective(()),
        lambda: Objective((Goal((1,)), Goal((2,)), Goal((3,)))),
        lambda: Objective((Goal((1,), "goodput"),)),
    ],
)
def test_objectives_that_cannot_be(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]


# --- the highest load within limits ------------------------------------------------------------------------


def bisected(most: float, *levels: int, kind: str = "batch") -> tuple[list[float], float]:
    """The levels that are measured on a server whose limits are met up to `most`, and what is found."""
    workload = Workload(
        Lengths.fixed(8),
        Lengths.fixed(8),
        concurrency=levels if kind != "open" else (),
        rates=tuple(map(float, levels)) if kind == "open" else (),
        kind=kind,
    )
    found: list[LevelSummary] = []
    for _ in range(40):
        level = next_level(workload, found, (FAST,))
        if level is None:
            return [summary.level for summary in found], highest_level(found, (FAST,))
        ttft_ms = 100 if level <= most else 900
        rate = level if kind == "open" else None
        found.append(replace(at(0 if rate else int(level), ttft_ms=ttft_ms), kind=kind, rate=rate))
    raise AssertionError("the bisection does not end")


@pytest.mark.parametrize(
    ("most", "levels", "asked"),
    [
        (500, 128, [128]),
        (0, 128, [128, 1]),
        (1, 128, [128, 1, 11, 3, 2]),
        (11, 128, [128, 1, 11, 38, 20, 15, 13, 12]),
    ],
)
def test_few_levels_are_measured(most: int, levels: int, asked: list[float]) -> None:
    assert bisected(most, 1, levels)[0] == asked


@pytest.mark.parametrize("most", range(130))
def test_the_highest_load_is_found_to_ten_percent(most: int) -> None:
    asked, found = bisected(most, 1, 128)
    assert found <= most
    assert min(most, 128) / max(found, 1) <= 1.1
    assert len(asked) <= 10


def test_rates_are_bisected_as_well() -> None:
    asked, found = bisected(3.3, 1, 64, kind="open")
    assert 3.0 <= found <= 3.3
    assert len(asked) <= 8


def test_a_lucky_level_above_one_that_misses_does_not_count() -> None:
    levels = [at(1), at(8, ttft_ms=900), at(16)]
    assert highest_level(levels, (FAST,)) == 1
    assert Objective((Goal((1, 16), "highest-load"),), (FAST,)).score(measured(*levels)) == 1


def test_the_nearest_is_named_where_nothing_meets_the_limits() -> None:
    objective = Objective((Goal((1,)),), (FAST, SMOOTH))
    missing = [("trial 1", measured(at(1, ttft_ms=900))), ("trial 2", measured(at(1, ttft_ms=620)))]
    assert nearest_to_limits(missing, objective) == (
        "no configuration meets ttft p99 <= 500 ms and tpot p95 <= 20 ms; the nearest is trial 2 with "
        "ttft p99 = 620 ms at C=1 (+24%)"
    )
    assert nearest_to_limits([*missing, ("trial 3", measured(at(1)))], objective) == ""
    assert nearest_to_limits([], objective) == ""
    assert nearest_to_limits(missing, Objective.of_levels([1])) == ""


# --- latencies ---------------------------------------------------------------------------------------------


def test_every_limit_name_can_be_taken_apart() -> None:
    assert len(LIMIT_NAMES) == 20
    for name in LIMIT_NAMES:
        limit = Limit(name, 5)
        assert name == f"{limit.kind}_p{limit.percent}_ms"
    assert Limit("e2e_p90_ms", 2500).shown == "e2e p90 <= 2500 ms"
    with pytest.raises(ValueError):
        _ = Limit("ttft_ms", 5).percent


def test_one_request_is_held_to_its_own_values() -> None:
    found = Latencies(ttft_ms=100, tpot_ms=10, itl_ms=(8.0,) * 98 + (100.0, 100.0), e2e_ms=1100)
    assert found.meets([Limit("ttft_p50_ms", 100), Limit("tpot_p99_ms", 10), Limit("itl_p90_ms", 8)])
    assert not found.meets([Limit("itl_p99_ms", 50)])
    assert not found.meets([Limit("e2e_p50_ms", 1099)])
    assert Latencies(1, None, (), 1).meets([Limit("tpot_p99_ms", 0.001), Limit("itl_p99_ms", 0.001)])
