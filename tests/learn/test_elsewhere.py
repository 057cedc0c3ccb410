"""What launches of another study teach, and what they cannot do."""

from __future__ import annotations

import random
from itertools import product

import numpy as np

from tests.learn.learning import configured, died, ran, space
from tuner.learn.axes import Axes
from tuner.learn.blame import Culprits
from tuner.learn.observation import Death, Observation
from tuner.learn.speed import Speed

ASSERTION = Death("assertion", "weight-load", "A check inside the server failed.")
CHOICES = list(product(("triton", "flashinfer"), (1, 3, 64), (32, 128)))


def elsewhere(*, level: float = 0.0, seed: int | None = None) -> list[Observation]:
    """A study in which flashinfer and large pages are faster; with a seed its scores are dealt out anew."""
    scores = [level + 0.3 * (backend == "flashinfer") + 0.1 * (page == 64) for backend, page, _ in CHOICES]
    if seed is not None:
        random.Random(seed).shuffle(scores)
    return [
        ran(trial, score, attention_backend=backend, page_size=page, cuda_graph_max_bs=batch)
        for trial, (score, (backend, page, batch)) in enumerate(zip(scores, CHOICES, strict=True))
    ]


class Learnt:
    """What is believed after these launches here, and those studies elsewhere."""

    def __init__(self, here: list[Observation], *past: list[Observation]) -> None:
        self._axes = Axes(space(), here)
        self.speed = Speed(self._axes, here, canonical=lambda given: given, load=None, past=past, sweeps=3)

    def gain(self, **values: object) -> tuple[float, float]:
        """Over the defaults (logarithm), and the sd of that."""
        gain, sd = self.speed.gains(self._axes.rows([configured(**values)]), configured())
        return float(gain[0]), float(sd[0])


def test_what_was_faster_elsewhere_is_expected_to_be_faster_here() -> None:
    here = [ran(0)]

    alone, _ = Learnt(here).gain(attention_backend="flashinfer", page_size=64)
    taught, _ = Learnt(here, elsewhere()).gain(attention_backend="flashinfer", page_size=64)
    slow, _ = Learnt(here, elsewhere()).gain(attention_backend="triton", page_size=1)

    assert taught > slow + 0.2
    assert taught > alone + 0.05


def test_only_differences_within_the_other_study_count() -> None:
    """A box that is five times as fast as a whole says the same of every choice."""
    here = [ran(0), ran(1, 0.02, page_size=64)]
    values = {"attention_backend": "flashinfer", "page_size": 64}

    same, same_sd = Learnt(here, elsewhere()).gain(**values)
    faster, faster_sd = Learnt(here, elsewhere(level=1.6)).gain(**values)

    assert abs(same - faster) < 1e-6
    assert abs(same_sd - faster_sd) < 1e-6


def test_launches_of_here_overrule_those_of_elsewhere() -> None:
    here = [
        ran(0, attention_backend="triton"),
        ran(1, -0.3, attention_backend="flashinfer"),
        ran(2, attention_backend="triton", page_size=64),
        ran(3, -0.3, attention_backend="flashinfer", page_size=64),
    ]
    learnt = Learnt(here, elsewhere())

    slow, _ = learnt.gain(attention_backend="flashinfer", cuda_graph_max_bs=32)
    fast, _ = learnt.gain(attention_backend="triton", cuda_graph_max_bs=32)

    assert fast > slow + 0.15


def test_a_study_in_which_nothing_agrees_is_doubted() -> None:
    here = [ran(0), ran(1, 0.3, attention_backend="flashinfer"), ran(2, 0.1, page_size=64)]

    (believed,) = Learnt(here, elsewhere()).speed.doubts
    misled = Learnt(here, elsewhere(seed=4))

    assert misled.speed.doubts[0] > 2 * believed
    alone = np.array(Learnt(here).gain(attention_backend="flashinfer", page_size=64))
    after = np.array(misled.gain(attention_backend="flashinfer", page_size=64))
    assert abs(alone[0] - after[0]) < 0.1


def test_each_study_is_believed_for_itself() -> None:
    here = [ran(0), ran(1, 0.3, attention_backend="flashinfer"), ran(2, 0.1, page_size=64)]

    good, bad = Learnt(here, elsewhere(), elsewhere(seed=4)).speed.doubts

    assert bad > 2 * good


def test_what_died_elsewhere_is_suspected_and_never_off_the_list() -> None:
    deaths = [died(trial, ASSERTION, page_size=64, cuda_graph_max_bs=64 + trial) for trial in range(5)]
    taught = Culprits(space(), [ran(0)], deaths)
    alone = Culprits(space(), [ran(0)])

    assert alone.risk(configured(page_size=64)) < 0.1
    assert 0.3 < taught.risk(configured(page_size=64)) < 0.7
    assert taught.blamed() == []


def test_what_ran_here_is_not_suspected_whatever_happened_elsewhere() -> None:
    deaths = [died(trial, ASSERTION, page_size=64) for trial in range(5)]
    taught = Culprits(space(), [ran(0, page_size=64)], deaths)

    assert taught.risk(configured(page_size=64)) == 0.0


def test_what_ran_elsewhere_is_feared_less_but_may_still_be_blamed_here() -> None:
    ran_elsewhere = [ran(0, attention_backend="fa3")]
    alone = Culprits(space(), [ran(0)]).risk(configured(attention_backend="fa3"))
    taught = Culprits(space(), [ran(0)], ran_elsewhere).risk(configured(attention_backend="fa3"))
    assert taught < alone / 2

    here = [ran(0), *(died(t, ASSERTION, attention_backend="fa3", page_size=(3, 64)[t - 1]) for t in (1, 2))]
    culprits = Culprits(space(), here, ran_elsewhere)
    assert culprits.risk(configured(attention_backend="fa3")) > 0.9
    assert [blame.value for blame in culprits.blamed()] == ["fa3"]
