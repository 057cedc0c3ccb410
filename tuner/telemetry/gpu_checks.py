"""What the audit finds out about GPUs, their links and their users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tuner.launch.meter import DriverFacts, GpuFacts, GpuLink
from tuner.telemetry.finding import Finding
from tuner.telemetry.summary import VOIDING

_MIB_PER_GIB = 1024
_POWER_SLACK_W = 1.0
_HOT_IDLE_C = 75


def driver_findings(driver: DriverFacts) -> list[Finding]:
    """The versions that decide which kernels run."""
    return [
        Finding(what, value)
        for what, value in (("driver", driver.driver), ("CUDA of the driver", driver.cuda))
        if value
    ]


def gpu_findings(gpus: Sequence[GpuFacts]) -> list[Finding]:
    """Kinds, memory, power, links and modes of the GPUs that are used."""
    if not gpus:
        return []
    kinds = Counter(gpu.name or "unknown" for gpu in gpus)
    shown = ", ".join(f"{count}x {name}" for name, count in kinds.items())
    found = (
        [Finding("GPUs", shown)]
        if len(kinds) == 1
        else [
            Finding.costly(
                "GPUs",
                shown,
                "work that is split over GPUs of several kinds runs at the pace of the slowest",
                "give the study GPUs of one kind",
            )
        ]
    )
    found += _amount("GPU memory", gpus, lambda gpu: gpu.memory_mib, "GiB", 1 / _MIB_PER_GIB)
    for check in (_power, _pcie, _bar1, _modes, _held_down):
        found += check(gpus)
    return found


def link_findings(links: Sequence[GpuLink], variables: Iterable[str] = ()) -> list[Finding]:
    """Topology and peer-to-peer access; `variables` are those that the study sets or searches."""
    if not links:
        return []
    paths = Counter("NVLink" if link.nvlink else link.path or "unknown" for link in links)
    found = [
        Finding("topology", ", ".join(f"{path} for {count} pairs" for path, count in sorted(paths.items())))
    ]
    without = [link for link in links if link.p2p not in ("", "ok")]
    if without:
        reasons = ", ".join(sorted({link.p2p for link in without}))
        found.append(
            Finding.costly(
                "peer-to-peer",
                f"off for {len(without)} of {len(links)} pairs ({reasons})",
                "GPUs then exchange data through host memory; with it off, decoding was measured at a fifth "
                "to a half of its speed, and custom all-reduce kernels lose most",
                "allow P2P in the driver (on cards where it is off, a module option forces it through BAR1), "
                "or else search NCCL's settings for the host path and leave custom all-reduce off",
            )
        )
    elif any(link.p2p == "ok" for link in links):
        found.append(Finding("peer-to-peer", "on for all pairs"))
    across = [link for link in links if link.path == "SYS" and not link.nvlink]
    if across and not without and "NCCL_P2P_LEVEL" not in set(variables):
        found.append(
            Finding.costly(
                "GPUs on several sockets",
                f"{len(across)} of {len(links)} pairs",
                "NCCL does not use peer-to-peer between sockets by itself: 5 instead of 50 GiB/s",
                "let the study set or search NCCL_P2P_LEVEL=SYS",
            )
        )
    return found


def user_findings(complaints: Iterable[str]) -> list[Finding]:
    """Who else uses the GPUs, in the words of the launch room."""
    return [
        Finding.costly(
            "other users of the GPUs",
            complaint,
            "a server there runs out of memory or is measured too slow",
            "end them, or give the study other GPUs",
        )
        for complaint in complaints
    ]


def _power(gpus: Sequence[GpuFacts]) -> list[Finding]:
    lowered = [
        gpu
        for gpu in gpus
        if gpu.power_limit_w is not None
        and gpu.power_limit_default_w is not None
        and gpu.power_limit_w < gpu.power_limit_default_w - _POWER_SLACK_W
    ]
    if not lowered:
        return _amount("power limit", gpus, lambda gpu: gpu.power_limit_w, "W")
    lowest = min(lowered, key=lambda gpu: gpu.power_limit_w or 0.0)
    return [
        Finding.costly(
            "power limit",
            f"{_named(lowered)}: {lowest.power_limit_w:.0f} W of {lowest.power_limit_default_w:.0f} W",
            "half the power cost 4 % of decode speed at one request and over 20 % at 32 and more",
            "nvidia-smi -pl WATTS, as root; keep it the same for the whole study",
        )
    ]


def _pcie(gpus: Sequence[GpuFacts]) -> list[Finding]:
    found = []
    known = [gpu for gpu in gpus if gpu.pcie_generation_max and gpu.pcie_width_max]
    if known:
        kinds = Counter(f"generation {gpu.pcie_generation_max} x{gpu.pcie_width_max}" for gpu in known)
        now = Counter(f"generation {gpu.pcie_generation} x{gpu.pcie_width}" for gpu in known)
        value = " and ".join(f"{count}x {kind}" for kind, count in kinds.items())
        if now != kinds:
            resting = " and ".join(f"{count}x {kind}" for kind, count in now.items())
            value += f" (now {resting}; idle links may rest at a lower generation)"
        found.append(Finding("PCIe links", value))
    narrow = [gpu for gpu in known if gpu.pcie_width and gpu.pcie_width < (gpu.pcie_width_max or 0)]
    if narrow:
        found.append(
            Finding.costly(
                "PCIe width",
                f"{_named(narrow)}: x{narrow[0].pcie_width} of x{narrow[0].pcie_width_max}",
                "tensor parallelism sends every layer's results over this link",
                "reseat the card or its cable; see the width of slot and switch, and bifurcation in the BIOS",
            )
        )
    return found


def _bar1(gpus: Sequence[GpuFacts]) -> list[Finding]:
    small = [gpu for gpu in gpus if gpu.bar1_mib and gpu.memory_mib and gpu.bar1_mib < gpu.memory_mib / 2]
    if not small or len(gpus) < 2:
        return []
    return [
        Finding.costly(
            "BAR1",
            f"{_named(small)}: {small[0].bar1_mib:.0f} MiB of {small[0].memory_mib:.0f} MiB",
            "without Resizable BAR the other GPUs cannot reach this one's memory over PCIe",
            "switch on Above 4G Decoding and Resizable BAR in the BIOS",
        )
    ]


def _modes(gpus: Sequence[GpuFacts]) -> list[Finding]:
    found = []
    fading = [gpu for gpu in gpus if gpu.persistence is False]
    if fading:
        found.append(
            Finding.costly(
                "persistence mode",
                f"off on {_named(fading)}",
                "the driver shuts the GPU down between two launches, and each start waits for it again",
                "nvidia-smi -pm 1, as root, or run nvidia-persistenced",
            )
        )
    split = [gpu for gpu in gpus if gpu.mig]
    if split:
        found.append(
            Finding.costly(
                "MIG",
                f"on on {_named(split)}",
                "a server then gets a slice of the GPU, and GPUs in slices reach no peers",
                "nvidia-smi -mig 0, as root, unless the slice is what is tuned",
            )
        )
    checked = [gpu for gpu in gpus if gpu.ecc is not None]
    if checked:
        on = sum(bool(gpu.ecc) for gpu in checked)
        found.append(Finding("ECC", f"on on {on} of {len(checked)} GPUs"))
    return found


def _held_down(gpus: Sequence[GpuFacts]) -> list[Finding]:
    found = []
    held = [gpu for gpu in gpus if set(gpu.throttle) & set(VOIDING)]
    if held:
        reasons = ", ".join(sorted({name for gpu in held for name in gpu.throttle if name in VOIDING}))
        found.append(
            Finding.costly(
                "throttled before any load",
                f"{_named(held)}: {reasons}",
                "clocks fall to a half and less, and every level would be void",
                "see cooling, power supply and its cables; a power brake is a signal of the board",
            )
        )
    hot = [gpu for gpu in gpus if gpu.temperature_c is not None and gpu.temperature_c >= _HOT_IDLE_C]
    if hot and not held:
        found.append(
            Finding.costly(
                "temperature before any load",
                f"{_named(hot)}: {hot[0].temperature_c} °C",
                "under load it will reach its limit and throttle",
                "see fans and airflow, and whether somebody else computes there",
            )
        )
    pinned = [gpu for gpu in gpus if "application-clocks" in gpu.throttle]
    if pinned:
        found.append(Finding("clocks", f"set by a person on {_named(pinned)}"))
    return found


def _amount(
    what: str,
    gpus: Sequence[GpuFacts],
    pick: Callable[[GpuFacts], float | None],
    unit: str,
    factor: float = 1.0,
) -> list[Finding]:
    values = sorted({round(value * factor, 1) for gpu in gpus if (value := pick(gpu)) is not None})
    return [Finding(what, " and ".join(f"{value:g}" for value in values) + f" {unit}")] if values else []


def _named(gpus: Sequence[GpuFacts]) -> str:
    numbers = ", ".join(str(gpu.gpu) for gpu in gpus)
    return f"GPU {numbers}" if len(gpus) == 1 else f"GPUs {numbers}"
