"""The log of a server, kept free of the secrets that the server prints into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tuner.redact import is_secret, redact_argv

_SHORTEST_SECRET = 6  # a key like "test" would take every such word out of the log
_CHUNK_BYTES = 1 << 20


class ServerLog:
    """Reads a log while a server writes it, and overwrites known secrets in it with asterisks.

    SGLang prints all its arguments at the start, `api_key` included. The server writes the file itself, so
    a secret stands in it until the next `read` or `scrub`. Lengths and offsets stay as they are.
    """

    def __init__(self, path: Path, secrets: Iterable[str]) -> None:
        self.path = path
        self._secrets = sorted(
            {secret.encode() for secret in secrets if len(secret) >= _SHORTEST_SECRET}, key=len
        )
        self._scrubbed_to = 0

    def read(self, offset: int) -> bytes:
        """What was written since byte `offset`; empty where there is no log (any more)."""
        self.scrub()
        try:
            with self.path.open("rb") as log:
                log.seek(offset)
                return self._masked(log.read())
        except FileNotFoundError:
            return b""

    def scrub(self) -> None:
        """Overwrite the secrets in what was written since the last time."""
        if not self._secrets:
            return
        overlap = len(self._secrets[-1]) - 1  # a secret may lie across two looks
        try:
            with self.path.open("r+b") as log:
                while True:
                    start = max(0, self._scrubbed_to - overlap)
                    log.seek(start)
                    found = log.read(overlap + _CHUNK_BYTES)
                    masked = self._masked(found)
                    if masked != found:
                        log.seek(start)
                        log.write(masked)
                    if start + len(found) <= self._scrubbed_to:
                        return
                    self._scrubbed_to = start + len(found)
        except FileNotFoundError:
            return

    def _masked(self, text: bytes) -> bytes:
        for secret in reversed(self._secrets):  # the longest first: one may be part of another
            text = text.replace(secret, b"*" * len(secret))
        return text


def secret_values(argv: Sequence[str], environment: Mapping[str, str]) -> set[str]:
    """The values of secret flags and variables."""
    values = {value for name, value in environment.items() if is_secret(name)}
    for word, shown in zip(argv, redact_argv(argv), strict=True):
        if word != shown and "://" not in word:
            flag, equals, value = word.partition("=")
            values.add(value if equals and flag.startswith("--") else word)
    return values
