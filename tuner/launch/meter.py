"""What GPUs do while they work (power, clocks, heat, links), and what they are.

Every value is None where the GPU or the driver does not tell it. GPUs are counted as in `tuner.launch.gpus`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.errors import BrokenEnvironment
from tuner.launch.nvml import Nvml, as_text

# The numbers below are NVML's own (nvml.h); pynvml has them under names that changed with its versions.
THROTTLE_BITS = {
    0x002: "application-clocks",
    0x004: "sw-power-cap",
    0x008: "hw-slowdown",
    0x010: "sync-boost",
    0x020: "sw-thermal",
    0x040: "hw-thermal",
    0x080: "power-brake",
    0x100: "display-clocks",
    0x200: "board-limit",
    0x400: "reliability",
}
"""Why clocks are lower than they could be. Bit 0x001, an idle GPU, is no reason to complain."""

_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_TEMPERATURE_GPU = 0
_PCIE_TX, _PCIE_RX = 0, 1
_P2P_READ, _P2P_WRITE, _P2P_NVLINK = 0, 1, 2
_P2P_STATUS = {
    0: "ok",
    1: "the chipset cannot",
    2: "the GPU cannot",
    3: "the topology cannot",
    4: "switched off in the driver",
    5: "not supported",
}
_PATHS = {0: "X", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MIB = 1024 * 1024


@dataclass(frozen=True)
class GpuReading:
    """What a GPU does now. `throttle` are names of `THROTTLE_BITS`.

    The PCIe rates are what NVML counts over about 20 ms; `busy_percent` is the share of time in which a
    kernel ran, `memory_busy_percent` that in which memory was read or written.
    """

    gpu: int
    power_w: float | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    memory_used_mib: float | None = None
    busy_percent: int | None = None
    memory_busy_percent: int | None = None
    throttle: tuple[str, ...] = ()
    pcie_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


@dataclass(frozen=True)
class GpuFacts:
    """What a GPU is and how it is set up.

    The maximum of a PCIe link is that of the card in its slot; an idle link may run at a lower generation.
    `bar1_mib` is the window through which others reach its memory (Resizable BAR makes it the whole). `sm` is
    the compute capability times ten, 120 for 12.0: it decides which kernels there are.
    """

    gpu: int
    name: str = ""
    bus_id: str = ""
    memory_mib: float | None = None
    bar1_mib: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    power_limit_max_w: float | None = None
    sm_max_mhz: int | None = None
    memory_max_mhz: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    temperature_c: int | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    throttle: tuple[str, ...] = ()
    sm: int | None = None


@dataclass(frozen=True)
class GpuLink:
    """How two GPUs reach each other.

    `path` is what the two have in common, in the words of `nvidia-smi topo -m`: PIX (one PCIe switch), PXB
    (several), PHB (a host bridge), NODE (a socket), SYS (between sockets). `p2p` is "ok", or why one cannot
    read and write the other's memory.
    """

    first: int
    second: int
    path: str = ""
    p2p: str = ""
    nvlink: bool = False


@dataclass(frozen=True)
class DriverFacts:
    """Versions: of the driver, and of the newest CUDA that it runs."""

    driver: str = ""
    cuda: str = ""


class GpuMeter(Protocol):
    """Reads the GPUs of this machine. All but `reason` raise `BrokenEnvironment` where the driver fails."""

    @property
    def reason(self) -> str:
        """Why nothing can be read; empty where the GPUs can be read."""

    def driver(self) -> DriverFacts:
        """The driver's versions."""

    def facts(self, gpus: Iterable[int]) -> list[GpuFacts]:
        """What the GPUs are."""

    def links(self, gpus: Sequence[int]) -> list[GpuLink]:
        """How each two of them reach each other."""

    def read(self, gpus: Iterable[int], *, pcie: bool) -> list[GpuReading]:
        """What the GPUs do now. With `pcie` also the traffic, which takes some 40 ms for each GPU."""


class NullMeter:
    """The meter where there is no GPU, or none that NVML knows."""

    def __init__(self, reason: str = "no GPU meter was asked for") -> None:
        self._reason = reason

    @property
    def reason(self) -> str:
        """See `GpuMeter`."""
        return self._reason

    def driver(self) -> DriverFacts:
        """Nothing."""
        return DriverFacts()

    def facts(self, gpus: Iterable[int]) -> list[GpuFacts]:
        """Nothing."""
        return []

    def links(self, gpus: Sequence[int]) -> list[GpuLink]:
        """Nothing."""
        return []

    def read(self, gpus: Iterable[int], *, pcie: bool) -> list[GpuReading]:
        """Nothing."""
        return []


class FakeMeter:
    """GPUs out of a script, for trying things out and for tests where there are none.

    `readings` holds for each GPU what it shows, one after the other; the last one stays.
    """

    def __init__(
        self,
        readings: Mapping[int, Sequence[GpuReading]],
        *,
        facts: Sequence[GpuFacts] = (),
        links: Sequence[GpuLink] = (),
        driver: DriverFacts | None = None,
    ) -> None:
        self._readings = {gpu: list(script) for gpu, script in readings.items()}
        self._facts = list(facts)
        self._links = list(links)
        self._driver = driver or DriverFacts("600.00", "13.0")

    @property
    def reason(self) -> str:
        """See `GpuMeter`."""
        return ""

    def driver(self) -> DriverFacts:
        """See `GpuMeter`."""
        return self._driver

    def facts(self, gpus: Iterable[int]) -> list[GpuFacts]:
        """See `GpuMeter`."""
        wanted = set(gpus)
        return [facts for facts in self._facts if facts.gpu in wanted]

    def links(self, gpus: Sequence[int]) -> list[GpuLink]:
        """See `GpuMeter`."""
        return [link for link in self._links if link.first in gpus and link.second in gpus]

    def read(self, gpus: Iterable[int], *, pcie: bool) -> list[GpuReading]:
        """The next reading of each GPU."""
        found = []
        for gpu in gpus:
            script = self._readings.get(gpu, [])
            if script:
                found.append(script.pop(0) if len(script) > 1 else script[0])
        return found


class NvmlMeter:
    """The GPUs of this machine through NVML; `nvml` stands in for pynvml.

    Raises `BrokenEnvironment` where NVML cannot be used.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = Nvml(nvml)

    @property
    def reason(self) -> str:
        """See `GpuMeter`."""
        return ""

    def driver(self) -> DriverFacts:
        """See `GpuMeter`."""
        version = self._nvml.optional("nvmlSystemGetDriverVersion")
        cuda = self._nvml.optional("nvmlSystemGetCudaDriverVersion_v2")
        return DriverFacts(
            driver="" if version is None else as_text(version),
            cuda="" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def facts(self, gpus: Iterable[int]) -> list[GpuFacts]:
        """See `GpuMeter`."""
        return [self._facts(gpu) for gpu in gpus]

    def links(self, gpus: Sequence[int]) -> list[GpuLink]:
        """See `GpuMeter`."""
        return [self._link(first, second) for index, first in enumerate(gpus) for second in gpus[index + 1 :]]

    def read(self, gpus: Iterable[int], *, pcie: bool) -> list[GpuReading]:
        """See `GpuMeter`."""
        return [self._read(gpu, pcie=pcie) for gpu in gpus]

    def _read(self, gpu: int, *, pcie: bool) -> GpuReading:
        ask, device = self._nvml.optional, self._nvml.device(gpu)
        busy = ask("nvmlDeviceGetUtilizationRates", device)
        memory = self._nvml.memory(device)
        return GpuReading(
            gpu=gpu,
            power_w=_scaled(ask("nvmlDeviceGetPowerUsage", device), 1e-3),
            sm_mhz=ask("nvmlDeviceGetClockInfo", device, _CLOCK_SM),
            memory_mhz=ask("nvmlDeviceGetClockInfo", device, _CLOCK_MEMORY),
            temperature_c=ask("nvmlDeviceGetTemperature", device, _TEMPERATURE_GPU),
            memory_used_mib=None if memory is None else memory.used / _MIB,
            busy_percent=None if busy is None else busy.gpu,
            memory_busy_percent=None if busy is None else busy.memory,
            throttle=self._throttle(device),
            # NVML counts in KB of 1024 bytes.
            pcie_rx_mib_s=_scaled(ask("nvmlDeviceGetPcieThroughput", device, _PCIE_RX), 1 / 1024)
            if pcie
            else None,
            pcie_tx_mib_s=_scaled(ask("nvmlDeviceGetPcieThroughput", device, _PCIE_TX), 1 / 1024)
            if pcie
            else None,
            pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration", device),
            pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth", device),
        )

    def _facts(self, gpu: int) -> GpuFacts:
        ask, device = self._nvml.optional, self._nvml.device(gpu)
        name = ask("nvmlDeviceGetName", device)
        pci = ask("nvmlDeviceGetPciInfo", device)
        memory = self._nvml.memory(device)
        bar1 = ask("nvmlDeviceGetBAR1MemoryInfo", device)
        limits_mw = ask("nvmlDeviceGetPowerManagementLimitConstraints", device)
        ecc = ask("nvmlDeviceGetEccMode", device)
        mig = ask("nvmlDeviceGetMigMode", device)
        capability = ask("nvmlDeviceGetCudaComputeCapability", device)
        return GpuFacts(
            gpu=gpu,
            name="" if name is None else as_text(name),
            bus_id="" if pci is None else as_text(pci.busId),
            memory_mib=None if memory is None else memory.total / _MIB,
            bar1_mib=None if bar1 is None else bar1.bar1Total / _MIB,
            power_limit_w=_scaled(ask("nvmlDeviceGetEnforcedPowerLimit", device), 1e-3),
            power_limit_default_w=_scaled(ask("nvmlDeviceGetPowerManagementDefaultLimit", device), 1e-3),
            power_limit_max_w=None if limits_mw is None else limits_mw[1] * 1e-3,
            sm_max_mhz=ask("nvmlDeviceGetMaxClockInfo", device, _CLOCK_SM),
            memory_max_mhz=ask("nvmlDeviceGetMaxClockInfo", device, _CLOCK_MEMORY),
            pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration", device),
            pcie_generation_max=ask("nvmlDeviceGetMaxPcieLinkGeneration", device),
            pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth", device),
            pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth", device),
            temperature_c=ask("nvmlDeviceGetTemperature", device, _TEMPERATURE_GPU),
            persistence=_as_bool(ask("nvmlDeviceGetPersistenceMode", device)),
            ecc=None if ecc is None else _as_bool(ecc[0]),
            mig=None if mig is None else _as_bool(mig[0]),
            throttle=self._throttle(device),
            sm=None if capability is None else capability[0] * 10 + capability[1],
        )

    def _link(self, first: int, second: int) -> GpuLink:
        one, other = self._nvml.device(first), self._nvml.device(second)
        ancestor = self._nvml.optional("nvmlDeviceGetTopologyCommonAncestor", one, other)
        states = [
            self._nvml.optional("nvmlDeviceGetP2PStatus", a, b, what)
            for a, b in ((one, other), (other, one))
            for what in (_P2P_READ, _P2P_WRITE)
        ]
        worst = max((state for state in states if state is not None), default=None)
        nvlink = self._nvml.optional("nvmlDeviceGetP2PStatus", one, other, _P2P_NVLINK)
        return GpuLink(
            first=first,
            second=second,
            path="" if ancestor is None else _PATHS.get(ancestor, str(ancestor)),
            p2p="" if worst is None else _P2P_STATUS.get(worst, "unknown"),
            nvlink=nvlink == 0,
        )

    def _throttle(self, device: Any) -> tuple[str, ...]:
        bits = self._nvml.optional("nvmlDeviceGetCurrentClocksEventReasons", device)
        if bits is None:  # the name until driver 535
            bits = self._nvml.optional("nvmlDeviceGetCurrentClocksThrottleReasons", device)
        return throttle_names(bits or 0)


def throttle_names(bits: int) -> tuple[str, ...]:
    """The names of the reasons that are set, in the order of their bits."""
    return tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit)


def find_meter(nvml: Any = None) -> GpuMeter:
    """The meter for this machine: NVML where it works, otherwise one that reads nothing and says why."""
    try:
        # Asking for the GPUs shows whether the driver is there.
        count = Nvml(nvml).count()
        return NvmlMeter(nvml) if count else NullMeter("NVML finds no GPU in this machine")
    except BrokenEnvironment as error:
        return NullMeter(error.message)


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _as_bool(value: int | None) -> bool | None:
    return None if value is None else bool(value)
