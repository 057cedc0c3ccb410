from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from tests.learn.learning import configured, ran, space
from tuner.learn.axes import Axes
from tuner.learn.observation import Observation
from tuner.learn.speed import Speed


def speed_of(*launches: Observation) -> Speed:
    return Speed(Axes(space(), launches), launches, canonical=lambda given: given, load=None)


def test_a_lucky_launch_is_expected_to_be_slower_the_next_time() -> None:
    """Thirty launches of servers that are all as fast: the best of them was lucky, and not chosen well."""
    source = random.Random(5)
    launches = [
        ran(
            trial,
            source.gauss(0, 0.015),
            mem_fraction_static=round(0.7 + 0.008 * trial, 2),
            page_size=(1, 3, 64)[trial % 3],
            attention_backend=("triton", "flashinfer")[trial % 2],
        )
        for trial in range(30)
    ]
    luckiest = max(launches, key=lambda one: one.log_scores[0])

    mean = speed_of(*launches).means([luckiest.configuration])[0]

    assert mean < 0.7 * luckiest.log_scores[0]


def test_what_is_running_elsewhere_is_as_sure_as_what_was_launched() -> None:
    launches = (ran(0), ran(1, 0.1, page_size=64))
    other = configured(attention_backend="flashinfer")
    axes = Axes(space(), launches)
    alone = Speed(axes, launches, canonical=lambda given: given, load=None)
    beside = Speed(axes, launches, canonical=lambda given: given, load=None)
    beside.believe([other])

    before, after = (model.gains(axes.rows([other]), configured()) for model in (alone, beside))

    assert after[1][0] < before[1][0] / 2
    assert abs(after[0][0] - before[0][0]) < 1e-4


def test_drafts_that_are_accepted_better_than_usual_speed_up_what_has_drafts() -> None:
    def launches(length: float) -> list[Observation]:
        values: dict[str, Any] = {"speculative": "eagle3", "speculative_num_steps": 3}
        return [ran(0), replace(ran(1, math.log(length / 2), **values), accept_length=length)]

    fewer = configured(speculative="eagle3", speculative_num_steps=2)
    poor, rich = (speed_of(*launches(length)).means([fewer])[0] for length in (1.4, 3.0))

    assert rich > poor + 0.2
