"""A box: the coefficients of one machine, one model and one SGLang release, and where they are read from.

A profile is a YAML file. Every key is checked, so that a typo cannot leave a coefficient at nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.simulator.release import Release

Table = tuple[tuple[float, float], ...]
"""Points (x, y) with rising x, between which is interpolated."""


@dataclass(frozen=True)
class Gpus:
    """The cards. `free_gib` is what one has left after its context and NCCL's buffers.

    `sm` is their compute capability, 120 for 12.0; 0 where the profile does not say.
    """

    name: str
    count: int
    memory_mib: int
    free_gib: float
    nccl: str
    sm: int = 0


@dataclass(frozen=True)
class Draft:
    """The draft model. `accepted` holds the shares of steps in which at least 1, 2, … drafts are accepted."""

    names: tuple[str, ...]
    architecture: str
    gib: float
    kv_bytes_per_token: float
    pass_ms: float
    accepted: tuple[float, ...]


@dataclass(frozen=True)
class Model:
    """The model as the server sees it; memory figures are for one GPU at tensor parallelism `gpus`.

    `layers` is 0 where the profile does not say; such a model cannot be launched with fewer.
    """

    names: tuple[str, ...]
    architecture: str
    model_type: str
    quantization: str
    gpus: int
    heads: int
    context_length: int
    multimodal: bool
    latent_attention: bool
    weights_gib: float
    shards: int
    checkpoint_gb: float
    kv_bytes_per_token: float
    layers: int = 0


@dataclass(frozen=True)
class Experts:
    """Traffic of routed experts: a step with R rows reads pool x (1 - (1 - active/pool)^R) expert slots."""

    pool: float
    active: float
    slot_gb: float
    ms_per_gb: float
    triton_factor: float


@dataclass(frozen=True)
class AllReduce:
    """All-reduce of one step: `per_step` reductions of `row_bytes` per row; tables are KiB to microseconds.

    `bad_graph`: NCCL takes a slow path between the cards unless NCCL_GRAPH_FILE mends it. `custom_works`: a
    patched build whose custom all-reduce runs over PCIe; `custom_factor` is its step time by rows against
    NCCL's. `many_channels_factor` is what NCCL_MIN_NCHANNELS of 8 or more makes of messages from 512 KiB on.
    """

    per_step: int
    scale: float
    row_bytes: int
    nccl_default: Table
    nccl_all_protocols: Table
    nccl_bad_graph: Table
    many_channels_factor: float
    bad_graph: bool
    custom_works: bool
    custom_factor: Table
    pcie_ipc_us: float
    pcie_ipc_us_per_kib: float
    pcie_ipc_cutoff_kib: float


@dataclass(frozen=True)
class Attention:
    """Reading of the KV cache. `reread` is, per backend, the share of the cache that each further query
    token of a request reads again; `fp8_extra_ms` is what an fp8 cache costs per step on this checkpoint;
    `split_ms` is the merging of one more split of Triton's decode kernel, per row."""

    default_backend: str
    ms_per_gb: float
    few_rows: float
    compute_ms_per_gb: float
    reread: tuple[tuple[str, float], ...]
    fp8_extra_ms: float
    split_ms: float


@dataclass(frozen=True)
class Step:
    """The time of one engine step beside experts, all-reduce and attention, in ms.

    `large_graph_ms` is reached when graphs up to batch 512 are captured and is 0 up to 128; `power` is the
    speed by running requests that the card's power limit leaves.
    """

    fixed_ms: float
    row_ms: float
    large_graph_ms: float
    eager_ms: float
    overlap_off_ms: float
    power: Table = ()


@dataclass(frozen=True)
class Prefill:
    """Prefill speed: `tokens_per_s` by prompt length, and what every prefill batch costs beside it."""

    tokens_per_s: Table
    batch_s: float


@dataclass(frozen=True)
class Memory:
    """GPU memory beside weights and KV pool, in GiB for one GPU.

    `fragmentation_gib` is lost with odds `fragmentation_odds` at a time drawn from `fragmentation_after_s`
    (seconds of serving): a launch with little memory left may then die under load.
    """

    draft_reserve_mib: float
    multimodal_factor: float
    least_kv_tokens: int
    graph_base_gib: float
    graph_each_gib: float
    prefill_graph_gib: float
    workspace_gib: float
    activation_gib_per_8k: float
    capture_margin_gib: float
    fragmentation_gib: float
    fragmentation_odds: float
    fragmentation_after_s: tuple[float, float]


@dataclass(frozen=True)
class Startup:
    """Durations of the start, in simulated seconds. `dummy_load_s` is the filling of random weights (G)."""

    arguments_s: float
    processes_s: float
    distributed_s: float
    disk_gb_per_s: float
    threaded_disk_gb_per_s: float
    draft_s: float
    pool_s: float
    capture_each_s: float
    prefill_capture_s: float
    warmup_s: float
    shutdown_s: float
    dummy_load_s: float = 20.0


@dataclass(frozen=True)
class Warmup:
    """The first busy seconds after a start: slower by `speed` (or `draft_speed` with a draft model)."""

    seconds: float
    speed: float
    draft_speed: float
    new_shape_s: float


@dataclass(frozen=True)
class Noise:
    """Spread of the measurements: `launch` by running requests between starts, the others within one.

    `launch` and `within` are sds of the logarithm of the speed, `acceptance` is the relative sd of tokens per
    step over ten seconds of one stream; `scale` multiplies all three, 0 switches noise off.
    """

    launch: Table
    within: float
    acceptance: float
    scale: float = 1.0


@dataclass(frozen=True)
class Rule:
    """What a flag or an environment variable does on this box beside what the model says.

    It applies where the value of `flag` (a destination such as `ep_size`) or of the variable is one of
    `values`, or above `above`. `effect`: warning (a line at `phase`), death (an exception at `phase`), hang
    (no line after `phase`, until the collective times out), garbled (wrong text comes out).
    """

    phase: str
    effect: str
    text: str = ""
    flag: str = ""
    variable: str = ""
    values: tuple[str, ...] = ()
    above: float | None = None

    def applies(self, arguments: dict[str, Any], environment: dict[str, str]) -> bool:
        """Whether the rule's condition holds for these resolved arguments and this environment."""
        found = environment.get(self.variable) if self.variable else arguments.get(self.flag)
        if found is None:
            return False
        if self.above is not None:
            return float(found) > self.above
        word = str(found).lower() if isinstance(found, bool) else str(found)
        return word in self.values


@dataclass(frozen=True)
class Box:
    """Everything a simulated server knows of its machine, model and release.

    `time_scale` divides the seconds of the start, of the shutdown and of the warming up after a start;
    serving itself always runs in real time.
    """

    name: str
    sglang_version: Release
    seed: int
    time_scale: float
    gpus: Gpus
    model: Model
    draft: Draft | None
    step: Step
    experts: Experts | None
    all_reduce: AllReduce | None
    attention: Attention
    prefill: Prefill
    memory: Memory
    startup: Startup
    warmup: Warmup
    noise: Noise
    rules: tuple[Rule, ...]
