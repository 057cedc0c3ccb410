"""A process in the server's own Python that says what SGLang makes of arguments.

It is there only while candidates are vetted: importing SGLang takes it 5 to 14 s, a check 0.02 to 0.1 s, and
on a box with GPUs it may hold some of their memory, so it is ended before a server is launched.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, cast

from tuner import programs

_SCRIPT = Path(__file__).with_name("server_side.py")
_START_LIMIT_S = 180.0
"""For the import of SGLang from a cold disk, with other work on the machine."""
_CHECK_LIMIT_S = 30.0
_DEATH_LIMIT_S = 10.0
"""For the end of a process that has closed its output."""
_MOST_LOSSES = 3
"""After so many processes that died or fell silent nobody is asked any more: each costs another import."""


@dataclass(frozen=True)
class Question:
    """What a server would be started with: the words after its command, and the variables of the launch."""

    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Accepted:
    """SGLang takes the arguments; `resolved` are the values that it would run with, by its own names."""

    resolved: Mapping[str, Any]


@dataclass(frozen=True)
class Refused:
    """SGLang ends with this exception: its type and its text (of a bare assertion, the line that asserts)."""

    type: str
    text: str


@dataclass(frozen=True)
class Unknown:
    """Nobody can tell: the process was lost over it, or something else than the arguments failed."""

    why: str


Answer = Accepted | Refused | Unknown


class ArgumentCheck(Protocol):
    """What can be asked whether a server would take its arguments.

    `absent` says why nothing can be asked of this installation, and is empty as long as that is not known.
    """

    absent: str

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """An answer for each; never raises."""

    def end(self) -> bool:
        """End what was started to answer; whether there was anything."""


class Validator:
    """Implements `ArgumentCheck` with the SGLang that `python` imports, in `environment`.

    Its process starts at the first question. `words` are flags that stand in the command itself.
    """

    def __init__(
        self,
        python: Path,
        environment: Mapping[str, str],
        *,
        words: tuple[str, ...] = (),
        start_limit_s: float = _START_LIMIT_S,
        check_limit_s: float = _CHECK_LIMIT_S,
    ) -> None:
        self._python = python
        self._environment = dict(environment)
        self._words = words
        self._start_limit_s = start_limit_s
        self._check_limit_s = check_limit_s
        self._process: _Process | None = None
        self._losses = 0
        self._asked = 0
        self.absent = ""

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """See `ArgumentCheck`. What the process dies of, or ponders for too long, is unknown."""
        return [self._ask(question) for question in questions]

    def end(self) -> bool:
        """See `ArgumentCheck`. To the last of the processes that it started."""
        if self._process is None:
            return False
        self._process.end()
        self._process = None
        return True

    def _ask(self, question: Question) -> Answer:
        if self._process is None and not self.absent:
            self._start()
        if self._process is None:
            return Unknown(self.absent)
        self._asked += 1
        number = self._asked
        asked = {
            "id": number,
            "words": [*self._words, *question.words],
            "variables": dict(question.variables),
        }
        try:
            answer = self._process.ask(asked, lambda heard: heard.get("id") == number, self._check_limit_s)
            return _read(answer)
        except _Lost as error:
            self._lose(str(error))
            return Unknown(str(error))

    def _start(self) -> None:
        try:
            self._process = _Process(self._python, self._environment)
            first = self._process.ask(
                None, lambda heard: "ready" in heard or "absent" in heard, self._start_limit_s
            )
            self.absent = str(first.get("absent", ""))
        except (_Lost, OSError) as error:
            self.absent = f"its Python cannot be asked: {error}"
        if self.absent:
            self.end()

    def _lose(self, why: str) -> None:
        self.end()
        self._losses += 1
        if self._losses >= _MOST_LOSSES:
            self.absent = f"the process that checks arguments was lost {self._losses} times, last since {why}"


def _read(answer: Mapping[str, Any]) -> Answer:
    if "resolved" in answer:
        return Accepted(answer["resolved"])
    refused = answer.get("refused")
    if isinstance(refused, dict):
        return Refused(str(refused.get("type")), str(refused.get("text")))
    return Unknown(str(answer.get("unknown", "it gave no answer")))


class _Lost(Exception):
    """The process died, or did not answer in time; the text says how."""


class _Process:
    """One run of the script, in a session of its own. What SGLang prints goes to a nameless file."""

    def __init__(self, python: Path, environment: Mapping[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        self._heard = b""
        try:
            # As `-c`, so that modules are looked for exactly where `-m sglang.launch_server` looks.
            self._child = programs.start(
                [str(python), "-c", _SCRIPT.read_text(encoding="utf-8")],
                environment=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
            )
        except OSError:
            self._log.close()
            raise
        self._to = cast("IO[bytes]", self._child.stdin)
        self._from = cast("IO[bytes]", self._child.stdout)

    def ask(
        self,
        question: dict[str, Any] | None,
        wanted: Callable[[dict[str, Any]], bool],
        limit_s: float,
    ) -> dict[str, Any]:
        """The first line that is `wanted`; without a question, it is only waited for. Raises `_Lost`."""
        if question is not None:
            try:
                self._to.write(json.dumps(question).encode() + b"\n")
                self._to.flush()
            except OSError:
                raise _Lost(self._death()) from None
        deadline_s = time.monotonic() + limit_s
        while True:
            line, found, rest = self._heard.partition(b"\n")
            if found:
                self._heard = rest
                heard = _json(line)
                if heard is not None and wanted(heard):
                    return heard
                continue
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self._from], [], [], left_s)[0]:
                raise _Lost(f"it gave no answer within {limit_s:g} s{self._last_line()}")
            more = os.read(self._from.fileno(), 1 << 16)
            if not more:
                raise _Lost(self._death())
            self._heard += more

    def end(self) -> None:
        """Close its stdin, which ends it, and kill what is left of its session."""
        with contextlib.suppress(OSError):
            self._to.close()
        programs.end(self._child)
        self._from.close()
        self._log.close()

    def _death(self) -> str:
        code = programs.wait_for(self._child, _DEATH_LIMIT_S)
        how = "it closed its output" if code is None else f"it ended with exit code {code}"
        return f"{how}{self._last_line()}"

    def _last_line(self) -> str:
        tail = programs.tail_of(self._log, 4096)
        lines = [line.strip() for line in tail.splitlines() if line.strip()]
        return f": {lines[-1][:200]}" if lines else ""


def _json(line: bytes) -> dict[str, Any] | None:
    try:
        heard = json.loads(line)
    except ValueError:
        return None
    return heard if isinstance(heard, dict) else None
