"""The measuring of one running server: warm-up, then level after level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.clock import Clock, SystemClock
from tuner.errors import TunerError
from tuner.measure.datasets import Dataset, open_dataset
from tuner.measure.effort import limited_by_client
from tuner.measure.highest import next_level
from tuner.measure.level import requests_void, void_reason
from tuner.measure.load import SILENT, Schedule, schedule_of
from tuner.measure.measurement import (
    ClientEffort,
    LevelSample,
    LevelSummary,
    Measurement,
    RequestSample,
    Workload,
    level_name,
)
from tuner.measure.objective import Objective
from tuner.measure.prompts import SAFE_TOKEN_IDS, Prompt, distinct_share
from tuner.measure.rounds import Round, round_of, steady_of
from tuner.measure.seams import (
    LevelWatch,
    MeasureListener,
    NoWatch,
    OwnLoad,
    RoundLoad,
    ServerUnderLoad,
    TellsLastSpeed,
)
from tuner.measure.serverlog import ServerSeries, joined, series_of
from tuner.measure.summary import summarise
from tuner.measure.warmth import halves_agree
from tuner.measure.window import NoWindow

ATTEMPTS = 2
"""A void level is measured again once."""

_DYING_LIMIT_S = 10.0
_DYING_EVERY_S = 0.2
_MOST_WARMUP_ROUNDS = 200


class LevelVoid(TunerError):
    """A level stayed void although it was measured again; the server itself is alive.

    `name` tells the level (`C=8`), `concurrency` is its number. `samples` are the raw records of everything
    that was measured before, the void attempts included.
    """

    def __init__(self, kind: str, level: float, reason: str, samples: Sequence[LevelSample]) -> None:
        self.name = level_name(kind, level)
        super().__init__(f"the load at {self.name} gives no result: {reason}")
        self.concurrency = level
        self.reason = reason
        self.samples = tuple(samples)

    @property
    def is_hang(self) -> bool:
        """Whether the server lives but has fallen silent."""
        return SILENT in self.reason


class ServerGone(TunerError):
    """The server process ended while load was put on it: its exit code and its log tell why.

    `name`, `concurrency` and `samples` (up to then) are those of `LevelVoid`.
    """

    def __init__(self, kind: str, level: float, reason: str, samples: Sequence[LevelSample]) -> None:
        self.name = level_name(kind, level)
        super().__init__(f"the server ended under load at {self.name}: {reason}")
        self.concurrency = level
        self.reason = reason
        self.samples = tuple(samples)


def measure(
    server: ServerUnderLoad,
    workload: Workload,
    seed: str,
    listener: MeasureListener,
    *,
    objective: Objective | None = None,
    load: RoundLoad | None = None,
    watch: LevelWatch | None = None,
    clock: Clock | None = None,
    token_ids: range = SAFE_TOKEN_IDS,
) -> tuple[Measurement, list[LevelSample]]:
    """Warm the server up at its busiest level, then measure every level in the given order.

    An `objective` brings its limits, by which requests are judged good; one that looks for the highest load
    within them measures the levels that a bisection between the workload's lowest and highest needs, and
    no others. `load` sends the requests in place of the tuner's own client (see `crosscheck`). `watch` hears
    when each level begins and ends.

    Returns the summaries and all raw records, void attempts included. The same `seed` sends the same
    prompts, which no other level and no other attempt sends. Raises `ServerGone` when the server dies,
    `LevelVoid` when a level is void twice or the warm-up brings nothing back, and `InputError` for a
    workload that cannot be sent.
    """
    session = _Session(
        server,
        workload,
        open_dataset(workload, token_ids),
        seed,
        load or OwnLoad(),
        watch or NoWatch(),
        clock or SystemClock(),
        samples=[],
    )
    busiest = max(workload.levels)
    listener.on_warmup(busiest)
    session.warm_up(busiest)
    summaries: list[LevelSummary] = []
    while True:
        if objective is not None and objective.seeks_highest:
            level = next_level(workload, summaries, objective.limits)
        else:
            level = workload.levels[len(summaries)] if len(summaries) < len(workload.levels) else None
        if level is None:
            return Measurement(tuple(summaries)), session.samples
        sample = session.measure_level(level, listener)
        summaries.append(summarise(sample, objective.limits if objective is not None else ()))
        listener.on_level_done(sample, summaries[-1])


@dataclass
class _Session:
    server: ServerUnderLoad
    workload: Workload
    dataset: Dataset
    seed: str
    load: RoundLoad
    watch: LevelWatch
    clock: Clock
    samples: list[LevelSample]

    # --- warm-up ------------------------------------------------------------------------------------

    def warm_up(self, level: float) -> None:
        """Short load that nobody counts. Only a warm-up without any answer is worth an error."""
        began_s = self.clock.monotonic_s()
        rounds: list[Round] = []
        for number in range(_MOST_WARMUP_ROUNDS):
            found = self._warm_up_once(level, number)
            if found is not None:
                rounds.append(found)
            took_s = self.clock.monotonic_s() - began_s
            if not self.workload.warmup_s or took_s >= self.workload.warmup_limit_s:
                return
            if took_s >= self.workload.warmup_s and (found is None or halves_agree(rounds)):
                return

    def _warm_up_once(self, level: float, number: int) -> Round | None:
        """One round with short answers; None where it tells no speed."""
        count = self.workload.round_requests(level)
        prompts = [
            replace(prompt, output_tokens=min(prompt.output_tokens, self.workload.warmup_output_tokens))
            for prompt in self.dataset.draw(count, f"{self.seed}/warm-up {number}")
        ]
        requests, _ = self._send(prompts, schedule_of(self.workload, level, f"{self.seed}/{number}"))
        failed = [request.error for request in requests if request.error]
        if failed:
            self._raise_if_gone(level, failed[0], requests)
            if len(failed) == len(requests):
                reason = f"all {len(requests)} requests of the warm-up failed: {failed[0]}"
                raise LevelVoid(self.workload.kind, level, reason, self.samples)
            return None
        try:
            return round_of(requests, self.workload.kind, self._concurrency(level))
        except NoWindow:
            return None

    # --- a level ------------------------------------------------------------------------------------

    def measure_level(self, level: float, listener: MeasureListener) -> LevelSample:
        """The level's raw record; a void one is measured again once. All attempts are kept in `samples`."""
        for attempt in range(1, ATTEMPTS + 1):
            listener.on_level(level, attempt)
            sample = self._attempt(level, attempt)
            self.samples.append(sample)
            if not sample.void:
                return sample
            self._raise_if_gone(level, sample.void, sample.requests)
            listener.on_level_void(sample)
            if SILENT in sample.void:
                break  # what hangs goes on hanging
        raise LevelVoid(self.workload.kind, level, sample.void, self.samples)

    def _attempt(self, level: float, attempt: int) -> LevelSample:
        sample = LevelSample(
            concurrency=self._concurrency(level) or 0,
            requests=(),
            kind=self.workload.kind,
            rate=level if self.workload.kind == "open" else None,
            attempt=attempt,
        )
        seed = f"{self.seed}/{level_name(self.workload.kind, level)}/attempt {attempt}"
        try:
            self.server.flush_cache()
        except TunerError as error:
            return replace(sample, void=f"the prefix cache could not be flushed: {error.message}")
        primers = self.dataset.primers(seed)
        if primers:
            self._send(primers, Schedule(len(primers)))
        self.watch.begin()
        sent = self._rounds(level, seed)
        watched = self.watch.end()
        sample = replace(
            sample,
            requests=tuple(sent.requests),
            distinct_share=distinct_share(sent.prompts),
            server_tok_s=sent.series.gen_tok_s,
            server_accept_lengths=sent.series.accept_lengths,
            server_last_tok_s=self._last_speed() if not sent.void else None,
            eager_decode_lines=sent.series.eager_decode_lines,
            retraction_lines=sent.series.retraction_lines,
            client=tuple(sent.efforts),
            energy_j=watched.energy_j,
            telemetry=watched.facts,
        )
        return replace(sample, void=sent.void or watched.void or void_reason(sample))

    def _rounds(self, level: float, seed: str) -> _Sent:
        """Rounds until the speed is known well enough, something is wrong, or the time is up."""
        began_s = self.clock.monotonic_s()
        workload, count = self.workload, self.workload.round_requests(level)
        sent = _Sent([], [], [], [], ServerSeries(), "")
        for number in range(workload.max_batches):
            left = self.dataset.left(number * count)
            if number and left is not None and left < count:
                return sent
            prompts = self.dataset.draw(count, seed, number * count)
            mark = self.server.log_mark()
            requests, effort = self._send(prompts, schedule_of(workload, level, f"{seed}/{number}"))
            requests = tuple(replace(request, round=number) for request in requests)
            sent.prompts.extend(prompts)
            sent.requests.extend(requests)
            if effort is not None:
                sent.efforts.append(effort)
            sent.series = joined(sent.series, series_of(self.server.log_readings_since(mark)))
            sent.void = requests_void(requests) or limited_by_client(sent.efforts[-1:])
            if sent.void:
                return sent
            try:
                sent.rounds.append(round_of(requests, workload.kind, self._concurrency(level)))
            except NoWindow as error:
                sent.void = f"no decode window: {error}"
                return sent
            if self.clock.monotonic_s() - began_s >= workload.repeat_limit_s:
                return sent
            if self._is_known(sent.rounds):
                return sent
        return sent

    def _is_known(self, rounds: Sequence[Round]) -> bool:
        """Whether there are enough rounds of an even speed, and its interval is narrow enough."""
        if len(rounds) < self.workload.batches:
            return False
        steady = steady_of(rounds, self.workload.kind)
        even = not steady.drift and len(rounds) - steady.dropped >= self.workload.batches
        half = steady.tok_s.half_width
        return even and half is not None and half <= self.workload.precision

    # --- requests -----------------------------------------------------------------------------------

    def _send(
        self, prompts: Sequence[Prompt], schedule: Schedule
    ) -> tuple[tuple[RequestSample, ...], ClientEffort | None]:
        limits = (self.workload.level_limit_s, self.workload.silence_limit_s)
        return self.load.send(self.server, prompts, schedule, *limits)

    def _concurrency(self, level: float) -> int | None:
        return None if self.workload.kind == "open" else int(level)

    def _last_speed(self) -> float | None:
        return self.server.last_gen_tok_s() if isinstance(self.server, TellsLastSpeed) else None

    def _raise_if_gone(self, level: float, reason: str, requests: Sequence[RequestSample]) -> None:
        """Raise `ServerGone` if the server is gone, or where requests failed, if it goes within seconds.

        When a scheduler of SGLang dies its streams end at once, but the launcher, whose exit is waited
        for here, follows 6 to 7 seconds later. Measured again at once, the level would fail on a server
        that is about to die and be taken for void.
        """
        failed = any(request.error for request in requests)
        deadline_s = self.clock.monotonic_s() + (_DYING_LIMIT_S if failed else 0.0)
        while self.server.alive():
            if self.clock.monotonic_s() >= deadline_s:
                return
            self.clock.sleep(_DYING_EVERY_S)
        raise ServerGone(self.workload.kind, level, reason, self.samples)


@dataclass
class _Sent:
    """What the rounds of one attempt brought so far."""

    prompts: list[Prompt]
    requests: list[RequestSample]
    efforts: list[ClientEffort]
    rounds: list[Round]
    series: ServerSeries
    void: str
