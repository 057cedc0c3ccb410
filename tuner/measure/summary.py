"""What a level amounts to."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.measure.effort import kept_waiting
from tuner.measure.latency import Latencies, Limit, latency_percentiles
from tuner.measure.level import requests_by_round, rounds_of
from tuner.measure.measurement import LevelSample, LevelSummary, RequestSample
from tuner.measure.rounds import Steady, steady_of
from tuner.measure.window import DecodeWindow

GAP_LIMIT = 0.05
"""A larger gap between the client's count and the server's own means that one of the two is wrong."""

_FEWEST_SERVER_LINES = 3
_STEPS_OF_A_LAST_LINE = 120
_UNSHARED = 0.5


def summarise(level: LevelSample, limits: Sequence[Limit] = ()) -> LevelSummary:
    """What the level amounts to; with `limits`, also how many of its requests met all of them.

    Latencies are over all requests from their send to their end, not only over the window. The accept length
    is output tokens per verification step as the requests report it, else the mean of the server's decode
    lines. Raises `NoWindow` for a level that `void_reason` finds void.
    """
    rounds = rounds_of(level)
    windows = [one.window for one in rounds]
    steady = steady_of(rounds, level.kind)
    latencies = [found for found in map(Latencies.of, level.requests) if found is not None]
    latency_ms = latency_percentiles(latencies)
    tpots_ms = [one.tpot_ms for one in latencies if one.tpot_ms is not None]
    output_tokens = sum(request.output_tokens for request in level.requests)
    span_s = sum(_span_s(requests) for requests in requests_by_round(level))
    good = sum(one.meets(limits) for one in latencies) if limits else None
    server_tok_s = _server_tok_s(level, windows)
    return LevelSummary(
        concurrency=level.concurrency,
        decode_tok_s=steady.tok_s.mean,
        window_s=sum(window.length_s for window in windows),
        running=max(window.running for window in windows),
        whole=all(window.whole for window in windows),
        ttft_p50_ms=latency_ms["ttft_p50_ms"],
        ttft_p99_ms=latency_ms["ttft_p99_ms"],
        itl_p50_ms=latency_ms["itl_p50_ms"],
        itl_p99_ms=latency_ms["itl_p99_ms"],
        tpot_mean_ms=sum(tpots_ms) / len(tpots_ms) if tpots_ms else 0.0,
        output_tokens=output_tokens,
        cached_tokens=sum(request.cached_tokens for request in level.requests),
        server_tok_s=server_tok_s,
        accept_length=_accept_length(level),
        # Older servers print retractions without counting them per request.
        retractions=max(sum(request.retractions for request in level.requests), level.retraction_lines),
        kind=level.kind,
        rate=level.rate,
        low=steady.tok_s.low,
        high=steady.tok_s.high,
        n=steady.tok_s.n,
        rounds=len(rounds),
        dropped=steady.dropped,
        drift=steady.drift,
        bimodal=steady.bimodal,
        output_tok_s=output_tokens / span_s if span_s else 0.0,
        steps=steady.steps_s,
        accepted=steady.accepted,
        latency_ms=latency_ms,
        good_share=good / len(level.requests) if good is not None else None,
        goodput_req_s=good / span_s if good is not None and span_s else None,
        distinct_share=level.distinct_share,
        energy_j=level.energy_j,
        tok_per_j=output_tokens / level.energy_j if level.energy_j else None,
        client_cpu_share=max((effort.cpu_share for effort in level.client), default=None),
        client_lag_ms=max((effort.lag_p99_ms for effort in level.client), default=None),
        warnings=tuple(_warnings(level, windows, steady, server_tok_s)),
    )


def _warnings(
    level: LevelSample, windows: Sequence[DecodeWindow], steady: Steady, server_tok_s: float | None
) -> list[str]:
    found = []
    tok_s = steady.tok_s.mean
    # Lines with a prefill between them are left out, so they say nothing of a span that is full of prefills.
    alike = _enough_lines(level) and all(window.whole and window.clean for window in windows)
    if server_tok_s and alike and abs(tok_s / server_tok_s - 1.0) > GAP_LIMIT:
        found.append(
            f"client and server disagree by {tok_s / server_tok_s - 1.0:+.1%}: "
            f"{tok_s:.1f} tok/s were received, the server says {server_tok_s:.1f}"
        )
    if steady.drift:
        found.append(f"the speed drifted by {steady.drift:+.1%} from the first half to the second")
    if steady.dropped:
        found.append(
            f"the first {steady.dropped} of {len(windows)} rounds are left out: the server was not warm"
        )
    if steady.bimodal:
        found.append("the speed jumps between two values")
    if not all(window.clean for window in windows):
        found.append("prefills of new requests fill most of the time and are counted in")
    if level.distinct_share < 1.0:
        found.append(f"only {level.distinct_share:.0%} of the prompts are distinct")
    meant = sum(request.shared_tokens for request in level.requests)
    cached = sum(request.cached_tokens for request in level.requests)
    if cached < _UNSHARED * meant:
        found.append(f"{meant} prompt tokens were meant to come from the prefix cache, {cached} did")
    if late := kept_waiting(level.client):
        found.append(late)
    return found


def _server_tok_s(level: LevelSample, windows: Sequence[DecodeWindow]) -> float | None:
    """The server's own count: the mean of its steady decode lines, else its last one.

    SGLang keeps the last line's figure for `/server_info`. It belongs to the window only where a whole
    batch decoded until the end, and long enough for several lines (one per 40 steps by default).
    """
    if level.kind not in ("batch", "closed"):
        return None  # lines of a level whose batch changes are never steady
    lines = level.server_tok_s
    if lines:
        return sum(lines) / len(lines)
    steps = min(window.steps / max(window.mean_running, 1e-9) for window in windows)
    whole = level.kind == "batch" and all(window.whole for window in windows)
    return level.server_last_tok_s if whole and steps >= _STEPS_OF_A_LAST_LINE else None


def _enough_lines(level: LevelSample) -> bool:
    """Whether the server's count is more than the luck of one or two lines."""
    return len(level.server_tok_s) >= _FEWEST_SERVER_LINES or not level.server_tok_s


def _accept_length(level: LevelSample) -> float | None:
    steps = sum(request.verify_steps for request in level.requests)
    if steps:
        return sum(request.output_tokens for request in level.requests) / steps
    lengths = level.server_accept_lengths
    return sum(lengths) / len(lengths) if lengths else None


def _span_s(requests: Sequence[RequestSample]) -> float:
    """From the first send to the last token."""
    ends = [request.arrivals_s[-1] for request in requests if request.arrivals_s]
    return max(ends) - min(request.sent_s for request in requests) if ends else 0.0
