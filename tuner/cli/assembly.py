"""Puts the rooms together for one study: what is searched, and what tells how good a configuration is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner.clock import Clock, SystemClock
from tuner.evaluate.fitting import Fitted, fit_to_installation
from tuner.evaluate.instruments import Instruments
from tuner.evaluate.output import OutputGuard
from tuner.evaluate.plugin import load_evaluator
from tuner.evaluate.protocol import Evaluator
from tuner.evaluate.server import ServerEvaluator
from tuner.evaluate.vetting import Preflight
from tuner.launch.environment import child_environment, clean_environment, dropped
from tuner.launch.local import LocalExecutor
from tuner.preflight.facts import facts_of_box, facts_of_model
from tuner.preflight.rules import read_rules
from tuner.preflight.validator import Validator
from tuner.sglang.installation import Installation, ask_installation
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition
from tuner.telemetry.audit import PLATFORM_FILE, Box, PlatformAudit, audit


@dataclass(frozen=True)
class Assembly:
    """The parts of a study.

    `notes` are worth telling before the first launch. `fitted` and `platform` are None for an evaluator from
    outside. `sweep` ends what a dead run left (by its owner) and returns the pids; `prepare` refuses a box
    that cannot be used now; `close` ends what the evaluator keeps running between launches.
    """

    space: SearchSpace
    evaluator: Evaluator
    clock: Clock
    server: str
    notes: tuple[str, ...]
    fitted: Fitted | None = None
    platform: PlatformAudit | None = None
    sweep: Callable[[str], list[int]] = lambda _: []
    prepare: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


def assemble(definition: StudyDefinition, evaluator_name: str | None, *, owner: str) -> Assembly:
    """The study's own server, or the evaluator that the user plugs in. Raises `InputError`."""
    if evaluator_name is None:
        return _on_this_machine(definition, owner)
    plugged = load_evaluator(evaluator_name, definition, SystemClock())
    return Assembly(
        space=plugged.space or definition.space,
        evaluator=plugged.evaluator,
        clock=plugged.clock or SystemClock(),
        server=f"evaluator {evaluator_name}",
        notes=plugged.notes,
    )


def _on_this_machine(definition: StudyDefinition, owner: str) -> Assembly:
    clock, server = SystemClock(), definition.server
    base = _base_environment(definition)
    environment = {**base, **server.environment}
    installation = ask_installation(server.argv, environment, cache_dir=_cache_dir())
    fitted = fit_to_installation(definition, installation)
    instruments = Instruments.find()
    executor = LocalExecutor(
        instruments.probe,
        clock,
        marker_scope=owner,
        stop_grace_s=server.stop_grace_s,
        base_environment=base,
    )
    guard = OutputGuard(definition.guard, definition.folder, clock)
    model_facts = facts_of_model(server.model, environment)
    preflight = Preflight(
        fitted,
        rules=read_rules(),
        facts={**model_facts, **facts_of_box(instruments.meter, server.gpus)},
        validator=_validator(definition, installation, base, owner),
    )
    evaluator = ServerEvaluator(
        fitted,
        executor,
        clock,
        instruments=instruments,
        guard=guard,
        preflight=preflight,
        model_facts=model_facts,
    )
    return Assembly(
        space=fitted.space,
        evaluator=evaluator,
        clock=clock,
        server=installation.shown(),
        notes=(*fitted.notes, *_notes(definition, instruments)),
        fitted=fitted,
        platform=_audit(definition, instruments),
        sweep=executor.sweep_leftovers,
        prepare=lambda: _prepare(definition, executor),
        close=evaluator.close,
    )


def _validator(
    definition: StudyDefinition, installation: Installation, base: dict[str, str], owner: str
) -> Validator | None:
    """Asks SGLang in the environment of a server; None where the command does not start SGLang itself."""
    if installation.python is None:
        return None
    gpus = definition.server.gpus
    chosen = {"CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus)} if gpus else {}
    variables = {**definition.server.environment, **chosen}
    # Marked as a launch of this owner, so that it is ended with the others where the tuner was killed.
    return Validator(
        installation.python,
        child_environment(base, variables, marker=f"{owner}:preflight", gpus=gpus),
        words=installation.words_behind,
    )


def keep_platform(platform: PlatformAudit, folder: Path) -> None:
    """Write what the box is beside the study's results."""
    text = json.dumps(platform.to_json(), indent=1) + "\n"
    (folder / PLATFORM_FILE).write_text(text, encoding="utf-8")


def _prepare(definition: StudyDefinition, executor: LocalExecutor) -> None:
    """Occupied GPUs are refused before anything is launched."""
    executor.lease(definition.server.gpus)


def _base_environment(definition: StudyDefinition) -> dict[str, str]:
    """What servers inherit of this shell's environment: the clean part, and what the study names."""
    inherited = {name: os.environ[name] for name in definition.server.inherit if name in os.environ}
    return {**clean_environment(os.environ), **inherited}


def _cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tuner"


def _notes(definition: StudyDefinition, instruments: Instruments) -> list[str]:
    notes = []
    ignored = [name for name in dropped(os.environ) if name not in definition.server.inherit]
    if ignored:
        notes.append(
            f"not passed on from this shell: {', '.join(ignored)} "
            "(name them in server.environment to set them)"
        )
    if definition.server.gpus and instruments.probe.reason:
        notes.append(f"GPU memory and other users of the GPUs cannot be seen: {instruments.probe.reason}")
    return notes


def _audit(definition: StudyDefinition, instruments: Instruments) -> PlatformAudit:
    searched = {parameter.name for parameter in definition.space.parameters if parameter.is_variable}
    box = Box(
        gpus=definition.server.gpus,
        folder=definition.folder,
        variables=tuple(sorted({*definition.server.environment, *searched})),
    )
    return audit(box, instruments.meter, instruments.probe)
