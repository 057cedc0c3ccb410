"""The start of a server: which line comes when, and how the start ends.

Pure: the script follows from the box, the settings, the memory plan and the environment. Times are simulated
seconds from the start of the process; order and wording are those of the box's SGLang release.
"""

from __future__ import annotations

from typing import Any

from tuner.simulator.box import Box, Rule
from tuner.simulator.captures import Captures
from tuner.simulator.deaths import (
    capture_failure,
    cuda_out_of_memory,
    no_room_for_cache,
    unreachable_repository,
)
from tuner.simulator.memory import MemoryPlan
from tuner.simulator.physics import Links
from tuner.simulator.script import Script, ScriptWriter, StartEndedError, clock_text
from tuner.simulator.settings import Settings

_COLLECTIVE_TIMEOUT_S = 600.0
_GIB = 1024**3


def startup_script(
    box: Box, settings: Settings, plan: MemoryPlan, links: Links, environment: dict[str, str]
) -> Script:
    """The start of this launch up to the moment before the port is bound."""
    start = _Start(box, settings, plan, links, environment)
    try:
        start.write()
    except StartEndedError as end:
        return Script(tuple(start.writer.events), end.ending, start.writer.now_s, end.failure)
    return Script(tuple(start.writer.events), "ready", start.writer.now_s)


def shown_arguments(box: Box, arguments: dict[str, Any]) -> str:
    """The `server_args=` line: a dict from 0.5.20 on, a dataclass before."""
    if box.sglang_version.prints_resolved_dict:
        return f"server_args={arguments!r}"
    return "server_args=ServerArgs(" + ", ".join(f"{key}={value!r}" for key, value in arguments.items()) + ")"


class _Start:
    def __init__(
        self, box: Box, settings: Settings, plan: MemoryPlan, links: Links, environment: dict[str, str]
    ) -> None:
        self.writer = ScriptWriter(box.startup.arguments_s, plan.free_gib)
        self._box = box
        self._settings = settings
        self._plan = plan
        self._links = links
        self._release = box.sglang_version
        self._rules = [rule for rule in box.rules if rule.applies(settings.arguments, environment)]
        self._visible_gpus = _visible_gpus(box, environment)

    def write(self) -> None:
        """Write the whole start. Raises `StartEndedError` where it ends early."""
        self.writer.later(self._box.startup.processes_s)
        self._distributed()
        draft = self._plan.draft_gib > 0
        captures = Captures(
            self.writer,
            self._box,
            self._settings,
            self._plan,
            links=self._links,
            before_each=lambda: self._apply("graph-capture"),
        )
        self._load_target()
        if self._release.loads_draft_early:
            if draft:
                self._load_draft()
            self._target_pool()
            if draft:
                self._draft_pool()
            self._apply("kv-cache-alloc")
            captures.since_0_5_14()
        else:
            self._target_pool()
            self._apply("kv-cache-alloc")
            captures.before_0_5_14(draft=False)
            if draft:
                self._load_draft()
                self._draft_pool()
                captures.before_0_5_14(draft=True)
        self._summary()

    # --- the steps of a start ---------------------------------------------------------------------------

    def _distributed(self) -> None:
        writer, settings, seconds = self.writer, self._settings, self._box.startup.distributed_s
        new = self._release.says_init_parallel
        writer.ranks("Init parallel begin." if new else "Init torch distributed begin.")
        if settings.tp > 1:
            writer.rank0(f"sglang is using nccl=={self._box.gpus.nccl}")
        self._apply("distributed-init")
        writer.later(seconds)
        if settings.ranks > self._visible_gpus:
            writer.fail("distributed-init", "RuntimeError: CUDA error: invalid device ordinal")
        reduce = self._box.all_reduce
        if settings.tp > 2 and settings.custom_all_reduce and reduce and not reduce.custom_works:
            writer.ranks(
                "CustomAllReduceV2 is disabled because it's not supported on more than two PCIe-only GPUs. "
                "To silence this warning, specify disable_custom_all_reduce=True explicitly."
            )
        if self._links.pcie_ipc_limit_kib:
            writer.ranks(
                f"FlashInfer PCIe-IPC all-reduce enabled (world={settings.tp}, "
                "workspace sized on first reduction)"
            )
        used_gib = self._box.gpus.memory_mib / 1024 - self._box.gpus.free_gib
        if new:
            writer.ranks(f"Init parallel ends. elapsed={seconds:.2f} s")
            writer.ranks(f"Memory baseline taken. mem usage={used_gib:.2f} GB")
        else:
            writer.ranks(f"Init torch distributed ends. elapsed={seconds:.2f} s, mem usage={used_gib:.2f} GB")

    def _load_target(self) -> None:
        model = self._box.model
        self._load(
            gib=self._plan.weights_gib,
            architecture=model.architecture,
            quantization=model.quantization,
            shards=model.shards,
            seconds=self._checkpoint_s(),
            overflows=self._plan.verdict == "weights",
        )
        self._apply("weight-load")

    def _load_draft(self) -> None:
        """Load the draft model; where none is named, SGLang loads the target once more."""
        speculation, draft, model = self._settings.speculation, self._box.draft, self._box.model
        path = speculation.draft_path if speculation else None
        own = draft if path is not None else None
        if path is not None and not (own and any(name in path.lower() for name in own.names)):
            self.writer.fail("weight-load", unreachable_repository(path))
        self._load(
            gib=self._plan.draft_gib,
            architecture=own.architecture if own else model.architecture,
            quantization="none" if own else model.quantization,
            shards=1 if own else model.shards,
            seconds=self._box.startup.draft_s if own else self._checkpoint_s(),
            overflows=self._plan.verdict == "draft-weights",
        )

    def _checkpoint_s(self) -> float:
        startup = self._box.startup
        rate = startup.threaded_disk_gb_per_s if self._settings.fast_loading else startup.disk_gb_per_s
        return startup.dummy_load_s if self._settings.dummy_weights else self._box.model.checkpoint_gb / rate

    def _load(
        self,
        *,
        gib: float,
        architecture: str,
        quantization: str,
        shards: int,
        seconds: float,
        overflows: bool,
    ) -> None:
        writer, heads, tp = self.writer, self._box.model.heads, self._settings.tp
        before_gib = writer.free_gib
        writer.ranks(f"Load weight begin. avail mem={before_gib:.2f} GB")
        if heads % tp:
            writer.fail("weight-load", f"AssertionError: {heads} is not divisible by {tp}")
        self._progress(seconds, shards, min(1.0, before_gib / gib) * 0.97 if overflows else 1.0)
        if overflows:
            writer.fail("weight-load", cuda_out_of_memory(self._box, asked_gib=0.875, free_gib=0.41))
        writer.take(gib)
        quant = "" if quantization == "none" else f"quant={quantization}, "
        writer.ranks(
            f"Load weight end. elapsed={seconds:.2f} s, type={architecture}, {quant}"
            f"avail mem={writer.free_gib:.2f} GB, mem usage={gib:.2f} GB."
        )

    def _progress(self, seconds: float, shards: int, reach: float) -> None:
        """The bar over the shards of a checkpoint, up to the share `reach` of them."""
        if self._settings.dummy_weights:
            self.writer.later(seconds)
            return
        what = "Loading safetensors checkpoint shards"
        if self._settings.fast_loading:
            what = "Multi-thread loading shards"
        each_s = seconds / shards
        for number in range(int(shards * reach) + 1):
            self.writer.later(each_s if number else 0.0)
            left = clock_text(each_s * (shards - number)) if number else "?"
            rate = f"{each_s:5.2f}s/it" if each_s > 1 else f"{1 / each_s:5.2f}it/s"
            self.writer.raw(
                f"\r{what}: {number / shards:4.0%} Completed | {number}/{shards} "
                f"[{clock_text(each_s * number)}<{left}, {rate if number else '?it/s'}]\n"
            )
        self.writer.raw("\n")

    def _target_pool(self) -> None:
        plan, box, settings = self._plan, self._box, self._settings
        self.writer.later(box.startup.pool_s)
        if plan.verdict == "pool":
            self._fail_pool()
        if plan.verdict == "pool-memory":
            asked_gib = max(1.0, plan.kv_gib)
            self.writer.fail("kv-cache-alloc", cuda_out_of_memory(box, asked_gib=asked_gib, free_gib=0.5))
        asked = settings.max_total_tokens
        if asked is not None and asked > plan.profiled_tokens:
            self.writer.ranks(
                f"max_total_tokens={asked} is larger than the profiled value {plan.profiled_tokens}. "
                "Use the profiled value instead."
            )
        self._allocate(box.model.kv_bytes_per_token, latent=box.model.latent_attention)
        self.writer.take(plan.workspace_gib)
        self.writer.ranks(f"Memory pool end. avail mem={self.writer.free_gib:.2f} GB")

    def _draft_pool(self) -> None:
        self.writer.later(1.0)
        if self._plan.verdict == "draft-pool":
            self._fail_pool()
        draft, model = self._box.draft, self._box.model
        self._allocate((draft or model).kv_bytes_per_token, latent=False)
        self.writer.ranks(f"Memory pool end. avail mem={self.writer.free_gib:.2f} GB")

    def _fail_pool(self) -> None:
        fraction = self._settings.mem_fraction
        self.writer.fail("kv-cache-alloc", no_room_for_cache(self._box, fraction, self._plan.least_fraction))

    def _allocate(self, bytes_per_token: float, *, latent: bool) -> None:
        settings, tokens = self._settings, self._plan.kv_tokens
        share = 1.0 if self._box.model.latent_attention else self._box.model.gpus / settings.tp
        gib = bytes_per_token * share * (0.5 if settings.kv_fp8 else 1.0) * tokens / settings.dcp / _GIB
        size = f"KV size: {gib:.2f} GB" if latent else f"K size: {gib / 2:.2f} GB, V size: {gib / 2:.2f} GB"
        dtype = "torch.float8_e4m3fn" if settings.kv_fp8 else "torch.bfloat16"
        label = f"dtype: {dtype}, " if self._release.prints_kv_dtype else ""
        self.writer.take(gib)
        self.writer.ranks(f"KV Cache is allocated. {label}#tokens: {tokens}, {size}")

    def _summary(self) -> None:
        settings, plan = self._settings, self._plan
        asked = settings.max_running
        if asked is not None and plan.max_running < asked and self._release.number >= 14:
            self.writer.ranks(
                f"max_running_requests was reduced from the requested {asked} to {plan.max_running} "
                "(per dp worker)"
            )
        self.writer.rank0(
            f"max_total_num_tokens={plan.kv_tokens}, "
            f"chunked_prefill_size={settings.arguments['chunked_prefill_size']}, "
            f"max_prefill_tokens={settings.max_prefill_tokens}, max_running_requests={plan.max_running}, "
            f"context_len={settings.context_length}, available_gpu_mem={self.writer.free_gib:.2f} GB"
        )

    # --- the box's own rules ----------------------------------------------------------------------------

    def _apply(self, phase: str) -> None:
        rules = [rule for rule in self._rules if rule.phase == phase]
        self._rules = [rule for rule in self._rules if rule.phase != phase]
        for rule in rules:
            self._apply_rule(rule)

    def _apply_rule(self, rule: Rule) -> None:
        if rule.effect == "warning":
            self.writer.ranks(rule.text)
        elif rule.effect == "death":
            self.writer.later(2.0)
            wrapped = rule.phase == "graph-capture" and rule.text.startswith("RuntimeError")
            self.writer.fail(rule.phase, capture_failure(self._box, rule.text) if wrapped else rule.text)
        elif rule.effect == "hang":
            self.writer.later(_COLLECTIVE_TIMEOUT_S)
            raise StartEndedError("abort", rule.text)


def _visible_gpus(box: Box, environment: dict[str, str]) -> int:
    """How many of the box's cards this process may use."""
    named = [word for word in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    return min(box.gpus.count, len(named)) if named else box.gpus.count
