"""A thread that reads the box while a level runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tuner.clock import Clock
from tuner.errors import BrokenEnvironment, TunerError
from tuner.launch.gpus import GpuProbe
from tuner.launch.host import HostMeter
from tuner.launch.meter import GpuMeter, GpuReading
from tuner.telemetry.sample import TelemetrySample

PERIOD_S = 0.5
_PCIE_EVERY = 4
"""Reading PCIe traffic takes 40 ms for each GPU, so it is not read every time."""
_STOP_LIMIT_S = 10.0
"""A driver that hangs may keep the thread; it is left behind then, as it ends with the program."""


class Sampler:
    """Reads GPUs and host every `period_s` between `start` and `stop`, which may be called for many levels.

    To be made once the server is ready and idle. `is_ours` tells whether a pid belongs to the server.
    In a container NVML may show pids that cannot be found from inside: where none of the processes on the
    GPUs can be recognised, those that are there when the sampler is made count as the server's, and only
    ones that come later are strangers.
    """

    def __init__(
        self,
        *,
        meter: GpuMeter,
        probe: GpuProbe,
        host: HostMeter,
        gpus: Sequence[int],
        clock: Clock,
        is_ours: Callable[[int], bool],
        period_s: float = PERIOD_S,
    ) -> None:
        self._meter = meter
        self._probe = probe
        self._host = host
        self._gpus = tuple(gpus)
        self._clock = clock
        self._is_ours = is_ours
        self._period_s = period_s
        self._turn = 0
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self._samples: list[TelemetrySample] = []
        self._strange: dict[int, bool] = {}
        self._get_to_know()

    def start(self) -> None:
        """Begin a new series, with a sample at once."""
        if self._thread is not None:
            raise TunerError("the sampler runs already; this is an error of the tuner")
        self._end, self._samples, self._turn = threading.Event(), [], 0
        self._host.read()  # what the CPUs did between two levels belongs to neither
        self._thread = threading.Thread(
            target=self._run, args=(self._end, self._samples), name="telemetry", daemon=True
        )
        self._thread.start()

    def stop(self) -> tuple[TelemetrySample, ...]:
        """End the series, with a last sample; what was read. Nothing where it was not started."""
        thread, self._thread = self._thread, None
        if thread is None:
            return ()
        self._end.set()
        thread.join(_STOP_LIMIT_S)
        return tuple(self._samples)

    def take(self) -> TelemetrySample:
        """One sample, now. A GPU that cannot be read is part of it, not an error."""
        at_s = self._clock.monotonic_s()
        pcie = self._turn % _PCIE_EVERY == 0
        self._turn += 1
        gpus: tuple[GpuReading, ...] = ()
        strangers: tuple[int, ...] = ()
        error = ""
        try:
            gpus = tuple(self._meter.read(self._gpus, pcie=pcie))
            strangers = self._strangers()
        except BrokenEnvironment as broken:
            error = broken.message
        return TelemetrySample(at_s, gpus, self._host.read(), strangers, error)

    def _run(self, end: threading.Event, samples: list[TelemetrySample]) -> None:
        last = False
        while True:
            samples.append(self.take())
            if last:
                return
            last = end.wait(self._period_s)

    def _get_to_know(self) -> None:
        try:
            pids = self._pids()
        except BrokenEnvironment:
            return  # every sample will say so
        ours = {pid: self._is_ours(pid) for pid in pids}
        recognised = any(ours.values())
        self._strange = {pid: recognised and not own for pid, own in ours.items()}

    def _strangers(self) -> tuple[int, ...]:
        pids = self._pids()
        for pid in pids - self._strange.keys():
            self._strange[pid] = not self._is_ours(pid)
        return tuple(sorted(pid for pid in pids if self._strange[pid]))

    def _pids(self) -> set[int]:
        return {occupant.pid for occupant in self._probe.occupants(self._gpus)}
