"""The tuner's own rules: what SGLang accepts as arguments and what yet cannot run, or comes to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.document import Node, read_document
from tuner.errors import InputError
from tuner.preflight.refusal import Refusal
from tuner.space.parameters import Boolean, Choice, Integer, Parameter
from tuner.space.rules import Condition, parse_condition

RULES_FILE = Path(__file__).with_name("rules.yaml")


@dataclass(frozen=True)
class OwnRule:
    """A condition under which a server cannot run; `source` says from where that is known."""

    name: str
    forbid: Condition
    because: str
    source: str

    def refusal(self, values: Mapping[str, object]) -> Refusal | None:
        """The refusal where the condition holds. A value that is not known makes it false."""
        if not self.forbid.holds(values):
            return None
        return Refusal(self.because.format_map(values), by=self.name, sure=False)


def read_rules(file: Path = RULES_FILE) -> tuple[OwnRule, ...]:
    """The rules of a file. Raises `InputError` where they cannot be meant."""
    keys = read_document(file).mapping(
        known=("numbers", "switches", "choices", "rules"),
        required=("numbers", "switches", "choices", "rules"),
    )
    names: list[Parameter] = [
        *(Integer(name=item.text(), low=0, high=0) for item in keys["numbers"].sequence()),
        *(Boolean(name=item.text()) for item in keys["switches"].sequence()),
        *(
            Choice(name=name, choices=tuple(item.text() for item in choices.sequence(least=1)))
            for name, choices in keys["choices"].items()
        ),
    ]
    return tuple(_rule(node, names) for node in keys["rules"].sequence())


def refusal_by_rules(rules: tuple[OwnRule, ...], values: Mapping[str, object]) -> Refusal | None:
    """The first rule that refuses these values (flags by canonical name, variables, facts), or None."""
    return next((found for rule in rules if (found := rule.refusal(values)) is not None), None)


def _rule(node: Node, names: list[Parameter]) -> OwnRule:
    wanted = ("name", "forbid", "because", "source")
    keys = node.mapping(known=wanted, required=wanted)
    try:
        forbid = parse_condition(keys["forbid"].text(), names)
    except InputError as error:
        raise keys["forbid"].refuse(error.message, hint=error.hint) from None
    because = keys["because"].text()
    try:
        because.format_map(dict.fromkeys(forbid.names, 0))
    except (KeyError, ValueError, IndexError) as error:
        raise keys["because"].refuse(f"names what the condition does not: {error}") from None
    return OwnRule(keys["name"].text(), forbid, because, keys["source"].text())
