"""Says why a server died, from its log, its exit code and what is known of it from outside."""

from __future__ import annotations

from dataclasses import replace

from tuner.diagnosis.behaviour import behaviour_failure
from tuner.diagnosis.events import Reading, read_log
from tuner.diagnosis.exits import failure_of_exit
from tuner.diagnosis.failure import Cause, Evidence, Failure, Kind
from tuner.diagnosis.kinds import MEANINGS
from tuner.diagnosis.signature import Weight
from tuner.diagnosis.signatures import ALL
from tuner.diagnosis.stall import failure_of_stall
from tuner.diagnosis.verdict import failure_of, rank_events, with_phase
from tuner.sglang.phases import Phase


def diagnose(
    log: bytes | str,
    *,
    exit_code: int | None = None,
    phase: Phase | None = None,
    stalled: bool = False,
    foreign_gpu_memory: bool | None = None,
) -> Failure:
    """The diagnosis of one server's log; kind `healthy` where nothing failed. It raises nothing.

    `exit_code` is as subprocess or a shell gives it. `phase` is as followed from outside, used where the log
    tells none. `stalled` says that the server was ended because nothing moved. `foreign_gpu_memory` says
    whether what fills the GPUs belongs to strangers (True: environment) or to the tuner's own servers (False:
    transient).
    """
    reading = read_log(log, ALL)
    failure = with_phase(_diagnose(reading, exit_code, phase, stalled=stalled), phase)
    if failure.kind is Kind.GPU_BUSY and foreign_gpu_memory is not None:
        return replace(failure, cause=Cause.ENVIRONMENT if foreign_gpu_memory else Cause.TRANSIENT)
    return failure


def _diagnose(reading: Reading, exit_code: int | None, phase: Phase | None, *, stalled: bool) -> Failure:
    ranked = rank_events(reading)
    if ranked is not None and (ranked.root.signature.weight > Weight.AFTERMATH or not stalled):
        return failure_of(ranked, reading)
    seen = phase or reading.timeline.last_phase
    if stalled:
        return failure_of_stall(seen, None, reading.lines)
    told = behaviour_failure(reading.lines) or failure_of_exit(exit_code, seen)
    if told is not None:
        return told
    meaning = MEANINGS[Kind.HEALTHY]
    last = tuple(Evidence(line.number, line.raw.strip()[:400]) for line in reading.lines[-1:])
    certainty = 0.95 if reading.timeline.ready else 0.8
    return Failure(Kind.HEALTHY, meaning.cause, seen, meaning.summary, last, (), certainty)
