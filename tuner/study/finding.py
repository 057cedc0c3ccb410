"""Finding study definitions and search spaces by file or by name."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from tuner.document import Node, read_document
from tuner.errors import InputError, did_you_mean
from tuner.space.reading import read_space
from tuner.space.space import SearchSpace
from tuner.study.definition import StudyDefinition, check_folder, parse_definition
from tuner.study.overrides import merge_overrides

DEFAULT_STUDY = "simulated-kimi-k2.5"

_PACKAGE = Path(__file__).resolve().parent.parent


def load_study(name_or_file: str | None, arguments: argparse.Namespace | None = None) -> StudyDefinition:
    """The study that the user named, with the command line's options laid over its file.

    Without a name it is the embedded default. Results go beside the definition; those of a definition
    that came with the program go to `studies/` in the current folder. Raises `InputError`.
    """
    file = find_study_file(name_or_file or DEFAULT_STUDY)
    root = read_document(file)
    if arguments is not None:
        root = merge_overrides(root, arguments)
    space = _space_of(root, file)
    name = root.value["name"].value if "name" in root.value else file.stem
    home = Path("studies") if _is_shipped(file) else file.parent
    earlier = _warm_start_of(root, file)
    definition = parse_definition(
        root,
        name=file.stem,
        folder=home / str(name),
        space=space,
        warm_start=tuple(folder for _, folder in earlier),
    )
    check_folder(definition.folder)
    for node, folder in earlier:
        if folder.resolve() == definition.folder.resolve():
            raise node.refuse(
                "a study knows its own launches", hint="name another study, or give this one another name"
            )
    return definition


def find_study_file(name_or_file: str) -> Path:
    """A file, or a name looked up in `studies/` here and among those that came with the program."""
    return _find(name_or_file, "studies", "study")


def find_results(name_or_file: str) -> Path:
    """The results folder of a study, named by the folder, the definition's file or the study's name."""
    given = Path(name_or_file)
    for folder in (given, given.with_suffix(""), Path("studies") / name_or_file):
        if folder.is_dir() and any(folder.glob("trial-*")):
            return folder
    raise InputError(
        f"'{name_or_file}': there are no results of such a study",
        hint="give the study's folder (studies/NAME) after `python -m tuner optimize NAME` has run",
    )


def _space_of(root: Node, study_file: Path) -> SearchSpace:
    keys = root.mapping()
    if "search_space" not in keys:
        raise root.refuse("the key 'search_space' is missing")
    node = keys["search_space"]
    name = node.text()
    beside = study_file.parent / name
    try:
        file = beside if beside.is_file() else _find(name, "search_spaces", "search space")
    except InputError as error:
        raise node.refuse(error.message, hint=error.hint) from None
    return read_space(file)


def _warm_start_of(root: Node, study_file: Path) -> list[tuple[Node, Path]]:
    """The results of earlier studies that are named, each by its folder, its file or its name."""
    node = root.mapping().get("warm_start")
    if node is None:
        return []
    named = node.sequence() if isinstance(node.value, list) else [node]
    found = []
    for item in named:
        beside = study_file.parent / item.text()
        try:
            folder = beside if any(beside.glob("trial-*")) else find_results(item.text())
        except InputError as error:
            raise item.refuse(error.message, hint=error.hint) from None
        found.append((item, folder))
    return found


def _find(name_or_file: str, kind: str, what: str) -> Path:
    given = Path(name_or_file)
    if given.is_file():
        return given
    folders = [Path(kind), *_shipped_folders(kind)]
    for folder in folders:
        for candidate in (folder / f"{name_or_file}.yaml", folder / name_or_file):
            if candidate.is_file():
                return candidate
    known = {path.stem for folder in folders for path in folder.glob("*.yaml")}
    if given.suffix in (".yaml", ".yml") or "/" in name_or_file:
        raise InputError(
            f"{name_or_file}: there is no such {what} file", hint=did_you_mean(given.stem, known)
        )
    raise InputError(f"there is no {what} '{name_or_file}'", hint=did_you_mean(name_or_file, known))


def _shipped_folders(kind: str) -> Iterator[Path]:
    """Where the wheel puts the files, and where they lie in a checkout."""
    yield _PACKAGE / "shipped" / kind
    yield _PACKAGE.parent / kind


def _is_shipped(file: Path) -> bool:
    resolved = file.resolve()
    return any(folder.resolve() in resolved.parents for folder in _shipped_folders("studies"))
