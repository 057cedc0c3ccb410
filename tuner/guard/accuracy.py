"""The user's own judge of accuracy: a command that is run against the server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.clock import Clock
from tuner.errors import InputError
from tuner.programs import run_to_end

URL = "{url}"
"""In the words of the command: where the server is."""

DEFAULT_LIMIT_S = 1800.0

_END_GRACE_S = 2.0
_TOLERANCE = 0.02
_SPREADS = 2.0


@dataclass(frozen=True)
class AccuracyResult:
    """How the command ended. `number` is its last line where that is one; higher is better.

    `problem` says why there is no result: a time limit, a command that cannot be started, an exit code
    other than 0.
    """

    exit_code: int | None
    number: float | None
    last_line: str
    took_s: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return not self.problem


def run_accuracy(
    command: Sequence[str],
    url: str,
    clock: Clock,
    *,
    environment: Mapping[str, str],
    limit_s: float = DEFAULT_LIMIT_S,
) -> AccuracyResult:
    """Run the command with `{url}` filled in, given to no shell, and wait for its end.

    It runs in a session of its own, which is ended after `limit_s` with all that stayed in it. What it
    prints on standard output is read for the last line; the rest goes nowhere. Raises `InputError` where
    the command cannot be started at all.
    """
    argv = [word.replace(URL, url) for word in command]
    began_s = clock.monotonic_s()
    try:
        done = run_to_end(argv, environment=environment, limit_s=limit_s, grace_s=_END_GRACE_S, clock=clock)
    except (OSError, ValueError) as error:
        raise InputError(
            f"the accuracy command '{argv[0]}' cannot be started: {error}",
            hint="name a program by its path; it is given to no shell",
        ) from error
    last_line = _last_line(done.output)
    took_s = clock.monotonic_s() - began_s
    problem = ""
    if done.exit_code is None:
        problem = f"the accuracy command did not end within {limit_s:g} s"
    elif done.exit_code != 0:
        problem = f"the accuracy command ended with exit code {done.exit_code}"
    return AccuracyResult(done.exit_code, _number(last_line), last_line, took_s, problem)


def accuracy_reason(reference: Sequence[AccuracyResult], result: AccuracyResult) -> str:
    """Why the result is worse than those of the default server, or the empty string.

    A number may be lower than the default's mean by twice the spread of its repeats, at least by 2 %.
    Where the default itself has no result nothing can be said.
    """
    good = [item for item in reference if item.ok]
    if not good:
        return ""
    if not result.ok:
        return result.problem
    numbers = [item.number for item in good if item.number is not None]
    if not numbers:
        return ""
    if result.number is None:
        return f"the accuracy command printed no number: '{result.last_line}'"
    mean = sum(numbers) / len(numbers)
    margin = max(_SPREADS * (max(numbers) - min(numbers)), _TOLERANCE * abs(mean))
    if result.number >= mean - margin:
        return ""
    return (
        f"accuracy {result.number:g} where the default has {mean:g} (at least {mean - margin:g} is asked for)"
    )


def check_command(command: Sequence[str]) -> None:
    """Refuse a command that cannot judge a server, before anything is launched. Raises `InputError`."""
    if not command:
        raise InputError("the accuracy command is empty", hint="give a program and its arguments")
    if not any(URL in word for word in command):
        raise InputError(
            f"the accuracy command does not name the server: {' '.join(command)}",
            hint=f"put {URL} where its address belongs",
        )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
