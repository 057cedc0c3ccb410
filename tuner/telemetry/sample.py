"""What was read of the box, moment by moment, and what a window of it amounts to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.launch.host import HostReading
from tuner.launch.meter import GpuReading


@dataclass(frozen=True)
class TelemetrySample:
    """The box at one moment, in monotonic seconds.

    `strangers` are pids of other people's processes that compute on the GPUs. `error` says why a GPU could
    not be read.
    """

    at_s: float
    gpus: tuple[GpuReading, ...] = ()
    host: HostReading | None = None
    strangers: tuple[int, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class GpuSummary:
    """One GPU over a window; None where it does not tell.

    `throttle` is the share of samples (0 to 1) in which each reason held its clocks down. The lowest link
    generation and width under load are what the link really gives.
    """

    gpu: int
    power_mean_w: float | None = None
    power_max_w: float | None = None
    sm_mean_mhz: float | None = None
    sm_min_mhz: float | None = None
    memory_mean_mhz: float | None = None
    temperature_max_c: float | None = None
    memory_max_mib: float | None = None
    busy_mean_percent: float | None = None
    memory_busy_mean_percent: float | None = None
    pcie_rx_mean_mib_s: float | None = None
    pcie_tx_mean_mib_s: float | None = None
    pcie_generation_max: float | None = None
    pcie_width_min: float | None = None
    throttle: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TelemetrySummary:
    """The box over a window.

    `energy_j` is of all GPUs together: their power integrated over the window. `throttle` is the share of
    samples in which at least one GPU was held down for that reason: one slow GPU slows all that work with
    it. `sm_drift` is the relative change of the mean SM clock from the first to the last third of the
    window. `swap_grown_gib` is how much more was swapped out at its end.
    """

    window_s: float
    samples: int
    gpus: tuple[GpuSummary, ...] = ()
    energy_j: float | None = None
    power_mean_w: float | None = None
    throttle: dict[str, float] = field(default_factory=dict)
    sm_drift: float | None = None
    strangers: tuple[int, ...] = ()
    cpu_mean_percent: float | None = None
    busiest_core_max_percent: float | None = None
    steal_mean_percent: float | None = None
    memory_available_min_gib: float | None = None
    swap_grown_gib: float | None = None
    errors: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The summary for a record, numbers rounded to what they are worth."""
        rounded: dict[str, Any] = _rounded(asdict(self))
        return rounded


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
