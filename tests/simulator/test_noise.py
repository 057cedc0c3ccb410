"""The spread of measurements: of the size the box was seen to have, and repeatable by its seed."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from tests.simulator.boxes import EAGLE, box, model
from tuner.simulator.noise import LaunchNoise

BOX = box()


def test_a_seed_repeats_a_launch() -> None:
    first, again, other = (LaunchNoise(BOX, seed).speed(1, 0.0) for seed in ("a", "a", "b"))
    assert first == again != other


def test_launches_spread_as_measured_and_most_at_one_stream() -> None:
    def spread(running: int) -> float:
        return statistics.stdev(
            math.log(LaunchNoise(BOX, str(seed)).speed(running, 0.0)) for seed in range(2000)
        )

    assert spread(1) == pytest.approx(math.hypot(0.013, 0.005), rel=0.1)
    assert spread(4) == pytest.approx(math.hypot(0.004, 0.005), rel=0.1)


def test_the_scale_switches_noise_off() -> None:
    quiet = LaunchNoise(replace(BOX, noise=replace(BOX.noise, scale=0.0)), "a")
    assert quiet.silent
    assert {quiet.speed(running, now_s) for running in (1, 64) for now_s in (0.0, 9.0)} == {1.0}
    assert quiet.acceptance_scale() == 1.0


def test_ten_seconds_of_one_stream_accept_as_unevenly_as_measured() -> None:
    launch = model(BOX, *EAGLE)
    steps = int(10_000 / launch.step_ms(1, 500))
    lengths = []
    for window in range(300):
        noise = LaunchNoise(BOX, f"window {window}")
        tokens, redraw_at, scale = 0, 0, 1.0
        for _ in range(steps):
            if tokens >= redraw_at:
                redraw_at, scale = tokens + noise.acceptance_tokens, noise.acceptance_scale()
            luck = noise.draw() / scale
            tokens += 1 + sum(share > luck for share in launch.accepted)
        lengths.append(tokens / steps)
    assert statistics.mean(lengths) == pytest.approx(launch.tokens_per_step, rel=0.01)
    assert statistics.stdev(lengths) / statistics.mean(lengths) == pytest.approx(0.045, rel=0.3)
