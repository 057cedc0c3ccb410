"""The text a simulated model writes and how it counts tokens.

One endless text is made from the box's seed; a request reads it from a place that its prompt decides. So the
same prompt gets the same answer at temperature 0, whatever the configuration, and rendering a chunk is a
slice of prepared bytes.
"""

from __future__ import annotations

import random
import re
import zlib

_SUBJECTS = (
    "engine",
    "kernel",
    "cache",
    "queue",
    "router",
    "driver",
    "sensor",
    "bridge",
    "river",
    "garden",
    "harbor",
)
_OBJECTS = (
    "signal",
    "window",
    "letter",
    "branch",
    "circle",
    "record",
    "pattern",
    "mirror",
    "shelter",
    "ladder",
)
_QUALITIES = (
    "quiet",
    "narrow",
    "early",
    "simple",
    "steady",
    "bright",
    "distant",
    "heavy",
    "gentle",
    "hidden",
)
_ACTIONS = (
    "follows",
    "carries",
    "measures",
    "opens",
    "repeats",
    "holds",
    "crosses",
    "answers",
    "gathers",
    "shows",
)
_LINKS = ("near", "beyond", "under", "before", "after", "without", "through", "between")
_JOINS = ("and", "but", "while", "because", "so")
_PIECES = re.compile(r" ?\w{1,6}|\W")
_FIRST_ID = 1000
_STARTS = 16384


class Corpus:
    """An endless text in tokens, rendered once: `text` and `ids` of any stretch are slices."""

    def __init__(self, seed: int, *, garbled: bool = False) -> None:
        self._random = random.Random(seed)
        self._garbled = garbled
        self._numbers: dict[str, int] = {}
        self._text = bytearray()
        self._text_ends = [0]
        self._ids = bytearray()
        self._id_ends = [0]

    def start_for(self, key: str) -> int:
        """The place at which the answer to a prompt begins."""
        return zlib.crc32(key.encode("utf-8", "replace")) % _STARTS

    def text(self, start: int, first: int, last: int) -> bytes:
        """The text of tokens `first` to `last` (exclusive) of an answer that begins at `start`."""
        self._reach(start + last)
        return bytes(self._text[self._text_ends[start + first] : self._text_ends[start + last]])

    def ids(self, start: int, first: int, last: int) -> bytes:
        """The token numbers of the same stretch, separated by commas."""
        self._reach(start + last)
        return bytes(self._ids[self._id_ends[start + first] : self._id_ends[start + last]]).rstrip(b",")

    def _reach(self, tokens: int) -> None:
        while len(self._text_ends) <= tokens:
            for word in self._garbage() if self._garbled else self._sentence():
                self._append(word)

    def _append(self, word: str) -> None:
        number = self._numbers.setdefault(word, _FIRST_ID + 13 * len(self._numbers))
        self._text += word.encode()
        self._text_ends.append(len(self._text))
        self._ids += b"%d," % number
        self._id_ends.append(len(self._ids))

    def _sentence(self) -> list[str]:
        words = self._clause()
        if self._random.random() < 0.4:
            words += [",", " " + self._random.choice(_JOINS), *self._clause()]
        first = words[0].strip()
        return [" " + first.capitalize(), *words[1:], "."]

    def _clause(self) -> list[str]:
        pick = self._random.choice
        words = ["the", pick(_QUALITIES), pick(_SUBJECTS), pick(_ACTIONS), "the", pick(_OBJECTS)]
        if self._random.random() < 0.5:
            words += [pick(_LINKS), "a", pick(_QUALITIES), pick(_OBJECTS)]
        return [" " + word for word in words]

    def _garbage(self) -> list[str]:
        return ["!"] * self._random.randint(20, 60) + [self._random.choice(("0", "a", " the", " ,"))]


def tokenize(text: str) -> list[str]:
    """The pieces that the simulated tokenizer cuts a prompt into: words in parts of at most six letters."""
    return _PIECES.findall(text)
