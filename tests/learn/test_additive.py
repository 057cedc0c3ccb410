from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from tests.learn.learning import configured, ran, space
from tuner.learn.additive import Additive
from tuner.learn.axes import Axes
from tuner.learn.observation import Observation
from tuner.space.configuration import Configuration


def speed(values: Configuration) -> float:
    return (
        (0.25 if values.get("attention_backend") == "flashinfer" else 0.0)
        + (0.10 if values.get("speculative") == "eagle3" else 0.0)
        - 0.05 * abs(math.log2(float(values.get("cuda_graph_max_bs", 512)) / 128))
    )


def launches() -> list[Observation]:
    told: list[dict[str, Any]] = [
        {},
        {"attention_backend": "flashinfer"},
        {"speculative": "eagle3"},
        {"cuda_graph_max_bs": 128},
        {"cuda_graph_max_bs": 32},
        {"page_size": 64, "cuda_graph_max_bs": 128},
    ]
    return [ran(trial, speed(configured(**values)), **values) for trial, values in enumerate(told)]


def fitted(observations: list[Observation]) -> tuple[Additive, Axes]:
    axes = Axes(space(), observations)
    expected = np.full(len(axes.names), 0.1)
    model = Additive(
        axes,
        axes.rows([one.configuration for one in observations]),
        np.array([one.log_scores[0] for one in observations]),
        expected,
        np.full(len(observations), 0.01),
    )
    model.fit(expected, sweeps=3)
    return model, axes


def test_single_changes_foretell_a_combination_that_nobody_launched() -> None:
    model, axes = fitted(launches())
    together = configured(attention_backend="flashinfer", speculative="eagle3", cuda_graph_max_bs=128)

    found = model.predict(axes.rows([together]), axes.rows([configured()]))

    assert abs(found.gain[0] - (speed(together) - speed(configured()))) < 0.1
    everything = [
        configured(attention_backend=backend, speculative=drafts, cuda_graph_max_bs=batch)
        for backend, drafts, batch in product(
            ("triton", "flashinfer", "auto"), ("off", "eagle3"), (16, 128, 512)
        )
    ]
    assert everything[int(np.argmax(model.means(axes.rows(everything))))] == together


def test_what_was_launched_is_surer_than_what_was_not() -> None:
    model, axes = fitted(launches())
    rows = axes.rows([configured(attention_backend="flashinfer"), configured(attention_backend="fa3")])

    launched, untried = model.predict(rows, axes.rows([configured()])).gain_sd

    assert launched < untried / 2


def test_a_parameter_that_does_not_apply_makes_no_difference() -> None:
    model, axes = fitted(launches())
    same = configured(speculative="off", speculative_num_steps=5)

    found = model.predict(axes.rows([same]), axes.rows([configured()]))

    assert found.gain[0] == 0.0


def test_leaving_a_number_out_is_near_what_it_comes_to() -> None:
    """Unsaid, the largest graph is 512: what holds for 512 holds for it."""
    model, axes = fitted(launches())

    near, far = model.predict(
        axes.rows([configured(cuda_graph_max_bs=512), configured(cuda_graph_max_bs=8)]),
        axes.rows([configured()]),
    ).gain_sd

    assert near < far
