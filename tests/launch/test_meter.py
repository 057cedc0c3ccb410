"""The NVML meter against a stand-in module that answers as NVML does, also with "not supported"."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.errors import BrokenEnvironment
from tuner.launch.meter import GpuLink, GpuReading, NullMeter, NvmlMeter, find_meter, throttle_names

MIB = 1024**2


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class FakeNvml:
    """Answers by function name; an `NVMLError` among them is raised. What is not named is not supported."""

    answers: dict[str, Any] = field(default_factory=dict)
    gpus: int = 2

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_FUNCTION_NOT_FOUND = 13

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, gpu: int) -> int:
        return gpu

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name == "nvmlMemory_v2":
            raise AttributeError(name)

        def function(*arguments: Any) -> Any:
            answer = self.answers.get(name, NVMLError(self.NVML_ERROR_NOT_SUPPORTED))
            answer = answer(*arguments) if callable(answer) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return function


BUSY = {
    "nvmlDeviceGetPowerUsage": 412_500,
    "nvmlDeviceGetClockInfo": lambda device, kind: {1: 2430, 2: 12481}[kind],
    "nvmlDeviceGetTemperature": 71,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=80_000 * MIB, total=97_887 * MIB),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=99, memory=63),
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x80,
    "nvmlDeviceGetPcieThroughput": lambda device, counter: {0: 2048, 1: 10240}[counter],
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
}


def test_a_reading_is_in_the_units_of_its_names() -> None:
    (reading,) = NvmlMeter(FakeNvml(BUSY)).read([1], pcie=True)
    assert reading == GpuReading(
        gpu=1,
        power_w=412.5,
        sm_mhz=2430,
        memory_mhz=12481,
        temperature_c=71,
        memory_used_mib=80_000,
        busy_percent=99,
        memory_busy_percent=63,
        throttle=("sw-power-cap", "power-brake"),
        pcie_rx_mib_s=10.0,
        pcie_tx_mib_s=2.0,
        pcie_generation=5,
        pcie_width=16,
    )


def test_slow_traffic_counters_are_read_only_when_asked_for() -> None:
    (reading,) = NvmlMeter(FakeNvml(BUSY)).read([0], pcie=False)
    assert reading.pcie_rx_mib_s is None
    assert reading.power_w == 412.5


def test_what_a_gpu_does_not_support_is_left_out() -> None:
    meter = NvmlMeter(FakeNvml())
    assert meter.read([0], pcie=True) == [GpuReading(gpu=0)]
    (facts,) = meter.facts([0])
    assert (facts.name, facts.power_limit_w, facts.mig, facts.sm) == ("", None, None, None)
    assert meter.links([0, 1]) == [GpuLink(0, 1)]
    assert meter.driver().driver == ""


def test_the_compute_capability_is_told_as_kernels_are_named() -> None:
    (facts,) = NvmlMeter(FakeNvml({"nvmlDeviceGetCudaComputeCapability": [12, 0]})).facts([0])
    assert facts.sm == 120


def test_old_drivers_know_throttling_by_its_old_name() -> None:
    old = {
        "nvmlDeviceGetCurrentClocksEventReasons": NVMLError(13),
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
    }
    (reading,) = NvmlMeter(FakeNvml(old)).read([0], pcie=False)
    assert reading.throttle == ("hw-thermal",)


def test_a_gpu_that_fell_off_the_bus_breaks_the_environment() -> None:
    with pytest.raises(BrokenEnvironment, match="NVML error 15"):
        NvmlMeter(FakeNvml({"nvmlDeviceGetPowerUsage": NVMLError(15)})).read([0], pcie=False)


def test_facts_of_a_gpu() -> None:
    nvml = FakeNvml(
        {
            **BUSY,
            "nvmlDeviceGetName": b"NVIDIA RTX PRO 6000",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:41:00.0"),
            "nvmlDeviceGetBAR1MemoryInfo": SimpleNamespace(bar1Total=256 * MIB),
            "nvmlDeviceGetEnforcedPowerLimit": 300_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": 600_000,
            "nvmlDeviceGetPowerManagementLimitConstraints": [150_000, 600_000],
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetPersistenceMode": 0,
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlSystemGetDriverVersion": "595.58.03",
            "nvmlSystemGetCudaDriverVersion_v2": 13010,
        }
    )
    meter = NvmlMeter(nvml)
    (facts,) = meter.facts([0])
    assert (facts.name, facts.bus_id) == ("NVIDIA RTX PRO 6000", "00000000:41:00.0")
    assert (facts.power_limit_w, facts.power_limit_default_w, facts.power_limit_max_w) == (300, 600, 600)
    assert (facts.memory_mib, facts.bar1_mib) == (97_887, 256)
    assert (facts.persistence, facts.ecc, facts.mig) == (False, True, False)
    assert (meter.driver().driver, meter.driver().cuda) == ("595.58.03", "13.1")


def test_one_direction_without_peer_to_peer_is_no_peer_to_peer() -> None:
    nvml = FakeNvml(
        {
            "nvmlDeviceGetTopologyCommonAncestor": lambda one, other: 50 if one + other == 3 else 30,
            "nvmlDeviceGetP2PStatus": lambda one, other, what: (
                5 if what == 2 else 4 if (one, other) == (2, 1) else 0
            ),
        },
        gpus=3,
    )
    links = {(link.first, link.second): link for link in NvmlMeter(nvml).links([0, 1, 2])}
    assert len(links) == 3
    assert links[0, 1] == GpuLink(0, 1, "PHB", "ok")
    assert links[1, 2] == GpuLink(1, 2, "SYS", "switched off in the driver")


@pytest.mark.parametrize(
    ("bits", "names"), [(0x0, ()), (0x1, ()), (0x28, ("hw-slowdown", "sw-thermal")), (1 << 40, ())]
)
def test_names_of_throttle_bits(bits: int, names: tuple[str, ...]) -> None:
    assert throttle_names(bits) == names


def test_without_gpus_nothing_is_read_and_the_reason_is_told() -> None:
    meter = find_meter(FakeNvml(gpus=0))
    assert isinstance(meter, NullMeter)
    assert "no GPU" in meter.reason
    assert (meter.read([0], pcie=True), meter.facts([0]), meter.links([0, 1])) == ([], [], [])
    assert isinstance(find_meter(FakeNvml()), NvmlMeter)


def test_a_machine_without_a_driver_has_the_null_meter() -> None:
    broken = FakeNvml({})
    broken.nvmlDeviceGetCount = lambda: (_ for _ in ()).throw(NVMLError(9))  # type: ignore[method-assign]
    assert "NVML error 9" in find_meter(broken).reason
