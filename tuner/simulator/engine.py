"""The simulated scheduler: continuous batching in real time, with step times from the physical model.

Steps end at absolute times, each computed from the last, so that delays of this process do not add up: over a
long window the tokens that came out are those that the model says.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque

from tuner.simulator.box import Box, Rule
from tuner.simulator.deaths import cuda_out_of_memory, traceback_in
from tuner.simulator.journal import Journal
from tuner.simulator.log import Log
from tuner.simulator.memory import MemoryPlan
from tuner.simulator.noise import LaunchNoise
from tuner.simulator.physics import StepModel
from tuner.simulator.prefix_cache import PrefixCache
from tuner.simulator.request import Request
from tuner.simulator.settings import Settings

_FIRST_RATIO = 0.7
_LEAST_RATIO = 0.098
_RATIO_STEPS = 600


class SchedulerDeathError(Exception):
    """The scheduler fails while serving; the text is its traceback."""


class Engine:
    """Takes requests, decides who runs, and hands out tokens when their steps end.

    `fault` is a rule of the box that lets the first batch fail.
    """

    def __init__(
        self,
        box: Box,
        settings: Settings,
        plan: MemoryPlan,
        model: StepModel,
        *,
        noise: LaunchNoise,
        log: Log,
        journal: Journal,
        fault: Rule | None = None,
    ) -> None:
        self._box = box
        self._settings = settings
        self._plan = plan
        self._model = model
        self._noise = noise
        self._log = log
        self._journal = journal
        self._fault = fault
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._partial: Request | None = None
        self._cache = PrefixCache(plan.kv_tokens, enabled=settings.radix_cache)
        self._accepted = model.accepted
        self._tokens_per_step = model.tokens_per_step
        self._wake = asyncio.Event()
        self._deadline_s = 0.0
        self._busy_s = 0.0
        self._ratio = min(1.0, _FIRST_RATIO * settings.conservativeness)
        self._shapes: set[int] = set()
        self._steps = 0
        self._logged_at_s = 0.0
        self._logged_tokens = 0
        self._logged_verified = 0
        self._verified_total = 0
        self._tokens_total = 0
        self._fragmented_at_s = self._draw_fragmentation()
        self.last_gen_tok_s = 0.0
        self.stalled = False

    # --- what the HTTP side asks ----------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no request waits or runs."""
        return not (self._waiting or self._running or self._partial)

    @property
    def open_requests(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + len(self._running) + (self._partial is not None)

    @property
    def accept_length(self) -> float | None:
        """Mean tokens per verify step since the start; None without drafting or traffic."""
        if self._settings.speculation is None or not self._verified_total:
            return None
        return self._tokens_total / self._verified_total

    @property
    def longest_request(self) -> int:
        """The most tokens that a request, prompt and answer, may have."""
        return min(self._settings.context_length, self._plan.kv_tokens) - 1

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.append(request)
        self._wake.set()

    def cancel(self, request: Request) -> None:
        """Drop a request whose client is gone or that was aborted."""
        request.cancelled = True
        self._wake.set()

    def cancel_all(self) -> None:
        """Drop every request."""
        for request in [*self._waiting, *self._running, *([self._partial] if self._partial else [])]:
            request.finish_reason = "abort"
            request.sink.emit(request)
            self.cancel(request)

    def flush_cache(self) -> bool:
        """Empty the prefix cache; refused while requests are open."""
        if not self.idle:
            return False
        self._cache.clear()
        return True

    # --- the loop ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve for ever. Raises `SchedulerDeathError` where this launch dies under load."""
        loop = asyncio.get_running_loop()
        self._logged_at_s = loop.time()
        while True:
            self._drop_cancelled()
            if self.idle:
                self._wake.clear()
                await self._wake.wait()
                self._deadline_s = loop.time()
                continue
            if self._fault is not None:
                await self._fail(self._fault)
            batch = self._admit()
            if batch:
                await self._prefill(batch)
            else:
                await self._decode()

    async def _fail(self, fault: Rule) -> None:
        """What the box's rule for this launch does to its first batch: kill the scheduler, or stall it."""
        if fault.effect == "death":
            raise SchedulerDeathError(traceback_in("serving", fault.text))
        self.stalled = True
        await asyncio.Event().wait()

    async def _until(self, seconds: float) -> None:
        """Let a step of `seconds` pass, counted from the end of the last one."""
        self._deadline_s += seconds
        self._busy_s += seconds
        delay_s = self._deadline_s - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, delay_s))

    def _drop_cancelled(self) -> None:
        if any(request.cancelled for request in self._waiting):
            self._waiting = deque(request for request in self._waiting if not request.cancelled)
        if any(request.cancelled for request in self._running):
            self._running = [request for request in self._running if not request.cancelled]
        if self._partial is not None and self._partial.cancelled:
            self._partial = None

    # --- admission and prefill -----------------------------------------------------------------------------

    def _admit(self) -> list[tuple[Request, int]]:
        """The requests, and how many tokens of each, that the next prefill computes."""
        room = self._settings.chunk_tokens
        batch: list[tuple[Request, int]] = []
        if self._partial is not None:
            part = min(room, self._partial.to_prefill)
            batch.append((self._partial, part))
            room -= part
        free = self._plan.kv_tokens - self._reserved()
        while self._waiting and room > 0 and self._partial is None:
            request = self._waiting[0]
            running = len(self._running) + len(batch)
            if running >= self._plan.max_running:
                break
            if not request.prefilled:
                request.cached = request.prefilled = self._cache.match(request.prompt)
            needed = request.held + (request.end - request.emitted) * self._ratio
            if needed > free and (self._running or batch):
                request.prefilled = 0
                break
            self._waiting.popleft()
            free -= needed
            part = min(room, request.to_prefill)
            room -= part
            batch.append((request, part))
            if part < request.to_prefill:
                self._partial = request
        return batch

    def _reserved(self) -> float:
        """Tokens of the pool that the open requests hold or are expected to need."""
        reserved = sum(
            request.held + (request.end - request.emitted) * self._ratio for request in self._running
        )
        return reserved + (self._partial.held if self._partial else 0)

    async def _prefill(self, batch: list[tuple[Request, int]]) -> None:
        tokens = sum(part for _, part in batch)
        cached = sum(request.cached for request, _ in batch if request.prefilled == request.cached)
        self._check_activation(tokens)
        seconds = self._model.prefill_s([(part, request.prefilled) for request, part in batch])
        seconds += self._new_shape_s(tokens)
        # A mixed batch decodes, too; half of that step's traffic is shared with the prefill.
        mixed = self._settings.mixed_chunk and bool(self._running)
        if mixed:
            seconds += self._model.step_ms(len(self._running), self._context_tokens()) / 1000 * 0.5
        seconds /= self._speed(len(self._running) + len(batch))
        self._log_prefill(batch, tokens, cached, seconds)
        await self._until(seconds)
        if mixed:
            self._emit_running()
        now_s = self._deadline_s
        for request, part in batch:
            request.prefilled += part
            if request.cancelled or request.to_prefill > 0:
                continue
            if request is self._partial:
                self._partial = None
            self._cache.insert(request.prompt)
            request.first_token_s = request.first_token_s or now_s
            self._give(request, 1)
            if request.finish_reason is None:
                self._running.append(request)
        if self._partial is not None and self._partial.cancelled:
            self._partial = None

    def _check_activation(self, tokens: int) -> None:
        """Die where the activations of this prefill do not fit in what the start has left."""
        needed_gib = self._box.memory.activation_gib_per_8k * tokens / 8192
        if self._busy_s >= self._fragmented_at_s:
            needed_gib += self._box.memory.fragmentation_gib
        if needed_gib > self._plan.spare_gib:
            cause = cuda_out_of_memory(
                self._box, asked_gib=needed_gib, free_gib=max(0.02, self._plan.spare_gib)
            )
            raise SchedulerDeathError(traceback_in("serving", cause))

    def _draw_fragmentation(self) -> float:
        memory = self._box.memory
        luck, place = self._noise.chance(), self._noise.chance()
        if luck >= memory.fragmentation_odds:
            return math.inf
        first_s, last_s = memory.fragmentation_after_s
        return first_s + place * (last_s - first_s)

    def _new_shape_s(self, tokens: int) -> float:
        """The stall of the first prefill of its size: kernels are compiled or tuned for it."""
        shape = max(0, tokens - 1).bit_length()
        if shape in self._shapes:
            return 0.0
        self._shapes.add(shape)
        return self._box.warmup.new_shape_s / self._box.time_scale

    # --- decode ------------------------------------------------------------------------------------------

    async def _decode(self) -> None:
        self._make_room()
        running = len(self._running)
        step_ms = self._model.step_ms(running, self._context_tokens()) / self._speed(running)
        await self._until(step_ms / 1000)
        tokens = self._emit_running()
        self._journal.step(self._deadline_s, running, tokens, step_ms)
        self._steps += 1
        self._ratio = max(
            _LEAST_RATIO * self._settings.conservativeness, self._ratio - _FIRST_RATIO / _RATIO_STEPS
        )
        if self._steps % self._settings.decode_log_interval == 0:
            self._log_decode(running)

    def _context_tokens(self) -> int:
        return sum(request.held for request in self._running)

    def _speed(self, running: int) -> float:
        speed = self._noise.speed(max(1, running), self._deadline_s)
        warmup = self._box.warmup
        if self._busy_s < warmup.seconds / self._box.time_scale:
            speed *= warmup.draft_speed if self._accepted else warmup.speed
        return speed

    def _emit_running(self) -> int:
        total = 0
        still: list[Request] = []
        for request in self._running:
            if request.cancelled:
                continue
            gained = min(self._gain(request), request.end - request.emitted) if self._accepted else 1
            request.verified += 1
            total += gained
            self._give(request, gained)
            if request.finish_reason is None:
                still.append(request)
        self._verified_total += len(self._running)
        self._tokens_total += total
        self._running = still
        return total

    def _gain(self, request: Request) -> int:
        """Tokens that a verify step gives: one, and the drafts that were right."""
        if self._noise.silent:
            request.credit += self._tokens_per_step
            gained = int(request.credit + 1e-9)
            request.credit -= gained
            return gained
        if request.emitted >= request.scale_until:
            request.scale_until = request.emitted + self._noise.acceptance_tokens
            request.scale = self._noise.acceptance_scale()
        luck = self._noise.draw() / request.scale
        return 1 + sum(share > luck for share in self._accepted)

    def _give(self, request: Request, tokens: int) -> None:
        request.emitted += tokens
        request.prefilled = request.held
        if request.emitted >= request.end:
            request.finish_reason = "stop" if request.end < request.wanted else "length"
            request.finished_s = self._deadline_s
        request.sink.emit(request)

    def _make_room(self) -> None:
        """Retract requests while the next step would not fit in the pool."""
        rows = self._settings.rows_per_request
        held = self._context_tokens() + (self._partial.prefilled if self._partial else 0)
        retracted: list[Request] = []
        while len(self._running) > 1 and held + len(self._running) * rows > self._plan.kv_tokens:
            victim = min(self._running, key=lambda request: (request.emitted, -len(request.prompt)))
            self._running.remove(victim)
            held -= victim.held
            victim.prefilled = 0
            victim.retractions += 1
            retracted.append(victim)
        if not retracted:
            return
        self._waiting.extendleft(retracted)
        before, self._ratio = self._ratio, min(1.0, self._ratio + 0.2)
        gained = sum(request.held for request in retracted)
        self._log.every_rank(
            f"KV cache pool is full. Retract requests. #retracted_reqs: {len(retracted)}, "
            f"#new_tokens_gained: {gained}, #new_token_ratio: {before:.4f} -> {self._ratio:.4f}"
        )

    # --- log ---------------------------------------------------------------------------------------------

    def _usage(self) -> float:
        return self._context_tokens() / max(1, self._plan.kv_tokens)

    def _log_prefill(
        self, batch: list[tuple[Request, int]], tokens: int, cached: int, seconds: float
    ) -> None:
        pending = sum(request.to_prefill for request in self._waiting)
        graph = self._settings.prefill_graph and tokens <= 2048
        self._log.rank(
            0,
            f"Prefill batch, #new-seq: {len(batch)}, #new-token: {tokens}, #cached-token: {cached}, "
            f"token usage: {self._usage():.2f}, #running-req: {len(self._running)}, "
            f"#queue-req: {len(self._waiting)}, #pending-token: {pending}, cuda graph: {graph}, "
            f"input throughput (token/s): {tokens / seconds:.2f}",
        )

    def _log_decode(self, running: int) -> None:
        now_s = self._deadline_s
        tokens = self._tokens_total - self._logged_tokens
        verified = self._verified_total - self._logged_verified
        self.last_gen_tok_s = tokens / max(1e-6, now_s - self._logged_at_s)
        self._logged_at_s, self._logged_tokens, self._logged_verified = (
            now_s,
            self._tokens_total,
            self._verified_total,
        )
        speculation = self._settings.speculation
        drafts = ""
        if speculation is not None:
            length = tokens / max(1, verified)
            rate = (length - 1) / max(1, speculation.draft_tokens - 1)
            drafts = f"accept len: {length:.2f}, accept rate: {rate:.2f}, "
        graph = running <= self._settings.largest_graph
        self._log.rank(
            0,
            f"Decode batch, #running-req: {running}, #token: {self._context_tokens()}, "
            f"token usage: {self._usage():.2f}, {drafts}cuda graph: {graph}, "
            f"gen throughput (token/s): {self.last_gen_tok_s:.2f}, #queue-req: {len(self._waiting)}",
        )
