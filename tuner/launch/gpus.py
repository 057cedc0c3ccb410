"""What is on the GPUs: memory in use and by whom.

GPUs are counted as NVML counts them: by PCI bus, from 0, all of the machine, whatever CUDA_VISIBLE_DEVICES
says. The executor has CUDA count in the same order (CUDA_DEVICE_ORDER=PCI_BUS_ID).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psutil

from tuner.errors import BrokenEnvironment, InputError
from tuner.launch.nvml import Nvml, as_text

BUSY_MIB = 1024.0
"""More memory in use than this means that somebody works on the GPU, even where no process can be seen."""

_MIB = 1024 * 1024


@dataclass(frozen=True)
class Occupant:
    """A process that computes on a GPU. `used_mib` is None where the driver does not tell."""

    gpu: int
    pid: int
    used_mib: float | None
    name: str = ""


class GpuProbe(Protocol):
    """Looks at the GPUs of this machine."""

    @property
    def reason(self) -> str:
        """Why nothing can be seen; empty where the GPUs can be seen."""

    def count(self) -> int | None:
        """How many GPUs there are, or None where that cannot be told."""

    def names(self) -> list[str]:
        """The model names, in the order of the indices."""

    def memory_used_mib(self, gpus: Iterable[int]) -> dict[int, float]:
        """Memory in use, by GPU; without those that do not report it.

        Raises `BrokenEnvironment` where the driver fails (a GPU that fell off the bus).
        """

    def occupants(self, gpus: Iterable[int]) -> list[Occupant]:
        """The processes that compute there, as far as they can be seen. Raises like `memory_used_mib`."""


class NullProbe:
    """The probe where there is no GPU, or none that NVML knows: it sees nothing and says why."""

    def __init__(self, reason: str = "no GPU probe was asked for") -> None:
        self._reason = reason

    @property
    def reason(self) -> str:
        """See `GpuProbe`."""
        return self._reason

    def count(self) -> int | None:
        """None: GPUs of another maker may be there."""
        return None

    def names(self) -> list[str]:
        """Nothing."""
        return []

    def memory_used_mib(self, gpus: Iterable[int]) -> dict[int, float]:
        """Nothing."""
        return {}

    def occupants(self, gpus: Iterable[int]) -> list[Occupant]:
        """Nothing."""
        return []


class FakeProbe:
    """GPUs out of a script, for trying things out and for tests where there are none.

    `memory_mib` holds for each GPU the memory in use, or a sequence of readings: each look takes the next,
    the last one stays.
    """

    def __init__(
        self,
        memory_mib: Mapping[int, float | Sequence[float]],
        *,
        occupants: Sequence[Occupant] = (),
        name: str = "Simulated GPU",
    ) -> None:
        self._readings = {gpu: _as_readings(script) for gpu, script in memory_mib.items()}
        self._occupants = list(occupants)
        self._name = name

    @property
    def reason(self) -> str:
        """See `GpuProbe`."""
        return ""

    def count(self) -> int | None:
        """One more than the highest index."""
        return max(self._readings, default=-1) + 1

    def names(self) -> list[str]:
        """See `GpuProbe`."""
        return [self._name] * (self.count() or 0)

    def memory_used_mib(self, gpus: Iterable[int]) -> dict[int, float]:
        """The next reading of each GPU."""
        return {gpu: self._next(gpu) for gpu in gpus if gpu in self._readings}

    def occupants(self, gpus: Iterable[int]) -> list[Occupant]:
        """See `GpuProbe`."""
        wanted = set(gpus)
        return [occupant for occupant in self._occupants if occupant.gpu in wanted]

    def set_memory(self, gpu: int, *readings_mib: float) -> None:
        """Replace the readings of a GPU."""
        self._readings[gpu] = list(readings_mib)

    def set_occupants(self, *occupants: Occupant) -> None:
        """Replace the processes that compute on the GPUs."""
        self._occupants = list(occupants)

    def _next(self, gpu: int) -> float:
        readings = self._readings[gpu]
        return readings.pop(0) if len(readings) > 1 else readings[0]


class NvmlProbe:
    """The GPUs of this machine through NVML (`pynvml` of the distribution nvidia-ml-py).

    `nvml` stands in for the module. Raises `BrokenEnvironment` where NVML cannot be used.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = Nvml(nvml)

    @property
    def reason(self) -> str:
        """See `GpuProbe`."""
        return ""

    def count(self) -> int | None:
        """See `GpuProbe`."""
        return self._nvml.count()

    def names(self) -> list[str]:
        """See `GpuProbe`."""
        devices = [self._nvml.device(gpu) for gpu in range(self._nvml.count())]
        return [as_text(self._nvml.call("nvmlDeviceGetName", device)) for device in devices]

    def memory_used_mib(self, gpus: Iterable[int]) -> dict[int, float]:
        """See `GpuProbe`."""
        used = {gpu: self._nvml.memory(self._nvml.device(gpu)) for gpu in gpus}
        return {gpu: memory.used / _MIB for gpu, memory in used.items() if memory is not None}

    def occupants(self, gpus: Iterable[int]) -> list[Occupant]:
        """See `GpuProbe`. Inside a container the pids are often those of the host, or missing."""
        found = []
        for gpu in gpus:
            running = (
                self._nvml.optional("nvmlDeviceGetComputeRunningProcesses", self._nvml.device(gpu)) or []
            )
            for process in running:
                used = process.usedGpuMemory
                found.append(
                    Occupant(
                        gpu, int(process.pid), None if used is None else used / _MIB, _name_of(process.pid)
                    )
                )
        return found


def find_probe(nvml: Any = None) -> GpuProbe:
    """The probe for this machine: NVML where it works, otherwise a null probe that knows the reason."""
    try:
        probe = NvmlProbe(nvml)
        count = probe.count()
    except BrokenEnvironment as error:
        return NullProbe(error.message)
    return probe if count else NullProbe("NVML finds no GPU in this machine")


def check_free(probe: GpuProbe, gpus: tuple[int, ...]) -> None:
    """Raise `BrokenEnvironment` where somebody else uses one of the GPUs."""
    found = complaints(probe, gpus)
    if found:
        raise BrokenEnvironment(
            f"{'; '.join(found)}. A server started there would run out of memory or be measured too slow",
            hint="end these processes (`nvidia-smi` on the host shows them) or give the study other GPUs",
        )


def complaints(probe: GpuProbe, gpus: tuple[int, ...]) -> list[str]:
    """What speaks against a launch on these GPUs: processes that compute there, memory in use."""
    occupants = probe.occupants(gpus)
    used_mib = probe.memory_used_mib(gpus)
    held = {occupant.gpu for occupant in occupants}
    return [_occupied(occupant) for occupant in occupants] + [
        f"GPU {gpu} has {used_mib[gpu]:.0f} MiB in use by processes that cannot be seen from here"
        for gpu in gpus
        if gpu not in held and used_mib.get(gpu, 0.0) > BUSY_MIB
    ]


def check_exist(probe: GpuProbe, gpus: tuple[int, ...]) -> None:
    """Raise `InputError` for GPUs that are not there or named twice."""
    if len(set(gpus)) != len(gpus):
        raise InputError(f"the GPUs {list(gpus)} name one GPU twice", hint="name each GPU once")
    count = probe.count()
    missing = [gpu for gpu in gpus if gpu < 0 or (count is not None and gpu >= count)]
    if missing:
        there = "it has none" if count == 0 else f"it has 0 to {count - 1}" if count else "they count from 0"
        raise InputError(
            f"this machine has no GPU {', '.join(map(str, missing))}; {there}",
            hint="GPUs are named by the index that `nvidia-smi` shows",
        )


def _occupied(occupant: Occupant) -> str:
    name = f" ({occupant.name})" if occupant.name else ""
    used = "memory of unknown size" if occupant.used_mib is None else f"{occupant.used_mib:.0f} MiB"
    return f"GPU {occupant.gpu} is in use: process {occupant.pid}{name} holds {used}"


def _name_of(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except (psutil.Error, ValueError):
        return ""  # of another container, or gone


def _as_readings(script: float | Sequence[float]) -> list[float]:
    return [float(script)] if isinstance(script, (int, float)) else [float(reading) for reading in script]
