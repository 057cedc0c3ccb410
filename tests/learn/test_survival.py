"""What can be learnt of deaths of which nobody says why."""

from __future__ import annotations

import random

from tests.learn.learning import configured, died, ran, space
from tuner.learn.axes import Axes
from tuner.learn.observation import Death, Observation
from tuner.learn.promise import Fitted, Lesson, Promise
from tuner.learn.survival import UNEXPLAINED, Survival
from tuner.space.configuration import Configuration

WORDLESS = Death(UNEXPLAINED, text="it died")


def risks(observations: list[Observation], *configurations: Configuration) -> list[float]:
    axes = Axes(space(), observations)
    return [float(risk) for risk in Survival(axes, observations).risk(axes.rows(configurations))]


def test_a_number_that_kills_is_feared_where_it_is_higher_and_not_where_it_ran() -> None:
    launches = [
        *(ran(at, cuda_graph_max_bs=batch) for at, batch in enumerate((8, 24, 64, 96))),
        *(died(at, WORDLESS, cuda_graph_max_bs=batch) for at, batch in enumerate((400, 512, 460), start=4)),
    ]
    low, high = risks(launches, configured(cuda_graph_max_bs=40), configured(cuda_graph_max_bs=480))
    assert low < 0.1 and high > 0.7


def test_two_reasons_at_once_are_told_apart() -> None:
    launches = [
        ran(0, attention_backend="triton", page_size=1),
        ran(1, attention_backend="flashinfer", page_size=1),
        ran(2, attention_backend="triton", page_size=64),
        died(3, WORDLESS, attention_backend="fa3", page_size=1),
        died(4, WORDLESS, attention_backend="triton", page_size=3),
        died(5, WORDLESS, attention_backend="fa3", page_size=64),
        died(6, WORDLESS, attention_backend="flashinfer", page_size=3),
    ]
    good, one, other = risks(
        launches,
        configured(attention_backend="flashinfer", page_size=64),
        configured(attention_backend="fa3", page_size=1, ep_size=8),
        configured(attention_backend="triton", page_size=3, ep_size=8),
    )
    assert good < 0.2 and one > 0.6 and other > 0.6


def test_nothing_is_feared_while_every_death_was_explained() -> None:
    launches = [ran(0), died(1, Death("assertion", text="ep"), ep_size=8)]
    assert risks(launches, configured(ep_size=8)) == [0.0]


def test_a_small_risk_is_taken_although_deaths_have_taken_their_share_of_the_time() -> None:
    launches = [
        *(ran(at, 0.001 * at, cuda_graph_max_bs=64 + at) for at in range(3)),
        *(died(at, Death("assertion", text="ep"), ep_size=8) for at in (3, 4)),
    ]
    promise = Promise(space(), Lesson(tuple(launches), lambda one: one), (), random.Random(1), Fitted({}))
    new, same, deadly = promise.of(
        [
            configured(page_size=64, cuda_graph_max_bs=66),
            configured(cuda_graph_max_bs=67),
            configured(cuda_graph_max_bs=66, ep_size=8),
        ]
    )
    assert new > 2 * same, "an untried choice promises more than the same once more"
    assert deadly < 0.1 * new
