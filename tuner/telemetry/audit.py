"""The audit of the box at a study's start: what it is, and what of it is known to cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.errors import BrokenEnvironment
from tuner.launch.gpus import GpuProbe, complaints
from tuner.launch.meter import GpuMeter
from tuner.telemetry.files import SystemFiles
from tuner.telemetry.finding import Finding
from tuner.telemetry.gpu_checks import driver_findings, gpu_findings, link_findings, user_findings
from tuner.telemetry.host_checks import (
    cpu_findings,
    disk_findings,
    driver_module_findings,
    installation_findings,
    kernel_findings,
    memory_findings,
)

PLATFORM_FILE = "platform.json"
"""Beside a study's results: what the box was like."""


@dataclass(frozen=True)
class Box:
    """What is audited: the GPUs of the study, its folder, and what its servers are like.

    `python` is the server's interpreter and `weights_gib` the size of the model's files, where they are
    known. `variables` are those that the study sets or searches.
    """

    gpus: tuple[int, ...]
    folder: Path
    python: Path | None = None
    weights_gib: float | None = None
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlatformAudit:
    """What was found, in a fixed order."""

    findings: tuple[Finding, ...]

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are known to cost."""
        return tuple(finding for finding in self.findings if finding.warning)

    def to_json(self) -> list[dict[str, Any]]:
        """The findings for the study's record."""
        return [asdict(finding) for finding in self.findings]

    @classmethod
    def from_json(cls, data: Iterable[dict[str, Any]]) -> PlatformAudit:
        """The inverse of `to_json`."""
        return cls(tuple(Finding(**finding) for finding in data))


def audit(box: Box, meter: GpuMeter, probe: GpuProbe, *, root: Path = Path("/")) -> PlatformAudit:
    """Look at the box. Needs no root and never raises; a part that cannot be looked at is a finding too.

    `root` is where the kernel's files are read, for tests. What only shows under load (links that stay
    slow, throttling) is judged with the levels.
    """
    files = SystemFiles(root)
    count = len(box.gpus)
    checks: tuple[tuple[str, Callable[[], list[Finding]]], ...] = (
        ("driver", lambda: driver_findings(meter.driver())),
        ("kernel module", lambda: driver_module_findings(files)),
        ("NCCL", lambda: installation_findings(files, box.python)),
        ("GPUs", lambda: gpu_findings(meter.facts(box.gpus))),
        ("topology", lambda: link_findings(meter.links(box.gpus), box.variables)),
        ("GPU users", lambda: user_findings(complaints(probe, box.gpus))),
        ("CPU", lambda: cpu_findings(files, count)),
        ("memory", lambda: memory_findings(files, box.weights_gib)),
        ("kernel", lambda: kernel_findings(files, count)),
        ("disks", lambda: disk_findings(files, box.folder, count)),
    )
    unseen = [Finding("GPU telemetry", f"none: {meter.reason}")] if meter.reason else []
    return PlatformAudit((*unseen, *(finding for what, check in checks for finding in _tried(what, check))))


def _tried(what: str, check: Callable[[], list[Finding]]) -> Sequence[Finding]:
    try:
        return check()
    except BrokenEnvironment as error:
        return [Finding.costly(what, "cannot be read", error.message, error.hint)]
    except Exception as error:  # noqa: BLE001 (an odd file of an odd kernel must not keep a study from starting)
        return [Finding(what, f"cannot be told ({type(error).__name__}: {error})")]
