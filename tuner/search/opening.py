"""Opening the Optuna study of a definition, new or resumed."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.artifacts import FileSystemArtifactStore
from optuna.study import StudyDirection

from tuner.errors import InputError
from tuner.search.identity import IDENTITY_FILE, differences
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition

MEMORY = "memory"
"""As `storage`: nothing is kept, shown or resumed; for studies in virtual time."""


def open_study(definition: StudyDefinition, space: SearchSpace) -> optuna.Study:
    """The study in its storage.

    Raises `InputError` where it cannot be opened, or holds what would not be comparable.
    """
    if definition.storage == MEMORY:
        return optuna.create_study(directions=_directions(definition))
    definition.folder.mkdir(parents=True, exist_ok=True)
    study = _open(definition)
    _check_identity(study, definition, space)
    return study


def open_artifacts(definition: StudyDefinition) -> FileSystemArtifactStore | None:
    """Where the dashboard finds files; None for a study that is kept in memory."""
    if definition.storage == MEMORY:
        return None
    folder = definition.folder / "artifacts"
    folder.mkdir(parents=True, exist_ok=True)
    with experimental_allowed():
        return FileSystemArtifactStore(str(folder))


@contextmanager
def experimental_allowed() -> Iterator[None]:
    """Optuna marks metric names and artifacts as experimental; we know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def _check_identity(study: optuna.Study, definition: StudyDefinition, space: SearchSpace) -> None:
    """Refuse to go on with a study whose results would not be comparable.

    The study holds the identity's fingerprint, `study.json` beside the results all of it.
    """
    identity = {**definition.identity(), "space": space.canonical()}
    text = json.dumps(identity, sort_keys=True)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
    file = definition.folder / IDENTITY_FILE
    stored = study.user_attrs.get("definition")
    if stored is None:
        file.write_text(json.dumps(identity, indent=1) + "\n", encoding="utf-8")
        study.set_user_attr("definition", fingerprint)
        study.set_user_attr("label", definition.server.label)
        with experimental_allowed():
            study.set_metric_names(list(definition.objective.names))
        return
    if stored != fingerprint:
        raise InputError(
            f"study '{definition.name}' cannot be resumed: what it measured before is not "
            f"comparable with what it would measure now\n  {_told_differences(file, identity)}",
            hint="give the study another name (--name), or undo the change; the old results stay",
        )


def _told_differences(file: Path, identity: dict[str, Any]) -> str:
    try:
        old = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"(what it was is not known: {file} cannot be read)"
    return "\n  ".join(differences(old, identity))


def _directions(definition: StudyDefinition) -> list[StudyDirection]:
    return [StudyDirection[direction.upper()] for direction in definition.objective.directions]


def _open(definition: StudyDefinition) -> optuna.Study:
    try:
        return optuna.create_study(
            study_name=definition.name,
            storage=definition.storage,
            directions=_directions(definition),
            load_if_exists=True,
        )
    except Exception as error:  # whatever a database driver raises: the URL is the user's
        told = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"storage {definition.storage}: the study cannot be opened: {told}",
            hint="give an Optuna storage URL, such as sqlite:///studies/NAME/study.db",
        ) from error
