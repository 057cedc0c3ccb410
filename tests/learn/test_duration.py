from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.learn.learning import configured, ran, space
from tuner.learn.axes import Axes
from tuner.learn.duration import Durations
from tuner.learn.observation import Observation
from tuner.learn.promise import Fitted, Lesson, Promise
from tuner.space.configuration import Configuration

SLOW = "fa3"


def launches(slow_s: float = 1500.0) -> list[Observation]:
    """All equally fast; with one back end a launch takes twice as long as with the others."""
    backends = ("triton", SLOW, "flashinfer", SLOW, "triton", "flashinfer")
    pages = (1, 64, 64, 1, 64, 1)
    return [
        replace(
            ran(trial, attention_backend=backend, page_size=page), took_s=slow_s if backend == SLOW else 750.0
        )
        for trial, (backend, page) in enumerate(zip(backends, pages, strict=True))
    ]


def times(observations: list[Observation], *asked: Configuration) -> list[float]:
    axes = Axes(space(), observations)
    return [float(one) for one in Durations(axes, observations, lambda given: given).of(axes.rows(asked))]


def test_what_takes_twice_as_long_is_told_from_the_rest() -> None:
    slow, quick = times(launches(), *(configured(attention_backend=name) for name in (SLOW, "triton")))
    assert slow / quick == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("observations", [[], [ran(0)], [replace(one, took_s=0.0) for one in launches()]])
def test_without_times_all_launches_are_usual(observations: list[Observation]) -> None:
    assert times(observations, configured(), configured(page_size=64)) == [1.0, 1.0]


def test_of_two_that_promise_the_same_gain_the_quicker_launch_is_worth_more() -> None:
    def ratio(slow_s: float) -> float:
        lesson = Lesson(tuple(launches(slow_s)), lambda given: given)
        promise = Promise(space(), lesson, (), random.Random(1), Fitted({}))
        slow, quick = promise.of(
            [configured(attention_backend=name, cuda_graph_max_bs=128) for name in (SLOW, "triton")]
        )
        return float(slow / quick)

    assert ratio(1500.0) == pytest.approx(ratio(750.0) / 2, rel=0.15)
