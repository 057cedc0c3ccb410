"""The command line: one module per command; the only room that prints and that decides on exit codes."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Protocol

from tuner import __version__
from tuner.cli import diagnose, explain, export, optimize
from tuner.errors import EXIT_INTERRUPTED, EXIT_TUNER_ERROR, TunerError


class _Command(Protocol):
    """What a command's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what it takes."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; the exit code."""


_COMMANDS: dict[str, tuple[_Command, str]] = {
    "optimize": (optimize, "search for the fastest launch configuration; resumes where it stopped"),
    "export": (export, "write the best measured configuration as YAML that SGLang starts from"),
    "explain": (explain, "say what each value of the best configuration gives, and what does nothing"),
    "diagnose": (diagnose, "say why a server died, from its log"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (see `tuner.errors`)."""
    parser = _parser()
    given = parser.parse_args(arguments)
    command, _ = _COMMANDS[given.command_name]
    _interrupt_on_sigterm()
    try:
        return command.run(given)
    except TunerError as error:
        sys.stderr.write(f"tuner: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("tuner: interrupted; the same command goes on from here\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_TUNER_ERROR
    except Exception:  # noqa: BLE001  (the last boundary: exit code 70)
        sys.stderr.write(
            f"{traceback.format_exc()}"
            "tuner: this is an error of the tuner itself, please report it with the lines above\n"
        )
        return EXIT_TUNER_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tuner",
        description="Finds the fastest SGLang launch configuration for a box, and proves it.",
    )
    parser.add_argument("--version", action="version", version=f"tuner {__version__}")
    commands = parser.add_subparsers(dest="command_name", metavar="COMMAND", required=True)
    for name, (module, summary) in _COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=summary, description=summary, allow_abbrev=False))
    return parser


def _interrupt_on_sigterm() -> None:
    """SIGTERM is a request to stop, like Ctrl-C. A second one while a server is being ended has to wait."""
    interrupted = False

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            sys.stderr.write("tuner: the server is being stopped, please wait\n")
            return
        interrupted = True
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
