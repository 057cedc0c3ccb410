"""Help texts in argparse's own layout, built with argparse, for SGLang as it was and is."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.sglang.flags import FlagSet, parse_help
from tuner.sglang.installation import Installation, bounds_by_flags

BACKENDS = ["triton", "flashinfer", "fa3", "trtllm_mla"]


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


def parser() -> argparse.ArgumentParser:
    """What all versions have."""
    made = argparse.ArgumentParser(prog="launch_server.py", formatter_class=_Wide)
    made.add_argument("--model-path", "--model", required=True, help="The path of the model weights.")
    made.add_argument("--host", default="127.0.0.1", help="The host.")
    made.add_argument("--port", type=int, default=30000, help="The port.")
    made.add_argument("--attention-backend", choices=BACKENDS, help="Choose the kernels.")
    made.add_argument("--mem-fraction-static", type=float, help="The fraction of the memory used.")
    made.add_argument("--max-running-requests", type=int, help="The maximum number of running requests.")
    made.add_argument("--chunked-prefill-size", type=int, help="-1 means disabling chunked prefill.")
    made.add_argument("--schedule-policy", choices=["lpm", "fcfs"], help="The scheduling policy.")
    made.add_argument("--disable-radix-cache", action="store_true", help="Disable RadixAttention.")
    made.add_argument("--disable-custom-all-reduce", action="store_true", help="Fall back to NCCL.")
    made.add_argument("--enable-nccl-nvls", action="store_true", help="Enable NCCL NVLS.")
    made.add_argument("--speculative-draft-model-path", help="The path of the draft model weights.")
    made.add_argument("--speculative-num-steps", type=int, help="The number of steps.")
    made.add_argument("--speculative-eagle-topk", type=int, help="The number of tokens per step.")
    made.add_argument("--speculative-num-draft-tokens", type=int, help="The number of draft tokens.")
    made.add_argument("--served-model-name", help="Override the model name.")
    made.add_argument("--revision", help="The specific model version to use.")
    made.add_argument("--json-model-override-args", help="A dictionary in JSON.")
    return made


def old() -> FlagSet:
    """Like 0.5.2: before the renames."""
    made = parser()
    made.add_argument("--tensor-parallel-size", "--tp-size", type=int, help="The tensor parallelism size.")
    made.add_argument("--data-parallel-size", "--dp-size", type=int, help="The data parallelism size.")
    made.add_argument("--enable-dp-attention", action="store_true", help="Data parallelism for attention.")
    made.add_argument("--cuda-graph-max-bs", type=int, help="Set the maximum batch size for cuda graph.")
    made.add_argument("--cuda-graph-bs", type=int, nargs="+", help="Set the list of batch sizes.")
    made.add_argument("--disable-cuda-graph", action="store_true", help="Disable cuda graph.")
    made.add_argument(
        "--speculative-algorithm", choices=["EAGLE", "EAGLE3", "NEXTN", "STANDALONE"], help="Algorithm."
    )
    made.add_argument("--enable-mscclpp", action="store_true", help="Enable mscclpp.")
    made.add_argument("--enable-symm-mem", action="store_true", help="Enable NCCL symmetric memory.")
    made.add_argument("--enable-flashinfer-allreduce-fusion", action="store_true", help="Enable fusion.")
    made.add_argument("--nsa-prefill-backend", help="NSA.")
    return parse_help(made.format_help())


def new() -> FlagSet:
    """Like 0.5.23: after the renames, with deprecated and negatable flags."""
    made = parser()
    made.add_argument("--tp-size", "--tensor-parallel-size", type=int, help="The tensor parallelism size.")
    made.add_argument("--dp-size", "--data-parallel-size", type=int, help="The data parallelism size.")
    made.add_argument("--attn-dp-size", "--attention-data-parallel-size", type=int, help="Attention DP.")
    made.add_argument("--cuda-graph-max-bs-decode", type=int, help="Maximum decode batch size.")
    made.add_argument("--cuda-graph-max-bs-prefill", type=int, help="Maximum prefill batch size.")
    made.add_argument("--cuda-graph-bs-decode", type=int, nargs="+", help="Explicit list of batch sizes.")
    made.add_argument("--cuda-graph-backend-decode", choices=["full", "breakable", "disabled"], help="B.")
    made.add_argument("--cuda-graph-backend-prefill", choices=["full", "breakable", "disabled"], help="B.")
    made.add_argument(
        "--speculative-algorithm",
        help="Speculative algorithm. Builtins: EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH. Or any name.",
    )
    made.add_argument("--enable-tf32-matmul", action=argparse.BooleanOptionalAction, help="Use TF32.")
    made.add_argument("--enable-torch-symm-mem", action="store_true", help="Use torch symm mem.")
    made.add_argument("--enable-symm-mem", action="store_true", help="Enable NCCL symmetric memory.")
    made.add_argument("--enable-mscclpp", action="store_true", help="Enable MSCCL++.")
    made.add_argument("--boundary-reduction", choices=["auto", "ar", "rs"], help="Select.")
    made.add_argument("--flashinfer-allreduce-fusion-backend", choices=["auto", "trtllm"], help="Fusion.")
    made.add_argument("--enforce-disable-flashinfer-allreduce-fusion", action="store_true", help="Off.")
    made.add_argument("--dsa-prefill-backend", help="DSA.")
    made.add_argument("--dsa-decode-backend", help="DSA.")
    made.add_argument("--uvicorn-access-log-exclude-prefixes", nargs="*", help="Exclude.")
    made.add_argument("--config", help="Read CLI options from a config file.")
    made.add_argument("--disable-cuda-graph", action="store_true", help="Deprecated. Use another instead.")
    made.add_argument("--enable-dp-attention", action="store_true", help="Deprecated. Use --attn-dp-size.")
    made.add_argument(
        "--enable-flashinfer-allreduce-fusion", action="store_true", help="(Deprecated: use the backend.)"
    )
    return parse_help(made.format_help())


def installed(flags: FlagSet, version: str | None = None) -> Installation:
    """An installation with these flags; its version is judged by them where none is given."""
    return Installation(("python", "-m", "sglang.launch_server"), flags, version, bounds_by_flags(flags))


FAKE_SERVER = '''
"""Stands in for a server's entry point: prints a help text and counts how often it was asked."""
import argparse, pathlib, sys
counter = pathlib.Path(__file__).with_suffix(".asked")
counter.write_text(str(int(counter.read_text()) + 1 if counter.exists() else 1))
parser = argparse.ArgumentParser()
for word in ("--model-path", "--host", "--port", "--mem-fraction-static"{more}):
    parser.add_argument(word)
parser.parse_args()
'''


def write_fake_server(file: Path, more: str = "") -> None:
    """A program whose `--help` lists what a server needs, and `more` (`, "--tp-size"`)."""
    file.write_text(FAKE_SERVER.replace("{more}", more))


def times_asked(file: Path) -> int:
    """How often the fake's help was printed."""
    counter = file.with_suffix(".asked")
    return int(counter.read_text()) if counter.exists() else 0
