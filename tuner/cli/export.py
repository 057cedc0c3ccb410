"""`python -m tuner export STUDY [--minimal] [-o FILE]`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from tuner.cli.explain import explained
from tuner.errors import EXIT_DONE
from tuner.results.export import Choice, choose, write_choice
from tuner.results.record import read_records
from tuner.results.standings import Standing
from tuner.results.subset import launch_without
from tuner.results.trial_log import read_expected, read_verdict
from tuner.study.finding import find_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("study", metavar="STUDY", help="name of the study, its definition or its folder")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write (default: best.yaml in the study's folder)"
    )
    parser.add_argument(
        "--minimal",
        action="store_true",
        help="leave out what does nothing (default: minimal.yaml; says whether it was measured or predicted)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the best configuration and say what it is."""
    folder = find_results(arguments.study)
    target = Path(arguments.output or folder / ("minimal.yaml" if arguments.minimal else "best.yaml"))
    choice = choose(read_records(folder), read_verdict(folder), read_expected(folder))
    if arguments.minimal:
        choice = _minimal(arguments.study, folder, choice)
    script = write_choice(choice, target)
    sys.stdout.write(
        f"{target}: trial {choice.record.trial} on {choice.record.label}, "
        f"{choice.standing.shown}, {choice.gain}\n"
        + (f"changed: {choice.derived}\n" if choice.derived else "")
        + f"confirmed: {choice.certainty}\n"
        + (f"{script}: starts it, the environment included\n" if script is not None else "")
    )
    return EXIT_DONE


def _minimal(study: str, folder: Path, choice: Choice) -> Choice:
    """The choice without what does nothing: as it was launched, or else made of the choice's own launch."""
    found = explained(study)
    smaller = found.smaller
    if not smaller.left_out:
        return choice
    best = choice.record
    derived = f"trial {best.trial} {smaller.shown}"
    launched = next((record for record in read_records(folder) if record.trial == smaller.trial), None)
    if launched is not None and launched.score is not None:
        return Choice(Standing(launched, (launched.score,)), None, derived)
    parameters = [one for one in found.space.parameters if one.name in smaller.left_out]
    launch = launch_without(best.launch, parameters, smaller.configuration) if best.launch else {}
    record = replace(best, launch=launch, configuration=smaller.configuration.to_json())
    standing = replace(choice.standing, record=record)
    return replace(choice, standing=standing, derived=derived, predicted=True)
