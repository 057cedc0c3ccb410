"""From samples to energy, shares of throttling, and whether a window counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.launch.host import HostReading
from tuner.launch.meter import GpuFacts, GpuReading
from tuner.telemetry.sample import TelemetrySample
from tuner.telemetry.summary import summarise, void_reason, warnings

HOST = HostReading(40.0, 90.0, 0.0, 20.0, 100.0, 0.0)


def sample(
    at_s: float, *gpus: GpuReading, host: HostReading | None = HOST, strangers: tuple[int, ...] = ()
) -> TelemetrySample:
    return TelemetrySample(at_s, gpus, host, strangers)


def powers(*pairs: tuple[float, float]) -> list[TelemetrySample]:
    return [sample(at_s, GpuReading(0, power_w=power_w)) for at_s, power_w in pairs]


def test_energy_is_power_over_time() -> None:
    summary = summarise(powers((10, 100), (12, 300), (14, 300)))
    assert summary.energy_j == pytest.approx(2 * 200 + 2 * 300)
    assert summary.power_mean_w == pytest.approx(250)
    assert summary.window_s == 4


def test_energy_of_a_part_reaches_to_its_edges() -> None:
    ramp = powers((0, 0), (10, 100))
    assert summarise(ramp, since_s=4, until_s=6).energy_j == pytest.approx(2 * 50)
    assert summarise(ramp, since_s=8, until_s=20).energy_j == pytest.approx(2 * 90 + 10 * 100)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 600)), min_size=2, max_size=20),
    st.floats(0, 100), st.floats(0, 100), st.floats(0, 100),
)  # fmt: skip
def test_parts_of_a_window_add_up(points: list[tuple[float, float]], a: float, b: float, c: float) -> None:
    samples = powers(*{at_s: (at_s, power_w) for at_s, power_w in points}.values())
    low, middle, high = sorted((a, b, c))
    parts = [
        summarise(samples, since_s=one, until_s=other).energy_j
        for one, other in ((low, middle), (middle, high))
    ]
    assert sum(part or 0.0 for part in parts) == pytest.approx(
        summarise(samples, since_s=low, until_s=high).energy_j
    )


def test_gpus_are_added_and_a_moment_in_which_one_kept_silent_is_left_out() -> None:
    both = [GpuReading(0, power_w=100), GpuReading(1, power_w=50)]
    samples = [sample(0, *both), sample(1, GpuReading(0, power_w=100), GpuReading(1)), sample(2, *both)]
    assert summarise(samples).energy_j == pytest.approx(300)


def test_without_gpus_there_is_the_host_and_no_energy() -> None:
    summary = summarise([sample(0), sample(1, host=HostReading(60.0, 99.0, 0.0, 20.0, 1.5, 0.5))])
    assert (summary.energy_j, summary.gpus, summary.throttle) == (None, (), {})
    assert (summary.cpu_mean_percent, summary.busiest_core_max_percent) == (50, 99)
    assert (summary.memory_available_min_gib, summary.swap_grown_gib) == (1.5, 0.5)
    assert void_reason(summary) == ""
    assert [text for text in warnings(summary) if "memory" in text]


def test_nothing_sampled() -> None:
    summary = summarise([])
    assert (summary.samples, summary.energy_j, void_reason(summary), warnings(summary)) == (0, None, "", ())


def throttled(share: float, reason: str, gpu: int = 1, count: int = 100) -> list[TelemetrySample]:
    held = round(share * count)
    return [
        sample(at, GpuReading(0), GpuReading(gpu, throttle=(reason,) if at < held else ()))
        for at in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("reason", ["hw-slowdown", "sw-thermal", "hw-thermal", "power-brake"])
def test_heat_and_power_supply_void_a_window(reason: str) -> None:
    summary = summarise(throttled(0.25, reason))
    assert void_reason(summary) == f"GPU 1 was throttled: {reason} for 25% of the time"


def test_a_single_blip_does_not_void_a_long_window() -> None:
    assert void_reason(summarise(throttled(0.01, "hw-thermal"))) == ""


def test_the_limit_of_power_only_warns() -> None:
    summary = summarise(throttled(0.9, "sw-power-cap"))
    assert void_reason(summary) == ""
    assert "limit of power for 90%" in warnings(summary)[0]
    assert warnings(summarise(throttled(0.05, "sw-power-cap"))) == ()


def test_one_throttled_gpu_counts_for_all() -> None:
    samples = [
        sample(at, *(GpuReading(gpu, throttle=("hw-thermal",) if gpu == at % 8 else ()) for gpu in range(8)))
        for at in range(16)
    ]
    summary = summarise(samples)
    assert summary.throttle == {"hw-thermal": 1.0}
    assert summary.gpus[0].throttle == {"hw-thermal": 0.125}


def test_another_process_voids_a_window() -> None:
    summary = summarise([sample(0), sample(1, strangers=(4711,)), sample(2)])
    assert "pid 4711" in void_reason(summary)


def test_a_clock_that_sags_is_told() -> None:
    samples = [sample(at, GpuReading(0, sm_mhz=2400 - 20 * at)) for at in range(9)]
    summary = summarise(samples)
    assert summary.sm_drift == pytest.approx(2260 / 2380 - 1)
    assert "SM clock changed by -5.0%" in warnings(summary)[0]


def test_a_link_that_is_slow_under_load_is_told_and_one_that_rested_before_is_not() -> None:
    facts = [
        GpuFacts(0, pcie_generation_max=5, pcie_width_max=16),
        GpuFacts(1, pcie_generation_max=5, pcie_width_max=16),
    ]
    rested = [
        GpuReading(0, pcie_generation=1, pcie_width=16),
        GpuReading(1, pcie_generation=5, pcie_width=16),
    ]
    loaded = [GpuReading(0, pcie_generation=5, pcie_width=16), GpuReading(1, pcie_generation=5, pcie_width=8)]
    assert warnings(summarise([sample(0, *rested), sample(1, *loaded)]), facts) == (
        "GPU 1 ran on 8 of 16 PCIe lanes under load",
    )
    assert "generation 1 of 5" in warnings(summarise([sample(0, *rested)]), facts)[0]


def test_a_hypervisor_that_takes_cpu_time_is_told() -> None:
    summary = summarise([sample(0, host=HostReading(50.0, 90.0, 8.0, 20.0, 100.0, 0.0))])
    assert "8 % of the CPU time" in warnings(summary)[0]


def test_a_summary_is_json() -> None:
    shown = json.loads(json.dumps(summarise(throttled(1 / 3, "hw-thermal")).to_json()))
    assert shown["throttle"] == {"hw-thermal": 0.33}
    assert shown["gpus"][1]["gpu"] == 1
