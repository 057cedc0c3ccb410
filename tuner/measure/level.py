"""One load level: whether it counts, and how its raw record is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from tuner.measure.effort import limited_by_client
from tuner.measure.measurement import ClientEffort, LevelSample, RequestSample
from tuner.measure.rounds import Round, round_of
from tuner.measure.window import NoWindow

_UNEXPECTED_CACHED_SHARE = 0.10


def requests_by_round(level: LevelSample) -> list[list[RequestSample]]:
    """The requests of each round, the rounds in order."""
    ordered = sorted(level.requests, key=lambda request: request.round)
    return [list(found) for _, found in groupby(ordered, key=lambda request: request.round)]


def rounds_of(level: LevelSample) -> list[Round]:
    """The level's rounds boiled down. Raises `NoWindow`."""
    concurrency = level.concurrency or None
    return [round_of(requests, level.kind, concurrency) for requests in requests_by_round(level)]


def void_reason(level: LevelSample) -> str:
    """Why the level does not count, or the empty string.

    Void are: failed requests, requests with fewer tokens than asked for, more than 10 % of the prompt tokens
    answered from the prefix cache beyond what was meant to be, a client that was itself the limit, and a
    decode window too small to divide by.
    """
    reason = requests_void(level.requests) or limited_by_client(level.client)
    if reason:
        return reason
    try:
        rounds_of(level)
    except NoWindow as error:
        return f"no decode window: {error}"
    return ""


def requests_void(requests: Sequence[RequestSample]) -> str:
    """Why these requests make no level, as far as each of them can be judged for itself."""
    if not requests:
        return "no requests were sent"
    failed = [request.error for request in requests if request.error]
    if failed:
        return f"{len(failed)} of {len(requests)} requests failed: {failed[0]}"
    for request in requests:
        if request.output_tokens < request.asked_tokens:
            return f"a request returned {request.output_tokens} of {request.asked_tokens} tokens"
    prompts = sum(request.prompt_tokens for request in requests)
    unexpected = sum(max(0, request.cached_tokens - request.shared_tokens) for request in requests)
    if unexpected > _UNEXPECTED_CACHED_SHARE * prompts:
        meant = " more than meant" if any(request.shared_tokens for request in requests) else ""
        return f"{unexpected} of {prompts} prompt tokens{meant} came from the prefix cache"
    return ""


def level_to_line(level: LevelSample) -> str:
    """The raw record as one line of compact JSON, without a line end; times to the microsecond."""
    return json.dumps(_plain(level), separators=(",", ":"))


def level_from_line(line: str) -> LevelSample:
    """The record that `level_to_line` wrote.

    Raises `ValueError` for anything else, such as a line that was cut off.
    """
    try:
        found = json.loads(line)
        requests = tuple(RequestSample(**_with_tuples(item)) for item in found.pop("requests"))
        client = tuple(ClientEffort(**item) for item in found.pop("client"))
        return LevelSample(requests=requests, client=client, **_with_tuples(found))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not the record of a load level: {error}") from error


def _plain(record: LevelSample | RequestSample | ClientEffort) -> dict[str, Any]:
    """The record's fields; unlike `dataclasses.asdict` without copying the many arrival times."""
    plain = {field.name: getattr(record, field.name) for field in fields(record)}
    if isinstance(record, LevelSample):
        plain["requests"] = [_plain(request) for request in record.requests]
        plain["client"] = [_plain(effort) for effort in record.client]
        plain["telemetry"] = dict(record.telemetry)
    if isinstance(record, RequestSample):
        plain["sent_s"] = round(record.sent_s, 6)
        plain["arrivals_s"] = [round(moment_s, 6) for moment_s in record.arrivals_s]
    return plain


def _with_tuples(found: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
