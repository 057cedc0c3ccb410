"""The particular of a failure, for its sentence: what an assertion said, which flag or file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.diagnosis.failure import Kind
from tuner.diagnosis.lines import Line

_LONGEST = 200
_LINES_TO_ASSERT = 4
_TOLD_BY_NUMBERS = frozenset(
    {Kind.OOM_WEIGHTS, Kind.OOM_KV_CACHE, Kind.OOM_GRAPH_CAPTURE, Kind.OOM_DRAFT_MODEL, Kind.OOM_SERVING}
)
_SAID_ALREADY = frozenset(
    {
        Kind.GPU_BUSY,
        Kind.HANG,
        Kind.KILLED,
        Kind.PEER_LOST,
        Kind.SLOW_WEIGHT_LOAD,
        Kind.WARMUP_FAILED,
        Kind.WATCHDOG_TIMEOUT,
    }
)
_ARGPARSE = re.compile(r"\berror: (.+)")
_RAISED = re.compile(r"(?:^|[\s:])(?P<type>(?:\w+\.)*\w*(?:Error|Exception)): (?P<text>.*\S)")
_BARE = re.compile(r"^(?:\w+\.)*AssertionError:?\s*$")
_WRAPPED = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception): |^Capture [\w ]{0,20}graph failed: ", re.IGNORECASE
)
_ADVICE = re.compile(
    r"\s*(?:Possible solutions|Search for `|Compile with `|For debugging consider"
    r"|Supported (?:architectures|list)|CUDA kernel errors might|If you need|See https?:"
    r"|Exception raised from).*"
)


def specific_of(kind: Kind, lines: Sequence[Line], index: int) -> str:
    """What the line at `index` says beyond its kind, in one clause without a full stop; empty if nothing."""
    if kind in _SAID_ALREADY or kind in _TOLD_BY_NUMBERS:
        return ""
    text = lines[index].text.strip()
    if _BARE.match(text):
        return _asserted(lines, index)
    refused = _ARGPARSE.search(text)
    raised = _RAISED.search(text)
    if raised is not None:
        told = raised["text"]
        if raised["type"].rsplit(".", 1)[-1] == "KeyError":
            told = f"no entry {told}"
    elif refused is not None:
        told = refused[1]
    else:
        return ""
    return _clause(told)


def _asserted(lines: Sequence[Line], index: int) -> str:
    """The source line under the innermost frame of a bare assertion."""
    for line in reversed(lines[max(0, index - _LINES_TO_ASSERT) : index]):
        text = line.text.strip()
        if text.startswith("assert "):
            return _clause(text)
    return ""


def _clause(text: str) -> str:
    while (inner := _WRAPPED.match(text)) is not None:
        text = text[inner.end() :]
    text = _ADVICE.sub("", text).strip().rstrip(".:! ")
    if len(text) > _LONGEST:
        text = text[:_LONGEST].rsplit(" ", 1)[0] + " …"
    return text
