"""What cannot run, and who says so."""

from __future__ import annotations

from dataclasses import dataclass

SGLANG = "SGLang"
"""As `by`: the installed SGLang itself refuses these arguments."""


@dataclass(frozen=True)
class Refusal:
    """Why a configuration is not launched.

    `by` names who refuses it. `sure`: the engine itself does, so that a launch could only end in the same
    error; otherwise a rule of the tuner, from which configurations that are known to run are exempt.
    """

    reason: str
    by: str = SGLANG
    sure: bool = True

    def shown(self) -> str:
        """For people: the reason, and who says so."""
        return f"{self.reason} ({self.by})"
