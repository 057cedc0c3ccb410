"""Picks the root cause among the events of a log. PRECEDENCE.md says by which rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.diagnosis.cures import hints_for
from tuner.diagnosis.events import Event, Reading
from tuner.diagnosis.failure import Evidence, Failure, Kind
from tuner.diagnosis.kinds import MEANINGS
from tuner.diagnosis.numbers import fraction_in_use, held_by_others_gib, read_numbers, shortage_gib
from tuner.diagnosis.revisions import Revision, revise
from tuner.diagnosis.signature import Weight
from tuner.diagnosis.specifics import specific_of
from tuner.sglang.phases import Phase

_MOST_EVIDENCE = 6
_LONGEST_EVIDENCE = 400
_FOREIGN_SHARE = 0.15
"""Share of a GPU's memory in others' hands from which a shortage is theirs."""
_LEAST_FOREIGN_GIB = 3.0

_DEVICE_OOM = frozenset(
    {Kind.OOM_WEIGHTS, Kind.OOM_KV_CACHE, Kind.OOM_GRAPH_CAPTURE, Kind.OOM_DRAFT_MODEL, Kind.OOM_SERVING}
)
_NAMELESS = (Weight.UNSORTED, Weight.RAISED)
"""Weights of exceptions that any other signature on the same line knows better."""
_STARTING = frozenset({Phase.IMPORT, Phase.DISTRIBUTED_INIT, Phase.WEIGHT_LOAD, Phase.KV_CACHE_ALLOC})


@dataclass(frozen=True)
class Ranked:
    """The events that count, the root first."""

    root: Event
    others: tuple[Event, ...]


def rank_events(reading: Reading) -> Ranked | None:
    """The root: the heaviest event, and among those the first in time. None where nothing died."""
    known = {event.index for event in reading.events if event.signature.weight not in _NAMELESS}
    counted = [
        event
        for event in reading.events
        if not reading.timeline.survived(event.index)
        and not (event.signature.weight in _NAMELESS and event.index in known)
        and not _passed_off(event, reading)
    ]
    if not counted:
        return None
    first, *rest = sorted(
        counted, key=lambda event: (-event.signature.weight, _time(event, counted), event.index)
    )
    return Ranked(first, tuple(rest))


def failure_of(ranked: Ranked, reading: Reading) -> Failure:
    """The diagnosis that an event makes, with numbers, hints and evidence."""
    root = ranked.root
    signature = root.signature
    phase = signature.phase or _phase(root, reading)
    kind = signature.kinds.get(phase, signature.kind) if phase is not None else signature.kind
    numbers = _numbers(root, reading)
    certainty = signature.certainty
    if kind in _DEVICE_OOM:
        kind, phase, certainty = _device_oom(kind, phase, certainty, numbers)
    revision = revise(kind, root, phase, reading) or Revision(kind)
    kind_signed, kind = kind, revision.kind
    cause = revision.cause or signature.cause or MEANINGS[kind].cause
    if _disputed(ranked, kind_signed):
        certainty *= 0.85
    own_hints = signature.hints if kind is signature.kind else ()
    hints = hints_for(kind, revision.hints or own_hints or MEANINGS[kind].hints, numbers)
    return Failure(
        kind=kind,
        cause=cause,
        phase=phase,
        summary=_summary(
            kind, revision.summary or signature.summary, numbers, _told(root, revision, reading)
        ),
        evidence=_evidence(ranked, revision),
        hints=hints,
        certainty=round(min(certainty, 0.99), 3),
        shortage_gib=shortage_gib(numbers),
        facts=numbers,
    )


def _passed_off(event: Event, reading: Reading) -> bool:
    """Whether this is an exception of a single request in a server that was ready and did not end."""
    vague = event.signature.weight in (Weight.ECHO, Weight.UNSORTED)
    return (
        vague and not reading.timeline.ends and any(ready < event.index for ready in reading.timeline.ready)
    )


def _time(event: Event, events: Sequence[Event]) -> float:
    # A log in which some lines have no date yet is ordered by its lines alone.
    return event.when if event.when is not None and all(other.when is not None for other in events) else 0.0


def _phase(root: Event, reading: Reading) -> Phase | None:
    # A batch that runs before the server was ever ready is the warm-up's.
    if root.phase is Phase.SERVING and reading.timeline.phase_at(root.index) is Phase.WARMUP:
        return Phase.WARMUP
    return root.phase


def _numbers(root: Event, reading: Reading) -> dict[str, float]:
    numbers = read_numbers("\n".join([root.line.text, *root.message.split(root.line.text, 1)[1:]]))
    if "capturing_bs" not in numbers:
        for line in reversed(reading.lines[: root.index]):
            if "Capturing batches (bs=" in line.text:
                numbers.update(read_numbers(line.text))
                break
    for line in reading.lines:
        if "mem_fraction_static" in line.raw or "--mem-fraction-static" in line.raw:
            fraction = fraction_in_use(line.raw)
            if fraction is not None:
                numbers["mem_fraction_static"] = fraction
                break
    return numbers


def _device_oom(
    kind: Kind, phase: Phase | None, certainty: float, numbers: dict[str, float]
) -> tuple[Kind, Phase | None, float]:
    foreign = held_by_others_gib(numbers)
    if foreign is not None:
        numbers["held_by_others_gib"] = round(foreign, 2)
        share = foreign / numbers["total_gib"] if numbers["total_gib"] else 0.0
        if share > _FOREIGN_SHARE and foreign > _LEAST_FOREIGN_GIB and phase in _STARTING:
            return Kind.GPU_BUSY, phase, 0.75
    if phase is None:
        return kind, phase, 0.5
    return kind, phase, certainty


def _disputed(ranked: Ranked, kind: Kind) -> bool:
    """Whether another event as heavy as the root says something else."""
    return any(
        other.signature.weight == ranked.root.signature.weight
        and kind not in (other.signature.kind, *other.signature.kinds.values())
        and other.line is not ranked.root.line
        for other in ranked.others
    )


def _evidence(ranked: Ranked, revision: Revision) -> tuple[Evidence, ...]:
    told = [event.line for event in ranked.others if event.signature.weight > Weight.ECHO]
    echoes = [event.line for event in ranked.others if not event.signature.in_source]
    shown = [ranked.root.line, *([revision.line] if revision.line is not None else []), *told, *echoes]
    lines: dict[int, str] = {}
    for line in shown:
        if len(lines) < _MOST_EVIDENCE:
            lines.setdefault(line.number, line.raw.strip()[:_LONGEST_EVIDENCE])
    return tuple(Evidence(number, text) for number, text in lines.items())


def _told(root: Event, revision: Revision, reading: Reading) -> str:
    """The particular of the root, unless a second look took its words for something else."""
    return "" if revision.summary else specific_of(root.signature.kind, reading.lines, root.index)


def _summary(kind: Kind, own: str, numbers: dict[str, float], told: str) -> str:
    text = own or MEANINGS[kind].summary
    if told:
        text = f"{text.rstrip('.')}: {told}."
    if "asked_gib" in numbers and "free_gib" in numbers:
        text += f" It asked for {numbers['asked_gib']:g} GiB where {numbers['free_gib']:g} GiB were free."
    if "least_fraction" in numbers:
        text += f" The message names {numbers['least_fraction']:g} as the least fraction that could work."
    if "required_bytes" in numbers and "limit_bytes" in numbers:
        text += f" It needs {numbers['required_bytes']:.0f} bytes; the GPU has {numbers['limit_bytes']:.0f}."
    return text


def with_phase(failure: Failure, phase: Phase | None) -> Failure:
    """The failure with a phase known from outside, where the log itself told none."""
    return replace(failure, phase=phase) if failure.phase is None and phase is not None else failure
