"""Prompts from files: ShareGPT's JSON, and one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner.errors import InputError

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


@dataclass(frozen=True)
class FilePrompt:
    """A prompt as a file has it: `text` or `messages`, its line (or entry), what is known of the answer."""

    line: int
    text: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    output_tokens: int | None = None
    answer_characters: int = 0


def read_jsonl(path: Path) -> tuple[FilePrompt, ...]:
    """One object a line: `text` (or `prompt`) or `messages`, and optionally `output_tokens`.

    `messages` is a list of objects with `role` and `content`, as in the chat API. Empty lines are skipped,
    repeated prompts too. Raises `InputError` that names the line.
    """
    prompts = []
    for number, line in enumerate(_text_of(path).splitlines(), start=1):
        if line.strip():
            prompts.append(_line_prompt(_parsed(line, f"{path}:{number}"), number, f"{path}:{number}"))
    return _distinct(prompts, path)


def read_sharegpt(path: Path) -> tuple[FilePrompt, ...]:
    """A list of objects whose `conversations` are turns with `from` and `value`.

    The first turn of the person is the prompt, the answer behind it tells how long an answer is. Entries
    without such a pair are skipped. Raises `InputError`.
    """
    entries = _parsed(_text_of(path), str(path))
    if not isinstance(entries, list):
        raise InputError(f"{path}: is no ShareGPT file: expected a list of conversations")
    prompts = []
    for number, entry in enumerate(entries, start=1):
        turns = entry.get("conversations", entry.get("conversation")) if isinstance(entry, dict) else None
        found = _first_pair(turns) if isinstance(turns, list) else None
        if found is not None:
            question, answer = found
            prompts.append(FilePrompt(number, messages=(("user", question),), answer_characters=len(answer)))
    return _distinct(prompts, path)


def _line_prompt(found: Any, number: int, where: str) -> FilePrompt:
    if not isinstance(found, dict):
        raise InputError(f"{where}: expected an object with 'text' or 'messages'")
    tokens = found.get("output_tokens")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        raise InputError(f"{where}: output_tokens must be a whole number above 0, not {tokens!r}")
    text, messages = found.get("text", found.get("prompt")), found.get("messages")
    if isinstance(text, str) and text.strip() and messages is None:
        return FilePrompt(number, text=text, output_tokens=tokens)
    if isinstance(messages, list) and messages and text is None:
        return FilePrompt(
            number, messages=tuple(_message(item, where) for item in messages), output_tokens=tokens
        )
    raise InputError(f"{where}: needs either a 'text' that is not empty or a list of 'messages'")


def _message(found: Any, where: str) -> tuple[str, str]:
    role = found.get("role") if isinstance(found, dict) else None
    content = found.get("content") if isinstance(found, dict) else None
    if not isinstance(role, str) or not isinstance(content, str):
        raise InputError(f"{where}: a message needs a role and a content, both text")
    return role, content


def _first_pair(turns: list[Any]) -> tuple[str, str] | None:
    """The first question of the person and the answer to it."""
    spoken = [
        (_ROLES.get(str(turn.get("from"))), turn.get("value")) for turn in turns if isinstance(turn, dict)
    ]
    for (role, question), (next_role, answer) in pairwise(spoken):
        if role == "user" and next_role == "assistant" and isinstance(question, str) and question.strip():
            return question, answer if isinstance(answer, str) else ""
    return None


def _distinct(prompts: Iterable[FilePrompt], path: Path) -> tuple[FilePrompt, ...]:
    found = {prompt.text or prompt.messages: prompt for prompt in reversed(list(prompts))}
    if not found:
        raise InputError(f"{path}: has no prompt")
    return tuple(reversed(found.values()))


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: is no valid JSON: {error}") from None


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is no UTF-8 text") from None
