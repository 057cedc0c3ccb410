"""The benchmarks of the load client, small enough for every day; the full ones are programs."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks.client_bias import biases
from benchmarks.client_capacity import RATIO_ASKED, run_ours, run_theirs
from benchmarks.client_source import Load
from tests.real_server.conftest import RealSGLang, real_sglang
from tuner.measure.statistics import percentile

pytestmark = pytest.mark.serial

__all__ = ["real_sglang"]


@pytest.mark.timeout(120)
def test_the_measured_throughput_is_what_a_simulated_box_emitted() -> None:
    """Over half a percent would be a false finding. Other programs on the machine may disturb one try."""
    for attempt in range(3):
        found = biases([1, 8, 64], 1.0, tokens=128)
        assert [bias.concurrency for bias in found] == [1, 8, 64]
        if all(abs(bias.share) <= 0.005 for bias in found):
            return
        assert attempt < 2, found


def test_times_of_receipt_are_close_to_the_times_that_the_events_carry() -> None:
    spent, told = run_ours(Load(streams=64, tokens=100, interval_s=0.01), "--stamps")
    assert told["events"] == spent.events == 6400
    assert len(told["late_s"]) == 6400
    assert percentile(told["late_s"], 50) < 0.002
    assert told["late_s"][0] > -0.002
    assert told["cpu_share"] < 0.5


@pytest.mark.real_server
@pytest.mark.timeout(300)
def test_the_client_accounts_for_three_times_as_many_events_as_sglangs_own(real_sglang: RealSGLang) -> None:
    needed = [str(real_sglang.python), "-c", "import datasets, tabulate"]
    if subprocess.run(needed, capture_output=True, check=False).returncode:
        pytest.skip("sglang.bench_serving needs the packages datasets and tabulate")
    load = Load(streams=128, tokens=128, interval_s=0.02)
    ratios = []
    for _ in range(3):
        ratios.append(run_ours(load)[0].events_per_cpu_s / run_theirs(load).events_per_cpu_s)
        if sorted(ratios)[len(ratios) // 2] >= RATIO_ASKED:
            return
    raise AssertionError(f"ratios of events per CPU-second: {ratios}")
