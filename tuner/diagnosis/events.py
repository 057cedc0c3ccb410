"""Finds in a log every line that a signature fits."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.diagnosis.lines import Line, split_lines
from tuner.diagnosis.noise import is_noise
from tuner.diagnosis.signature import Signature, Weight
from tuner.diagnosis.timeline import Timeline, phase_of_frames, read_timeline
from tuner.sglang.phases import Phase

_MOST_HITS = 200
"""Occurrences of one literal that are looked at: what a log repeats more often is said by the first ones."""
LONGEST_TOLD = 1200
"""Characters in which a line has said what it is; patterns look no further, which bounds their time."""
_LINES_BEFORE = 150
_LINES_AFTER = 25
_LONGEST_MESSAGE = 12_000

_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Timeout)\b")
_OOM_CUT = ("torch.cuda.outofmemoryerror: cuda out of memory", "torch.outofmemoryerror: cuda out of memory")
_OOM_WHOLE = "torch.OutOfMemoryError: CUDA out of memory"


@dataclass(frozen=True)
class Event:
    """A signature met in a line: `index` into the log's lines, `phase` by the frames or else the markers."""

    signature: Signature
    index: int
    line: Line
    phase: Phase | None
    message: str
    when: float | None


@dataclass(frozen=True)
class Reading:
    """A log as read: its lines, their time and phases, and the events in it."""

    lines: tuple[Line, ...]
    timeline: Timeline
    events: tuple[Event, ...]


def read_log(log: bytes | str, signatures: Sequence[Signature]) -> Reading:
    """Splits a log and matches every signature against it. Any bytes will do."""
    lines = _complete_cut_end(split_lines(log))
    lowered = [line.text.lower() for line in lines]
    timeline = read_timeline(lines, lowered)
    clock = _clock(lines)
    events = [
        _event(signature, index, lines, timeline, clock)
        for index, signature in _hits(lines, lowered, signatures)
    ]
    return Reading(tuple(lines), timeline, tuple(event for event in events if event is not None))


def message_of(lines: Sequence[Line], index: int) -> str:
    """The message that a line belongs to: up to the header that began it, and a few lines on."""
    first = index
    while first > 0 and index - first < _LINES_BEFORE and not lines[first].header:
        if "received sigquit" in lines[first - 1].text.lower():
            break
        first -= 1
    last = index + 1
    while last < len(lines) and last - index <= _LINES_AFTER and not lines[last].header:
        last += 1
    return "\n".join(line.text for line in lines[first:last])[-_LONGEST_MESSAGE:]


def _complete_cut_end(lines: list[Line]) -> list[Line]:
    """Excerpts and crashes cut a last line short; an out-of-memory error is known by its beginning."""
    if not lines:
        return lines
    last = lines[-1]
    begun = last.text.strip().lower()
    if len(begun) >= len("torch.o") and any(whole.startswith(begun) for whole in _OOM_CUT):
        whole = Line(last.number, _OOM_WHOLE, last.raw, last.rank, last.stamp, last.header, last.mild)
        return [*lines[:-1], whole]
    return lines


def _clock(lines: Sequence[Line]) -> list[float | None]:
    """For each line the last time printed up to it."""
    times: list[float | None] = []
    now: float | None = None
    for line in lines:
        now = line.stamp if line.stamp is not None else now
        times.append(now)
    return times


def _hits(
    lines: Sequence[Line], lowered: Sequence[str], signatures: Sequence[Signature]
) -> list[tuple[int, Signature]]:
    """(line index, signature) for every literal found, by line and then by the order of the signatures."""
    text = "\n".join(lowered)
    offsets = [0]
    for line in lowered:
        offsets.append(offsets[-1] + len(line) + 1)
    places: dict[str, list[int]] = {}
    hits: set[tuple[int, int]] = set()
    for order, signature in enumerate(signatures):
        for literal in signature.literals:
            if literal not in places:
                places[literal] = [bisect_right(offsets, at) - 1 for at in _occurrences(text, literal)]
            hits.update((index, order) for index in places[literal])
    noise: dict[int, bool] = {}
    kept: list[tuple[int, Signature]] = []
    for index, order in sorted(hits):
        if index not in noise:
            noise[index] = is_noise(lines[index].text)
        if not noise[index]:
            kept.append((index, signatures[order]))
    return kept


def _is_source(lines: Sequence[Line], index: int) -> bool:
    """Whether a line quotes source: a frame of a traceback, the code under it, or a `raise`."""
    line = lines[index]
    text = line.text.lstrip()
    if text.startswith(('File "', "raise ", "assert ", "^^", "~~")):
        return True
    above = lines[index - 1].text if index > 0 else ""
    if line.header or not above.lstrip().startswith('File "') or _EXCEPTION.match(text):
        return False
    # Code stands deeper than its frame, unless an excerpt lost all indentation.
    frame_indent = len(above) - len(above.lstrip())
    return frame_indent == 0 or len(line.text) - len(text) > frame_indent


def _occurrences(text: str, literal: str) -> Iterable[int]:
    at = text.find(literal)
    found = 0
    while at >= 0 and found < _MOST_HITS:
        yield at
        found += 1
        # One hit a line is enough.
        line_end = text.find("\n", at)
        at = text.find(literal, line_end) if line_end >= 0 else -1


def _event(
    signature: Signature,
    index: int,
    lines: Sequence[Line],
    timeline: Timeline,
    clock: Sequence[float | None],
) -> Event | None:
    if not _fits_line(signature, index, lines):
        return None
    message = message_of(lines, index)
    if not _fits_message(signature, message):
        return None
    phase = phase_of_frames(message) or timeline.phase_at(index)
    if signature.phases and phase is not None and phase not in signature.phases:
        return None
    return Event(signature, index, lines[index], phase, message, clock[index])


def _fits_line(signature: Signature, index: int, lines: Sequence[Line]) -> bool:
    line = lines[index]
    if signature.line_regex is not None and not signature.line_regex.search(line.text, 0, LONGEST_TOLD):
        return False
    if signature.unless_regex is not None and signature.unless_regex.search(line.text, 0, LONGEST_TOLD):
        return False
    if not signature.in_source and _is_source(lines, index):
        return False
    return signature.warns or signature.weight <= Weight.AFTERMATH or not line.warning


def _fits_message(signature: Signature, message: str) -> bool:
    if signature.near_regex is not None and not signature.near_regex.search(message):
        return False
    return signature.not_near_regex is None or not signature.not_near_regex.search(message)
