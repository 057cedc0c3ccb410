"""One thing that was found out about the box."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`what` is `value`. A `warning` is known to cost speed or starts: `why`, and what is the `cure`."""

    what: str
    value: str
    warning: bool = False
    why: str = ""
    cure: str = ""

    def shown(self) -> str:
        """For people: `CPU governor: powersave. It costs …; cure: …`."""
        if not self.warning:
            return f"{self.what}: {self.value}"
        return f"{self.what}: {self.value} ({self.why}; cure: {self.cure})"

    @classmethod
    def costly(cls, what: str, value: str, why: str, cure: str) -> Finding:
        """A finding that is a warning."""
        return cls(what, value, warning=True, why=why, cure=cure)
