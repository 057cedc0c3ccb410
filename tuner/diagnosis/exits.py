"""What an exit code says where the log says nothing."""

from __future__ import annotations

import signal

from tuner.diagnosis.failure import Cause, Evidence, Failure, Kind
from tuner.diagnosis.kinds import MEANINGS
from tuner.sglang.phases import Phase

_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGQUIT}
)
_ARGPARSE = 2


def failure_of_exit(exit_code: int | None, phase: Phase | None) -> Failure | None:
    """The failure that a bare exit code means; None for a clean end or an unknown one.

    Codes are as Python's subprocess gives them (−9 for SIGKILL) or as a shell does (137).
    """
    if exit_code is None or exit_code == 0:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number not in {item.value for item in signal.Signals}:
        number = 0
    name = signal.Signals(number).name if number else ""
    if number == signal.SIGBUS:
        return _failure(
            Kind.SHM_TOO_SMALL, phase, 0.6, f"It died of {name}: mapped memory, most often /dev/shm, ran out."
        )
    if number in _CRASHES:
        return _failure(Kind.SCHEDULER_DIED, phase, 0.6, f"It died of {name} in native code without a word.")
    if number:
        return _failure(
            Kind.KILLED, phase, 0.85, f"{name} from outside ended the server; its log shows no error."
        )
    if exit_code == _ARGPARSE:
        return _failure(
            Kind.INVALID_ARGUMENTS, Phase.ARGUMENTS, 0.7, "It ended with code 2, as for wrong arguments."
        )
    return _failure(Kind.UNKNOWN, phase, 0.3, f"It ended with code {exit_code} and its log shows no error.")


def _failure(kind: Kind, phase: Phase | None, certainty: float, summary: str) -> Failure:
    meaning = MEANINGS[kind]
    cause = Cause.UNKNOWN if kind is Kind.UNKNOWN else meaning.cause
    return Failure(kind, cause, phase, summary, (Evidence(0, summary),), meaning.hints, certainty)
