"""A study held against the installed SGLang, before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import InputError
from tuner.sglang.command import read_command
from tuner.sglang.installation import Installation
from tuner.sglang.plan import LaunchPlan
from tuner.sglang.planning import FlagValue, check_space, plan_launch
from tuner.space.configuration import Configuration
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition


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
    space = definition.space.without(check.unavailable)
    notes = (*check.notes, *(f"left out of the search: {line}" for line in space.dropped))
    fitted = Fitted(definition, space, installation, notes)
    try:
        fitted.plan_baseline()
    except InputError as error:
        raise InputError(f"baseline: {error.message}", hint=error.hint) from None
    return fitted
