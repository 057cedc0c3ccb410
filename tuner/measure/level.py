"""One load level: whether it counts, what it amounts to, and how its raw record is kept."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from tuner.measure.measurement import LevelSample, LevelSummary, RequestSample
from tuner.measure.statistics import median, percentile
from tuner.measure.window import NoWindow, decode_window, gaps_of

_CACHED_SHARE_LIMIT = 0.10


def void_reason(level: LevelSample) -> str:
    """Why the level does not count, or the empty string.

    Void are: failed or missing requests, requests with fewer tokens than asked for, more than 10 % of the
    prompt tokens answered from the prefix cache, and a decode window too small to divide by.
    """
    failed = [request.error for request in level.requests if request.error]
    if failed:
        return f"{len(failed)} of {level.concurrency} requests failed: {failed[0]}"
    if len(level.requests) != level.concurrency:
        return f"{len(level.requests)} of {level.concurrency} requests were sent"
    fewest = min((_output_tokens(request) for request in level.requests), default=0)
    if fewest < level.output_tokens:
        return f"a request returned {fewest} of {level.output_tokens} tokens"
    cached = sum(request.cached_tokens for request in level.requests)
    prompts = level.input_tokens * level.concurrency
    if cached > _CACHED_SHARE_LIMIT * prompts:
        return f"{cached} of {prompts} prompt tokens came from the prefix cache"
    try:
        decode_window(level.requests)
    except NoWindow as error:
        return f"no decode window: {error}"
    return ""


def summarise(level: LevelSample) -> LevelSummary:
    """What the level amounts to.

    Latencies are over all requests from their send to their end, not only over the window. The inter-token
    latency is the gap between one chunk and the next: with speculation, or with the server's
    `--stream-interval`, a chunk carries several tokens. The mean time per output token is
    (finish - first token) / (tokens - 1), averaged over requests. The accept length is output tokens per
    verification step as the requests report it, else the median of the server's decode lines.

    Raises `NoWindow` for a level that `void_reason` finds void.
    """
    window = decode_window(level.requests)
    ttft_ms = [(request.arrivals_s[0] - request.sent_s) * 1e3 for request in level.requests]
    itl_ms = [gap_s * 1e3 for request in level.requests for gap_s in gaps_of(request.arrivals_s)]
    return LevelSummary(
        concurrency=level.concurrency,
        decode_tok_s=window.tok_s,
        window_s=window.length_s,
        running=window.running,
        whole=window.whole,
        ttft_p50_ms=percentile(ttft_ms, 50),
        ttft_p99_ms=percentile(ttft_ms, 99),
        itl_p50_ms=percentile(itl_ms, 50) if itl_ms else 0.0,
        itl_p99_ms=percentile(itl_ms, 99) if itl_ms else 0.0,
        tpot_mean_ms=_tpot_mean_ms(level),
        output_tokens=sum(_output_tokens(request) for request in level.requests),
        cached_tokens=sum(request.cached_tokens for request in level.requests),
        server_tok_s=median(level.server_tok_s) if level.server_tok_s else None,
        accept_length=_accept_length(level),
        # Older servers print retractions without counting them per request.
        retractions=max(sum(request.retractions for request in level.requests), level.retraction_lines),
    )


def level_to_line(level: LevelSample) -> str:
    """The raw record as one line of compact JSON, without a line end."""
    return json.dumps(_plain(level), separators=(",", ":"))


def level_from_line(line: str) -> LevelSample:
    """The record that `level_to_line` wrote.

    Raises `ValueError` for anything else, such as a line that was cut off.
    """
    try:
        found = json.loads(line)
        requests = tuple(_request_from(request) for request in found.pop("requests"))
        return LevelSample(requests=requests, **_with_tuples(found))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not the record of a load level: {error}") from error


def _plain(record: LevelSample | RequestSample) -> dict[str, Any]:
    """The record's fields; unlike `dataclasses.asdict` without copying the many arrival times."""
    plain = {field.name: getattr(record, field.name) for field in fields(record)}
    if isinstance(record, LevelSample):
        plain["requests"] = [_plain(request) for request in record.requests]
    return plain


def _request_from(found: dict[str, Any]) -> RequestSample:
    return RequestSample(**_with_tuples(found))


def _with_tuples(found: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def _output_tokens(request: RequestSample) -> int:
    return request.tokens[-1] if request.tokens else 0


def _tpot_mean_ms(level: LevelSample) -> float:
    """Zero where every request returned a single token."""
    times_ms = [
        (request.arrivals_s[-1] - request.arrivals_s[0]) / (_output_tokens(request) - 1) * 1e3
        for request in level.requests
        if _output_tokens(request) > 1
    ]
    return sum(times_ms) / len(times_ms) if times_ms else 0.0


def _accept_length(level: LevelSample) -> float | None:
    steps = sum(request.verify_steps for request in level.requests)
    if steps:
        return sum(_output_tokens(request) for request in level.requests) / steps
    return median(level.server_accept_lengths) if level.server_accept_lengths else None
