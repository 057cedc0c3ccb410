"""What was sent, what came back and what it amounts to: raw samples, and summaries computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.measure.estimate import Estimate
from tuner.measure.lengths import Lengths

KINDS = ("batch", "waves", "closed", "burst", "open")
LOADS = ("own", "bench-serving")


@dataclass(frozen=True)
class Workload:
    """What is sent to every configuration, and how long a level is measured.

    `kind` is how a level sends its requests:

    - `batch`: `concurrency` requests at once, again when all have ended.
    - `waves`: the same with answers of different lengths, so that the batch shrinks as they end.
    - `closed`: `concurrency` requests at all times; who is answered asks the next one.
    - `burst`: `concurrency` requests at once every `burst_every_s` seconds, answered or not.
    - `open`: single requests at random moments (Poisson), `rates` of them per second.

    `load` is what sends them: the tuner's `own` client, or `bench-serving`, SGLang's own benchmark (batches
    of random prompts of one length; see `tuner.measure.crosscheck`).

    Levels are `concurrency`, or `rates` for the kind `open`; each is run on the same launch. `requests` is
    how many requests one round of the kinds closed, burst and open sends (see `round_requests`).

    `dataset` is what they ask: `random` token ids, `builtin` texts, `shared-prefix` (random ids whose first
    `prefix_tokens` are the same in each of `prefix_groups` groups), or a `dataset_file`: `sharegpt` or
    `jsonl`. None as `input_tokens` or `output_tokens`: as long as the file has them.

    A level is repeated in rounds with fresh prompts until the 95 % interval of its mean is within
    +- `precision` of it, at least `batches` times and at most `max_batches` times; no further round begins
    after `repeat_limit_s` seconds. `level_limit_s` bounds one round, hung requests included.

    The server is warmed up at the busiest level for at least `warmup_s` seconds with answers of
    `warmup_output_tokens`, until the last rounds are as fast as the ones before, at most `warmup_limit_s`.
    A server from which nothing comes for `silence_limit_s` hangs; a long prefill of the whole level has to
    fit into that. `expected_level_s` is used for the first estimate of hours.
    """

    input_tokens: Lengths | None
    output_tokens: Lengths | None
    concurrency: tuple[int, ...] = ()
    kind: str = "batch"
    load: str = "own"
    rates: tuple[float, ...] = ()
    requests: int | None = None
    burst_every_s: float = 1.0
    dataset: str = "random"
    dataset_file: Path | None = None
    prefix_tokens: int = 0
    prefix_groups: int = 1
    precision: float = 0.01
    batches: int = 2
    max_batches: int = 50
    repeat_limit_s: float = 30.0
    level_limit_s: float = 600.0
    warmup_output_tokens: int = 64
    warmup_s: float = 15.0
    warmup_limit_s: float = 120.0
    silence_limit_s: float = 300.0
    expected_level_s: float = 30.0

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels in the order in which they are measured: concurrencies, or rates."""
        return self.rates if self.kind == "open" else self.concurrency

    def round_requests(self, level: float) -> int:
        """How many requests one round of a level sends."""
        if self.kind in ("batch", "waves"):
            return int(level)
        if self.requests is not None:
            return max(self.requests, 1 if self.kind == "open" else int(level))
        return max(20, round(10 * level)) if self.kind == "open" else 4 * int(level)

    def to_json(self) -> dict[str, Any]:
        """What is sent, JSON-able: two workloads measure the same thing exactly when these are equal."""
        found: dict[str, Any] = {
            "kind": self.kind,
            "load": self.load,
            "dataset": self.dataset,
            "input_tokens": self.input_tokens.to_json() if self.input_tokens else None,
            "output_tokens": self.output_tokens.to_json() if self.output_tokens else None,
            "concurrency": list(self.concurrency),
            "warmup_output_tokens": self.warmup_output_tokens,
        }
        if self.kind == "open":
            found["rate"] = list(self.rates)
        if self.kind == "burst":
            found["burst_every_s"] = self.burst_every_s
        if self.kind in ("closed", "burst", "open"):
            found["requests"] = self.requests
        if self.dataset_file is not None:
            found["dataset_file"] = str(self.dataset_file)
        if self.dataset == "shared-prefix":
            found |= {"prefix_tokens": self.prefix_tokens, "prefix_groups": self.prefix_groups}
        return found


@dataclass(frozen=True)
class RequestSample:
    """One request as the client saw it. Times are monotonic seconds; `tokens` are cumulative counts.

    `arrivals_s[i]` is when `tokens[i]` output tokens had been received. `error` is empty for a request that
    ended well: the last chunk carried a finish reason and the stream closed with `[DONE]`. `round` counts
    the rounds of its level from 0; `asked_tokens` is how long the answer was to be, `shared_tokens` how much
    of the prompt was meant to come from the prefix cache.
    """

    sent_s: float
    arrivals_s: tuple[float, ...]
    tokens: tuple[int, ...]
    cached_tokens: int = 0
    prompt_tokens: int = 0
    retractions: int = 0
    verify_steps: int = 0
    error: str = ""
    round: int = 0
    asked_tokens: int = 0
    shared_tokens: int = 0

    @property
    def output_tokens(self) -> int:
        """The tokens received."""
        return self.tokens[-1] if self.tokens else 0

    @property
    def first_token_s(self) -> float | None:
        """When the first token arrived."""
        return self.arrivals_s[0] if self.arrivals_s else None

    @property
    def finish_s(self) -> float | None:
        """When the last token arrived."""
        return self.arrivals_s[-1] if self.arrivals_s else None


@dataclass(frozen=True)
class ClientEffort:
    """What a round of `seconds` cost the client: its share of one core, and how late its event loop was.

    `lag_p99_ms` and `late_share` come from a timer that is set every 20 ms; see `tuner.measure.effort`.
    """

    seconds: float
    cpu_share: float
    lag_p99_ms: float
    late_share: float


@dataclass(frozen=True)
class LevelSample:
    """The raw record of one load level: its requests and what the server's log said meanwhile.

    `concurrency` is that of the workload, 0 for a level of the kind `open`, which has a `rate` instead.
    `server_tok_s` are the `gen throughput` figures of the decode lines printed during the level (only those
    without a prefill since the line before); `server_accept_lengths` likewise; `server_last_tok_s` is what
    the server reports of its last decode line, where that can be asked for. `client` has one entry a round.
    `telemetry` and `energy_j` are whatever watched the machine meanwhile. `void` is empty for a level that
    counts, else the reason.
    """

    concurrency: int
    requests: tuple[RequestSample, ...]
    kind: str = "batch"
    rate: float | None = None
    distinct_share: float = 1.0
    server_tok_s: tuple[float, ...] = ()
    server_accept_lengths: tuple[float, ...] = ()
    server_last_tok_s: float | None = None
    eager_decode_lines: int = 0
    retraction_lines: int = 0
    client: tuple[ClientEffort, ...] = ()
    energy_j: float | None = None
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
    void: str = ""

    @property
    def level(self) -> float:
        """What tells this level from the others: its concurrency, or its rate."""
        return self.concurrency if self.rate is None else self.rate


@dataclass(frozen=True)
class LevelSummary:
    """What a level amounts to.

    `decode_tok_s`: output tokens per second over the steady windows (see `tuner.measure.window`), `low` and
    `high` its 95 % interval over `n` stretches of time, None where there are too few; `running` is the most
    requests that ever decoded at once, of `concurrency`. `rounds` were measured, the first `dropped` of them
    are left out of the mean because the server was still getting faster. `drift` is by how much the second
    half was faster than the first (0.02 is 2 %), 0 where that may be chance; `bimodal` that the speed
    jumped between two values.

    `output_tok_s` is all output tokens over the whole time, prefill, ramp-up and tail included. The engine
    took `steps` steps a second, which gave `accepted` tokens each, of all running requests together:
    decode_tok_s = steps x accepted. `accept_length` is the tokens that one request gains in a step as the
    server counts them, None without speculation.

    Latencies in milliseconds; `latency_ms` holds the percentiles 50, 75, 90, 95 and 99 of each kind
    (`ttft_p90_ms`). `good_share` of the requests met all limits, `goodput_req_s` of them in a second; None
    without limits. `tok_per_j`: output tokens per joule of the GPUs, where that was measured.
    `warnings` are sentences for the record.
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
    kind: str = "batch"
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    rounds: int = 1
    dropped: int = 0
    drift: float = 0.0
    bimodal: bool = False
    output_tok_s: float = 0.0
    steps: Estimate | None = None
    accepted: Estimate | None = None
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    good_share: float | None = None
    goodput_req_s: float | None = None
    distinct_share: float = 1.0
    energy_j: float | None = None
    tok_per_j: float | None = None
    client_cpu_share: float | None = None
    client_lag_ms: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def level(self) -> float:
        """What tells this level from the others: its concurrency, or its rate."""
        return self.concurrency if self.rate is None else self.rate

    @property
    def name(self) -> str:
        """The level for people: `C=8`, or `4 requests/s`."""
        return level_name(self.kind, self.level)

    @property
    def running_shown(self) -> str:
        """`running 16 of 32` where the server never ran the whole level at once, else empty."""
        return "" if self.whole else f"running {self.running} of {self.concurrency}"


@dataclass(frozen=True)
class Measurement:
    """All levels of one launch, in the order in which they were measured."""

    levels: tuple[LevelSummary, ...]

    def level(self, level: float) -> LevelSummary:
        """The summary at a concurrency (or rate); `KeyError` where that was not measured."""
        for summary in self.levels:
            if summary.level == level:
                return summary
        raise KeyError(level)


def level_name(kind: str, level: float) -> str:
    """A level for people: `C=8`, or `4 requests/s` for the kind open."""
    return f"{level:g} requests/s" if kind == "open" else f"C={level:g}"
