"""The server's log: SGLang's line format on standard error, and the order of its ranks."""

from __future__ import annotations

import os
import time


class Log:
    """Writes lines as SGLang does: `[time] message`, with ` TP0` after the time where a rank speaks."""

    def __init__(self, ranks: int, *, descriptor: int = 2) -> None:
        self._ranks = ranks
        self._descriptor = descriptor

    @property
    def ranks(self) -> range:
        """The tensor-parallel ranks."""
        return range(self._ranks)

    def main(self, message: str) -> None:
        """A line of the launcher."""
        self._write(f"[{_now()}] {message}\n")

    def rank(self, rank: int, message: str) -> None:
        """A line of one rank; a server of one rank names none."""
        label = f" TP{rank}" if self._ranks > 1 else ""
        self._write(f"[{_now()}{label}] {message}\n")

    def every_rank(self, message: str) -> None:
        """The same line from every rank."""
        for rank in self.ranks:
            self.rank(rank, message)

    def access(self, client: str, method: str, path: str, status: str) -> None:
        """A line of the HTTP server about one request."""
        self.main(f'INFO:     {client} - "{method} {path} HTTP/1.1" {status}')

    def raw(self, text: str) -> None:
        """Text as it stands: progress bars, tracebacks, warnings of other programs."""
        self._write(text)

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError:
                return  # nobody reads the log any more; the server goes on like the real one


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
