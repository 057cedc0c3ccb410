"""The prompts of the guard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.document import Node, read_document

SHIPPED = Path(__file__).with_name("prompts.yaml")

ALONE = 8
"""So many prompts also go alone: one after the other costs time, and the first ones are of every kind."""


@dataclass(frozen=True)
class Prompt:
    """A text to be continued greedily by at most `output_tokens` tokens."""

    name: str
    text: str
    output_tokens: int


def read_prompts(path: Path = SHIPPED) -> tuple[Prompt, ...]:
    """The prompts of a file with the key `prompts`: a list of `name`, `text` and `tokens`.

    Raises `InputError` for anything else.
    """
    nodes = (
        read_document(path).mapping(known=("prompts",), required=("prompts",))["prompts"].sequence(least=4)
    )
    prompts: dict[str, Prompt] = {}
    for node in nodes:
        prompt = _prompt(node)
        if prompt.name in prompts:
            raise node.refuse(f"the name '{prompt.name}' stands here twice", hint="name each prompt once")
        prompts[prompt.name] = prompt
    return tuple(prompts.values())


def _prompt(node: Node) -> Prompt:
    keys = node.mapping(known=("name", "text", "tokens"), required=("name", "text", "tokens"))
    return Prompt(keys["name"].text(), keys["text"].text(), keys["tokens"].integer(least=8, most=4096))
