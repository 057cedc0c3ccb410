"""Configurations that resolve to the same running server are one point.

A server that was asked for custom all-reduce on eight PCIe cards runs NCCL, and says so. From then on
`all_reduce=custom` and `all_reduce=nccl` are the same choice for this study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tuner.results.record import COMPLETE, TrialRecord
from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import Choice, Composite
from tuner.space.space import SearchSpace

Equivalences = Mapping[tuple[str, str], Value]
"""(parameter, value asked for) → the value that runs instead."""


def equivalences_of(records: Iterable[TrialRecord], space: SearchSpace) -> dict[tuple[str, str], Value]:
    """What the servers of this study made of choices they were asked for.

    Only choices count: a number that was reset (running requests) depends on the rest of the configuration.
    """
    choices = {
        parameter.name: {str(choice): choice for choice in parameter.choices}
        for parameter in space.parameters
        if isinstance(parameter, (Choice, Composite))
    }
    found: dict[tuple[str, str], Value] = {}
    for record in records:
        for fallback in record.fallbacks:
            known = choices.get(fallback["param"], {})
            asked, runs = str(fallback["asked"]), str(fallback["runs"])
            if asked in known and runs in known and asked != runs:
                found[fallback["param"], asked] = known[runs]
    return found


def canonical(configuration: Configuration, equivalences: Equivalences) -> Configuration:
    """The configuration with every choice replaced by what it is known to come down to."""
    values = dict(configuration)
    for name, value in configuration.items():
        values[name] = equivalences.get((name, str(value)), value)
    return Configuration(values)


def twin_of(record: TrialRecord, records: Iterable[TrialRecord]) -> int | None:
    """The first measured trial before this one whose server ran with the same resolved values."""
    runs_as = record.server.get("runs_as")
    if not runs_as:
        return None
    twins = (
        other.trial
        for other in records
        if other.trial < record.trial and other.state == COMPLETE and other.server.get("runs_as") == runs_as
    )
    return min(twins, default=None)
