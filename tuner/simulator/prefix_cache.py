"""A simple radix cache: which beginnings of prompts are still in the KV pool."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

_BLOCK = 32


class PrefixCache:
    """Remembers prompts in blocks of 32 tokens, and whole prompts, the least recently used going first."""

    def __init__(self, capacity_tokens: int, *, enabled: bool = True) -> None:
        self._capacity_blocks = max(1, capacity_tokens // _BLOCK)
        self._enabled = enabled
        self._blocks: OrderedDict[int, int] = OrderedDict()

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()

    def match(self, tokens: Sequence[Hashable]) -> int:
        """How many leading tokens are cached; never the last one, which has to be computed."""
        if not self._enabled or not tokens:
            return 0
        found = 0
        for key, end in _keys(tokens):
            if key not in self._blocks:
                break
            self._blocks.move_to_end(key)
            found = end
        return min(found, len(tokens) - 1)

    def insert(self, tokens: Sequence[Hashable]) -> None:
        """Remember this prompt."""
        if not self._enabled:
            return
        for key, end in _keys(tokens):
            self._blocks[key] = end
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._capacity_blocks:
            self._blocks.popitem(last=False)


def _keys(tokens: Sequence[Hashable]) -> list[tuple[int, int]]:
    """A key for every block and for the whole, each standing for all that comes before it."""
    keys = []
    running = 0
    for start in range(0, len(tokens), _BLOCK):
        end = min(start + _BLOCK, len(tokens))
        running = hash((running, tuple(tokens[start:end])))
        keys.append((running, end))
    return keys
