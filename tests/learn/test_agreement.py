"""How far looks rank configurations as full launches do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.document import parse_document
from tuner.learn.agreement import Agreement, agreement, agreement_of
from tuner.learn.axes import Axes
from tuner.learn.observation import Observation
from tuner.space.configuration import Configuration
from tuner.space.reading import parse_space

SPEEDS = st.lists(st.floats(-2, 2, allow_nan=False), min_size=2, max_size=6, unique=True)


def agreed(looked: list[float], full: list[float], sd: float = 0.01, least: float = 0.02) -> Agreement:
    gains = np.subtract.outer(np.array(full), np.array(full))
    return agreement(looked, gains, np.full(gains.shape, sd), least)


@pytest.mark.parametrize(
    ("looked", "full", "pairs", "tau"),
    [
        ([1.0, 2.0, 3.0], [0.1, 0.2, 0.3], 3, 1.0),
        ([3.0, 2.0, 1.0], [0.1, 0.2, 0.3], 3, -1.0),
        ([1.0, 3.0, 2.0], [0.1, 0.2, 0.3], 3, 1 / 3),
        ([1.0, 1.0], [0.1, 0.2], 1, -1.0),  # a look that sees no difference has not seen the one there is
        ([9.0, 1.0], [0.1, 0.115], 0, None),  # launches of the same differ by as much
        ([], [], 0, None),
    ],
)
def test_only_pairs_that_full_launches_are_sure_of_count(
    looked: list[float], full: list[float], pairs: int, tau: float | None
) -> None:
    found = agreed(looked, full)

    assert found.pairs == pairs
    assert found.tau == (pytest.approx(tau) if tau is not None else None)


def test_a_difference_that_is_not_sure_has_no_rank() -> None:
    assert agreed([1.0, 2.0], [0.0, 0.2], sd=0.05).pairs == 1
    assert agreed([1.0, 2.0], [0.0, 0.2], sd=0.15).pairs == 0


@given(SPEEDS)
def test_whoever_ranks_like_the_launches_agrees_wholly_and_the_reverse_not_at_all(full: list[float]) -> None:
    found = agreed([3 * value + 7 for value in full], full)
    reverse = agreed([-value for value in full], full)

    assert found.pairs == reverse.pairs <= len(full) * (len(full) - 1) // 2
    if found.pairs:
        assert (found.tau, reverse.tau) == (1.0, -1.0)


def test_the_launches_need_not_be_of_the_very_configurations_that_were_looked_at() -> None:
    """What a look saw without drafts is held against launches with drafts that differ in the same choice."""
    document = "parameters:\n  backend: {type: choice, choices: [a, b]}\n  drafts: {type: boolean}\n"
    space = parse_space(parse_document(document, "space.yaml"), "given")

    def one(trial: int, speed: float, **values: object) -> Observation:
        return Observation(trial, Configuration(values), (speed,))  # type: ignore[arg-type]

    full = [one(0, 1.0, backend="a", drafts=True), one(1, 1.0, backend="a", drafts=False)]
    full += [one(trial, 1.5, backend="b", drafts=True) for trial in (2, 3, 4)]
    looks = [one(5, 3.0, backend="a", drafts=False), one(6, 3.2, backend="b", drafts=False)]

    found = agreement_of(looks, full, Axes(space, full), canonical=lambda given: given, load=1)

    assert (found.pairs, found.alike) == (1, 1)
    assert "1.00" in found.shown
