"""`python -m tuner optimize [STUDY]`: runs the search and says what came of it."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence

from tuner.cli.assembly import Assembly, assemble, keep_platform
from tuner.cli.explain import in_short
from tuner.cli.progress import ProgressPrinter
from tuner.clock import SystemClock
from tuner.errors import EXIT_DONE, NothingRan
from tuner.launch.owner import is_owner_alive, this_owner
from tuner.results.export import choose
from tuner.results.standings import front
from tuner.search.admission import Admission
from tuner.search.budget import BudgetKeeper
from tuner.search.explain import explain
from tuner.search.loop import Search, SearchEnd
from tuner.search.past import read_past, told
from tuner.search.prior import ask_prior
from tuner.search.reference import nearest_miss
from tuner.search.samplers import check_sampler
from tuner.search.store import StudyStore
from tuner.space.space import SearchSpace
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
    parser.add_argument(
        "--evaluator",
        metavar="MODULE:OBJECT",
        help="what tells how good a configuration is, in place of launched servers",
    )
    add_overrides(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search, or go on searching; exits 1 where no configuration ran."""
    definition = load_study(arguments.study, arguments)
    check_sampler(definition.sampler)
    owner = this_owner()
    parts = assemble(definition, arguments.evaluator, owner=owner)
    printer = ProgressPrinter(
        sys.stdout,
        parts.clock,
        label=definition.server.label,
        terminal=sys.stdout.isatty(),
        width=shutil.get_terminal_size().columns,
    )
    past = read_past(definition, parts.platform)
    if definition.prior is not None:
        printer.line(f"asking {definition.prior} what to try early")
    prior = ask_prior(definition, parts.space, parts.platform, SystemClock())
    notes = (*told(past), *prior.told)
    _introduce(printer, definition, parts, notes, in_full=arguments.dry_run)
    if arguments.dry_run:
        try:
            return _show_plans(printer, definition, parts)
        finally:
            parts.close()
    store = StudyStore(
        definition, parts.space, owner=owner, is_alive=is_owner_alive, past=past, prior=prior.given
    )
    if parts.platform is not None:
        keep_platform(parts.platform, definition.folder)
        store.remarks = tuple(finding.shown() for finding in parts.platform.warnings)
    for dead in store.abandoned_owners():
        ended = parts.sweep(dead)
        if ended:
            printer.line(f"ended {len(ended)} processes that an earlier run had left: {ended}")
    parts.prepare()
    try:
        end = Search(definition, store, parts.evaluator, parts.clock, printer).run()
    finally:
        parts.close()
    return _conclude(printer, definition, parts.space, end)


def _introduce(
    printer: ProgressPrinter,
    definition: StudyDefinition,
    parts: Assembly,
    notes: Sequence[str],
    *,
    in_full: bool,
) -> None:
    space = parts.space
    size = space.size()
    points = f"{size:,} points" if size is not None else "countless points"
    printer.line(f"study {definition.name}: {definition.server.label}")
    printer.line(f"  objective: {definition.objective.name}")
    printer.line(
        f"  space {space.name}: {len(space.parameters)} parameters, {points}, "
        f"{len(space.known_good)} known-good"
    )
    printer.line(f"  server: {parts.server}")
    printer.line(f"  results: {definition.folder}")
    for note in (*notes, *parts.notes):
        printer.line(f"  {note}")
    if parts.platform is None:
        return
    shown = parts.platform.findings if in_full else parts.platform.warnings
    for finding in shown:
        printer.line(f"  {'warning' if finding.warning else 'box'}  {finding.shown()}")


def _show_plans(printer: ProgressPrinter, definition: StudyDefinition, parts: Assembly) -> int:
    printer.line(f"expected: {BudgetKeeper(definition.budget, parts.clock).estimate(definition, [])}")
    if parts.fitted is not None:
        printer.line(f"baseline:\n  {parts.fitted.plan_baseline().shown()}")
        for known in parts.space.known_good:
            printer.line(f"known-good '{known.name}':\n  {parts.fitted.plan(known.values).shown()}")
    if definition.preflight:
        admission = Admission(parts.evaluator, printer)
        for known in parts.space.known_good:
            admission.admits_known_good(known)
    printer.line("nothing was launched")
    return EXIT_DONE


def _conclude(
    printer: ProgressPrinter, definition: StudyDefinition, space: SearchSpace, end: SearchEnd
) -> int:
    printer.line("" if end.verdict is not None else f"\nthe search ends: {end.reason}")
    printer.refusals()
    artifacts = definition.folder / "artifacts"
    printer.line(f"look at it: optuna-dashboard {definition.storage} --artifact-dir {artifacts}")
    for ruled_out in end.ruled_out:
        printer.line(ruled_out.shown)
    if end.looks:
        printer.line(end.looks)
    nearest = nearest_miss(end.records, definition.objective)
    if nearest:
        printer.line(nearest)
    if end.best is None:
        failures = [record.failure for record in end.records if record.failure]
        kinds = ", ".join(sorted({str(failure["kind"]) for failure in failures})) or "none was launched"
        raise NothingRan(
            f"study {definition.name}: no configuration " + ("is eligible" if nearest else f"ran ({kinds})"),
            hint=f"see the trials' notes in the dashboard, and {definition.folder}/trial-*/server.log",
        )
    if len(definition.objective.goals) > 1:
        _show_front(printer, definition, end)
    verdict = end.verdict.to_json() if end.verdict is not None else None
    choice = choose(end.records, verdict, end.expected)
    trial = choice.record.trial
    printer.line(f"best on {definition.server.label}: trial {trial}, {choice.standing.shown}, {choice.gain}")
    if end.verdict is not None:
        printer.line(f"verdict: {end.verdict.shown()}")
    explanation = explain(
        end.records,
        space,
        verdict=verdict,
        expected=end.expected,
        baseline=definition.baseline,
    )
    why = in_short(explanation)
    if why:
        printer.line(f"what its values give: {why} (python -m tuner explain {definition.folder} tells more)")
    script = " and best.sh beside it" if (definition.folder / "best.sh").exists() else ""
    printer.line(f"exported: {definition.folder / 'best.yaml'}{script}")
    return EXIT_DONE


def _show_front(printer: ProgressPrinter, definition: StudyDefinition, end: SearchEnd) -> None:
    objective = definition.objective
    printer.line(f"trade-off between {' and '.join(objective.names)}; no other beats these in both:")
    for record in front(end.records, objective.directions):
        scores = ", ".join(
            f"{score:.4g} {unit}".rstrip() for score, unit in zip(record.scores, objective.units, strict=True)
        )
        printer.line(f"  trial {record.trial}: {scores}")
