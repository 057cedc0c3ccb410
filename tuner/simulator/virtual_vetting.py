"""What a simulated box refuses before launch, in virtual time: its release's checks of arguments."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.preflight.validator import Accepted, Answer, Question, Refused, Unknown
from tuner.simulator.box import Box
from tuner.simulator.virtual_start import VirtualStarts

VETTING_S = 12.0
"""What the start of a process that imports SGLang takes; the checks themselves take no time beside it."""
_OF_THE_MOMENT = "OSError"


class VirtualCheck:
    """Implements `ArgumentCheck` with the simulator's parser and its checks."""

    absent = ""

    def __init__(self, starts: VirtualStarts) -> None:
        self._starts = starts

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """See `ArgumentCheck`."""
        return [self._ask(question) for question in questions]

    def end(self) -> bool:
        """Nothing was started."""
        return False

    def _ask(self, question: Question) -> Answer:
        complaint, resolved = self._starts.check(question.words)
        if not complaint:
            return Accepted(resolved)
        kind, _, text = complaint.partition(": ")
        return Unknown(complaint) if kind == _OF_THE_MOMENT else Refused(kind, text)


def facts_of_box(box: Box) -> dict[str, object]:
    """What the tuner would read of such a box and such a model."""
    facts: dict[str, object] = {
        "gpus": box.gpus.count,
        "attention_heads": box.model.heads,
        "draft_layers": 0,
    }
    known = {"sm": box.gpus.sm, "layers": box.model.layers}
    return {**facts, **{name: number for name, number in known.items() if number}}
