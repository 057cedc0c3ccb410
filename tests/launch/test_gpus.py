"""The NVML probe against a stand-in module that answers as NVML does; the null and the fake probe."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.errors import BrokenEnvironment
from tuner.launch.gpus import FakeProbe, NullProbe, NvmlProbe, Occupant, check_free, find_probe

GIB = 1024**3


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class FakeNvml:
    """The part of pynvml that is used. A GPU's answer may be an error code instead of bytes used."""

    used_bytes: list[int] = field(default_factory=list)
    reserved_bytes: int = 700 * 1024**2
    processes: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, int] = field(default_factory=dict)
    init_error: int | None = None
    knows_v2: bool = True
    name: str | bytes = "NVIDIA RTX PRO 6000 Blackwell Server Edition"

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    nvmlMemory_v2 = 0x02000028

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise NVMLError(self.init_error)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.used_bytes)

    def nvmlDeviceGetHandleByIndex(self, gpu: int) -> int:
        return gpu

    def nvmlDeviceGetName(self, gpu: int) -> str | bytes:
        return self.name

    def nvmlDeviceGetMemoryInfo(self, gpu: int, version: int | None = None) -> SimpleNamespace:
        if gpu in self.errors:
            raise NVMLError(self.errors[gpu])
        if version is None:
            return SimpleNamespace(used=self.used_bytes[gpu] + self.reserved_bytes)
        if not self.knows_v2:
            raise NVMLError(self.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(used=self.used_bytes[gpu])

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: int) -> list[SimpleNamespace]:
        answer = self.processes.get(gpu, [])
        if isinstance(answer, int):
            raise NVMLError(answer)
        return list(answer)


def test_memory_does_not_count_what_the_driver_keeps_for_itself() -> None:
    probe = NvmlProbe(FakeNvml(used_bytes=[0, 2 * GIB]))
    assert probe.memory_used_mib([0, 1]) == {0: 0.0, 1: 2048.0}
    assert probe.count() == 2


def test_an_old_driver_counts_it() -> None:
    probe = NvmlProbe(FakeNvml(used_bytes=[GIB], knows_v2=False))
    assert probe.memory_used_mib([0]) == {0: 1724.0}


def test_a_gpu_that_does_not_report_memory_is_left_out() -> None:
    nvml = FakeNvml(used_bytes=[GIB, GIB], errors={0: FakeNvml.NVML_ERROR_NOT_SUPPORTED})
    assert NvmlProbe(nvml).memory_used_mib([0, 1]) == {1: 1024.0}


def test_a_lost_gpu_breaks_the_environment() -> None:
    probe = NvmlProbe(FakeNvml(used_bytes=[GIB], errors={0: 15}))
    with pytest.raises(BrokenEnvironment, match="NVML error 15"):
        probe.memory_used_mib([0])


def test_processes_are_told_with_their_names_where_they_can_be_seen() -> None:
    unseen = 2**22 + 1
    processes = [
        SimpleNamespace(pid=os.getpid(), usedGpuMemory=GIB),
        SimpleNamespace(pid=unseen, usedGpuMemory=None),
    ]
    found = NvmlProbe(FakeNvml(used_bytes=[0, 0], processes={1: processes})).occupants([0, 1])
    assert [(occupant.gpu, occupant.pid, occupant.used_mib) for occupant in found] == [
        (1, os.getpid(), 1024.0),
        (1, unseen, None),
    ]
    assert found[0].name
    assert found[1].name == ""


def test_processes_that_may_not_be_asked_for_are_none() -> None:
    nvml = FakeNvml(used_bytes=[0], processes={0: FakeNvml.NVML_ERROR_NO_PERMISSION})
    assert NvmlProbe(nvml).occupants([0]) == []


@pytest.mark.parametrize("name", ["NVIDIA H200", b"NVIDIA H200"])
def test_names_are_text(name: str | bytes) -> None:
    assert NvmlProbe(FakeNvml(used_bytes=[0, 0], name=name)).names() == ["NVIDIA H200"] * 2


def test_the_probe_of_a_machine_with_gpus_uses_nvml() -> None:
    probe = find_probe(FakeNvml(used_bytes=[0]))
    assert isinstance(probe, NvmlProbe)
    assert probe.reason == ""


@pytest.mark.parametrize(
    ("nvml", "reason"), [(FakeNvml(init_error=12), "NVML error 12"), (FakeNvml(), "no GPU")]
)
def test_the_probe_of_a_machine_without_gpus_says_why(nvml: FakeNvml, reason: str) -> None:
    probe = find_probe(nvml)
    assert isinstance(probe, NullProbe)
    assert reason in probe.reason
    assert probe.count() is None
    assert probe.memory_used_mib([0]) == {}
    assert probe.occupants([0]) == []
    assert probe.names() == []


def test_find_probe_never_fails_on_this_machine() -> None:
    probe = find_probe()
    assert isinstance(probe, NvmlProbe) or probe.reason


def test_every_occupied_gpu_is_named_in_one_message() -> None:
    probe = FakeProbe({0: 0.0, 1: 5_000.0, 2: 1_024.0}, occupants=[Occupant(0, 77, None, "Xorg")])
    with pytest.raises(BrokenEnvironment) as refused:
        check_free(probe, (0, 1, 2))
    assert "GPU 0 is in use: process 77 (Xorg) holds memory of unknown size" in refused.value.message
    assert "GPU 1 has 5000 MiB" in refused.value.message
    assert "GPU 2" not in refused.value.message


def test_a_fake_probe_follows_its_script() -> None:
    probe = FakeProbe({0: [1.0, 2.0], 1: 5.0}, name="GPU of the script")
    assert [probe.memory_used_mib([0])[0] for _ in range(3)] == [1.0, 2.0, 2.0]
    assert probe.memory_used_mib([0, 1, 2]) == {0: 2.0, 1: 5.0}
    assert probe.names() == ["GPU of the script"] * 2
    probe.set_occupants(Occupant(1, 8, 3.0))
    assert probe.occupants([1]) == [Occupant(1, 8, 3.0)]
    assert probe.occupants([0]) == []
