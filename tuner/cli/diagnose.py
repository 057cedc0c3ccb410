"""`python -m tuner diagnose server.log [--exit-code -9] [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tuner.diagnosis.diagnose import diagnose
from tuner.diagnosis.failure import Failure, Hint, Kind
from tuner.errors import EXIT_DONE, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("logs", metavar="LOG", nargs="+", help="log of a server, output and errors together")
    parser.add_argument(
        "--exit-code",
        type=int,
        metavar="CODE",
        help="how the server ended, as a shell or as Python gives it (137 or -9); holds for every log",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Say for every log why its server died."""
    logs = [(name, _read(name)) for name in arguments.logs]
    for name, log in logs:
        failure = diagnose(log, exit_code=arguments.exit_code)
        if arguments.json:
            sys.stdout.write(json.dumps({"file": name, **failure.to_json()}, ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(_shown(name, failure))
    return EXIT_DONE


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot read the log '{name}': {reason}", hint="give the path of a server's log file"
        ) from error


def _shown(name: str, failure: Failure) -> str:
    phase = f", in phase {failure.phase}" if failure.phase is not None else ""
    lines = [
        f"{name}: {failure.kind} ({failure.cause}{phase}; certainty {failure.certainty:.0%})",
        f"  {failure.summary}",
    ]
    if failure.kind is not Kind.HEALTHY:
        lines += [
            f"  line {line.line}: {line.text}" if line.line else f"  {line.text}" for line in failure.evidence
        ]
    lines += [f"  try: {_advice(hint)}" for hint in failure.hints]
    return "\n".join(lines) + "\n"


def _advice(hint: Hint) -> str:
    if hint.target == "action":
        return hint.name.replace("-", " ")
    value = (
        "" if hint.value is None else f" to {hint.value}" if hint.direction != "set" else f" = {hint.value}"
    )
    return f"{hint.direction} {hint.name}{value}"
