"""A small set of real prompts, English, code and dialogue, from which any number of different ones is made.

With speculation a draft model has to guess what comes next, so random tokens give an accept length that
means nothing; these texts are ordinary enough to draft for.
"""

from __future__ import annotations

import json
import random
from functools import lru_cache
from importlib import resources

_FILE = "builtin_prompts.jsonl"

_NAMES = (
    "Amara", "Bjarne", "Chidi", "Dolores", "Emeka", "Farida", "Goran", "Hanneke", "Ines", "Jurgen", "Kaori",
    "Lamar", "Mirela", "Nasser", "Olena", "Pavel", "Quentin", "Rosalind", "Sefa", "Tomasz", "Usha", "Viktor",
    "Wanda", "Xiomara", "Yusuf", "Zelda",
)  # fmt: skip
_PLACES = (
    "Accra", "Bergen", "Cusco", "Dakar", "Esbjerg", "Faro", "Galway", "Haifa", "Izmir", "Jaipur", "Kobe",
    "Leeds", "Mendoza", "Nantes", "Oulu", "Porto", "Quito", "Riga", "Sousse", "Turku", "Utrecht", "Varna",
    "Windhoek", "Xalapa", "Yerevan", "Zadar",
)  # fmt: skip
_JOINTS = (
    "When that is done, there is a second matter.",
    "Here is one more thing, independent of the first.",
    "Please treat the following separately.",
    "And now for something else.",
)


def compose(generator: random.Random, characters: int) -> str:
    """A prompt of about `characters` characters.

    It opens with a name, a place and a number from among 67 million, so that two prompts have no more than
    a few tokens of their beginning in common, and goes on with as many of the texts as are needed. The last
    one is cut between two words, but never to less than the shortest text of the set.
    """
    number = generator.randrange(10_000, 109_999)
    opening = f"{generator.choice(_NAMES)} {number} ({generator.choice(_PLACES)})."
    parts = [opening]
    length = len(opening)
    order = generator.sample(texts(), len(texts()))
    while length < characters or len(parts) == 1:
        if not order:
            order = generator.sample(texts(), len(texts()))
        if len(parts) > 1:
            parts.append(generator.choice(_JOINTS))
        parts.append(order.pop())
        length += len(parts[-1]) + 2
    whole = "\n\n".join(parts)
    return whole[: max(characters, len(opening) + _shortest())].rsplit(None, 1)[0]


@lru_cache(maxsize=1)
def texts() -> tuple[str, ...]:
    """The texts of the set."""
    lines = resources.files("tuner.measure").joinpath(_FILE).read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line)["text"] for line in lines)


def _shortest() -> int:
    return min(map(len, texts()))
