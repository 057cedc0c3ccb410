"""The flags of an installed SGLang, as its own `--help` lists them.

Flags are known here by their canonical name: the flag with underscores (`mem_fraction_static`). Where SGLang
renamed a flag, or has several spellings for it, one name stands for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from pathlib import Path

from tuner.errors import InputError, did_you_mean

RENAMED: dict[str, tuple[str, ...]] = {
    # Canonical name → its spellings, the one to use first where an installation has several.
    # Renamed in 0.5.14; the old spellings are deprecated there and gone in 0.5.20.
    "cuda_graph_max_bs": ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"),
    "cuda_graph_bs": ("cuda_graph_bs_decode", "cuda_graph_bs"),
    "cuda_graph_max_bs_prefill": ("cuda_graph_max_bs_prefill", "piecewise_cuda_graph_max_tokens"),
    "cuda_graph_bs_prefill": ("cuda_graph_bs_prefill", "piecewise_cuda_graph_tokens"),
    "cuda_graph_tc_compiler": ("cuda_graph_tc_compiler", "piecewise_cuda_graph_compiler"),
    # Renamed in 0.5.13.
    "dsa_prefill_backend": ("dsa_prefill_backend", "nsa_prefill_backend"),
    "dsa_decode_backend": ("dsa_decode_backend", "nsa_decode_backend"),
    "dsa_topk_backend": ("dsa_topk_backend", "nsa_topk_backend"),
    "dsa_prefill_cp_mode": ("dsa_prefill_cp_mode", "nsa_prefill_cp_mode"),
    "enable_dsa_prefill_context_parallel": (
        "enable_dsa_prefill_context_parallel",
        "enable_nsa_prefill_context_parallel",
    ),
    "incremental_streaming_output": ("incremental_streaming_output", "stream_output"),
    "mamba_radix_cache_strategy": ("mamba_radix_cache_strategy", "mamba_scheduler_strategy"),
    "pp_max_micro_batch_size": ("pp_max_micro_batch_size", "max_micro_batch_size"),
    # Several spellings at the same time, in an order that differs by version.
    "model_path": ("model_path", "model"),
    "tp_size": ("tp_size", "tensor_parallel_size", "tp"),
    "pp_size": ("pp_size", "pipeline_parallel_size"),
    "dp_size": ("dp_size", "data_parallel_size", "dp"),
    "ep_size": ("ep_size", "expert_parallel_size", "ep"),
    "dcp_size": ("dcp_size", "decode_context_parallel_size"),
    "attn_dp_size": ("attn_dp_size", "attention_data_parallel_size"),
    "attn_cp_size": ("attn_cp_size", "attention_context_parallel_size"),
    "moe_dp_size": ("moe_dp_size", "moe_data_parallel_size"),
    "dist_init_addr": ("dist_init_addr", "nccl_init_addr"),
    "speculative_draft_model_path": ("speculative_draft_model_path", "speculative_draft_model"),
}
_CANONICAL_OF = {spelled: name for name, spellings in RENAMED.items() for spelled in spellings}
_NAMES_FILE = Path(__file__).with_name("flag_names.txt")

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ENTRY = re.compile(r"^ {1,8}(?P<invocation>-\S.*?)(?: {2,}(?P<help>\S.*))?$")
_SPELLING = re.compile(r"^(?P<word>--?[A-Za-z0-9][\w.-]*)(?:[ =](?P<values>.+))?$")
_CHOICES = re.compile(r"\{([^{}]*)\}")
_DEPRECATED = re.compile(r"^[\s(\[]*deprecated\b", re.IGNORECASE)


class Takes(str, Enum):
    """How many values a flag takes."""

    NONE = "none"
    ONE = "one"
    MANY = "many"


@dataclass(frozen=True)
class Flag:
    """One option: its spellings (`--model-path`, `--model`), what it takes, the choices that it lists.

    `negation` is the spelling that switches it off (`--no-…`), None where there is none.
    """

    names: tuple[str, ...]
    takes: Takes
    choices: tuple[str, ...] = ()
    negation: str | None = None
    deprecated: bool = False
    help: str = ""

    @property
    def canonical(self) -> str:
        """The name it is known by in spaces, records and reports."""
        spelled = [_plain(name) for name in self.names]
        return next((_CANONICAL_OF[name] for name in spelled if name in _CANONICAL_OF), spelled[0])


class FlagSet:
    """All flags of one installation."""

    def __init__(self, flags: Iterable[Flag]) -> None:
        self.flags = tuple(flags)
        self._by_word = {name: flag for flag in self.flags for name in flag.names}
        self._by_negation = {flag.negation: flag for flag in self.flags if flag.negation is not None}

    def __len__(self) -> int:
        return len(self.flags)

    def __contains__(self, word: object) -> bool:
        """Whether this exact spelling (`--tp-size`) is there."""
        return word in self._by_word

    @cached_property
    def canonical_names(self) -> tuple[str, ...]:
        """Every canonical name, sorted."""
        return tuple(sorted({flag.canonical for flag in self.flags}))

    def spelling(self, canonical: str) -> str | None:
        """How this version spells a canonical name (`--tp-size`), or None where it lacks it."""
        words = [_word(name) for name in RENAMED.get(canonical_name(canonical), (_plain(canonical),))]
        present = [word for word in words if word in self._by_word]
        current = [word for word in present if not self._by_word[word].deprecated]
        return next(iter(current or present), None)

    def flag(self, canonical: str) -> Flag | None:
        """The flag behind a canonical name, or None where this version lacks it."""
        word = self.spelling(canonical)
        return self._by_word[word] if word is not None else None

    def exact(self, word: str) -> Flag | None:
        """The flag with exactly this spelling."""
        return self._by_word.get(word)

    def read(self, word: str) -> tuple[Flag, bool]:
        """The flag that a word of a command line means, and whether the word negates it.

        Accepts every spelling, the spellings of other versions, and unique beginnings (`--mem-frac`) like
        argparse. Raises `InputError` for a word that means none or several flags.
        """
        if word in self._by_word:
            return self._by_word[word], False
        if word in self._by_negation:
            return self._by_negation[word], True
        renamed = self.flag(word) if _plain(word) in _CANONICAL_OF else None
        if renamed is not None:
            return renamed, False
        meant = {id(flag): (flag, False) for name, flag in self._by_word.items() if name.startswith(word)}
        negated = {
            id(flag): (flag, True) for name, flag in self._by_negation.items() if name.startswith(word)
        }
        found = [*meant.values(), *negated.values()] if len(word) > 2 else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(sorted(flag.names[0] for flag, _ in found))
            raise InputError(
                f"the flag {word} is ambiguous: it could be {listed}", hint="write the flag in full"
            )
        raise InputError(
            f"the installed SGLang has no flag {word}",
            hint=did_you_mean(word, [*self._by_word, *self._by_negation]),
        )

    def canonical(self, word: str) -> str:
        """The canonical name of a word of a command line (`--tp` → `tp_size`). Raises as `read` does."""
        return self.read(word)[0].canonical


def canonical_name(name: str) -> str:
    """The one name behind any known spelling of it (`tp` → `tp_size`); other names stay as they are."""
    return _CANONICAL_OF.get(_plain(name), _plain(name))


@cache
def names_of_all_versions() -> frozenset[str]:
    """The canonical names of the flags that SGLang has in some version of 0.4.6 to 0.5.23."""
    lines = _NAMES_FILE.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def parse_help(text: str) -> FlagSet:
    """The flags that an argparse `--help` text lists; none for a text without options. Pure and total."""
    entries: list[tuple[str, list[str]]] = []
    listing = False
    for line in _ANSI.sub("", text).splitlines():
        if line and not line[0].isspace():
            # A heading ("options:") begins a list; the usage and the description before it are no list.
            listing = line.rstrip().endswith(":") and not line.lower().startswith("usage:")
            continue
        if not listing:
            continue
        entry = _ENTRY.match(line)
        if entry is not None:
            entries.append((entry["invocation"], [entry["help"] or ""]))
        elif entries and line.strip():
            entries[-1][1].append(line.strip())
    flags = (_flag(invocation, " ".join(part for part in about if part)) for invocation, about in entries)
    return FlagSet(flag for flag in flags if flag is not None)


def _flag(invocation: str, about: str) -> Flag | None:
    names: list[str] = []
    values = ""
    for part in _split_outside_braces(invocation):
        spelled = _SPELLING.match(part)
        if spelled is None:
            continue
        if spelled["word"].startswith("--"):
            names.append(spelled["word"])
        values = values or spelled["values"] or ""
    negations = [name for name in names if name.startswith("--no-") and f"--{name[5:]}" in names]
    positive = tuple(name for name in names if name not in negations)
    if not positive:
        return None
    choices = _CHOICES.search(values)
    return Flag(
        names=positive,
        takes=_takes(values),
        choices=tuple(word.strip() for word in choices[1].split(",")) if choices else (),
        negation=negations[0] if negations else None,
        deprecated=bool(_DEPRECATED.match(about)),
        help=about,
    )


def _takes(values: str) -> Takes:
    """`X` is one value; `X [X ...]`, `[X ...]` and `X X` are many."""
    plain = _CHOICES.sub("CHOICES", values).strip()
    if not plain:
        return Takes.NONE
    return Takes.MANY if "..." in plain or len(plain.split()) > 1 else Takes.ONE


def _split_outside_braces(invocation: str) -> list[str]:
    """`--a {x, y}, --b` → the two spellings with their values."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(invocation):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0 and invocation[at + 1 : at + 3].strip().startswith("-"):
            parts.append(invocation[begin:at].strip())
            begin = at + 1
    return [*parts, invocation[begin:].strip()]


def _plain(word: str) -> str:
    return word.lstrip("-").replace("-", "_")


def _word(name: str) -> str:
    return "--" + name.replace("_", "-")
