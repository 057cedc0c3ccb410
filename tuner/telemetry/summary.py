"""From samples to a summary, and from a summary to whether the window counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tuner.launch.meter import GpuFacts, GpuReading
from tuner.telemetry.sample import GpuSummary, TelemetrySample, TelemetrySummary

VOIDING = ("hw-slowdown", "sw-thermal", "hw-thermal", "power-brake", "board-limit", "reliability")
"""Reasons that have nothing to do with the configuration: heat, the power supply, the board.

The limit of power (`sw-power-cap`) is not among them: a configuration that computes more reaches it sooner.
"""

THROTTLED_SHARE_LIMIT = 0.02
"""Clocks fall to a half and less when they are throttled: more than this share would cost over 1 %."""

_CAPPED_SHARE = 0.2
_STEAL_PERCENT = 2.0
_DRIFT = 0.03
_MEMORY_LOW_GIB = 2.0
_SWAP_GROWN_GIB = 0.25


def summarise(
    samples: Sequence[TelemetrySample], *, since_s: float | None = None, until_s: float | None = None
) -> TelemetrySummary:
    """What the samples between two monotonic times amount to, by default all of them.

    Energy is integrated by trapezoids to the very edges of the window; before the first and after the last
    sample power counts as constant. A window without samples has a summary without numbers.
    """
    begin_s = since_s if since_s is not None else min((sample.at_s for sample in samples), default=0.0)
    end_s = until_s if until_s is not None else max((sample.at_s for sample in samples), default=0.0)
    inside = [sample for sample in samples if begin_s <= sample.at_s <= end_s]
    hosts = [sample.host for sample in inside if sample.host is not None]
    energy_j = _energy_j(samples, begin_s, end_s)
    window_s = max(0.0, end_s - begin_s)
    return TelemetrySummary(
        window_s=window_s,
        samples=len(inside),
        gpus=tuple(_gpu_summary(gpu, inside) for gpu in _gpus_of(inside)),
        energy_j=energy_j,
        power_mean_w=energy_j / window_s if energy_j is not None and window_s > 0 else None,
        throttle=_shares(
            [{name for gpu in sample.gpus for name in gpu.throttle} for sample in inside if sample.gpus]
        ),
        sm_drift=_sm_drift(inside),
        strangers=tuple(sorted({pid for sample in inside for pid in sample.strangers})),
        cpu_mean_percent=_mean(host.cpu_percent for host in hosts),
        busiest_core_max_percent=max((host.busiest_core_percent for host in hosts), default=None),
        steal_mean_percent=_mean(host.steal_percent for host in hosts),
        memory_available_min_gib=min((host.memory_available_gib for host in hosts), default=None),
        swap_grown_gib=max(0.0, hosts[-1].swap_used_gib - hosts[0].swap_used_gib) if hosts else None,
        errors=tuple(dict.fromkeys(sample.error for sample in inside if sample.error)),
    )


def void_reason(summary: TelemetrySummary) -> str:
    """Why nothing that was measured in this window counts, or the empty string."""
    if summary.strangers:
        pids = ", ".join(map(str, summary.strangers))
        return f"another process computed on the GPUs meanwhile (pid {pids})"
    worst = {
        name: share
        for name, share in summary.throttle.items()
        if name in VOIDING and share > THROTTLED_SHARE_LIMIT
    }
    if not worst:
        return ""
    gpus = sorted(gpu.gpu for gpu in summary.gpus if any(name in gpu.throttle for name in worst))
    reasons = ", ".join(f"{name} for {share:.0%} of the time" for name, share in worst.items())
    return f"GPU {', '.join(map(str, gpus))} was throttled: {reasons}"


def warnings(summary: TelemetrySummary, facts: Iterable[GpuFacts] = ()) -> tuple[str, ...]:
    """What a reader of the result should know, though it counts. `facts` tell what the links could give."""
    found = list(summary.errors)
    capped = summary.throttle.get("sw-power-cap", 0.0)
    if capped > _CAPPED_SHARE:
        found.append(f"a GPU ran at its limit of power for {capped:.0%} of the time")
    if summary.sm_drift is not None and abs(summary.sm_drift) > _DRIFT:
        found.append(f"the SM clock changed by {summary.sm_drift:+.1%} within the window")
    found += _link_warnings(summary, facts)
    if summary.steal_mean_percent is not None and summary.steal_mean_percent > _STEAL_PERCENT:
        found.append(
            f"the hypervisor gave {summary.steal_mean_percent:.0f} % of the CPU time to other machines"
        )
    if summary.memory_available_min_gib is not None and summary.memory_available_min_gib < _MEMORY_LOW_GIB:
        found.append(f"only {summary.memory_available_min_gib:.1f} GiB of host memory were left")
    if summary.swap_grown_gib is not None and summary.swap_grown_gib > _SWAP_GROWN_GIB:
        found.append(f"{summary.swap_grown_gib:.1f} GiB were swapped out meanwhile")
    return tuple(found)


def _link_warnings(summary: TelemetrySummary, facts: Iterable[GpuFacts]) -> list[str]:
    """A link that is still slow under load is slow; an idle one only rests."""
    best = {fact.gpu: fact for fact in facts}
    found = []
    for gpu in summary.gpus:
        fact = best.get(gpu.gpu)
        if fact is None:
            continue
        generation, width = fact.pcie_generation_max, fact.pcie_width_max
        if generation and gpu.pcie_generation_max is not None and gpu.pcie_generation_max < generation:
            found.append(
                f"GPU {gpu.gpu} had PCIe generation {gpu.pcie_generation_max:.0f} of {generation} under load"
            )
        if width and gpu.pcie_width_min is not None and gpu.pcie_width_min < width:
            found.append(f"GPU {gpu.gpu} ran on {gpu.pcie_width_min:.0f} of {width} PCIe lanes under load")
    return found


def _gpus_of(samples: Sequence[TelemetrySample]) -> list[int]:
    return sorted({reading.gpu for sample in samples for reading in sample.gpus})


def _gpu_summary(gpu: int, samples: Sequence[TelemetrySample]) -> GpuSummary:
    readings = [reading for sample in samples for reading in sample.gpus if reading.gpu == gpu]

    def values(pick: Callable[[GpuReading], float | None]) -> list[float]:
        return [value for reading in readings if (value := pick(reading)) is not None]

    def most(pick: Callable[[GpuReading], float | None]) -> float | None:
        return max(values(pick), default=None)

    def least(pick: Callable[[GpuReading], float | None]) -> float | None:
        return min(values(pick), default=None)

    return GpuSummary(
        gpu=gpu,
        power_mean_w=_mean(values(lambda reading: reading.power_w)),
        power_max_w=most(lambda reading: reading.power_w),
        sm_mean_mhz=_mean(values(lambda reading: reading.sm_mhz)),
        sm_min_mhz=least(lambda reading: reading.sm_mhz),
        memory_mean_mhz=_mean(values(lambda reading: reading.memory_mhz)),
        temperature_max_c=most(lambda reading: reading.temperature_c),
        memory_max_mib=most(lambda reading: reading.memory_used_mib),
        busy_mean_percent=_mean(values(lambda reading: reading.busy_percent)),
        memory_busy_mean_percent=_mean(values(lambda reading: reading.memory_busy_percent)),
        pcie_rx_mean_mib_s=_mean(values(lambda reading: reading.pcie_rx_mib_s)),
        pcie_tx_mean_mib_s=_mean(values(lambda reading: reading.pcie_tx_mib_s)),
        pcie_generation_max=most(lambda reading: reading.pcie_generation),
        pcie_width_min=least(lambda reading: reading.pcie_width),
        throttle=_shares([set(reading.throttle) for reading in readings]),
    )


def _shares(sets: Sequence[set[str]]) -> dict[str, float]:
    names = sorted({name for names in sets for name in names})
    return {name: sum(name in names for names in sets) / len(sets) for name in names}


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def _sm_drift(samples: Sequence[TelemetrySample]) -> float | None:
    clocks = [
        sum(known) / len(known)
        for sample in samples
        if (known := [reading.sm_mhz for reading in sample.gpus if reading.sm_mhz is not None])
    ]
    third = len(clocks) // 3
    if third < 1:
        return None
    first, last = sum(clocks[:third]) / third, sum(clocks[-third:]) / third
    return last / first - 1 if first > 0 else None


def _energy_j(samples: Sequence[TelemetrySample], begin_s: float, end_s: float) -> float | None:
    """A sample without the power of every GPU that told it at any time is left out."""
    gpus = {reading.gpu for sample in samples for reading in sample.gpus if reading.power_w is not None}
    points = sorted(
        (sample.at_s, sum(reading.power_w or 0.0 for reading in sample.gpus))
        for sample in samples
        if gpus and gpus == {reading.gpu for reading in sample.gpus if reading.power_w is not None}
    )
    if not points or end_s < begin_s:
        return None
    times = [begin_s, *(at_s for at_s, _ in points if begin_s < at_s < end_s), end_s]
    powers = [_power_at(points, at_s) for at_s in times]
    steps = zip(times, times[1:], powers, powers[1:], strict=False)
    return sum((to_s - from_s) * (one + other) / 2 for from_s, to_s, one, other in steps)


def _power_at(points: Sequence[tuple[float, float]], at_s: float) -> float:
    before = [point for point in points if point[0] <= at_s]
    after = [point for point in points if point[0] >= at_s]
    if not before:
        return after[0][1]
    if not after:
        return before[-1][1]
    (from_s, one), (to_s, other) = before[-1], after[0]
    return one if to_s <= from_s else one + (other - one) * (at_s - from_s) / (to_s - from_s)
