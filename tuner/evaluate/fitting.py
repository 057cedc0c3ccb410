"""A study held against the installed SGLang, before anything is launched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import InputError
from tuner.evaluate.looks import look_of
from tuner.evaluate.protocol import Fidelity, LaunchShown
from tuner.guard.lossy import lossy_switches
from tuner.redact import REDACTED, is_secret, redact_argv, redact_environment
from tuner.sglang.command import read_command
from tuner.sglang.composites import ALL_REDUCE
from tuner.sglang.config_file import to_config
from tuner.sglang.installation import Installation
from tuner.sglang.plan import LaunchPlan
from tuner.sglang.planning import FlagValue, check_space, plan_launch
from tuner.space.configuration import Configuration, Value
from tuner.space.parameters import AUTO, Boolean, Choice, Float, Integer
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition

_PYTHON = re.compile(r"^python(\d(\.\d+)?)?$")


@dataclass(frozen=True)
class Fitted:
    """What is left of the space on this installation; `notes` are worth telling the user."""

    definition: StudyDefinition
    space: SearchSpace
    installation: Installation
    notes: tuple[str, ...]

    def plan(self, configuration: Configuration) -> LaunchPlan:
        """What to launch for a configuration, without a place yet."""
        server = self.definition.server
        return plan_launch(
            command=server.argv,
            fixed_flags=server.launch_flags,
            fixed_variables=server.environment,
            parameters=self.space.parameters,
            configuration=configuration,
            installation=self.installation,
        )

    def look(self, plan: LaunchPlan, fidelity: Fidelity) -> LaunchPlan:
        """The same launch as a look of this fidelity."""
        return look_of(plan, fidelity, self.installation)

    def plan_baseline(self) -> LaunchPlan:
        """The engine's defaults (the tuned flags left out), or the command that the user runs today.

        Of that command the flags and the variables count; it is started as `server.command` says.
        """
        server, baseline = self.definition.server, self.definition.baseline
        flags: dict[str, FlagValue] = {**server.launch_flags, **baseline.flags}
        variables = dict(server.environment)
        if baseline.command is not None:
            typed = read_command(baseline.command, self.installation)
            flags = {"model_path": server.model, **typed.flags}
            variables.update(typed.variables)
        return plan_launch(
            command=server.argv,
            fixed_flags=flags,
            fixed_variables=variables,
            parameters=(),
            configuration=Configuration(),
            installation=self.installation,
        )

    def asked(self, configuration: Configuration) -> dict[str, Value]:
        """A value for every tuned parameter, `auto` where it is left out.

        Of the all-reduce the engine's default is named, since that is the custom one wherever it can run.
        """
        asked: dict[str, Value] = {parameter.name: AUTO for parameter in self.space.parameters}
        if ALL_REDUCE in asked:
            asked[ALL_REDUCE] = "custom"
        return {**asked, **configuration}

    def shown(self, plan: LaunchPlan) -> LaunchShown:
        """A plan for records and people, secrets redacted."""
        config, left_out = to_config(plan, self.installation)
        return LaunchShown(
            command=plan.shown(),
            argv=tuple(redact_argv(plan.argv)),
            variables=redact_environment(plan.environment),
            fingerprint=plan.fingerprint,
            server_command=tuple(redact_argv(plan.command)),
            config={key: REDACTED if is_secret(key) else value for key, value in config.items()},
            config_left_out=[{"words": redact_argv(item.words), "reason": item.reason} for item in left_out],
        )


def fit_to_installation(definition: StudyDefinition, installation: Installation) -> Fitted:
    """Take out of the space what this version cannot do, and refuse what nobody can have meant.

    Raises `InputError` for flags and values that the version does not know, in the space, in the study's
    fixed flags, in a known-good configuration or in the baseline's command.
    """
    check = check_space(
        definition.space.parameters,
        definition.server.launch_flags,
        installation,
        fixed_variables=definition.server.environment,
    )
    _refuse_lossy(definition)
    if definition.workload.load != "own":
        server_python(definition.server.argv)
    space = definition.space.without(check.unavailable, check.absent)
    notes = (*check.notes, *(f"left out of the search: {line}" for line in space.dropped))
    fitted = Fitted(definition, space, installation, notes)
    try:
        fitted.plan_baseline()
    except InputError as error:
        raise InputError(f"baseline: {error.message}", hint=error.hint) from None
    return fitted


def server_python(argv: tuple[str, ...]) -> str:
    """The interpreter of the server's installation, as a word of its command. Raises `InputError`."""
    for word in argv:
        if _PYTHON.match(Path(word).name):
            return word
    raise InputError(
        "workload.load: sglang.bench_serving runs in the server's Python, and server.command names none",
        hint="start the server as `/path/to/python -m sglang.launch_server`",
    )


def _refuse_lossy(definition: StudyDefinition) -> None:
    """Refuse a space in which a configuration could win by giving up quality."""
    if definition.guard.allow_lossy:
        return
    for parameter in definition.space.parameters:
        values: tuple[Value, ...] = ()
        if isinstance(parameter, Choice):
            values = parameter.choices
        elif isinstance(parameter, (Integer, Float)):
            values = (parameter.low,)
        elif isinstance(parameter, Boolean):
            values = (True,)
        for value in values:
            lossy = lossy_switches({parameter.name: value})
            if lossy:
                where = f"{definition.space.file}: parameters.{parameter.name}"
                raise InputError(
                    f"{where}: {lossy[0]}: a configuration could win by answering worse",
                    hint="take it out, or set guard.allow_lossy (--allow-lossy true) and judge accuracy",
                )
