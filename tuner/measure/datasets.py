"""Where the prompts of a workload come from."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from tuner.errors import InputError, did_you_mean
from tuner.measure import builtin_prompts
from tuner.measure.lengths import Lengths
from tuner.measure.measurement import Workload
from tuner.measure.prompt_files import FilePrompt, read_jsonl, read_sharegpt
from tuner.measure.prompts import SAFE_TOKEN_IDS, Prompt, distinct_heads, random_prompts

DATASETS = ("random", "builtin", "shared-prefix", "sharegpt", "jsonl")
FILE_DATASETS = ("sharegpt", "jsonl")

CHARACTERS_PER_TOKEN = 4
"""What English text has in common vocabularies; only used where no tokenizer can be asked."""

_ESTIMATED_ANSWER_TOKENS = (8, 1024)


class Dataset(Protocol):
    """A source of prompts. The same arguments give the same prompts."""

    def draw(self, count: int, seed: str, skip: int = 0) -> list[Prompt]:
        """`count` prompts of the sequence that `seed` names, those before the first `skip` left out."""

    def primers(self, seed: str) -> list[Prompt]:
        """What has to be sent before, so that the beginnings meant to be cached are."""

    def left(self, skip: int) -> int | None:
        """How many prompts the sequence still has behind the first `skip`; None where it never ends."""


def open_dataset(workload: Workload, token_ids: range = SAFE_TOKEN_IDS) -> Dataset:
    """The workload's dataset. Raises `InputError` for a file that cannot be read."""
    if workload.dataset not in DATASETS:
        raise InputError(
            f"unknown dataset '{workload.dataset}'", hint=did_you_mean(workload.dataset, DATASETS)
        )
    if workload.dataset in FILE_DATASETS:
        return _FileDataset(workload)
    inputs, outputs = workload.input_tokens, workload.output_tokens
    if inputs is None or outputs is None:
        raise InputError(f"the dataset '{workload.dataset}' needs input_tokens and output_tokens")
    if workload.dataset == "builtin":
        return _BuiltinDataset(inputs, outputs)
    if workload.dataset == "shared-prefix":
        return _SharedPrefixDataset(inputs, outputs, workload, token_ids)
    return _RandomDataset(inputs, outputs, token_ids)


class _RandomDataset:
    def __init__(self, inputs: Lengths, outputs: Lengths, token_ids: range) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._token_ids = token_ids

    def draw(self, count: int, seed: str, skip: int = 0) -> list[Prompt]:
        return random_prompts(count, self._inputs, self._outputs, f"{seed}/{skip}", self._token_ids)

    def primers(self, seed: str) -> list[Prompt]:
        return []

    def left(self, skip: int) -> int | None:
        return None


class _SharedPrefixDataset:
    """Groups of prompts, each group with its own leading tokens; `input_tokens` count these as well."""

    def __init__(self, inputs: Lengths, outputs: Lengths, workload: Workload, token_ids: range) -> None:
        self._prefix = workload.prefix_tokens
        self._groups = workload.prefix_groups
        self._outputs = outputs
        self._token_ids = token_ids
        if inputs.low <= self._prefix:
            raise InputError(
                f"prompts of {inputs.low} tokens have no room for a shared prefix of {self._prefix}",
                hint="make prefix_tokens smaller than the shortest prompt",
            )
        self._questions = Lengths(
            inputs.low - self._prefix,
            inputs.high - self._prefix,
            max(inputs.low, inputs.median) - self._prefix if inputs.sigma else 0,
            inputs.sigma,
        )

    def draw(self, count: int, seed: str, skip: int = 0) -> list[Prompt]:
        prefixes = self._prefixes(seed)
        questions = random_prompts(count, self._questions, self._outputs, f"{seed}/{skip}", self._token_ids)
        chooser = random.Random(f"{seed}/{skip}/groups")
        return [
            Prompt(
                question.output_tokens,
                ids=chooser.choice(prefixes) + question.ids,
                shared_tokens=self._prefix,
            )
            for question in questions
        ]

    def primers(self, seed: str) -> list[Prompt]:
        # One more token than what is shared: the last token of a prompt is never taken from the cache.
        return [Prompt(1, ids=(*prefix, self._token_ids[0])) for prefix in self._prefixes(seed)]

    def left(self, skip: int) -> int | None:
        return None

    def _prefixes(self, seed: str) -> list[tuple[int, ...]]:
        generator = random.Random(f"{seed}/prefixes")
        heads = distinct_heads(self._groups, self._prefix, generator, self._token_ids)
        return [(*head, *generator.choices(self._token_ids, k=self._prefix - len(head))) for head in heads]


class _BuiltinDataset:
    """The prompts that ship with the tuner, combined so that no two are the same."""

    def __init__(self, inputs: Lengths, outputs: Lengths) -> None:
        self._inputs = inputs
        self._outputs = outputs

    def draw(self, count: int, seed: str, skip: int = 0) -> list[Prompt]:
        generator = random.Random(f"{seed}/{skip}")
        return [
            Prompt(
                self._outputs.draw(generator),
                text=builtin_prompts.compose(generator, self._inputs.draw(generator) * CHARACTERS_PER_TOKEN),
            )
            for _ in range(count)
        ]

    def primers(self, seed: str) -> list[Prompt]:
        return []

    def left(self, skip: int) -> int | None:
        return None


class _FileDataset:
    """The prompts of a file in an order that the seed decides; none twice in one sequence."""

    def __init__(self, workload: Workload) -> None:
        if workload.dataset_file is None:
            raise InputError(f"the dataset '{workload.dataset}' needs a dataset_file")
        self._file = workload.dataset_file
        self._prompts = _read(workload.dataset, workload.dataset_file)
        self._outputs = workload.output_tokens

    def draw(self, count: int, seed: str, skip: int = 0) -> list[Prompt]:
        if skip + count > len(self._prompts):
            raise InputError(
                f"{self._file}: has {len(self._prompts)} prompts that differ, and a level needs "
                f"{skip + count}: repeated ones would be answered from the prefix cache",
                hint="give a larger file, or fewer concurrent requests",
            )
        order = list(range(len(self._prompts)))
        random.Random(seed).shuffle(order)
        generator = random.Random(f"{seed}/{skip}/lengths")
        return [self._prompt(self._prompts[number], generator) for number in order[skip : skip + count]]

    def primers(self, seed: str) -> list[Prompt]:
        return []

    def left(self, skip: int) -> int | None:
        return len(self._prompts) - skip

    def _prompt(self, found: FilePrompt, generator: random.Random) -> Prompt:
        tokens = found.output_tokens
        if tokens is None and self._outputs is not None:
            tokens = self._outputs.draw(generator)
        elif tokens is None and found.answer_characters:
            least, most = _ESTIMATED_ANSWER_TOKENS
            tokens = min(most, max(least, found.answer_characters // CHARACTERS_PER_TOKEN))
        if tokens is None:
            raise InputError(
                f"{self._file}:{found.line}: says nothing of how long the answer is to be",
                hint="add output_tokens to the line, or to the workload",
            )
        return Prompt(tokens, text=found.text, messages=found.messages)


def _read(kind: str, path: Path) -> tuple[FilePrompt, ...]:
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return _read_once(kind, path, changed_ns)


@lru_cache(maxsize=2)
def _read_once(kind: str, path: Path, changed_ns: int) -> tuple[FilePrompt, ...]:
    """A file of a gigabyte is read once and not for every launch, unless it changes."""
    del changed_ns
    return read_sharegpt(path) if kind == "sharegpt" else read_jsonl(path)
