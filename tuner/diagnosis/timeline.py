"""Where in its life the server was: markers of phases, and the frames of a traceback."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.diagnosis.lines import Line
from tuner.sglang.markers import Marker, mark_of
from tuner.sglang.phases import Phase

# What a server is about after such a line: it dies of the next thing, not of the one that it reports.
_BEGINS: Mapping[Marker, Phase] = {
    Marker.ARGUMENTS: Phase.IMPORT,
    Marker.DISTRIBUTED_BEGIN: Phase.DISTRIBUTED_INIT,
    Marker.WEIGHTS_BEGIN: Phase.WEIGHT_LOAD,
    Marker.WEIGHTS_PROGRESS: Phase.WEIGHT_LOAD,
    Marker.WEIGHTS_END: Phase.KV_CACHE_ALLOC,
    Marker.KV_POOL: Phase.KV_CACHE_ALLOC,
    Marker.OTHER_POOL: Phase.KV_CACHE_ALLOC,
    Marker.POOLS_END: Phase.GRAPH_CAPTURE,
    Marker.GRAPHS_BEGIN: Phase.GRAPH_CAPTURE,
    Marker.GRAPHS_PROGRESS: Phase.GRAPH_CAPTURE,
    Marker.GRAPHS_END: Phase.WARMUP,
    Marker.JIT_BEGIN: Phase.JIT_COMPILE,
    Marker.LIMITS: Phase.WARMUP,
    Marker.HTTP_STARTS: Phase.WARMUP,
    Marker.READY: Phase.SERVING,
    Marker.SHUTDOWN: Phase.SHUTDOWN,
}
_LIVE = re.compile(r'"POST \S+ HTTP/[\d.]+" 200|^#running-req: ')
_END = re.compile(
    r"received sigquit|sigquit received|kill_process_tree called|hit an exception|fatal python error"
    r"|triggering sigquit|crashed with exit ?code|scheduler is dead|unexpectedly failed with",
    re.I,
)

# Traceback frames, by file and function; the first family found in a message decides.
_FRAMES: tuple[tuple[Phase, re.Pattern[str]], ...] = tuple(
    (phase, re.compile(pattern))
    for phase, pattern in (
        (
            Phase.ARGUMENTS,
            r"arg_groups/|prepare_server_args|from_cli_args"
            r"|server_args\.py\", line \d+, in (?:_?handle|__post_init__|check_)",
        ),
        (
            Phase.SERVING,
            r"event_loop|\brun_batch\b|process_batch_result|forward_thread_func"
            r"|get_next_batch_to_run|prepare_for_(?:extend|decode)"
            r"|resolve_last_batch_result|exposed_step|forward_step\b|\bsampler\.py\b"
            r"|detokenizer_manager|process_input_requests",
        ),
        (Phase.WARMUP, r"_wait_and_warmup|_execute_server_warmup"),
        (
            Phase.GRAPH_CAPTURE,
            r"[Cc]apture [\w ]{0,20}(?:cuda|CUDA) graph failed|init_(?:all_)?(?:cuda"
            r"|device)_graphs?\b|CudaGraphRunner|cuda_graph_runner|capture_one_batch_size"
            r"|init_cuda_graph_state"
            r"|capture_(?:hidden|prefill|decode)|piecewise_cuda_graph|in capture\b|eager_runner",
        ),
        (
            Phase.DRAFT_MODEL,
            r"EAGLEWorker|eagle_worker|draft_worker|draft_model_runner|init_draft|StandaloneWorker"
            r"|standalone_worker|ngram_worker|multi_layer_eagle",
        ),
        (
            Phase.KV_CACHE_ALLOC,
            r"init_memory_pool|alloc_memory_pool|memory_pool\.py|memory_pool_host"
            r"|kv_cache_configurator|_create_buffers|pool_configurator|torch_memory_saver"
            r"|profile_max_num_token|profile_available",
        ),
        (
            Phase.WEIGHT_LOAD,
            r"load_model\b|model_loader|weight_utils|process_weights_after_loading"
            r"|_initialize_model|load_weights|get_model\b|create_weights",
        ),
        (
            Phase.DISTRIBUTED_INIT,
            r"init_torch_distributed|initialize_model_parallel|init_distributed_environment"
            r"|init_model_parallel_group|init_process_group|pynccl|init_parallel|PortArgs",
        ),
        (
            Phase.ARGUMENTS,
            r"check_server_args|_handle_\w+\(|in __post_init__|server_args\.py|argparse\.py|resolve_once",
        ),
        (Phase.IMPORT, r"in <module>|_bootstrap>|importlib"),
    )
)


@dataclass(frozen=True)
class Timeline:
    """The phases of a log by line index, and the signs of life and death in it."""

    starts: tuple[int, ...]
    phases: tuple[Phase, ...]
    live: tuple[int, ...]
    ready: tuple[int, ...]
    ends: tuple[int, ...]

    def phase_at(self, index: int) -> Phase | None:
        """The phase that the line at `index` stands in, or None before the first marker."""
        place = bisect_right(self.starts, index)
        return self.phases[place - 1] if place else None

    @property
    def last_phase(self) -> Phase | None:
        """The last phase that the log shows."""
        return self.phases[-1] if self.phases else None

    def survived(self, index: int) -> bool:
        """Whether the server went on after the line at `index`: it became ready or served at least twice."""
        died = bisect_right(self.ends, index) < len(self.ends)
        if died:
            return False
        became_ready = bisect_right(self.ready, index) < len(self.ready)
        return became_ready or len(self.live) - bisect_right(self.live, index) >= 2


def read_timeline(lines: Sequence[Line], lowered: Sequence[str]) -> Timeline:
    """The timeline of a log; `lowered` are the texts of `lines` in lower case."""
    starts: list[int] = []
    phases: list[Phase] = []
    live: list[int] = []
    ready: list[int] = []
    ends: list[int] = []
    loads: dict[str | None, int] = {}
    for index, line in enumerate(lines):
        mark = mark_of(line.text.strip())
        marker = mark[0] if mark is not None else None
        phase = _BEGINS.get(marker) if marker is not None else None
        if marker is Marker.WEIGHTS_BEGIN:
            loads[line.rank] = loads.get(line.rank, 0) + 1
            phase = Phase.WEIGHT_LOAD if loads[line.rank] == 1 else Phase.DRAFT_MODEL
        elif phase is Phase.WEIGHT_LOAD and phases and phases[-1] is Phase.DRAFT_MODEL:
            phase = None
        elif phase is Phase.JIT_COMPILE and ready:
            phase = None  # kernels that are compiled between two batches
        elif marker is Marker.JIT_END and len(phases) > 1 and phases[-1] is Phase.JIT_COMPILE:
            phase = phases[-2]
        if phase is not None:
            starts.append(index)
            phases.append(phase)
        if marker is Marker.READY:
            ready.append(index)
        if marker is Marker.BATCH or _LIVE.search(line.text):
            live.append(index)
        elif _END.search(lowered[index]):
            ends.append(index)
    return Timeline(tuple(starts), tuple(phases), tuple(live), tuple(ready), tuple(ends))


def phase_of_frames(message: str) -> Phase | None:
    """The phase that the frames of a traceback tell, or None where they tell nothing."""
    for phase, pattern in _FRAMES:
        if pattern.search(message):
            return phase
    return None
