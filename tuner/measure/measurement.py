"""What was sent, what came back and what it amounts to: raw samples, and summaries computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Workload:
    """What is sent to every configuration.

    `concurrency` are the load levels, each run on the same launch. `dataset` is `random` (token ids drawn
    afresh for every level). `level_limit_s` bounds one level, hung requests included; `expected_level_s`
    is only used for the first estimate of hours.
    """

    input_tokens: int
    output_tokens: int
    concurrency: tuple[int, ...]
    dataset: str = "random"
    warmup_output_tokens: int = 64
    level_limit_s: float = 600.0
    expected_level_s: float = 30.0

    def to_json(self) -> dict[str, Any]:
        """What is sent, JSON-able: two workloads measure the same thing exactly when these are equal."""
        return {
            "dataset": self.dataset,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "concurrency": list(self.concurrency),
            "warmup_output_tokens": self.warmup_output_tokens,
        }


@dataclass(frozen=True)
class RequestSample:
    """One request as the client saw it. Times are monotonic seconds; `tokens` are cumulative counts.

    `arrivals_s[i]` is when `tokens[i]` output tokens had been received. `error` is empty for a request that
    ended well: the last chunk carried a finish reason and the stream closed with `[DONE]`.
    """

    sent_s: float
    arrivals_s: tuple[float, ...]
    tokens: tuple[int, ...]
    cached_tokens: int = 0
    prompt_tokens: int = 0
    retractions: int = 0
    verify_steps: int = 0
    error: str = ""

    @property
    def first_token_s(self) -> float | None:
        """When the first token arrived."""
        return self.arrivals_s[0] if self.arrivals_s else None

    @property
    def finish_s(self) -> float | None:
        """When the last token arrived."""
        return self.arrivals_s[-1] if self.arrivals_s else None


@dataclass(frozen=True)
class LevelSample:
    """The raw record of one load level: its requests and what the server's log said meanwhile.

    `server_tok_s` are the `gen throughput` figures of the decode lines printed during the level (only those
    without a prefill since the line before); `server_accept_lengths` likewise. `void` is empty for a level
    that counts, else the reason.
    """

    concurrency: int
    input_tokens: int
    output_tokens: int
    requests: tuple[RequestSample, ...]
    server_tok_s: tuple[float, ...] = ()
    server_accept_lengths: tuple[float, ...] = ()
    eager_decode_lines: int = 0
    retraction_lines: int = 0
    attempt: int = 1
    void: str = ""


@dataclass(frozen=True)
class LevelSummary:
    """What a level amounts to.

    `decode_tok_s`: output tokens per second over the window (see `tuner.measure.window`); `running` is the
    most requests that ever decoded at once, of `concurrency`. Latencies in milliseconds. `accept_length`
    is tokens per verification step, None without speculation.
    """

    concurrency: int
    decode_tok_s: float
    window_s: float
    running: int
    whole: bool
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    tpot_mean_ms: float
    output_tokens: int
    cached_tokens: int
    server_tok_s: float | None
    accept_length: float | None
    retractions: int

    @property
    def running_shown(self) -> str:
        """`running 16 of 32` where the server never ran the whole level at once, else empty."""
        return "" if self.whole else f"running {self.running} of {self.concurrency}"


@dataclass(frozen=True)
class Measurement:
    """All levels of one launch, in the order in which they were measured."""

    levels: tuple[LevelSummary, ...]

    def level(self, concurrency: int) -> LevelSummary:
        """The summary at a concurrency; `KeyError` where that was not measured."""
        for level in self.levels:
            if level.concurrency == concurrency:
                return level
        raise KeyError(concurrency)
