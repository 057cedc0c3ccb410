"""A simulated server under load in virtual time: how fast each level is, how long it takes, and death by
memory.

Steady decoding only, from the same step times, memory and noise as the process: a level's speed is that of
the step in the middle of its answers, times the luck of the launch. Where a level does not fit, the server is
full once for every time that the requests which wait fill it again. The scheduler's queueing is not played
through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from tuner.errors import InputError
from tuner.measure.estimate import Estimate, independent_estimate
from tuner.measure.latency import PERCENTS, Limit
from tuner.measure.lengths import Lengths
from tuner.measure.measurement import LevelSample, LevelSummary, Workload
from tuner.simulator.box import Box
from tuner.simulator.deaths import cuda_out_of_memory, traceback_in
from tuner.simulator.noise import LaunchNoise
from tuner.simulator.virtual_start import Standing

_NORMAL = NormalDist()
_MOST_REDRAWS = 30
_ACCEPTANCE_WINDOW_S = 10.0
_INTERVAL = 2.0
"""Half of a 95 % interval over the standard error, roughly."""
_TOKENS_OF_A_FILE = 512
"""Prompts and answers whose lengths stand in a file of texts, which is not read here."""


class OutOfMemory(Exception):
    """The server dies under this load; the text is its scheduler's traceback."""


class TooLong(Exception):
    """A request is longer than the server takes."""


@dataclass(frozen=True)
class Level:
    """One load level on one launch, without noise: its steady speed, and how long it takes.

    `input_tokens` and `output_tokens` are the means of a request, `prefill_tokens` the largest prefill batch,
    `window_s` the decoding of one answer. `first_batch_s` and `prefill_s` are the prefill of the first batch
    and of all requests that run at once; `taken_s` is the whole level.
    """

    concurrency: int
    kind: str
    rounds: int
    running: int
    input_tokens: float
    output_tokens: float
    step_ms: float
    tokens_per_step: float
    first_batch_s: float
    prefill_s: float
    prefill_tokens: float
    window_s: float
    taken_s: float

    @property
    def tok_s(self) -> float:
        """Output tokens per second of all running requests, while decoding."""
        return 1000 * self.running * self.tokens_per_step / self.step_ms

    @property
    def full_s(self) -> float:
        """How long as many requests decode as ever do, over all rounds."""
        return self.rounds * (self.concurrency // self.running) * self.window_s

    @property
    def drafts(self) -> bool:
        """Whether steps can give more than one token."""
        return self.tokens_per_step > 1.0


@dataclass(frozen=True)
class Run:
    """One level as it was measured: speeds of consecutive seconds, and by what drafts were accepted
    better."""

    level: Level
    speeds: tuple[float, ...]
    acceptance: float

    @property
    def tok_s(self) -> Estimate:
        """The decode speed in tok/s, with the interval that its seconds give it."""
        return independent_estimate([self.level.tok_s * self.acceptance * speed for speed in self.speeds])


def check_workload(workload: Workload) -> None:
    """Refuse what virtual time does not play. Raises `InputError`."""
    if not workload.concurrency:
        raise InputError(
            f"virtual time knows no load of the kind {workload.kind}: nothing queues there",
            hint="give workload.concurrency, with the kind batch, waves, closed or burst",
        )


def level_of(box: Box, standing: Standing, workload: Workload, concurrency: int) -> Level:
    """A level of a workload on a server. Raises `TooLong` where no request can be served."""
    settings, plan, model = standing.settings, standing.plan, standing.model
    asked, answered = _mean(workload.input_tokens), _mean(workload.output_tokens)
    longest = min(settings.context_length, plan.kv_tokens) - 1
    if asked + answered > longest:
        raise TooLong(
            f"a request of {asked + answered:.0f} tokens is longer than the server takes, {longest}"
        )
    running = max(1, min(concurrency, plan.max_running, int(plan.kv_tokens // (asked + answered))))
    step_ms = model.step_ms(running, running * (asked + answered / 2))
    window_s = answered * step_ms / 1000 / model.tokens_per_step
    together = max(1, min(running, int(settings.chunk_tokens // asked)))
    first_batch_s = model.prefill_s([(round(asked), 0)] * together)
    prefill_s = first_batch_s * math.ceil(running / together)
    round_s = math.ceil(concurrency / running) * (prefill_s + window_s)
    full_s = concurrency // running * window_s
    spread = _spread_of_a_round(box, running, full_s, drafts=model.tokens_per_step > 1.0)
    rounds = _rounds(workload, round_s, spread)
    return Level(
        concurrency=concurrency,
        kind=workload.kind,
        rounds=rounds,
        running=running,
        input_tokens=asked,
        output_tokens=answered,
        step_ms=step_ms,
        tokens_per_step=model.tokens_per_step,
        first_batch_s=first_batch_s,
        prefill_s=prefill_s,
        prefill_tokens=min(settings.chunk_tokens, running * asked),
        window_s=window_s,
        taken_s=rounds * round_s,
    )


def _spread_of_a_round(box: Box, running: int, full_s: float, *, drafts: bool) -> float:
    """The sd of a round's speed, relative, as far as it differs from round to round of one launch."""
    within = box.noise.within / math.sqrt(max(1.0, full_s))
    accepted = box.noise.acceptance / math.sqrt(running * full_s / _ACCEPTANCE_WINDOW_S) if drafts else 0.0
    return box.noise.scale * math.hypot(within, accepted)


def _rounds(workload: Workload, round_s: float, spread: float) -> int:
    """How many rounds the process's rule gives that are spread like this: see `Workload`."""
    enough = math.ceil((_INTERVAL * spread / workload.precision) ** 2)
    in_time = 1 + math.floor(workload.repeat_limit_s / round_s)
    return max(1, min(max(workload.batches, enough), workload.max_batches, in_time))


def _mean(lengths: Lengths | None) -> float:
    return lengths.mean if lengths is not None else _TOKENS_OF_A_FILE


class VirtualLoad:
    """One launch under load, with its luck. `busy_s` is how long it has served."""

    def __init__(self, box: Box, standing: Standing, seed: str) -> None:
        self._box = box
        self._spare_gib = standing.plan.spare_gib
        self._noise = LaunchNoise(box, seed)
        self.busy_s = 0.0
        memory, luck, place = box.memory, self._noise.chance(), self._noise.chance()
        first_s, last_s = memory.fragmentation_after_s
        fragments = luck < memory.fragmentation_odds and not self._noise.silent
        self._fragmented_at_s = first_s + place * (last_s - first_s) if fragments else math.inf

    def warm_up(self, least_s: float) -> None:
        """Serve for so long, and until the slow first seconds after a start are over."""
        self.busy_s += max(least_s, self._box.warmup.seconds)

    def run(self, level: Level) -> Run:
        """Measure a level. Raises `OutOfMemory`."""
        began_s = self.busy_s
        self.busy_s += level.taken_s
        self._check_memory(level)
        acceptance = self._acceptance(level)
        redraws = max(1, min(_MOST_REDRAWS, math.ceil(level.full_s)))
        speeds = tuple(self._noise.speed(level.running, began_s + second) for second in range(redraws))
        return Run(level, speeds, acceptance)

    def _check_memory(self, level: Level) -> None:
        memory = self._box.memory
        needed_gib = memory.activation_gib_per_8k * level.prefill_tokens / 8192
        if self.busy_s >= self._fragmented_at_s:
            needed_gib += memory.fragmentation_gib
        if needed_gib > self._spare_gib:
            free_gib = max(0.02, self._spare_gib)
            cause = cuda_out_of_memory(self._box, asked_gib=needed_gib, free_gib=free_gib)
            raise OutOfMemory(traceback_in("serving", cause))

    def _acceptance(self, level: Level) -> float:
        """By what the drafts were accepted better than on average, over all streams of the level."""
        noise = self._box.noise
        if self._noise.silent or not level.drafts:
            return 1.0
        streams = level.running * level.full_s / _ACCEPTANCE_WINDOW_S
        luck = min(max(self._noise.draw(), 1e-9), 1 - 1e-9)
        return math.exp(noise.acceptance * noise.scale / math.sqrt(streams) * _NORMAL.inv_cdf(luck))


def sample_of(run: Run) -> LevelSample:
    """The raw record: without requests, since none were made."""
    accepted = (run.level.tokens_per_step * run.acceptance,) if run.level.drafts else ()
    return LevelSample(
        concurrency=run.level.concurrency,
        kind=run.level.kind,
        requests=(),
        server_tok_s=(run.tok_s.mean,),
        server_accept_lengths=accepted,
    )


def summary_of(run: Run, limits: Sequence[Limit] = ()) -> LevelSummary:
    """What the level amounts to. Latencies follow from the step time: requests differ only in how long they
    wait for their first token, half of them as long as the slowest."""
    level, tok_s = run.level, run.tok_s
    accepted = level.tokens_per_step * run.acceptance
    step_ms = 1000 * level.running * accepted / tok_s.mean
    ttft_ms = 1000 * (level.first_batch_s + level.prefill_s) / 2
    last_ttft_ms = 1000 * (level.taken_s / level.rounds - level.window_s)
    tpot_ms = step_ms / accepted
    answer_ms = tpot_ms * level.output_tokens
    latency_ms = {
        f"{kind}_p{percent}_ms": typical if percent <= 50 else late
        for kind, typical, late in (
            ("ttft", ttft_ms, last_ttft_ms),
            ("itl", step_ms, step_ms),
            ("tpot", tpot_ms, tpot_ms),
            ("e2e", ttft_ms + answer_ms, last_ttft_ms + answer_ms),
        )
        for percent in PERCENTS
    }
    good_share = _good_share(latency_ms, limits) if limits else None
    tokens = round(level.rounds * level.concurrency * level.output_tokens)
    return LevelSummary(
        concurrency=level.concurrency,
        kind=level.kind,
        decode_tok_s=tok_s.mean,
        low=tok_s.low,
        high=tok_s.high,
        n=tok_s.n,
        window_s=level.full_s * level.tok_s / tok_s.mean,
        rounds=level.rounds,
        running=level.running,
        whole=level.running == level.concurrency,
        ttft_p50_ms=latency_ms["ttft_p50_ms"],
        ttft_p99_ms=latency_ms["ttft_p99_ms"],
        itl_p50_ms=step_ms,
        itl_p99_ms=step_ms,
        tpot_mean_ms=tpot_ms,
        latency_ms=latency_ms,
        output_tokens=tokens,
        output_tok_s=tokens / level.taken_s,
        good_share=good_share,
        goodput_req_s=None
        if good_share is None
        else good_share * level.rounds * level.concurrency / level.taken_s,
        steps=Estimate(1000 / step_ms),
        accepted=Estimate(accepted),
        cached_tokens=0,
        server_tok_s=tok_s.mean,
        accept_length=accepted if level.drafts else None,
        retractions=0,
    )


def _good_share(latency_ms: Mapping[str, float], limits: Sequence[Limit]) -> float:
    """The share of the requests that meet all limits: all, the faster half, or none."""
    if all(latency_ms[f"{limit.kind}_p99_ms"] <= limit.most_ms for limit in limits):
        return 1.0
    return 0.5 if all(latency_ms[f"{limit.kind}_p50_ms"] <= limit.most_ms for limit in limits) else 0.0
