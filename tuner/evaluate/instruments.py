"""What watches the machine while a level is measured."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.clock import Clock
from tuner.launch.gpus import GpuProbe, find_probe
from tuner.launch.host import LocalHost
from tuner.launch.meter import GpuMeter, find_meter
from tuner.launch.protocol import ServerHandle
from tuner.measure.seams import Watched
from tuner.telemetry.sampler import Sampler
from tuner.telemetry.summary import summarise, void_reason, warnings


@dataclass(frozen=True)
class Instruments:
    """The meters of this machine; without a GPU only the host's read anything."""

    probe: GpuProbe
    meter: GpuMeter

    @classmethod
    def find(cls) -> Instruments:
        """Those of this machine."""
        return cls(find_probe(), find_meter())

    def watch(self, handle: ServerHandle, gpus: tuple[int, ...], clock: Clock) -> TelemetryWatch:
        """A watch over a ready, idle server and its GPUs."""
        sampler = Sampler(
            meter=self.meter,
            probe=self.probe,
            host=LocalHost(),
            gpus=gpus,
            clock=clock,
            is_ours=handle.owns,
        )
        return TelemetryWatch(sampler, self, gpus)


class TelemetryWatch:
    """Implements `tuner.measure.seams.LevelWatch`."""

    def __init__(self, sampler: Sampler, instruments: Instruments, gpus: tuple[int, ...]) -> None:
        self._sampler = sampler
        self._facts = instruments.meter.facts(gpus)

    def begin(self) -> None:
        """See `LevelWatch`."""
        self._sampler.start()

    def end(self) -> Watched:
        """See `LevelWatch`."""
        summary = summarise(self._sampler.stop())
        facts = {**summary.to_json(), "warnings": list(warnings(summary, self._facts))}
        return Watched(void_reason(summary), summary.energy_j, facts)
