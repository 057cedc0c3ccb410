"""What a silence means: nothing failed, nothing moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.diagnosis.failure import Cause, Evidence, Failure, Hint, Kind
from tuner.diagnosis.lines import Line, split_lines
from tuner.diagnosis.signature import env, param
from tuner.sglang.phases import Phase

_NO_SIGNAL = "without a sign of life"

_BY_PHASE: Mapping[Phase, tuple[Cause, tuple[Hint, ...]]] = {
    Phase.DISTRIBUTED_INIT: (
        Cause.CONFIG,
        (param("disable_custom_all_reduce", "set", True), env("NCCL_P2P_DISABLE", "set", "1")),
    ),
    Phase.WEIGHT_LOAD: (Cause.TRANSIENT, ()),
    Phase.JIT_COMPILE: (Cause.TRANSIENT, ()),
    Phase.GRAPH_CAPTURE: (
        Cause.CONFIG,
        (param("cuda_graph_max_bs", "decrease"), param("disable_custom_all_reduce", "set", True)),
    ),
    Phase.SERVING: (Cause.TRANSIENT, ()),
}


def failure_of_stall(
    phase: Phase | None, silent_s: float | None, log: bytes | str | Sequence[Line]
) -> Failure:
    """A hang in `phase` after `silent_s` seconds (None: not known) without a sign of life.

    The evidence is the last line that was printed. A hang is `config` where the phase makes the configuration
    likely (collectives, graphs) and `transient` where the same start may well succeed.
    """
    lines = split_lines(log) if isinstance(log, (bytes, str)) else list(log)
    cause, hints = _BY_PHASE.get(phase, (Cause.CONFIG, ())) if phase is not None else (Cause.CONFIG, ())
    place = f"in phase {phase}" if phase is not None else "in an unknown phase"
    span = f"{silent_s:.0f} s " if silent_s is not None else ""
    last = tuple(Evidence(line.number, line.raw.strip()[:400]) for line in lines[-1:])
    return Failure(
        kind=Kind.HANG,
        cause=cause,
        phase=phase,
        summary=f"The server stopped {place}: {span}{_NO_SIGNAL}.",
        evidence=last or (Evidence(0, f"{span}{_NO_SIGNAL}"),),
        hints=hints,
        certainty=0.85,
    )
