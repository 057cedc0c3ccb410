"""`python -m tuner explain STUDY [--json]`: what the best owes its speed to."""

from __future__ import annotations

import argparse
import json
import sys

from tuner.errors import EXIT_DONE
from tuner.results.record import read_records
from tuner.results.trial_log import read_expected, read_verdict
from tuner.search.explain import Explanation, explain
from tuner.search.identity import IDENTITY_FILE, baseline_in, read_identity
from tuner.space.restoring import restored_space
from tuner.study.finding import find_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("study", metavar="STUDY", help="name of the study, its definition or its folder")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Say what each of the best configuration's values gives, from the study's records. Launches nothing."""
    found = explained(arguments.study)
    if arguments.json:
        sys.stdout.write(json.dumps(found.to_json(), ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(found)) + "\n")
    return EXIT_DONE


def explained(study: str) -> Explanation:
    """The explanation of a study that has run. Raises `InputError` and `NothingRan`."""
    folder = find_results(study)
    identity = read_identity(folder)
    return explain(
        read_records(folder),
        restored_space(identity["space"], folder.name, str(folder / IDENTITY_FILE)),
        verdict=read_verdict(folder),
        expected=read_expected(folder),
        baseline=baseline_in(identity),
    )


def in_short(found: Explanation) -> str:
    """One line for the end of a search; empty where there is nothing to explain."""
    gains = [
        f"{one.setting} {one.gain:+.1%}"
        for one in found.contributions
        if one.effect == "gains" and one.gain is not None
    ]
    idle = [one.parameter for one in found.contributions if one.is_idle]
    unsure = [one.parameter for one in found.contributions if one.effect == "not sure" and not one.needed]
    told = [
        ", ".join(gains),
        f"nothing by {', '.join(idle)}" if idle else "",
        f"not known of {', '.join(unsure)}" if unsure else "",
        _as_good(found),
    ]
    return "; ".join(filter(None, told))


def _as_good(found: Explanation) -> str:
    smaller = found.smaller
    if not smaller.left_out:
        return ""
    sure = f"trial {smaller.trial}" if smaller.trial is not None else "predicted, not measured"
    of = len(found.contributions)
    return f"as good without {len(smaller.left_out)} of these {of} ({sure}; export --minimal writes that)"


def _lines(found: Explanation) -> list[str]:
    record, shown = found.choice.record, f"{found.choice.standing.shown}, {found.choice.gain}"
    lines = [f"study {record.study}: trial {record.trial} on {record.label}, {shown}"]
    if found.why_none:
        return [*lines, found.why_none]
    lines.append(f"what each of its values gives over leaving it out, learnt from {found.launches} launches:")
    lines += [f"  {one.shown}" for one in found.contributions]
    lines.append(f"smallest configuration that is as good: {found.smaller.shown}")
    lines.append(f"  {found.smaller.configuration.shown()}")
    if found.importances:
        shares = ", ".join(
            f"{name} {share:.0%}" for name, share in found.importances.items() if share >= 0.005
        )
        lines.append(f"importance by Optuna (PED-ANOVA, what sets the best launches apart): {shares}")
    return lines
