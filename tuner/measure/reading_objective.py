"""An objective read from a study definition."""

from __future__ import annotations

from tuner.document import Node
from tuner.measure.latency import LIMIT_NAMES, Limit
from tuner.measure.measurement import Workload
from tuner.measure.objective import GOALS, Goal, Objective

_OBJECTIVE = ("goal", "of", "concurrency", "rate", "limits", "goals")
_GOAL = ("goal", "of", "concurrency", "rate")
_NEED_LIMITS = ("goodput", "highest-load")


def parse_objective(node: Node | None, workload: Workload) -> Objective:
    """The objective of a definition; without one, decode throughput at all levels. Raises `InputError`.

    `goal` is one of decode, goodput, highest-load, tokens-per-joule and latency; `of` is the percentile of a
    latency goal (`ttft_p99_ms`); `concurrency` (or `rate`) are the levels that are scored, all where left
    out. `goals` is a list of two such mappings for a trade-off. `limits` maps percentiles such as
    `tpot_p95_ms` to milliseconds.
    """
    if node is None:
        return Objective.of_levels(workload.levels, by_rate=workload.kind == "open")
    keys = node.mapping(known=_OBJECTIVE)
    limits = _limits(keys.get("limits"))
    if "goals" in keys:
        for key in _GOAL:
            if key in keys:
                raise keys[key].refuse("cannot stand beside 'goals'", hint="write it into one of the goals")
        items = keys["goals"].sequence(least=1)
        if len(items) > 2:
            raise keys["goals"].refuse(f"an objective has at most two goals, not {len(items)}")
        places = items
    else:
        places = [Node({key: keys[key] for key in _GOAL if key in keys}, node.file, node.path, node.line)]
    goals = tuple(_goal(place, workload, limits=bool(limits)) for place in places)
    if len(set(goals)) != len(goals):
        raise keys["goals"].refuse("the two goals are the same")
    return Objective(goals, limits)


def _goal(node: Node, workload: Workload, *, limits: bool) -> Goal:
    keys = node.mapping(known=_GOAL)
    kind = keys["goal"].text(one_of=GOALS) if "goal" in keys else "decode"
    if kind in _NEED_LIMITS and not limits:
        raise keys["goal"].refuse(
            f"'{kind}' needs limits", hint="add objective.limits, such as {ttft_p99_ms: 500, tpot_p95_ms: 40}"
        )
    if kind == "latency" and "of" not in keys:
        raise keys["goal"].refuse(
            "the key 'of' is missing", hint="name a percentile, such as of: ttft_p99_ms"
        )
    if kind != "latency" and "of" in keys:
        raise keys["of"].refuse("only the goal 'latency' is of something")
    if kind == "highest-load" and len(workload.levels) < 2:
        raise keys["goal"].refuse(
            "'highest-load' searches between two levels, and the workload has one",
            hint="give the workload the lowest and the highest, such as concurrency: [1, 64]",
        )
    of = keys["of"].text(one_of=LIMIT_NAMES) if "of" in keys else ""
    return Goal(_levels(keys, workload), kind, of, by_rate=workload.kind == "open")


def _levels(keys: dict[str, Node], workload: Workload) -> tuple[float, ...]:
    own, other = ("rate", "concurrency") if workload.kind == "open" else ("concurrency", "rate")
    if other in keys:
        raise keys[other].refuse(f"the workload has no {other}", hint=f"give '{own}' in its place")
    if own not in keys:
        return workload.levels
    node = keys[own]
    levels = node.sequence(least=1) if isinstance(node.value, list) else [node]
    for level in levels:
        if level.number(least=0.001) not in workload.levels:
            measured = ", ".join(f"{known:g}" for known in workload.levels)
            raise level.refuse(
                f"the workload does not measure {own} {level.value}", hint=f"it measures {measured}"
            )
    found = tuple(level.number() for level in levels)
    if len(set(found)) != len(found):
        raise node.refuse("a level stands here twice")
    return found


def _limits(node: Node | None) -> tuple[Limit, ...]:
    if node is None:
        return ()
    keys = node.mapping(known=LIMIT_NAMES)
    return tuple(Limit(name, value.number(least=0.001)) for name, value in keys.items())
