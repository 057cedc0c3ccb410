"""`python -m tuner optimize [STUDY]`: puts the rooms together and runs the search."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from tuner.cli.progress import ProgressPrinter
from tuner.clock import SystemClock
from tuner.errors import EXIT_DONE, NothingRan
from tuner.evaluate.fitting import Fitted, fit_to_installation
from tuner.evaluate.server import ServerEvaluator
from tuner.launch.environment import clean_environment, dropped
from tuner.launch.gpus import find_probe
from tuner.launch.local import LocalExecutor
from tuner.launch.owner import is_owner_alive, this_owner
from tuner.search.budget import BudgetKeeper
from tuner.search.loop import Search, SearchEnd
from tuner.search.store import StudyStore
from tuner.sglang.installation import ask_installation
from tuner.study.definition import StudyDefinition
from tuner.study.finding import load_study
from tuner.study.overrides import add_overrides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "study",
        nargs="?",
        metavar="STUDY",
        help="a study definition, by file or name (default: the simulated box)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, show what would be launched, launch nothing"
    )
    add_overrides(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search, or go on searching; exits 1 where no configuration ran."""
    definition = load_study(arguments.study, arguments)
    clock = SystemClock()
    printer = ProgressPrinter(
        sys.stdout,
        clock,
        label=definition.server.label,
        terminal=sys.stdout.isatty(),
        width=shutil.get_terminal_size().columns,
    )
    base = base_environment(definition)
    installation = ask_installation(
        definition.server.argv, {**base, **definition.server.environment}, cache_dir=_cache_dir()
    )
    fitted = fit_to_installation(definition, installation)
    _introduce(printer, definition, fitted)
    owner = this_owner()
    probe = find_probe()
    if definition.server.gpus and probe.reason:
        printer.line(f"  GPU memory and other users of the GPUs cannot be seen: {probe.reason}")
    executor = LocalExecutor(
        probe,
        clock,
        marker_scope=owner,
        stop_grace_s=definition.server.stop_grace_s,
        base_environment=base,
    )
    if arguments.dry_run:
        return _show_plans(printer, fitted)
    store = StudyStore(definition, fitted.space, owner=owner, is_alive=is_owner_alive)
    for dead in store.abandoned_owners():
        ended = executor.sweep_leftovers(dead)
        if ended:
            printer.line(f"ended {len(ended)} processes that an earlier run had left: {ended}")
    executor.lease(definition.server.gpus)  # refuses occupied GPUs before anything is launched
    end = Search(definition, store, ServerEvaluator(fitted, executor, clock), clock, printer).run()
    return _conclude(printer, definition, end)


def base_environment(definition: StudyDefinition) -> dict[str, str]:
    """What servers inherit of this shell's environment: the clean part, and what the study names."""
    inherited = {name: os.environ[name] for name in definition.server.inherit if name in os.environ}
    return {**clean_environment(os.environ), **inherited}


def _cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tuner"


def _introduce(printer: ProgressPrinter, definition: StudyDefinition, fitted: Fitted) -> None:
    space = fitted.space
    size = space.size()
    points = f"{size:,} points" if size is not None else "countless points"
    printer.line(f"study {definition.name}: {definition.server.label}")
    printer.line(f"  objective: {definition.objective.name}")
    printer.line(
        f"  space {space.name}: {len(space.parameters)} parameters, {points}, "
        f"{len(space.known_good)} known-good"
    )
    printer.line(f"  server: {fitted.installation.shown()}")
    printer.line(f"  results: {definition.folder}")
    for note in fitted.notes:
        printer.line(f"  {note}")
    ignored = [name for name in dropped(os.environ) if name not in definition.server.inherit]
    if ignored:
        printer.line(
            f"  not passed on from this shell: {', '.join(ignored)} "
            "(name them in server.environment to set them)"
        )


def _show_plans(printer: ProgressPrinter, fitted: Fitted) -> int:
    definition = fitted.definition
    printer.line(f"expected: {BudgetKeeper(definition.budget, SystemClock()).estimate(definition, [])}")
    printer.line(f"baseline:\n  {fitted.plan_baseline().shown()}")
    for known in fitted.space.known_good:
        printer.line(f"known-good '{known.name}':\n  {fitted.plan(known.values).shown()}")
    printer.line("nothing was launched")
    return EXIT_DONE


def _conclude(printer: ProgressPrinter, definition: StudyDefinition, end: SearchEnd) -> int:
    printer.line(f"\nthe search ends: {end.reason}")
    artifacts = definition.folder / "artifacts"
    printer.line(f"look at it: optuna-dashboard {definition.storage} --artifact-dir {artifacts}")
    if end.best is None:
        failures = [record.failure for record in end.records if record.failure]
        kinds = ", ".join(sorted({str(failure["kind"]) for failure in failures})) or "none was launched"
        raise NothingRan(
            f"study {definition.name}: no configuration ran ({kinds})",
            hint=f"see the trials' notes in the dashboard, and {definition.folder}/trial-*/server.log",
        )
    best = end.best
    gain = f", {best.gain:+.1%} over {end.reference}" if best.gain is not None else ""
    printer.line(
        f"best on {definition.server.label}: trial {best.trial}, {best.score:.2f} tok/s{gain} "
        "(one launch, unconfirmed)"
    )
    printer.line(f"exported: {definition.folder / 'best.yaml'} and best.sh beside it")
    return EXIT_DONE
