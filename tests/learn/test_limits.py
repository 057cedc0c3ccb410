from __future__ import annotations

from dataclasses import replace

from tests.learn.learning import configured, ran, space
from tuner.learn.axes import Axes
from tuner.learn.limits import Limits
from tuner.learn.observation import Observation
from tuner.space.configuration import Configuration


def missing(one: Observation, **excesses: float) -> Observation:
    return replace(one, excesses=excesses)


def odds(observations: list[Observation], *asked: Configuration) -> dict[str, list[float]]:
    axes = Axes(space(), observations)
    limits = Limits(axes, observations, lambda given: given, sweeps=3)
    return {name: [float(one) for one in found] for name, found in limits.missed(axes.rows(asked)).items()}


def test_a_smaller_share_of_memory_misses_the_pool_and_nothing_else() -> None:
    launches = [
        missing(ran(trial, mem_fraction_static=at), kv_tokens=0.86 - at, latency=-0.5)
        for trial, at in enumerate((0.76, 0.80, 0.84, 0.88, 0.92))
    ]
    found = odds(launches * 2, *(configured(mem_fraction_static=at) for at in (0.74, 0.86, 0.94)))
    small, edge, large = found["kv_tokens"]
    assert small > 0.8 and 0.2 < edge < 0.8 and large < 0.3
    assert max(found["latency"]) < 0.01


def test_a_choice_that_misses_is_told_from_the_others() -> None:
    launches = [
        missing(ran(trial, attention_backend=name, page_size=page), latency=0.4 if name == "triton" else -0.3)
        for trial, (name, page) in enumerate(
            [("triton", 1), ("flashinfer", 64), ("triton", 64), ("flashinfer", 1), ("triton", 1)]
        )
    ]
    slow, fast = odds(launches, *(configured(attention_backend=name) for name in ("triton", "flashinfer")))[
        "latency"
    ]
    assert slow > 0.95 and fast < 0.05


def test_what_was_asked_of_no_launch_has_no_odds() -> None:
    assert odds([ran(0), ran(1, page_size=64)], configured()) == {}
