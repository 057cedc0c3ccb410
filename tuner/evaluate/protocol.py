"""The seam between the search and whatever tells it how good a configuration is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tuner.evaluate.outcome import Outcome
from tuner.measure.measurement import LevelSample, LevelSummary
from tuner.preflight.refusal import Refusal
from tuner.sglang.phases import Phase
from tuner.space.configuration import Configuration, Value


@dataclass(frozen=True)
class Fidelity:
    """A launch that is cheaper than a full one, and less than one: a look.

    `name` is what people read. `flags` are set over those of the configuration, without speculation. What it
    measures compares with other looks alone, and says nothing of the parameters `blind_to`.
    """

    name: str
    flags: Mapping[str, Value]
    blind_to: frozenset[str]


@dataclass(frozen=True)
class Request:
    """One configuration to be launched and measured.

    `as_baseline` launches the study's baseline in place of the configuration. `attempt` counts launches of
    the same trial (2 after a transient failure); `folder` is where the launch leaves its files; `nonce`
    makes its prompts fresh. `fidelity` is None for a full launch.
    """

    trial: int
    configuration: Configuration
    folder: Path
    nonce: str
    as_baseline: bool = False
    attempt: int = 1
    fidelity: Fidelity | None = None


@dataclass(frozen=True)
class LaunchShown:
    """What is being launched, for records and for people; secrets are redacted.

    `config` are the keys of an SGLang `--config` file for this launch, `config_left_out` the words that
    such a file refuses (`words`) with the `reason`, `variables` what has to be set in the environment.
    """

    command: str
    argv: tuple[str, ...]
    variables: dict[str, str]
    fingerprint: str
    server_command: tuple[str, ...]
    config: dict[str, Any]
    config_left_out: list[dict[str, Any]]


@dataclass(frozen=True)
class PhaseNews:
    """Where a starting server stands: phase, how far it is in it (0 to 1, where known), elapsed seconds."""

    phase: Phase
    done: float | None
    detail: str
    elapsed_s: float


class Listener:
    """Hears of an evaluation as it goes. Every method may be left as it is."""

    def on_launch(self, request: Request, launch: LaunchShown) -> None:
        """The server is about to be started."""

    def on_phase(self, request: Request, news: PhaseNews) -> None:
        """The server made progress, or a second passed."""

    def on_level(self, request: Request, sample: LevelSample, summary: LevelSummary | None) -> None:
        """A load level was measured; without a summary it is void."""

    def on_outcome(self, request: Request, outcome: Outcome) -> None:
        """The launch is over and everything it started is gone."""

    def on_refusal(self, configuration: Configuration, refusal: Refusal) -> None:
        """A configuration is not launched; heard once of each."""

    def on_note(self, text: str) -> None:
        """Something worth telling that belongs to no launch."""


class Evaluator(Protocol):
    """Tells what becomes of a configuration. One that cannot run is an outcome, never an exception.

    Raises `TunerError`s only for what no configuration could change.
    """

    def evaluate(self, request: Request, listener: Listener) -> Outcome:
        """Launch, follow, measure, stop."""


@runtime_checkable
class Vetter(Protocol):
    """What an `Evaluator` may be as well: one that tells without a launch what cannot run."""

    def vet(self, configurations: Sequence[Configuration], listener: Listener) -> Sequence[Refusal | None]:
        """For each the reason not to launch it, or None: within seconds, and without using up anything."""


@runtime_checkable
class Looker(Protocol):
    """What an `Evaluator` may be as well: one that can make looks, cheaper launches that compare choices."""

    def fidelities(self) -> Sequence[Fidelity]:
        """The looks that it can make, the cheapest first; empty where it can make none here."""
