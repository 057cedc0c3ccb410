"""Second looks: where the lines around a root show that its words mean something else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.diagnosis.events import Event, Reading
from tuner.diagnosis.failure import Cause, Hint, Kind
from tuner.diagnosis.lines import Line
from tuner.diagnosis.signature import action, param
from tuner.sglang.phases import Phase

_ARCHITECTURE = re.compile(r"architectures?:? *\[?'?(\w+)")
_IMPORT_FAILED = re.compile(
    r"ignore import error when loading sglang\.srt\.models\.(\w+)[.:]? ?(.*)", re.IGNORECASE
)
_COMPILER = re.compile(r"\bgcc\b|nvcc|ninja|non-zero exit status", re.IGNORECASE)
_KNOWN_SINCE_EVER = re.compile(
    r"(?:Llama|Mistral|Mixtral|Qwen2(?:Moe)?|Gemma2?|DeepseekV2|Phi3|Baichuan|InternLM2)ForCausalLM$"
)
_COMPILES = re.compile(
    r"DeepGEMM (?:warmup|JIT)|JIT Pre-Compile|Loading JIT ops|JIT: |autotune|ninja:|Compiling kernel",
    re.IGNORECASE,
)
_LINES_BEFORE_WATCHDOG = 5


@dataclass(frozen=True)
class Revision:
    """What the root means after all; None leaves what the signature says. `line` shows it."""

    kind: Kind
    cause: Cause | None = None
    hints: tuple[Hint, ...] | None = None
    summary: str = ""
    line: Line | None = None


def revise(kind: Kind, root: Event, phase: Phase | None, reading: Reading) -> Revision | None:
    """The better reading of a root of this kind, or None where its words can be taken as they are."""
    if kind is Kind.UNSUPPORTED_MODEL:
        return _model_file_not_imported(root, reading)
    if kind in (Kind.NCCL, Kind.HANG) and "time" in root.line.text.lower():
        return _waited_for_a_compiler(root, reading)
    if kind is Kind.WATCHDOG_TIMEOUT:
        return _passing_watchdog(root, reading)
    if kind is Kind.GPU_BUSY and phase is Phase.DRAFT_MODEL:
        # Asked again by a draft worker, the check of free memory sees the target's own.
        return Revision(kind, Cause.CONFIG, (param("speculative_algorithm", "unset"),))
    if (
        kind is Kind.KERNEL_FAULT
        and "memory access fault" in root.line.text.lower()
        and phase is not Phase.SERVING
    ):
        # Seconds after a hard kill a page shared with the dead server may still be mapped.
        return Revision(kind, Cause.TRANSIENT)
    return None


def _model_file_not_imported(root: Event, reading: Reading) -> Revision | None:
    """'Not supported' is false where the file of this very model failed to import, or is as old as SGLang."""
    named = _ARCHITECTURE.search(root.line.text)
    if named is None:
        return None
    architecture = named[1]
    for line in reading.lines[: root.index]:
        failed = _IMPORT_FAILED.search(line.text)
        if failed is not None and _same_model(failed[1], architecture):
            kind = Kind.JIT_COMPILE if _COMPILER.search(failed[2]) else Kind.DEPENDENCY_MISMATCH
            return _import_revision(kind, architecture, line)
    if _KNOWN_SINCE_EVER.match(architecture):
        return _import_revision(Kind.DEPENDENCY_MISMATCH, architecture, None)
    return None


def _import_revision(kind: Kind, architecture: str, line: Line | None) -> Revision:
    return Revision(
        kind,
        Cause.ENVIRONMENT,
        (action("mend-the-installation"),),
        f"{architecture} is called unsupported because its model file could not be imported.",
        line,
    )


def _same_model(module: str, architecture: str) -> bool:
    stem = re.sub(r"For[A-Z]\w*$|Model$|LMHeadModel$", "", architecture).lower()
    module = module.replace("_", "").lower()
    # One file serves a family: deepseek_v2.py holds DeepseekV3ForCausalLM.
    return stem == module or (len(module) >= 5 and stem[:-1] == module[:-1])


def _waited_for_a_compiler(root: Event, reading: Reading) -> Revision | None:
    """A collective that times out while a rank compiles kernels; with warm caches the next start passes."""
    compiling = _last(reading.lines[: root.index], _COMPILES)
    if compiling is None or any(ready < root.index for ready in reading.timeline.ready):
        return None
    return Revision(
        Kind.JIT_COMPILE,
        Cause.TRANSIENT,
        (param("dist_timeout", "increase"), action("precompile-kernels")),
        "Ranks waited for one that was still compiling kernels until the collective timed out.",
        compiling,
    )


def _passing_watchdog(root: Event, reading: Reading) -> Revision | None:
    """A watchdog that met a compilation or a dead scheduler: the same start may well pass."""
    before = reading.lines[max(0, root.index - _LINES_BEFORE_WATCHDOG) : root.index]
    compiling = _last(before, _COMPILES)
    crashed = any("crashed with exit code" in line.text for line in reading.lines[root.index :])
    return Revision(Kind.WATCHDOG_TIMEOUT, Cause.TRANSIENT, line=compiling) if compiling or crashed else None


def _last(lines: Sequence[Line], pattern: re.Pattern[str]) -> Line | None:
    return next((line for line in reversed(lines) if pattern.search(line.text)), None)
