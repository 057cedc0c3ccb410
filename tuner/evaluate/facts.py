"""What a server's log and its `/server_info` say of it, for the record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tuner.diagnosis.fallbacks import Fallback
from tuner.evaluate.outcome import ServerFacts
from tuner.sglang.endpoints import resolved_values
from tuner.sglang.events import GraphsCaptured, KvAllocated, Limits, LogEvent, WeightsLoaded, leads
from tuner.sglang.log import LogReader
from tuner.space.configuration import Value


def facts_of(
    log: bytes, server_info: Mapping[str, Any], asked: Mapping[str, Value], fallbacks: Iterable[Fallback]
) -> ServerFacts:
    """The facts; of a server that never got ready `server_info` is empty, and what the log told is all.

    `asked` has a value for every tuned parameter, `auto` where it was left out.
    """
    reader = LogReader()
    events = [*reader.feed(log), *reader.finish()]
    limits = [event for event in events if isinstance(event, Limits)]
    resolved = resolved_values(server_info, asked) if server_info else {}
    version = server_info.get("version")
    return ServerFacts(
        version=str(version) if version else None,
        kv_tokens=_kv_tokens(limits),
        max_running_requests=resolved.get("max_running_requests") or _sum_running(limits),
        context_len=min((event.context_len for event in limits), default=None),
        resolved=resolved,
        memory=_memory(events),
        runs_as=_runs_as(asked, resolved, fallbacks) if server_info else "",
    )


def _runs_as(asked: Mapping[str, Value], resolved: Mapping[str, Any], fallbacks: Iterable[Fallback]) -> str:
    """What every tuned parameter came down to: as reported, else as asked, and less what was not honoured."""
    values: dict[str, Any] = {**asked, **resolved}
    values.update({fallback.param: fallback.runs for fallback in fallbacks if fallback.param in asked})
    canonical = json.dumps({name: str(value) for name, value in values.items()}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _kv_tokens(limits: list[Limits]) -> int | None:
    """All data-parallel ranks together; each prints its own line."""
    return sum(event.max_total_num_tokens for event in limits) if limits else None


def _sum_running(limits: list[Limits]) -> int | None:
    return sum(event.max_running_requests for event in limits) if limits else None


def _memory(events: list[LogEvent]) -> dict[str, float]:
    """GiB on the first GPU: weights, draft weights, KV pools, graphs, and what was free at the end."""
    found: dict[str, float] = {}

    def add(name: str, gib: float | None) -> None:
        if gib is not None:
            found[name] = round(found.get(name, 0.0) + gib, 3)

    for event in events:
        if isinstance(event, Limits):
            if event.available_gib is not None and leads(event.rank):
                found["available_gib"] = event.available_gib
        elif isinstance(event, WeightsLoaded) and leads(event.rank):
            add("draft_weights_gib" if event.draft else "weights_gib", event.weights_gib)
        elif isinstance(event, KvAllocated) and leads(event.rank):
            add("kv_cache_gib", event.size_gib)
        elif isinstance(event, GraphsCaptured) and leads(event.rank):
            add("graphs_gib", event.memory_gib)
    return found
