"""The audit on planted machines: each costly thing is found, with a reason and a cure, and nothing else is."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.errors import BrokenEnvironment
from tuner.launch.gpus import FakeProbe, NullProbe, Occupant, find_probe
from tuner.launch.meter import FakeMeter, GpuFacts, GpuLink, NullMeter, find_meter
from tuner.telemetry.audit import Box, PlatformAudit, audit
from tuner.telemetry.finding import Finding

GOOD_GPU = {
    "name": "NVIDIA RTX PRO 6000", "memory_mib": 97_887.0, "bar1_mib": 131_072.0, "power_limit_w": 600.0,
    "power_limit_default_w": 600.0, "pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 16,
    "pcie_width_max": 16, "temperature_c": 35, "persistence": True, "ecc": True, "mig": False,
}  # fmt: skip
GOOD_FILES = {
    "proc/cpuinfo": "".join(f"processor\t: {n}\nmodel name\t: AMD EPYC 9575F\nflags\t\t: fpu sse\n\n" for n in range(64)),
    "proc/meminfo": "MemTotal: 1056964608 kB\nMemAvailable: 990000000 kB\nSwapTotal: 8000000 kB\nSwapFree: 8000000 kB",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 iommu=off pcie_aspm=off quiet",
    "proc/sys/kernel/osrelease": "6.14.0-37-generic",
    "proc/sys/kernel/numa_balancing": "0",
    "proc/self/limits": "Limit Soft Hard Units\nMax open files            1048576              1048576              files",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.58.03",
    "proc/driver/nvidia/params": 'EnableMSI: 1\nRegistryDwords: "ForceP2P=0x11"',
    "sys/fs/cgroup/cpu.max": "max 100000",
    "sys/fs/cgroup/memory.max": "max",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
    "sys/devices/system/node/node0/cpulist": "0-31",
    "sys/devices/system/node/node1/cpulist": "32-63",
    "sys/module/pcie_aspm/parameters/policy": "[default] performance powersave powersupersave",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "dev/shm/.keep": "",
    "venv/lib/python3.12/site-packages/nvidia_nccl_cu13-2.29.2.dist-info/METADATA": "",
}  # fmt: skip
PAIR = [GpuLink(0, 1, "NODE", "ok")]


def look(
    root: Path,
    *,
    files: dict[str, str | bytes] | None = None,
    gpu: dict[str, object] | None = None,
    links: Sequence[GpuLink] = PAIR,
    occupants: Sequence[Occupant] = (),
    variables: tuple[str, ...] = (),
    weights_gib: float | None = None,
) -> PlatformAudit:
    """The audit of a good machine with two GPUs, apart from what is given."""
    for name, content in {**GOOD_FILES, **(files or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    facts = [GpuFacts(0, **GOOD_GPU), GpuFacts(1, **{**GOOD_GPU, **(gpu or {})})]  # type: ignore[arg-type]
    box = Box((0, 1), Path("/study"), Path("/venv/bin/python"), weights_gib, variables)
    meter, probe = FakeMeter({}, facts=facts, links=links), FakeProbe({0: 0.0, 1: 0.0}, occupants=occupants)
    return audit(box, meter, probe, root=root)


def value(found: PlatformAudit, what: str) -> str:
    (finding,) = [finding for finding in found.findings if finding.what == what]
    return finding.value


def test_a_good_machine_is_described_and_not_warned_of(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert found.warnings == ()
    assert value(found, "GPUs") == "2x NVIDIA RTX PRO 6000"
    assert value(found, "NCCL") == "2.29.2"
    assert value(found, "driver") == "600.00"
    assert value(found, "module options") == "ForceP2P=0x11"
    assert value(found, "topology") == "NODE for 1 pairs"
    assert value(found, "CPU") == "64 logical cores, AMD EPYC 9575F"
    assert value(found, "IOMMU") == "off iommu=off"
    assert value(found, "NUMA nodes") == "2"
    assert "idle links may rest" in value(found, "PCIe links")


COSTLY_GPUS: list[tuple[str, dict[str, object], str]] = [
    ("GPUs", {"name": "NVIDIA RTX A6000"}, "1x NVIDIA RTX A6000"),
    ("power limit", {"power_limit_w": 300.0}, "GPU 1: 300 W of 600 W"),
    ("PCIe width", {"pcie_width": 8}, "GPU 1: x8 of x16"),
    ("BAR1", {"bar1_mib": 256.0}, "256 MiB"),
    ("persistence mode", {"persistence": False}, "off on GPU 1"),
    ("MIG", {"mig": True}, "GPU 1"),
    ("throttled before any load", {"throttle": ("power-brake",)}, "power-brake"),
    ("temperature before any load", {"temperature_c": 82}, "82 °C"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "gpu", "shown"), COSTLY_GPUS, ids=[what for what, *_ in COSTLY_GPUS])
def test_costly_gpus(tmp_path: Path, what: str, gpu: dict[str, object], shown: str) -> None:
    check_only(look(tmp_path, gpu=gpu), what, shown)


def bridge(acs_control: int) -> bytes:
    """The configuration space of a PCI bridge with AER and then ACS among its extended capabilities."""
    config = bytearray(0x200)
    config[0x0A:0x0C] = b"\x04\x06"
    config[0x100:0x104] = (0x0001 | 0x1 << 16 | 0x148 << 20).to_bytes(4, "little")
    config[0x148:0x14C] = (0x000D | 0x1 << 16).to_bytes(4, "little")
    config[0x14E:0x150] = acs_control.to_bytes(2, "little")
    return bytes(config)


COSTLY_FILES: list[tuple[str, dict[str, str | bytes], str]] = [
    ("CPU governor", {"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "schedutil"}, "schedutil on 1"),
    ("IOMMU", {"sys/kernel/iommu_groups/0/type": "DMA", "proc/cmdline": "quiet amd_iommu=on"}, "on, 1 groups amd_iommu=on"),
    ("ACS", {"sys/bus/pci/devices/0000:40:01.1/config": bridge(0x1D)}, "0000:40:01.1"),
    ("PCIe power saving", {"sys/module/pcie_aspm/parameters/policy": "default performance [powersave]"}, "powersave"),
    ("NUMA balancing", {"proc/sys/kernel/numa_balancing": "1"}, "on"),
    ("CPUs that may be used", {"sys/fs/cgroup/cpu.max": "300000 100000"}, "3"),
    ("open files", {"proc/self/limits": "Max open files            1024                 1048576   files"}, "1024"),
    ("swap", {"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 8000000 kB\nSwapTotal: 8388608 kB\nSwapFree: 2097152 kB"}, "6.0 GiB"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "files", "shown"), COSTLY_FILES, ids=[what for what, *_ in COSTLY_FILES])
def test_costly_hosts(tmp_path: Path, what: str, files: dict[str, str | bytes], shown: str) -> None:
    check_only(look(tmp_path, files=files), what, shown)


def check_only(found: PlatformAudit, what: str, shown: str) -> None:
    assert [warning.what for warning in found.warnings] == [what]
    (warning,) = found.warnings
    assert shown in warning.value
    assert warning.why and warning.cure


HARMLESS: list[dict[str, str | bytes]] = [
    {"sys/kernel/iommu_groups/0/type": "identity", "proc/cmdline": "amd_iommu=on iommu=pt"},
    {"sys/bus/pci/devices/0000:40:01.1/config": bridge(0x01)},  # source validation redirects nothing
    {"sys/bus/pci/devices/0000:40:01.1/config": bridge(0x1D)[:64]},  # what a user may read
    {"sys/bus/pci/devices/0000:40:01.1/config": bytes(0x0A) + b"\x04\x06" + b"\xff" * 0x200},
    {
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "amd-pstate-epp",
        "sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference": "performance",
    },
]


@pytest.mark.parametrize("files", HARMLESS)
def test_what_looks_costly_and_is_not(tmp_path: Path, files: dict[str, str | bytes]) -> None:
    assert look(tmp_path, files=files).warnings == ()


def test_gpus_that_cannot_reach_each_other(tmp_path: Path) -> None:
    check_only(
        look(tmp_path, links=[GpuLink(0, 1, "SYS", "switched off in the driver")]),
        "peer-to-peer",
        "1 of 1 pairs",
    )


def test_sockets_between_gpus_are_told_unless_the_study_deals_with_them(tmp_path: Path) -> None:
    across = [GpuLink(0, 1, "SYS", "ok")]
    check_only(look(tmp_path, links=across), "GPUs on several sockets", "1 of 1 pairs")
    assert look(tmp_path, links=across, variables=("NCCL_P2P_LEVEL",)).warnings == ()
    assert look(tmp_path, links=[GpuLink(0, 1, "SYS", "ok", nvlink=True)]).warnings == ()


def test_other_users_of_the_gpus(tmp_path: Path) -> None:
    check_only(
        look(tmp_path, occupants=[Occupant(1, 4711, 900.0, "python")]),
        "other users of the GPUs",
        "4711 (python)",
    )


def test_weights_that_do_not_stay_in_memory(tmp_path: Path) -> None:
    limited: dict[str, str | bytes] = {"sys/fs/cgroup/memory.max": str(64 * 1024**3)}
    check_only(
        look(tmp_path, files=limited, weights_gib=555.0), "page cache", "64 GiB for weights of 555 GiB"
    )
    assert look(tmp_path, weights_gib=40.0).warnings == ()


def test_a_small_shared_memory_is_told_to_those_with_several_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(path: Path) -> os.statvfs_result:
        size = 64 * 1024**2 if path.name == "shm" else 1 << 40
        return type("Usage", (), {"total": size, "used": 0, "free": size})()  # type: ignore[no-any-return]

    monkeypatch.setattr("tuner.telemetry.files.shutil.disk_usage", usage)
    check_only(look(tmp_path), "shared memory", "0.1 GiB")


def test_an_empty_root_and_no_gpu_give_an_audit(tmp_path: Path) -> None:
    found = audit(Box((), Path("/study")), NullMeter("no driver"), NullProbe(), root=tmp_path / "nothing")
    assert value(found, "GPU telemetry") == "none: no driver"
    assert found.warnings == ()


def test_a_driver_that_fails_and_a_file_that_is_odd_are_findings(tmp_path: Path) -> None:
    class Lost(FakeMeter):
        def links(self, gpus: Sequence[int]) -> list[GpuLink]:
            raise BrokenEnvironment("GPU is lost", hint="reboot")

        def facts(self, gpus: object) -> list[GpuFacts]:
            raise ZeroDivisionError

    found = audit(Box((0, 1), Path("/study")), Lost({}), FakeProbe({0: 0.0, 1: 0.0}), root=tmp_path)
    assert Finding.costly("topology", "cannot be read", "GPU is lost", "reboot") in found.warnings
    assert "ZeroDivisionError" in value(found, "GPUs")


def test_an_audit_is_json_and_lines(tmp_path: Path) -> None:
    found = look(tmp_path, gpu={"power_limit_w": 300.0})
    assert PlatformAudit.from_json(json.loads(json.dumps(found.to_json()))) == found
    lines = [finding.shown() for finding in found.findings]
    assert "kernel: 6.14.0-37-generic" in lines
    warning = next(line for line in lines if line.startswith("power limit: GPU 1: 300 W of 600 W ("))
    assert "nvidia-smi -pl" in warning


@pytest.mark.serial
def test_this_machine_is_audited_quickly() -> None:
    began_s = time.monotonic()
    found = audit(Box((), Path.cwd()), find_meter(), find_probe())
    assert time.monotonic() - began_s < 2
    assert found.findings
