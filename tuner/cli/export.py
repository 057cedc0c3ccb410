"""`python -m tuner export STUDY [-o FILE]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tuner.errors import EXIT_DONE
from tuner.results.export import write_exports
from tuner.results.record import read_records
from tuner.results.trial_log import read_expected, read_verdict
from tuner.study.finding import find_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("study", metavar="STUDY", help="name of the study, its definition or its folder")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write (default: best.yaml in the study's folder)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the best configuration and say what it is."""
    folder = find_results(arguments.study)
    target = Path(arguments.output) if arguments.output else folder / "best.yaml"
    choice = write_exports(read_records(folder), target, read_verdict(folder), read_expected(folder))
    sys.stdout.write(
        f"{target}: trial {choice.record.trial} on {choice.record.label}, "
        f"{choice.standing.shown}, {choice.gain}\n"
        f"confirmed: {choice.certainty}\n"
        f"{target.with_suffix('.sh')}: starts it, the environment included\n"
    )
    return EXIT_DONE
