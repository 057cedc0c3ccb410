"""Failures that no single line tells: storms of retractions, full pools, dead health checks, silence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.diagnosis.failure import Cause, Evidence, Failure, Hint, Kind
from tuner.diagnosis.kinds import MEANINGS
from tuner.diagnosis.lines import Line
from tuner.diagnosis.signature import param
from tuner.sglang.phases import Phase

_RETRACT = re.compile(r"#retracted_reqs: (\d+)")
_DECODE = re.compile(r"^Decode batch\b.*?#running-req: (\d+).*?token usage: ([\d.]+).*#queue-req: (\d+)")
_HEALTH = "health check failed"
_MANY_RETRACTIONS = 8
_MANY_HEALTH_FAILURES = 3
_FULL = 0.99


def behaviour_failure(lines: Sequence[Line]) -> Failure | None:
    """The failure that the lines show though none of them is an error; None for a log that is well."""
    return _zero_addresses(lines) or _health_checks(lines) or _retractions(lines) or _full_pool(lines)


def _zero_addresses(lines: Sequence[Line]) -> Failure | None:
    """Ranks waiting for each other after an exception that the custom all-reduce's context swallowed."""
    tail = lines[-1:]
    if not tail or "Registering 0 cuda graph addresses" not in tail[0].text:
        return None
    return _failure(
        Kind.HANG,
        Phase.GRAPH_CAPTURE,
        "The capture of CUDA graphs stopped with nothing captured; the error itself was swallowed.",
        tail,
        0.75,
        hints=(param("disable_custom_all_reduce", "set", True), param("mem_fraction_static", "decrease")),
    )


def _health_checks(lines: Sequence[Line]) -> Failure | None:
    failed = [index for index, line in enumerate(lines) if _HEALTH in line.text.lower()]
    if len(failed) < _MANY_HEALTH_FAILURES:
        return None
    since = lines[failed[-_MANY_HEALTH_FAILURES] :]
    if any(line.text.startswith(("Decode batch", "Prefill batch")) for line in since):
        return None
    return _failure(
        Kind.HANG,
        Phase.SERVING,
        "Health checks fail again and again and no batch runs: the scheduler stands still.",
        [lines[failed[0]], lines[failed[-1]]],
        0.8,
        cause=Cause.TRANSIENT,
    )


def _retractions(lines: Sequence[Line]) -> Failure | None:
    retracted = [line for line in lines if _RETRACT.search(line.text)]
    batches = sum(line.text.startswith("Decode batch") for line in lines)
    storm = len(retracted) >= _MANY_RETRACTIONS and len(retracted) > 0.1 * batches
    if not storm and not (len(retracted) >= 3 and len(retracted) > 0.5 * len(lines)):
        return None
    return _failure(
        Kind.KV_POOL_EXHAUSTED,
        Phase.SERVING,
        f"The KV pool was full and requests were retracted {len(retracted)} times.",
        retracted[:3],
        0.75,
    )


def _full_pool(lines: Sequence[Line]) -> Failure | None:
    """The last batches ran with a full pool and with requests waiting for room."""
    found = [(line, match) for line in lines if (match := _DECODE.search(line.text))]
    last = found[-3:]
    if len(last) < 2 or not all(float(m[2]) >= _FULL and int(m[3]) > 0 for _, m in last):
        return None
    return _failure(
        Kind.KV_POOL_EXHAUSTED,
        Phase.SERVING,
        "The KV pool is full while requests wait.",
        [line for line, _ in last],
        0.65,
    )


def _failure(
    kind: Kind,
    phase: Phase,
    summary: str,
    lines: Sequence[Line],
    certainty: float,
    *,
    cause: Cause | None = None,
    hints: tuple[Hint, ...] | None = None,
) -> Failure:
    meaning = MEANINGS[kind]
    return Failure(
        kind=kind,
        cause=cause or meaning.cause,
        phase=phase,
        summary=summary,
        evidence=tuple(Evidence(line.number, line.raw.strip()[:400]) for line in lines),
        hints=meaning.hints if hints is None else hints,
        certainty=certainty,
    )
