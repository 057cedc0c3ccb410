"""A log cut into lines: numbered, cleaned of what collectors put in front, with rank and time where told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

LONGEST_LINE = 4000
"""Characters of a line that are looked at: longer ones are argument dumps, tables of tensors or garbage."""
_SHORTEST_TELLING = 6
"""Characters below which a line has neither a prefix nor a message."""
_SHORTEST_LINE = 3
"""Characters below which a line says nothing at all and is left out."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# Docker keeps each line as a JSON record.
_JSON_RECORD = re.compile(r'\{"log":"((?:[^"\\]|\\.)*)"')
# What docker, compose, ray, kubectl, journald and Slurm put before a program's own line.
_COLLECTOR = re.compile(
    r"\s*(?:"
    r"[\w.-]{1,60} {0,20}\| "
    r"|\[[\w.-]{1,60}\] {0,20}\| "
    r"|\(\w[\w.:-]{0,60} pid=\d+(?:, ip=[\d.]+)?\) ?"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d{4}-\d\d-\d\dT[\d:.,]+Z? "
    r"|\[?\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? +(?:std(?:out|err) [FP] )?"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?:[+-]\d\d:?\d\d)? - [\w.]+ - (?:DEBUG|INFO|WARNING"
    r"|ERROR) - "
    r"|(?:[A-Z][a-z]{2}|\d{1,2}月) {1,2}\d{1,2} \d\d:\d\d:\d\d [\w.-]{1,60} [\w.@/-]{1,60}(?:\[\d+\])?: "
    r"|\d\d-\d\d \d\d:\d\d:\d\d\.\d+ {1,2}"
    r"|\d{1,4}: (?=[\[T])"
    r")"
)
# SGLang: '[2026-05-01 10:00:00.123 DP0 TP1 EP1] ', older '[10:00:00 TP0] ', '[gpu_id=0] ', a cut '… TP0] ';
# a launcher's own logger: '2026-05-01 10:00:00 ERROR 125 [ DP1 TP1 scheduler.py:26] '.
_RANKS = r"(?P<ranks>(?: ?(?:DP|PP|ATTN_CP|ATTN_TP|MOE_DP|TP|EP)\d+)*)"
_HEADER = re.compile(
    r"\s*(?:"
    rf"\[?(?:\d{{4}}-)?(?:\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?{_RANKS}\] ?"
    r"|\[(?P<gpu>(?:gpu(?:_id)?=|TP|DP)\d+)(?: [A-Z_]+\d+)*\] ?"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d+)? (?:- )?(?:INFO|WARNING|ERROR|CRITICAL) (?:- )?(?:\d+ )?"
    r"(?:\[(?P<place>[^\]]{0,80})\] ?)?"
    r")"
)
_TORCH = re.compile(r"(?:\[(?P<rank>rank\d+)\]:)?\[(?P<level>[EWIF])\d{3,4} [\d:.]+ (?P<file>[\w.]+:\d+)\] ?")
_RANK_ONLY = re.compile(r"\[(?P<rank>rank\d+)\]: ?")
_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_RANK_IN_PLACE = re.compile(r"(?:DP|PP|TP|EP)\d+(?: (?:DP|PP|TP|EP)\d+)*")
_WARNING = re.compile(
    r"^\s*(?:warnings\.warn|Warning\b|WARN(?:ING)?\b)|\b(?:User|Future|Deprecation|Runtime|Import)Warning\b"
)


@dataclass(frozen=True)
class Line:
    """One printed line.

    `number` counts line feeds from 1 (a progress bar redrawn with carriage returns stays one number), `text`
    is the message without prefixes, `raw` the line as printed, `rank` like "DP0 TP1" or "rank3", `stamp` a
    time in seconds that is only good for comparing within a log (None where the line has no date).
    `header` tells that the program started a message here; lines without one continue the message above.
    """

    number: int
    text: str
    raw: str
    rank: str | None
    stamp: float | None
    header: bool
    mild: bool

    @property
    def warning(self) -> bool:
        """Whether the line calls itself a warning, and so by itself ends nothing."""
        return self.mild or _WARNING.search(self.text) is not None


def split_lines(log: bytes | str) -> list[Line]:
    """The lines of a log that say something, oldest first.

    Bytes that are no UTF-8 are replaced. A log that a collector shows newest first is turned round (the
    numbers stay those of the file).
    """
    text = log.decode("utf-8", errors="replace") if isinstance(log, bytes) else log
    lines: list[Line] = []
    for number, whole in enumerate(text.split("\n"), start=1):
        for part in whole.split("\r"):
            if len(part) >= _SHORTEST_LINE and not part.isspace():
                lines.append(_read(number, part))
    return lines[::-1] if _newest_first(lines) else lines


def _read(number: int, part: str) -> Line:
    if len(part) < _SHORTEST_TELLING:
        return Line(number, part, part, None, None, header=False, mild=False)
    raw = part[:LONGEST_LINE]
    if "\x1b" in raw:
        raw = _ANSI.sub("", raw)
    stamp = _stamp(raw)
    text = raw
    if raw.startswith('{"log":'):
        record = _JSON_RECORD.match(raw)
        if record is not None:
            text = record[1].replace("\\n", "").replace('\\"', '"').replace("\\t", "\t")
    for _ in range(3):
        collector = _COLLECTOR.match(text)
        if collector is None:
            break
        text = text[collector.end() :]
    rank: str | None = None
    header = False
    found = _HEADER.match(text)
    if found is not None:
        header = True
        rank = (found["ranks"] or "").strip() or found["gpu"] or _rank_in(found["place"])
        text = text[found.end() :]
    mild = False
    torch = _TORCH.match(text)
    if torch is not None:
        header, rank, mild = True, torch["rank"] or rank, torch["level"] in "WI"
        text = text[torch.end() :]
    elif text.startswith("[rank"):
        ranked = _RANK_ONLY.match(text)
        if ranked is not None:
            rank, text = ranked["rank"], text[ranked.end() :]
    return Line(number, text, raw, rank, stamp, header, mild)


def _rank_in(place: str | None) -> str | None:
    found = _RANK_IN_PLACE.search(place) if place else None
    return found.group() if found is not None else None


def _stamp(raw: str) -> float | None:
    found = _STAMP.search(raw[:100])
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[i]) for i in range(1, 7))
    # Only the order matters, so months of 31 days will do, and no date is ever invalid.
    days = (year * 12 + month) * 31 + day
    return ((days * 24 + hour) * 60 + minute) * 60 + second + float(f"0.{found[7] or 0}")


def _newest_first(lines: list[Line]) -> bool:
    stamps = [line.stamp for line in lines if line.stamp is not None]
    falls = sum(later < earlier for earlier, later in pairwise(stamps))
    rises = sum(later > earlier for earlier, later in pairwise(stamps))
    return len(stamps) > 2 and falls >= 2 and rises == 0
