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

_MOST_FIRST_HITS = 120
_MOST_LAST_HITS = 60
"""Lines with one literal that are looked at: the first ones tell a cause, the last ones how it ended."""
LONGEST_TOLD = 1200
"""Characters in which a line has said what it is; patterns look no further, which bounds their time."""
_LINES_BEFORE = 150
_LINES_AFTER = 25
_LONGEST_MESSAGE = 12_000
_LINES_TO_FRAME = 14
"""Lines between an exception and the frame that tells: frames of torch's machinery, and code under each."""
_MACHINERY = re.compile(
    r"/torch/|/triton/|contextlib|importlib|/multiprocessing/|/concurrent/|/asyncio/|<frozen"
)

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
    events: list[Event] = []
    around = _Surroundings(-1, "", "", None)
    for index, signature in _hits(lines, lowered, signatures):
        if not _fits_line(signature, index, lines):
            continue
        if around.index != index:
            around = _look_around(lines, index, timeline)
        if _fits(signature, around):
            event = Event(signature, index, lines[index], around.phase, around.message, clock[index])
            events.append(event)
    return Reading(tuple(lines), timeline, tuple(events))


@dataclass(frozen=True)
class _Surroundings:
    """What stands around a line: its message, the innermost frame above it, and the phase both tell."""

    index: int
    message: str
    frame: str
    phase: Phase | None


def _look_around(lines: Sequence[Line], index: int, timeline: Timeline) -> _Surroundings:
    message = message_of(lines, index)
    phase = phase_of_frames(message) or timeline.phase_at(index)
    return _Surroundings(index, message, innermost_frame(lines, index), phase)


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


def innermost_frame(lines: Sequence[Line], index: int) -> str:
    """The last frame, not torch's, of the traceback that the line ends; empty without one."""
    for line in reversed(lines[max(0, index - _LINES_TO_FRAME) : index]):
        text = line.text.lstrip()
        if text.startswith('File "') and not _MACHINERY.search(text):
            return text
        if text.startswith("Traceback (most recent") or _EXCEPTION.match(text):
            break
    return ""


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
    """Where a literal stands, once a line at most: the first and the last ones."""
    at = text.find(literal)
    for _ in range(_MOST_FIRST_HITS):
        if at < 0:
            return
        yield at
        line_end = text.find("\n", at)
        at = text.find(literal, line_end) if line_end >= 0 else -1
    first_unseen = at
    at = text.rfind(literal)
    for _ in range(_MOST_LAST_HITS):
        if at < first_unseen or first_unseen < 0:
            return
        yield at
        line_start = text.rfind("\n", 0, at)
        at = text.rfind(literal, 0, line_start) if line_start >= 0 else -1


def _fits_line(signature: Signature, index: int, lines: Sequence[Line]) -> bool:
    line = lines[index]
    if signature.line_regex is not None and not signature.line_regex.search(line.text, 0, LONGEST_TOLD):
        return False
    if signature.unless_regex is not None and signature.unless_regex.search(line.text, 0, LONGEST_TOLD):
        return False
    if not signature.in_source and _is_source(lines, index):
        return False
    return signature.warns or signature.weight <= Weight.AFTERMATH or not line.warning


def _fits(signature: Signature, around: _Surroundings) -> bool:
    if signature.phases and around.phase is not None and around.phase not in signature.phases:
        return False
    if signature.frame_regex is not None and not signature.frame_regex.search(around.frame):
        return False
    if signature.near_regex is not None and not signature.near_regex.search(around.message):
        return False
    return signature.not_near_regex is None or not signature.not_near_regex.search(around.message)
