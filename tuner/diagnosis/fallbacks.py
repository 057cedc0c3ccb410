"""Silent fall-backs: a running server that is not the one that was asked for.

Sources: warnings of SGLang 0.4.6 to 0.5.23, the resolved arguments that it logs (`server_args=…`), and the
lines of its batches. The all-reduce paths are named as the choices of the composite `all_reduce`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.diagnosis.lines import Line, split_lines

Asked = Mapping[str, object]


@dataclass(frozen=True)
class Fallback:
    """For `param` it was `asked` for one thing (None: not known) and the server `runs` another.

    `line` is the number of the log line that tells it, 0 where it shows by what is missing.
    """

    param: str
    asked: object
    runs: object
    line: int

    def __str__(self) -> str:
        asked = "its default" if self.asked is None else self.asked
        return f"{self.param}: asked for {asked}, runs {self.runs}"


@dataclass(frozen=True)
class _Rule:
    """A warning: which parameter it is about, what was asked, what runs ('{}': the pattern's group)."""

    literal: str
    pattern: re.Pattern[str]
    param: str
    asked: object
    runs: object


def _rule(literal: str, pattern: str, param: str, asked: object, runs: object) -> _Rule:
    return _Rule(literal, re.compile(pattern, re.IGNORECASE), param, asked, runs)


_ALL_REDUCE = "all_reduce"
_NCCL = "nccl"
_RULES: tuple[_Rule, ...] = (
    _rule("custom all", r"custom ?all-?reduce\w* is disabled", _ALL_REDUCE, "custom", _NCCL),
    _rule("customallreduce", r"customallreduce\w* is disabled", _ALL_REDUCE, "custom", _NCCL),
    _rule("setup custom all", r"setup custom all-?reduce failed", _ALL_REDUCE, "custom", _NCCL),
    _rule(
        "torchsymmmem",
        r"TorchSymmMemCommunicator: .*not (?:supported|available)",
        _ALL_REDUCE,
        "torch-symm-mem",
        _NCCL,
    ),
    _rule(
        "symmetric memory", r"torch symmetric memory .*not supported", _ALL_REDUCE, "torch-symm-mem", _NCCL
    ),
    _rule("pcie_ipc", r"PCIE_IPC_ALLREDUCE is set but", _ALL_REDUCE, "pcie-ipc", _NCCL),
    _rule(
        "pcie-ipc",
        r"PCIe-IPC (?:all-?reduce )?(?:skipped|workspace .*failed|allreduce failed)"
        r"|leaving PCIe-IPC all-reduce off",
        _ALL_REDUCE,
        "pcie-ipc",
        _NCCL,
    ),
    _rule("pymscclpp", r"PyMscclpp is (?:unavailable|disabled)", _ALL_REDUCE, "mscclpp", _NCCL),
    _rule(
        "allreduce fusion",
        r"(?:disabling|skipping) (?:flashinfer )?allreduce fusion"
        r"|allreduce fusion (?:is )?(?:disabled|not supported|ignored)",
        _ALL_REDUCE,
        "flashinfer-fusion",
        _NCCL,
    ),
    _rule(
        "allreduce_fusion api is not available",
        r"allreduce_fusion api is not available",
        _ALL_REDUCE,
        "flashinfer-fusion",
        _NCCL,
    ),
    _rule(
        "backend",
        r"(?:will )?(?:fall ?back|falling back|switch(?:ing|ed)?"
        r"|changed) to (?:the )?(\w+)(?: attention)? backend",
        "attention_backend",
        None,
        "{}",
    ),
    _rule(
        "attention backend is",
        r"attention backend is (?:overridden to|set to|changed to) '?(\w+)'?",
        "attention_backend",
        None,
        "{}",
    ),
    _rule("is reset to", r"max running requests is reset to (\d+)", "max_running_requests", None, "{}"),
    _rule(
        "was reduced from",
        r"max_running_requests was reduced from the requested \d+ to (\d+)",
        "max_running_requests",
        None,
        "{}",
    ),
    _rule(
        "max_num_reqs=", r"max concurrent requests .*max_num_reqs=(\d+)", "max_running_requests", None, "{}"
    ),
    _rule(
        "speculative_num_draft_tokens",
        r"speculative_num_draft_tokens is (?:adjusted|set|reset) to (speculative_num_steps \+ 1|\d+)",
        "speculative_num_draft_tokens",
        None,
        "{}",
    ),
    _rule(
        "profiled value",
        r"max_total_tokens=\d+ is larger than the profiled value (\d+)",
        "max_total_tokens",
        None,
        "{}",
    ),
    _rule(
        "mem-fraction-static",
        r"reduce --mem-fraction-static to (\d*\.\d+)",
        "mem_fraction_static",
        None,
        "{}",
    ),
    _rule(
        "mem_fraction_static",
        r"mem[-_]fraction[-_]static (?:is |was )?(?:reset|adjusted|overridden|reduced|set"
        r"|changed).{0,40}? to (\d*\.\d+)",
        "mem_fraction_static",
        None,
        "{}",
    ),
    _rule("cuda graph is disabled", r"cuda graph is disabled because", "disable_cuda_graph", False, True),
    _rule(
        "overlap schedul",
        r"overlap schedul\w+ is (?:disabled|turned off)",
        "disable_overlap_schedule",
        False,
        True,
    ),
    _rule("mixed chunk", r"mixed chunk\w*(?: prefill)? is disabled", "enable_mixed_chunk", True, False),
)

_REQUESTED = re.compile(r"reduced from the requested (\d+) to")
_RESOLVED = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "moe_runner_backend",
    "kv_cache_dtype",
    "page_size",
    "chunked_prefill_size",
    "mem_fraction_static",
    "max_running_requests",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "speculative_eagle_topk",
)
"""Resolved arguments that are compared with what was asked."""
_ARGUMENTS = "server_args="
_SERVED_EAGER = re.compile(r"^Decode batch\b.*#running-req: (\d+).*cuda graph: False")
_SERVED_GRAPH = re.compile(r"^Decode batch\b.*cuda graph: True")
_PCIE_IPC_RUNS = "PCIe-IPC all-reduce enabled"
_FUSION_RUNS = re.compile(r"AllReduce Fusion enabled and workspace initialized", re.IGNORECASE)


def read_fallbacks(log: bytes | str, asked: Asked | None = None) -> list[Fallback]:
    """The fall-backs that a log shows, each parameter and outcome once, in the order of the log.

    With `asked` (parameter names to values; `all_reduce` by the composite's choice) only what was asked for
    is reported, with the value asked, and resolved arguments and missing confirmations are compared too.
    """
    wanted = asked or {}
    lines = split_lines(log)
    found: dict[tuple[str, str], Fallback] = {}
    for fallback in (
        *_warned(lines, wanted, informed=asked is not None),
        *_resolved(log, lines, wanted),
        *_eager(lines, wanted),
        *_unconfirmed(lines, wanted),
    ):
        found.setdefault((fallback.param, str(fallback.runs)), fallback)
    return sorted(found.values(), key=lambda fallback: fallback.line or len(lines) + 1)


def _warned(lines: Sequence[Line], wanted: Asked, *, informed: bool) -> Iterator[Fallback]:
    for line in lines:
        if _ARGUMENTS in line.text:
            continue
        lowered = line.text.lower()
        for rule in _RULES:
            match = rule.pattern.search(line.text) if rule.literal in lowered else None
            if match is None:
                continue
            runs = _value(match[1]) if rule.runs == "{}" else rule.runs
            if rule.param in wanted:
                value = wanted[rule.param]
            else:
                requested = _REQUESTED.search(line.text)
                value = int(requested[1]) if requested is not None and not informed else rule.asked
            if not _differs(value, runs) or (informed and not _was_asked(rule, wanted)):
                continue
            yield Fallback(rule.param, value, runs, line.number)


def _was_asked(rule: _Rule, wanted: Asked) -> bool:
    """An all-reduce path is asked for by name, any other parameter by being given."""
    if rule.param == _ALL_REDUCE:
        return wanted.get(_ALL_REDUCE) == rule.asked
    return rule.param in wanted


def _resolved(log: bytes | str, lines: Sequence[Line], wanted: Asked) -> Iterator[Fallback]:
    text = log.decode("utf-8", errors="replace") if isinstance(log, bytes) else log
    start = text.find(_ARGUMENTS)
    if start < 0:
        return
    arguments = text[start : text.find("\n", start) if "\n" in text[start:] else len(text)]
    number = next((line.number for line in lines if _ARGUMENTS in line.text), 0)
    for param in _RESOLVED:
        if param not in wanted:
            continue
        match = re.search(rf"\b{param}['\"]?[=:] ?(?:'([^']*)'|([^,)}}]+))", arguments)
        runs = _value(match[1] or match[2] or "") if match is not None else None
        if match is not None and runs is not None and _differs(wanted[param], runs):
            yield Fallback(param, wanted[param], runs, number)


def _eager(lines: Sequence[Line], wanted: Asked) -> Iterator[Fallback]:
    """Batches too large for the captured graphs, in a server that runs others with graphs."""
    eager = [(line, match) for line in lines if (match := _SERVED_EAGER.search(line.text))]
    graphs = any(_SERVED_GRAPH.search(line.text) for line in lines) or any(
        "Capturing batches" in x.text for x in lines
    )
    if not eager or not graphs or wanted.get("disable_cuda_graph") is True:
        return
    line, match = max(eager, key=lambda pair: int(pair[1][1]))
    yield Fallback(
        "cuda_graph_max_bs", wanted.get("cuda_graph_max_bs"), f"eager at {match[1]} requests", line.number
    )


def _unconfirmed(lines: Sequence[Line], wanted: Asked) -> Iterator[Fallback]:
    """Paths that say so when they run: silence of a server that became ready means that they do not."""
    choice = wanted.get(_ALL_REDUCE)
    if choice not in ("pcie-ipc", "flashinfer-fusion") or not any(
        "fired up and ready" in line.text for line in lines
    ):
        return
    runs = any(
        _PCIE_IPC_RUNS in line.text if choice == "pcie-ipc" else _FUSION_RUNS.search(line.text)
        for line in lines
    )
    if not runs:
        yield Fallback(_ALL_REDUCE, choice, _NCCL, 0)


def _differs(asked: object, runs: object) -> bool:
    if asked is None:
        return True
    if isinstance(asked, str) and asked in ("auto", ""):
        return False
    if isinstance(asked, (int, float)) and isinstance(runs, (int, float)):
        return abs(asked - runs) > 1e-6
    return str(asked).lower() != str(runs).lower()


def _value(text: str) -> object:
    text = text.strip()
    if text in ("None", "null", ""):
        return None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
