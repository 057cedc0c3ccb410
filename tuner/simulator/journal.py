"""An optional record of what the simulated server really did, for tests of what a client measured.

The variable TUNER_SIM_JOURNAL names a file; one JSON line is written per decode step and per life event.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any

VARIABLE = "TUNER_SIM_JOURNAL"


class Journal:
    """Writes JSON lines to `path`, or nothing when it is None."""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[str] | None = path.open("a", encoding="utf-8", buffering=1) if path else None

    def event(self, name: str, **facts: Any) -> None:
        """Something that happened once."""
        if self._file is not None:
            self._file.write(json.dumps({"event": name, **facts}) + "\n")

    def step(self, ended_s: float, running: int, tokens: int, step_ms: float) -> None:
        """One decode step: when it ended (monotonic seconds), how many ran, what it gave, what it took."""
        if self._file is not None:
            self._file.write(
                f'{{"ended_s":{ended_s:.6f},"running":{running},"tokens":{tokens},"step_ms":{step_ms:.4f}}}\n'
            )

    def close(self) -> None:
        """Write what is left."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
