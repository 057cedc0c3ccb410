"""What the audit finds out about CPUs, memory, kernel, disks and the server's installation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tuner.telemetry.files import SystemFiles
from tuner.telemetry.finding import Finding

_GIB = 1024**3
_KIB_PER_GIB = 1024**2
_SHM_LEAST_GIB = 1.0
_DISK_LEAST_GIB = 5.0
_OPEN_FILES_LEAST = 4096
_CPUS = "sys/devices/system/cpu"


def cpu_findings(files: SystemFiles, gpu_count: int) -> list[Finding]:
    """Cores, what of them may be used, and how they are clocked."""
    found = []
    info = files.text("proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    cores = len(re.findall(r"^processor\s*:", info, re.MULTILINE))
    if cores:
        found.append(Finding("CPU", f"{cores} logical cores" + (f", {model[1].strip()}" if model else "")))
    if re.search(r"^flags\s*:.*\bhypervisor\b", info, re.MULTILINE):
        found.append(Finding("virtual machine", "yes: another one on the same host can slow this one down"))
    quota = _cpu_quota(files)
    allowed = min(cores, quota) if cores and quota else quota or cores
    # One scheduler for each GPU, which polls without rest; HTTP and tokenizer; detokenizer; the client.
    wanted = gpu_count + 3
    if allowed and allowed < wanted:
        found.append(
            Finding.costly(
                "CPUs that may be used",
                f"{allowed:g}",
                f"a server on {gpu_count} GPUs and its load keep {wanted} cores busy; with fewer they wait "
                "for each other",
                "raise the container's limit of CPUs",
            )
        )
    return [*found, *_governor(files)]


def memory_findings(files: SystemFiles, weights_gib: float | None) -> list[Finding]:
    """Memory, what the container may use of it, swap, huge pages."""
    info = {
        name: int(kib) / _KIB_PER_GIB
        for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", files.text("proc/meminfo"), re.MULTILINE)
    }
    total_gib, available_gib = info.get("MemTotal"), info.get("MemAvailable")
    found = []
    if total_gib and available_gib is not None:
        found.append(Finding("memory", f"{total_gib:.0f} GiB, {available_gib:.0f} GiB of it available"))
    limit = files.number("sys/fs/cgroup/memory.max")
    limit_gib = limit / _GIB if limit else None
    if limit_gib and total_gib and limit_gib < total_gib:
        found.append(Finding("memory limit of the container", f"{limit_gib:.0f} GiB"))
    usable = [amount for amount in (available_gib, limit_gib) if amount is not None]
    if weights_gib is not None and usable and min(usable) < weights_gib:
        found.append(
            Finding.costly(
                "page cache",
                f"{min(usable):.0f} GiB for weights of {weights_gib:.0f} GiB",
                "the weights do not stay in memory, so every launch reads them from disk again",
                "more memory or a higher limit for the container; otherwise count on slow starts",
            )
        )
    swap_used_gib = info.get("SwapTotal", 0.0) - info.get("SwapFree", 0.0)
    if swap_used_gib > 1.0:
        found.append(
            Finding.costly(
                "swap",
                f"{swap_used_gib:.1f} GiB in use",
                "the machine was short of memory; processes that are swapped out answer late",
                "end what needs the memory",
            )
        )
    huge = _selected(files.text("sys/kernel/mm/transparent_hugepage/enabled"))
    return [*found, Finding("transparent huge pages", huge)] if huge else found


def kernel_findings(files: SystemFiles, gpu_count: int) -> list[Finding]:
    """Kernel, IOMMU, ACS, power saving of PCIe, NUMA."""
    options = files.kernel_options()
    release = files.text("proc/sys/kernel/osrelease")
    found = [Finding("kernel", release)] if release else []
    found += _iommu(files, options, gpu_count)
    found += _acs(files, options, gpu_count)
    policy = _selected(files.text("sys/module/pcie_aspm/parameters/policy"))
    if policy.startswith("powersave"):
        found.append(
            Finding.costly(
                "PCIe power saving",
                policy,
                "resting links wake up late, and on some boards the GPU drops off the bus",
                "boot with pcie_aspm=off, or echo performance > /sys/module/pcie_aspm/parameters/policy",
            )
        )
    return [*found, *_numa(files)]


def disk_findings(files: SystemFiles, folder: Path, gpu_count: int) -> list[Finding]:
    """Shared memory, the disk of the study, and open files."""
    found = []
    shm = files.space("dev/shm")
    if shm is not None:
        shown = f"{shm.total / _GIB:.1f} GiB in /dev/shm"
        found.append(
            Finding.costly(
                "shared memory",
                shown,
                "NCCL and the server's processes exchange data there; a full one ends them with a bus error",
                "docker run --ipc=host, or --shm-size 32g",
            )
            if gpu_count > 1 and shm.total < _SHM_LEAST_GIB * _GIB
            else Finding("shared memory", shown)
        )
    disk = files.space(str(folder))
    if disk is not None:
        shown = f"{disk.free / _GIB:.0f} GiB free for {folder}"
        found.append(
            Finding.costly("disk", shown, "logs and samples of a study take some GiB", "make room")
            if disk.free < _DISK_LEAST_GIB * _GIB
            else Finding("disk", shown)
        )
    limit = re.search(r"^Max open files\s+(\d+)", files.text("proc/self/limits"), re.MULTILINE)
    if limit and int(limit[1]) < _OPEN_FILES_LEAST:
        found.append(
            Finding.costly(
                "open files",
                limit[1],
                "each running request is an open connection, in the client and in the server",
                "ulimit -n 65536",
            )
        )
    return found


def installation_findings(files: SystemFiles, python: Path | None) -> list[Finding]:
    """The NCCL beside the server's Python, told from the names of its packages; nothing is imported."""
    if python is None:
        return []
    library = f"{python.parent.parent}/lib"
    for version in files.names(library):
        for name in files.names(f"{library}/{version}/site-packages"):
            found = re.fullmatch(r"nvidia_nccl_cu\d+-(.+)\.dist-info", name)
            if found:
                return [Finding("NCCL", found[1])]
    return []


def _cpu_quota(files: SystemFiles) -> float | None:
    """CPUs that the container may use at once (cgroup v2), or None where it has no limit."""
    quota, _, period = files.text("sys/fs/cgroup/cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _governor(files: SystemFiles) -> list[Finding]:
    cpus = [name for name in files.names(_CPUS) if re.fullmatch(r"cpu\d+", name)]
    governors = Counter(
        governor for cpu in cpus if (governor := files.text(f"{_CPUS}/{cpu}/cpufreq/scaling_governor"))
    )
    if not governors:
        return []
    shown = ", ".join(f"{governor} on {count} cores" for governor, count in governors.most_common())
    # With these two drivers `powersave` scales with the load, and the preference says how eagerly.
    driver = files.text(f"{_CPUS}/cpu0/cpufreq/scaling_driver")
    eager = files.text(f"{_CPUS}/cpu0/cpufreq/energy_performance_preference")
    if set(governors) == {"performance"}:
        return [Finding("CPU governor", shown)]
    if driver in ("intel_pstate", "amd-pstate-epp") and eager == "performance":
        return [Finding("CPU governor", f"{shown} (preference: {eager})")]
    return [
        Finding.costly(
            "CPU governor",
            shown,
            "every decode step waits for the scheduler's Python on the CPU: cores at half their clock cost "
            "decode speed and doubled the time to the first token",
            "cpupower frequency-set -g performance, as root",
        )
    ]


def _iommu(files: SystemFiles, options: dict[str, str], gpu_count: int) -> list[Finding]:
    groups = len(files.names("sys/kernel/iommu_groups"))
    words = [f"{name}={options[name]}" for name in ("iommu", "amd_iommu", "intel_iommu") if options.get(name)]
    if not groups:
        return [Finding("IOMMU", " ".join(["off", *words]))]
    shown = " ".join([f"on, {groups} groups", *words])
    if gpu_count < 2 or options.get("iommu") == "pt":
        return [Finding("IOMMU", shown)]
    return [
        Finding.costly(
            "IOMMU",
            shown,
            "traffic between GPUs goes through its translation: slower, and on some boards NCCL hangs at the "
            "start with all GPUs at 100 %",
            "boot with iommu=off (or amd_iommu=off), at least with iommu=pt",
        )
    ]


def _acs(files: SystemFiles, options: dict[str, str], gpu_count: int) -> list[Finding]:
    """Only root may read the registers; others see nothing, and nothing is said then."""
    redirecting = [
        device
        for device in files.names("sys/bus/pci/devices")
        if _redirects(files.data(f"sys/bus/pci/devices/{device}/config"))
    ]
    if not redirecting or gpu_count < 2:
        override = options.get("pcie_acs_override")
        return [Finding("ACS", f"pcie_acs_override={override}")] if override else []
    return [
        Finding.costly(
            "ACS",
            f"on on {len(redirecting)} bridges ({redirecting[0]}{' …' if len(redirecting) > 1 else ''})",
            "traffic between GPUs below one switch is sent up to the root complex and back",
            "switch ACS off in the BIOS, or with setpci on these bridges after every boot",
        )
    ]


_PCI_BRIDGE = b"\x04\x06"
_ACS_CAPABILITY = 0x000D
_ACS_REDIRECT = 0x04 | 0x08  # request and completion redirect


def _redirects(config: bytes) -> bool:
    """Whether this is a bridge that redirects peer-to-peer traffic (PCI Express: ACS extended capability)."""
    if len(config) < 0x104 or config[0x0A:0x0C] != _PCI_BRIDGE:
        return False
    offset = 0x100
    for _ in range(48):  # a broken list may run in a circle
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _ACS_CAPABILITY:
            return bool(int.from_bytes(config[offset + 6 : offset + 8], "little") & _ACS_REDIRECT)
        offset = header >> 20
        if offset < 0x100 or offset + 8 > len(config):
            return False
    return False


def _numa(files: SystemFiles) -> list[Finding]:
    nodes = [name for name in files.names("sys/devices/system/node") if re.fullmatch(r"node\d+", name)]
    if not nodes:
        return []
    found = [Finding("NUMA nodes", str(len(nodes)))]
    if len(nodes) > 1 and files.number("proc/sys/kernel/numa_balancing"):
        found.append(
            Finding.costly(
                "NUMA balancing",
                "on",
                "the kernel keeps moving memory of running processes between the nodes and stops them for it",
                "sysctl kernel.numa_balancing=0, as root",
            )
        )
    return found


def _selected(choices: str) -> str:
    """Of a line such as `always [madvise] never` the word in brackets."""
    found = re.search(r"\[([^\]]+)\]", choices)
    return found[1] if found else ""


def driver_module_findings(files: SystemFiles) -> list[Finding]:
    """How the NVIDIA kernel module was loaded: kind, and options that force what it would not do."""
    found = []
    version = files.text("proc/driver/nvidia/version")
    if version:
        found.append(Finding("kernel module", "open" if "Open Kernel Module" in version else "closed"))
    parameters = dict(_pairs(files.text("proc/driver/nvidia/params").splitlines()))
    registry = parameters.get("RegistryDwords", "").strip('"')
    if registry:
        found.append(Finding("module options", registry))
    return found


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip(), value.strip()
