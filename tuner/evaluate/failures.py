"""From how a launch ended to what it failed of."""

from __future__ import annotations

from dataclasses import replace

from tuner.diagnosis.diagnose import diagnose
from tuner.diagnosis.failure import Cause, Evidence, Failure, Kind
from tuner.measure.measurement import Workload
from tuner.measure.session import LevelVoid, ServerGone
from tuner.sglang.endpoints import EndpointError
from tuner.sglang.phases import Phase
from tuner.startup.follow import Died, NotStarted, PortNotOurs, Stalled, TimedOut

_NOTHING = (Kind.HEALTHY, Kind.UNKNOWN)


def failure_of_start(start: NotStarted, log: bytes, *, others_on_gpus: bool | None = None) -> Failure:
    """Why a server did not get ready. `others_on_gpus`: whether GPUs stayed occupied after it was gone."""
    if isinstance(start, Died):
        return failure_of_exit(log, start.exit_code, start.phase, others_on_gpus=others_on_gpus)
    if isinstance(start, PortNotOurs):
        found = diagnose(log, phase=start.phase)
        if found.kind is Kind.PORT_IN_USE:
            return found
        return Failure(
            Kind.PORT_IN_USE,
            Cause.TRANSIENT,
            start.phase,
            f"another program holds the port: {start.evidence}",
            certainty=0.9,
        )
    found = diagnose(log, phase=start.phase, stalled=True)
    if found.kind is not Kind.HANG:
        return found
    return replace(found, summary=_stall_summary(start))


def failure_of_exit(
    log: bytes, exit_code: int | None, phase: Phase, *, others_on_gpus: bool | None = None
) -> Failure:
    """Why a server ended by itself."""
    found = diagnose(log, exit_code=exit_code, phase=phase, foreign_gpu_memory=others_on_gpus)
    if found.kind is not Kind.HEALTHY:
        return found
    return Failure(
        Kind.UNKNOWN,
        Cause.UNKNOWN,
        phase,
        f"the server ended by itself with exit code {exit_code} and its log does not say why",
        evidence=found.evidence,
        certainty=0.3,
    )


def failure_under_load(error: LevelVoid | ServerGone, log: bytes, exit_code: int | None) -> Failure:
    """Why a server that was ready could not be measured."""
    if isinstance(error, ServerGone):
        return failure_of_exit(log, exit_code, Phase.SERVING)
    found = diagnose(log, phase=Phase.SERVING, stalled=error.is_hang)
    if error.is_hang and found.kind is Kind.HANG:
        return replace(found, summary=f"the server lives but answers nothing: {error.reason}")
    if found.kind not in _NOTHING:
        return found
    return Failure(
        Kind.MEASUREMENT_VOID,
        Cause.UNKNOWN,
        Phase.SERVING,
        f"the load at {error.name} gave no result: {error.reason}",
        evidence=(Evidence(0, error.reason),),
        certainty=0.9,
    )


def unanswered(error: EndpointError, workload: Workload) -> LevelVoid:
    """A server that was measured and then did not answer the guard, as a level without a result."""
    busiest = max(workload.levels)
    return LevelVoid(workload.kind, busiest, f"the prompts of the output check: {error.message}", ())


def _stall_summary(start: Stalled | TimedOut) -> str:
    if isinstance(start, TimedOut):
        return f"not ready within {start.limit_s:g} s: it still waited for {start.waited_for}"
    seen = "only CPU time was burnt" if start.busy else "no sign of life"
    return f"{seen} for {start.silent_s:.0f} s in the phase {start.phase}"
