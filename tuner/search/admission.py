"""Whether a configuration is launched at all: what the evaluator can tell without a launch, remembered.

An evaluator that vets can be wrong, and must not be able to empty a search: after many refusals in a row one
configuration is launched all the same, and whoever refused what then runs is not believed any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tuner.errors import TunerError
from tuner.evaluate.protocol import Evaluator, Listener, Vetter
from tuner.preflight.refusal import Refusal
from tuner.space.configuration import Configuration
from tuner.space.space import KnownGood

_MOST_IN_A_ROW = 50


class Admission:
    """Asks `evaluator`, where it is a `Vetter`, once of each configuration; `listener` hears of refusals."""

    def __init__(self, evaluator: Evaluator | None, listener: Listener) -> None:
        self._vetter: Vetter | None = evaluator if isinstance(evaluator, Vetter) else None
        self._listener = listener
        self._answers: dict[str, Refusal | None] = {}
        self._told: set[str] = set()
        self._refused: Counter[str] = Counter()
        self._disproved: set[str] = set()
        self._in_a_row = 0

    @property
    def refused(self) -> Mapping[str, int]:
        """Why configurations were refused in this run, and how many were for each reason."""
        return self._refused

    def admits(self, configuration: Configuration) -> bool:
        """Whether a proposal may be launched."""
        is_new = configuration.fingerprint not in self._answers
        refusal = self.refusals([configuration])[0]
        if refusal is None:
            self._in_a_row = 0
            return True
        if self._in_a_row >= _MOST_IN_A_ROW:  # until the next launch is over
            return True
        self._tell(configuration, refusal)
        self._in_a_row += is_new
        if self._in_a_row < _MOST_IN_A_ROW:
            return False
        self._listener.on_note(
            f"{self._in_a_row} proposals in a row were refused before launch, the last: {refusal.shown()}; "
            "the next one is launched all the same, to see whether that is right"
        )
        return True

    def admits_known_good(self, known: KnownGood) -> bool:
        """Whether one that is said to run may be launched: only the engine itself can refuse that."""
        configuration = known.values
        refusal = self.refusals([configuration])[0]
        if refusal is None:
            return True
        is_news = configuration.fingerprint not in self._told
        if refusal.sure:
            self._tell(configuration, refusal)
            note = f"known-good '{known.name}' is skipped: {refusal.by} refuses it"
        else:
            self._told.add(configuration.fingerprint)
            note = f"known-good '{known.name}' is launched, against the rule: {refusal.shown()}"
        if is_news:
            self._listener.on_note(note)
        return not refusal.sure

    def refusals(self, configurations: Sequence[Configuration]) -> list[Refusal | None]:
        """For each the reason not to launch it, or None."""
        unknown = [item for item in dict.fromkeys(configurations) if item.fingerprint not in self._answers]
        if unknown:
            for item, answer in zip(unknown, self._vet(unknown), strict=True):
                self._answers[item.fingerprint] = answer
        answers = [self._answers[configuration.fingerprint] for configuration in configurations]
        return [None if answer is None or answer.by in self._disproved else answer for answer in answers]

    def heard(self, configuration: Configuration, *, ran: bool) -> None:
        """A launch is over. What ran although it was refused disproves whoever refused it."""
        self._in_a_row = 0
        refusal = self._answers.get(configuration.fingerprint)
        if ran and refusal is not None and refusal.by not in self._disproved:
            self._disproved.add(refusal.by)
            self._listener.on_note(
                f"it runs, although it was refused before launch: {refusal.reason}; from now on nothing is "
                f"refused by {refusal.by}"
            )

    def _tell(self, configuration: Configuration, refusal: Refusal) -> None:
        if configuration.fingerprint not in self._told:
            self._told.add(configuration.fingerprint)
            self._refused[refusal.shown()] += 1
            self._listener.on_refusal(configuration, refusal)

    def _vet(self, configurations: Sequence[Configuration]) -> Sequence[Refusal | None]:
        """The one place where vetting may fail unexpectedly: then everything is launched, as without it."""
        if self._vetter is None:
            return [None] * len(configurations)
        try:
            answers = self._vetter.vet(configurations, self._listener)
            return [answer for answer, _ in zip(answers, configurations, strict=True)]
        except TunerError:
            raise
        except Exception as error:  # noqa: BLE001
            self._vetter = None
            self._listener.on_note(
                f"nothing is refused before launch any more: vetting failed: {type(error).__name__}: {error}"
            )
            return [None] * len(configurations)
