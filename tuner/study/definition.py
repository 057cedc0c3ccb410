"""A study definition: everything a study is, read from `studies/NAME.yaml` and the command line."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tuner.document import Node
from tuner.errors import InputError, did_you_mean
from tuner.guard.reading import GuardSpec, parse_guard
from tuner.measure.measurement import Workload
from tuner.measure.objective import Objective
from tuner.measure.reading import parse_objective, parse_workload
from tuner.redact import REDACTED, is_secret, redact_argv, redact_environment
from tuner.sglang.phases import Phase
from tuner.sglang.planning import FlagValue
from tuner.space.space import SearchSpace

PYTHON = "{python}"
"""In `server.command`: the interpreter that runs the tuner."""

SAMPLERS = ("surrogate", "tpe", "random", "gp")
"""What may propose configurations: the program's own sampler, or one of Optuna's."""
LOOKS = ("auto", "off")
"""Whether cheaper launches may come before full ones: where they are worth it, or never."""

PRIORS = ("aiconfigurator",)
"""Programs that may rank what is tried early."""

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_FLAG = re.compile(r"^[a-z][a-z0-9_]*$")
_PLACED_FLAGS = {
    "model_path": "the model is the key 'server.model'",
    "port": "every launch gets a fresh free port",
    "host": "the server listens on loopback only",
}


@dataclass(frozen=True)
class ServerSpec:
    """The server that is tuned: how it is started, where, and how long it may take.

    `flags` are given to every launch (canonical names); `environment` is set for every launch and
    `inherit` names variables that are taken over from the tuner's own environment. `expected_start_s` is
    only used for the first estimate of hours, before anything was launched.
    """

    command: tuple[str, ...]
    label: str
    model: str
    gpus: tuple[int, ...] = ()
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    ready_limit_s: float = 3600.0
    stall_limits_s: Mapping[Phase, float] = field(default_factory=dict)
    stop_grace_s: float = 20.0
    expected_start_s: float = 600.0

    @property
    def argv(self) -> tuple[str, ...]:
        """The command with the placeholder for the interpreter filled in."""
        return tuple(sys.executable if word == PYTHON else word for word in self.command)

    @property
    def launch_flags(self) -> dict[str, FlagValue]:
        """The flags of every launch, the model first."""
        return {"model_path": self.model, **self.flags}


@dataclass(frozen=True)
class Capacities:
    """The least a configuration has to offer, whatever its speed; None where nothing is asked.

    They keep a single-stream objective from winning by giving up everything else.
    """

    min_kv_tokens: int | None = None
    min_context_len: int | None = None
    min_running_requests: int | None = None


@dataclass(frozen=True)
class Baseline:
    """What gains are measured against: the engine's defaults, or the command that the user runs today.

    `flags` are given even with the defaults, where the engine would not start well without them.
    """

    command: tuple[str, ...] | None = None
    flags: Mapping[str, FlagValue] = field(default_factory=dict)


ENGINE_DEFAULTS = Baseline()


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many launches of the study, hours of work, or at a time of day.

    `confirm` launches of it are kept for the confirmation, 0 for none; None leaves that to the study's
    length. `explain` launches may explain the best after that, on top of all limits but `until`; None takes
    some, within the limits (`search.budget`). With `stop_when_idle` the search ends before its limits once
    nothing that is left promises a gain that could be told from noise. `looks` (one of `LOOKS`) says whether
    cheaper launches may come before full ones. `repairs` of failed trials are queued at most; after
    `give_up_after` launches without a single success the study stops.
    """

    launches: int | None = None
    hours: float | None = None
    until: str | None = None
    confirm: int | None = None
    explain: int | None = None
    stop_when_idle: bool = True
    looks: str = "off"
    repairs: int = 4
    give_up_after: int = 8

    def deadline(self, now: datetime) -> datetime | None:
        """The moment of `until` that comes next after `now`."""
        if self.until is None:
            return None
        if re.fullmatch(r"\d{1,2}:\d{2}", self.until):
            hour, minute = (int(part) for part in self.until.split(":"))
            moment = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return moment if moment > now else moment + timedelta(days=1)
        return datetime.fromisoformat(self.until)


@dataclass(frozen=True)
class StudyDefinition:
    """A study: what is searched, on which server, under which load, for what, and for how long.

    With `preflight`, configurations that cannot run are refused before they are launched. `warm_start` are
    the results of earlier studies to learn from, `prior` names a program that ranks what is tried early;
    they are no part of the identity.
    """

    name: str
    folder: Path
    space: SearchSpace
    server: ServerSpec
    workload: Workload
    objective: Objective
    capacities: Capacities
    baseline: Baseline
    budget: Budget
    guard: GuardSpec
    storage: str
    seed: int
    preflight: bool
    sampler: str = "surrogate"
    warm_start: tuple[Path, ...] = ()
    prior: str | None = None

    def identity(self) -> dict[str, Any]:
        """What makes two runs the same study: results are comparable exactly while this is unchanged."""
        return {
            "space": self.space.canonical(),
            "workload": self.workload.to_json(),
            "objective": self.objective.name,
            "guard": self.guard.to_json(),
            "least": {name: value for name, value in vars(self.capacities).items() if value is not None},
            "server": {
                "command": redact_argv(self.server.command),
                "model": self.server.model,
                "gpus": list(self.server.gpus),
                "flags": _redacted_flags(self.server.flags),
                "environment": redact_environment(self.server.environment),
            },
            "baseline": {
                "command": redact_argv(self.baseline.command or ()),
                "flags": _redacted_flags(self.baseline.flags),
            },
        }


def _redacted_flags(flags: Mapping[str, FlagValue]) -> dict[str, Any]:
    return {name: REDACTED if is_secret(name) else value for name, value in flags.items()}


# --- reading ------------------------------------------------------------------------------------------

_TOP = (
    "name", "search_space", "server", "workload", "objective", "least", "guard", "baseline", "budget",
    "storage", "seed", "sampler", "folder", "preflight", "warm_start", "prior",
)  # fmt: skip
_SERVER = (
    "command", "label", "model", "gpus", "flags", "environment", "inherit_environment", "ready_limit_s",
    "stall_limits_s", "stop_grace_s", "expected_start_s",
)  # fmt: skip
_LEAST = ("min_kv_tokens", "min_context_len", "min_running_requests")
_BUDGET = (
    "launches",
    "hours",
    "until",
    "confirm",
    "explain",
    "stop_when_idle",
    "looks",
    "repairs",
    "give_up_after",
)


def parse_definition(
    root: Node, *, name: str, folder: Path, space: SearchSpace, warm_start: tuple[Path, ...] = ()
) -> StudyDefinition:
    """The definition in `root` (file and command line already merged).

    `name` and `folder` are used where the file says nothing of its own; `warm_start` are the folders of the
    studies that it names. Raises `InputError`.
    """
    keys = root.mapping(known=_TOP, required=("search_space", "server", "workload"))
    study_name = _checked_name(keys["name"]) if "name" in keys else name
    study_folder = Path(keys["folder"].text()) if "folder" in keys else folder
    workload = parse_workload(keys["workload"])
    return StudyDefinition(
        name=study_name,
        folder=study_folder,
        space=space,
        server=_server(keys["server"]),
        workload=workload,
        objective=parse_objective(keys.get("objective"), workload),
        capacities=_capacities(keys.get("least")),
        baseline=_baseline(keys.get("baseline")),
        budget=_budget(keys.get("budget")),
        guard=parse_guard(keys.get("guard")),
        storage=keys["storage"].text() if "storage" in keys else f"sqlite:///{study_folder / 'study.db'}",
        seed=keys["seed"].integer(least=0, most=2**32 - 1) if "seed" in keys else 0,
        preflight=keys["preflight"].boolean() if "preflight" in keys else True,
        sampler=keys["sampler"].text(one_of=SAMPLERS) if "sampler" in keys else StudyDefinition.sampler,
        warm_start=warm_start,
        prior=keys["prior"].text(one_of=PRIORS) if "prior" in keys else None,
    )


def _checked_name(node: Node) -> str:
    name = node.text()
    if not _NAME.match(name):
        raise node.refuse(f"'{name}' cannot name a folder", hint="use letters, digits, '.', '_' and '-'")
    return name


def _server(node: Node) -> ServerSpec:
    keys = node.mapping(known=_SERVER, required=("command", "model"))
    model = keys["model"].text()
    return ServerSpec(
        command=_command(keys["command"]),
        label=keys["label"].text() if "label" in keys else model,
        model=model,
        gpus=_gpus(keys.get("gpus")),
        flags=_flags(keys.get("flags")),
        environment={
            name: _variable_value(value)
            for name, value in _named(keys.get("environment"), _VARIABLE, "a variable")
        },
        inherit=tuple(item.text() for item in keys["inherit_environment"].sequence())
        if "inherit_environment" in keys
        else (),
        ready_limit_s=_positive(keys, "ready_limit_s", ServerSpec.ready_limit_s),
        stall_limits_s=_stall_limits(keys.get("stall_limits_s")),
        stop_grace_s=_positive(keys, "stop_grace_s", ServerSpec.stop_grace_s),
        expected_start_s=_positive(keys, "expected_start_s", ServerSpec.expected_start_s),
    )


def _command(node: Node) -> tuple[str, ...]:
    """A list of words, or a line that is split into words as a shell would (and given to no shell)."""
    if isinstance(node.value, list):
        return tuple(item.text() for item in node.sequence(least=1))
    try:
        words = tuple(shlex.split(node.text()))
    except ValueError as error:
        raise node.refuse(
            f"cannot be split into words: {error}", hint="close the quotes, or give a list"
        ) from None
    return words


def _gpus(node: Node | None) -> tuple[int, ...]:
    if node is None:
        return ()
    gpus = tuple(item.integer(least=0, most=1023) for item in node.sequence())
    if len(set(gpus)) != len(gpus):
        raise node.refuse("a GPU stands here twice")
    return gpus


def _named(node: Node | None, pattern: re.Pattern[str], what: str) -> list[tuple[str, Node]]:
    if node is None:
        return []
    found = []
    for name, value in node.items():
        if not pattern.match(name):
            suggestion = name.lstrip("-").replace("-", "_")
            hint = f"did you mean '{suggestion}'?" if pattern.match(suggestion) else ""
            raise value.refuse(f"'{name}' is not the name of {what}", hint=hint)
        found.append((name, value))
    return found


def _flags(node: Node | None) -> dict[str, FlagValue]:
    named = _named(node, _FLAG, "a flag")
    for name, value in named:
        if name in _PLACED_FLAGS:
            raise value.refuse("this flag cannot be fixed here", hint=_PLACED_FLAGS[name])
    return {name: _flag_value(value) for name, value in named}


def _flag_value(node: Node) -> FlagValue:
    if isinstance(node.value, list):
        return tuple(item.scalar() for item in node.sequence(least=1))
    return node.scalar()


def _variable_value(node: Node) -> str:
    value = node.scalar()
    return ("1" if value else "0") if isinstance(value, bool) else str(value)


def _positive(keys: Mapping[str, Node], key: str, default: float) -> float:
    return keys[key].number(least=0.001) if key in keys else default


def _stall_limits(node: Node | None) -> dict[Phase, float]:
    if node is None:
        return {}
    phases = {str(phase): phase for phase in Phase}
    limits = {}
    for name, value in node.items():
        if name not in phases:
            raise value.refuse(f"'{name}' is not a phase", hint=did_you_mean(name, phases))
        limits[phases[name]] = value.number(least=1)
    return limits


def _capacities(node: Node | None) -> Capacities:
    if node is None:
        return Capacities()
    return Capacities(**{key: value.integer(least=1) for key, value in node.mapping(known=_LEAST).items()})


def _baseline(node: Node | None) -> Baseline:
    if node is None or node.value == "defaults":
        return Baseline()
    keys = node.mapping(known=("command", "flags"))
    if len(keys) != 1:
        raise node.refuse(
            "needs either a command or flags", hint="or leave it out: then it is the engine's defaults"
        )
    if "command" in keys:
        return Baseline(command=_command(keys["command"]))
    return Baseline(flags=_flags(keys["flags"]))


def _budget(node: Node | None) -> Budget:
    if node is None:
        return Budget(launches=40)
    keys = node.mapping(known=_BUDGET)
    until = keys["until"].text() if "until" in keys else None
    budget = Budget(
        launches=keys["launches"].integer(least=1) if "launches" in keys else None,
        hours=keys["hours"].number(least=0.001) if "hours" in keys else None,
        until=until,
        confirm=keys["confirm"].integer(least=0, most=100) if "confirm" in keys else None,
        explain=keys["explain"].integer(least=0, most=100) if "explain" in keys else None,
        stop_when_idle=keys["stop_when_idle"].boolean()
        if "stop_when_idle" in keys
        else Budget.stop_when_idle,
        looks=keys["looks"].text(one_of=LOOKS) if "looks" in keys else Budget.looks,
        repairs=keys["repairs"].integer(least=0) if "repairs" in keys else Budget.repairs,
        give_up_after=keys["give_up_after"].integer(least=2)
        if "give_up_after" in keys
        else Budget.give_up_after,
    )
    if budget.launches is None and budget.hours is None and budget.until is None:
        raise node.refuse("names no limit", hint="give launches, hours or until")
    if until is not None:
        try:
            budget.deadline(datetime.now())
        except ValueError:
            raise keys["until"].refuse(
                f"'{until}' is no time", hint="write 07:00 or 2030-01-31T07:00"
            ) from None
    return budget


def check_folder(folder: Path) -> None:
    """Refuse a results folder that cannot be one."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: the results folder cannot be made, a file of that name exists")
