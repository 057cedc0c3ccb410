"""A server that somebody else wrote: takes SGLang's flags, prints its log, serves its API; standard library only.

`python server.py [--style old|new|bare] [--awkward WORDS] [--start-s S] [--speedup X] <flags of SGLang>`. The
styles differ in flags, log, HTTP and what they tell of themselves; `--awkward` adds ways to die and not to die.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.foreign.box import KV_KIB_A_TOKEN, WEIGHTS_GIB, Launch  # noqa: E402
from tests.foreign.serving import VERSIONS, Engine, Handler, Listening  # noqa: E402

LISTED = (
    "help", "model_path", "host", "port", "tp_size", "mem_fraction_static", "cuda_graph_max_bs_decode",
    "attention_backend", "speculative_algorithm", "speculative_num_steps",
)  # fmt: skip


class Flags(argparse.ArgumentParser):
    """An SGLang of its own age; what it does not know ends it with 2."""

    def __init__(self, style: str) -> None:
        super().__init__(prog="launch_server.py" if style == "old" else "sglang serve")
        known: list[tuple[str, Any]] = [
            ("--model-path", str), ("--host", str), ("--port", int), ("--tp-size", int), ("--ep-size", int),
            ("--mem-fraction-static", float), ("--max-running-requests", int), ("--chunked-prefill-size", int),
            ("--kv-cache-dtype", str), ("--attention-backend", str), ("--moe-runner-backend", str),
            ("--speculative-algorithm", str), ("--speculative-draft-model-path", str),
            ("--speculative-num-steps", int), ("--speculative-eagle-topk", int),
            ("--speculative-num-draft-tokens", int), ("--schedule-policy", str), ("--decode-log-interval", int),
            ("--schedule-conservativeness", float), ("--num-continuous-decode-steps", int), ("--log-level", str),
            ("--cuda-graph-max-bs" if style == "old" else "--cuda-graph-max-bs-decode", int),
        ]  # fmt: skip
        if style == "new":
            known.append(("--flashinfer-allreduce-fusion-backend", str))
        for name, kind in known:
            self.add_argument(name, type=kind)
        switches = ["--trust-remote-code", "--disable-custom-all-reduce", "--enable-torch-symm-mem"]
        if style == "old":
            switches.append("--enable-flashinfer-allreduce-fusion")
        for name in [*switches, "--enable-mscclpp", "--disable-radix-cache"]:
            self.add_argument(name, action="store_true")
        if style == "bare":
            for action in self._actions:
                if action.dest not in LISTED:
                    action.help = argparse.SUPPRESS


def launch_of(flags: argparse.Namespace, environment: dict[str, str]) -> Launch:
    """What the box is asked for."""
    reduce = "nccl" if flags.disable_custom_all_reduce else "custom"
    if environment.get("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE") == "1":
        reduce = "ipc"
    if flags.enable_mscclpp:
        reduce = "mscclpp"
    graphs = getattr(flags, "cuda_graph_max_bs", None) or getattr(flags, "cuda_graph_max_bs_decode", None)
    return Launch(
        graph_batch=graphs or 512,
        memory_fraction=flags.mem_fraction_static,
        requests=flags.max_running_requests,
        chunk=flags.chunked_prefill_size or 8192,
        fp8=bool(flags.kv_cache_dtype and flags.kv_cache_dtype.startswith("fp8")),
        all_reduce=reduce,
        protocol=environment.get("NCCL_PROTO", ""),
        algorithm=environment.get("NCCL_ALGO", ""),
        p2p=environment.get("NCCL_P2P_LEVEL", ""),
        channels=int(environment.get("NCCL_MIN_NCHANNELS", "0")),
        steps=(flags.speculative_num_steps or 3) if flags.speculative_algorithm else 0,
        attention=flags.attention_backend or "triton",
        moe=flags.moe_runner_backend or "marlin",
        experts=flags.ep_size or 1,
        decode_steps=flags.num_continuous_decode_steps or 1,
        conservativeness=flags.schedule_conservativeness or 1.0,
    )


class Server:
    """The launcher: starts ranks, loads, captures, serves, and dies."""

    def __init__(self, own: argparse.Namespace, flags: argparse.Namespace) -> None:
        self.style, self.awkward = own.style, set(filter(None, own.awkward.split(",")))
        self.flags, self.box = flags, launch_of(flags, dict(os.environ))
        self.pace = own.start_s / 10  # a start has about ten beats
        self.speedup = own.speedup
        self.luck = random.gauss(1.0, own.noise)
        self.ranks: list[int] = []
        self.ready = False
        self.engine = Engine(self)

    def say(self, text: str, rank: int | None = None) -> None:
        if self.style == "bare" and rank is not None:
            return
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        sys.stderr.write(f"[{stamp}{'' if rank is None else f' TP{rank}'}] {text}\n")
        sys.stderr.flush()

    def beat(self, beats: float = 1.0) -> None:
        time.sleep(beats * self.pace)

    def bar(self, what: str, of: int, beats: float, after: str = "Completed | ") -> None:
        """A progress bar as tqdm draws it: carriage returns, no line ends but the last."""
        for done in range(of + 1):
            sys.stderr.write(
                f"\r{what}: {100 * done // of:3d}% {after}{done}/{of} [00:0{done}<00:01,  2.31it/s]"
            )
            sys.stderr.flush()
            self.beat(beats / (of + 1))
        sys.stderr.write("\n")

    def die(self, error: str, where: str, rank: int = 0, depth: int = 12) -> None:
        """A rank hits an exception, tells the launcher, and the launcher kills itself."""
        frames = "".join(
            f'  File "/sgl-workspace/sglang/python/sglang/srt/{where}/part_{i}.py", line {97 + 31 * i}, in step_{i}\n'
            f"    self.part_{i + 1} = Part{i + 1}(self.server_args, gpu_id=self.gpu_id, rank=rank)\n"
            for i in range(depth)
        )
        for one in (rank, *[other for other in range(4) if other != rank]):
            self.say(
                f"Scheduler hit an exception: Traceback (most recent call last):\n{frames}{error}\n", one
            )
        if self.style == "bare":
            sys.stderr.write(f"Traceback (most recent call last):\n{frames}{error}\n")
        self.say("Received sigquit from a child process. It usually means the child failed.")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def spawn_ranks(self) -> None:
        """Four ranks as processes. They notice late that the launcher is gone."""
        me = os.getpid()
        for rank in range(4):
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                Path("/proc/self/comm").write_text(f"sglang::sched_{rank}")
                while os.getppid() == me:
                    time.sleep(0.3)
                time.sleep(1.0)
                os._exit(0)
            self.ranks.append(pid)

    def start(self) -> None:
        """From arguments to the captured graphs, or to a death on the way."""
        box, new = self.box, self.style == "new"
        sys.stdout.write("WARNING:root:some library talks on the other stream\n")
        sys.stdout.flush()
        args = ", ".join(f"{key}={value!r}" for key, value in vars(self.flags).items())
        self.say(f"server_args={{{args}}}" if new else f"server_args=ServerArgs({args})")
        if box.algorithm == "Tree" and "signal" in self.awkward:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        if "silent" in self.awkward:
            self.beat(4)
        for rank in range(4):
            self.say("Init parallel begin." if new else "Init torch distributed begin.", rank)
        self.say("sglang is using nccl==2.28.3", 0)
        if self.flags.enable_torch_symm_mem:
            self.say(
                "TorchSymmMemCommunicator: Device capability 12 not supported, communicator is not available.",
                0,
            )
        if box.all_reduce == "custom":
            self.say(
                "CustomAllreduce is disabled because it's not supported on more than two PCIe-only GPUs.", 0
            )
        if box.all_reduce == "ipc":
            if new:
                self.say(
                    "FlashInfer PCIe-IPC all-reduce enabled (world=8, workspace sized on first reduction)", 0
                )
            else:
                self.box = box = Launch(**{**vars(box), "all_reduce": "nccl"})
        if box.p2p == "SYS" and "hang" in self.awkward:
            time.sleep(3600)
        self.beat()
        self.load()
        self.capture()
        self.say(
            f"max_total_num_tokens={self.box.tokens}, chunked_prefill_size={self.box.chunk}, max_prefill_tokens=16384, max_running_requests={self.box.running}, context_len=262144, available_gpu_mem={self.box.rest_gib:.2f} GB",
            0,
        )

    def load(self) -> None:
        """Weights and KV pool, or a death."""
        box, new = self.box, self.style == "new"
        self.say(
            "Init parallel ends. elapsed=1.02 s"
            if new
            else "Init torch distributed ends. elapsed=1.02 s, mem usage=1.31 GB",
            0,
        )
        self.say("Load weight begin. avail mem=93.90 GB", 0)
        if box.experts > 1:
            self.die(
                "AssertionError: num_local_experts 48 != 384 // ep_size for this quantization",
                "layers/moe",
                2,
                60,
            )
        self.bar("Loading safetensors checkpoint shards", 8, 4)
        if box.moe == "triton" and "mute" in self.awkward:
            os._exit(1)
        self.say(
            f"Load weight end. elapsed=4.10 s, type=KimiK25ForConditionalGeneration, dtype=torch.bfloat16, avail mem={93.9 - WEIGHTS_GIB:.2f} GB, mem usage={WEIGHTS_GIB:.2f} GB.",
            0,
        )
        if getattr(self.flags, "flashinfer_allreduce_fusion_backend", None):
            self.die(
                "ValueError: FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.",
                "model_executor",
                1,
            )
        if box.pool_gib < 0.3:
            fraction = f"{box.fraction:.3f}"
            self.die(
                f"ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={fraction}. Raise --mem-fraction-static above {(WEIGHTS_GIB + 1.8) / 94:.3f}"
                if new else f"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static={fraction}",
                "mem_cache",
            )  # fmt: skip
        self.say(
            f"KV Cache is allocated. {'dtype: torch.bfloat16, ' if new else ''}#tokens: {box.tokens}, KV size: {box.tokens * KV_KIB_A_TOKEN / 2**20:.2f} GB",
            0,
        )
        self.say(f"Memory pool end. avail mem={(1 - box.fraction) * 94 - 1.5:.2f} GB", 0)

    def capture(self) -> None:
        box, new, avail = self.box, self.style == "new", (1 - self.box.fraction) * 94 - 1.5
        name = "verify" if box.steps else "decode"
        self.say(f"Capture target {name} CUDA graph begin. backend=full, num_tokens_per_req={box.steps + 1}, avail mem={avail:.2f} GB"
                 if new else f"Capture cuda graph begin. This can take up to several minutes. avail mem={avail:.2f} GB", 0)  # fmt: skip
        sizes = max(4, box.graph_batch // 32)
        failing = box.rest_gib < 0
        self.bar(
            f"Capturing batches (bs={box.graph_batch} avail_mem={avail:.2f} GB)",
            sizes // (2 if failing else 1),
            1 + sizes / 8,
            "|####  | ",
        )
        if failing:
            self.die(
                f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 94.97 GiB of which {max(0.1, avail - box.graphs_gib):.2f} GiB is free.\n\nDuring handling of the above exception, another exception occurred:\n\n"
                "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 512.00 MiB.\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n2. set --cuda-graph-max-bs to a smaller value (e.g., 16)",
                "model_executor", 3,
            )  # fmt: skip
        self.say(f"Capture target {name} CUDA graph end. bs=[1, 2, {box.graph_batch}], elapsed=3.20 s, mem usage={box.graphs_gib:.2f} GB, avail mem={box.rest_gib:.2f} GB."
                 if new else f"Capture cuda graph end. Time elapsed: 3.20 s. mem usage={box.graphs_gib:.2f} GB. avail mem={box.rest_gib:.2f} GB.", 0)  # fmt: skip

    def run(self) -> None:
        self.spawn_ranks()
        self.start()
        manner = {"protocol_version": "HTTP/1.1"} if self.style == "old" else {}
        handler = type("Answering", (Handler,), {"server_of": self, **manner})
        try:
            http = Listening((self.flags.host or "127.0.0.1", self.flags.port or 30000), handler)
        except OSError as error:
            self.say(f"ERROR:    [Errno 98] error while attempting to bind on address: {error}")
            os._exit(1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in self.awkward else self.stop)
        signal.signal(signal.SIGINT, self.stop)
        threading.Thread(target=self.engine.run, daemon=True).start()
        threading.Thread(target=http.serve_forever, daemon=True).start()
        self.say(f"INFO:     Uvicorn running on http://127.0.0.1:{self.flags.port} (Press CTRL+C to quit)")
        self.beat(0.5)
        self.ready = True
        self.say("The server is fired up and ready to roll!")
        while True:
            time.sleep(1)

    def stop(self, *_: Any) -> None:
        self.say("SIGTERM received. Draining requests and shutting down...")
        os._exit(0)


def main() -> None:
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--style", choices=tuple(VERSIONS), default="old")
    own.add_argument("--awkward", default="")
    own.add_argument("--start-s", type=float, default=1.5)
    own.add_argument("--speedup", type=float, default=4.0)
    own.add_argument("--noise", type=float, default=0.012)
    mine, theirs = own.parse_known_args()
    parser = Flags(mine.style)
    flags = parser.parse_known_args(theirs)[0] if mine.style == "bare" else parser.parse_args(theirs)
    Server(mine, flags).run()


if __name__ == "__main__":
    main()
