"""What the file says comes before what is known of SGLang in general, and launches overrule both."""

from __future__ import annotations

import pytest

from tests.learn.learning import SPACE, configured, ran, space
from tuner.learn.axes import Axes
from tuner.learn.expectations import Expectations, gain_of, spread_of
from tuner.learn.speed import Speed
from tuner.space.space import SearchSpace


def stated(parameter: str, expect: str) -> SearchSpace:
    lines = [
        line.replace("}", f", expect: {expect}}}") if line.strip().startswith(f"{parameter}:") else line
        for line in SPACE.splitlines()
    ]
    return space("\n".join(lines))


def test_what_is_not_stated_is_as_known() -> None:
    expectations = Expectations(space())

    assert expectations.gain_of("speculative", "eagle3", 1) == gain_of("speculative", "eagle3", 1) > 0
    assert expectations.spread_of("page_size") == spread_of("page_size")


def test_a_stated_gain_comes_before_the_known_one() -> None:
    expectations = Expectations(stated("speculative", "{eagle3: -0.2}"))

    assert expectations.gain_of("speculative", "eagle3", 1) == pytest.approx(-0.223, abs=0.001)
    assert expectations.gain_of("speculative", "off", 1) == 0.0


def test_a_large_gain_is_less_sure_than_is_usual() -> None:
    assert Expectations(stated("page_size", "{64: -0.8}")).spread_of("page_size") > 5 * spread_of("page_size")
    assert Expectations(stated("page_size", "{64: 0.01}")).spread_of("page_size") == spread_of("page_size")


@pytest.mark.parametrize(("direction", "sign"), [("smaller is faster", 1), ("larger is faster", -1)])
def test_a_direction_is_counted_from_the_default(direction: str, sign: int) -> None:
    expectations = Expectations(stated("cuda_graph_max_bs", direction))

    gains = [sign * expectations.gain_of("cuda_graph_max_bs", value, None) for value in (512, 128, 32)]

    assert gains[0] == 0.0
    assert 0.05 < gains[1] < gains[2] < 0.3


def test_the_load_needs_its_room_whatever_is_stated() -> None:
    expectations = Expectations(stated("cuda_graph_max_bs", "smaller is faster"))

    assert expectations.gain_of("cuda_graph_max_bs", 16, 128) < expectations.gain_of(
        "cuda_graph_max_bs", 128, 128
    )


def test_launches_overrule_it() -> None:
    where = stated("attention_backend", "{triton: 0.3}")
    launches = [
        ran(0),
        *(ran(t, -0.1, attention_backend="triton", page_size=p) for t, p in ((1, 1), (2, 64))),
    ]
    before, after = (
        Speed(Axes(where, given), given, canonical=lambda one: one, load=None)
        for given in (launches[:1], launches)
    )

    def gain(speed: Speed) -> float:
        slow, fast = speed.means([configured(), configured(attention_backend="triton", page_size=3)])
        return float(fast - slow)

    assert gain(before) > 0.2
    assert gain(after) < 0.0
