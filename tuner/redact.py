"""Secrets are replaced before anything is shown or stored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

REDACTED = "***"

_SECRET_NAME = re.compile(
    r"SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTHORIZATION|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY",
    re.IGNORECASE,
)
_TOKEN_NAME = re.compile(r"TOKEN", re.IGNORECASE)
# Tokens of text, not of access: counts, tokenizers, and what is measured per token.
_TEXT_TOKEN = re.compile(
    r"TOKENS|TOKENI[SZ]|TOKEN_(?:MAP|BUDGET|USAGE|DISTRIBUTION)|(?:MAX|PER|INTER|FIRST)_TOKEN", re.IGNORECASE
)
_PLACE_OF_SECRET = re.compile(r"_(?:PATH|DIR)$", re.IGNORECASE)
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def is_secret(name: str) -> bool:
    """Whether a flag (`--api-key`) or a variable (`HF_TOKEN`) of this name holds a secret."""
    plain = name.lstrip("-").replace("-", "_")
    if _PLACE_OF_SECRET.search(plain):
        return False
    if _SECRET_NAME.search(plain):
        return True
    return bool(_TOKEN_NAME.search(plain)) and not _TEXT_TOKEN.search(plain)


def redact_text(text: str) -> str:
    """The same text with the login of every URL in it replaced (`http://user:password@proxy`)."""
    return _URL_LOGIN.sub(REDACTED, text)


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The same variables with the values of secret ones replaced."""
    return {name: REDACTED if is_secret(name) else redact_text(value) for name, value in environment.items()}


def redact_argv(argv: Sequence[str]) -> list[str]:
    """The same words with the values of secret flags replaced (`--api-key X`, `--api-key=X`)."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        flag, equals, _ = word.partition("=")
        if hide_next and not word.startswith("--"):
            shown.append(REDACTED)
            hide_next = False
        elif word.startswith("--") and is_secret(flag):
            shown.append(f"{flag}={REDACTED}" if equals else word)
            hide_next = not equals
        else:
            shown.append(redact_text(word))
            hide_next = False
    return shown
