"""The files by which Linux tells about itself, below a root that tests can plant."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

_TEXT_LIMIT = 1 << 20


@dataclass(frozen=True)
class Space:
    """Bytes of a file system."""

    total: int
    free: int


class SystemFiles:
    """Reads below `root`. What is not there or may not be read is empty; nothing raises."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def text(self, path: str) -> str:
        """The text of a file, without white space around it."""
        return self.data(path).decode("utf-8", "replace").strip()

    def data(self, path: str) -> bytes:
        """The bytes of a file."""
        try:
            with self._at(path).open("rb") as file:
                return file.read(_TEXT_LIMIT)
        except OSError:
            return b""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""
        try:
            return sorted(entry.name for entry in self._at(folder).iterdir())
        except OSError:
            return []

    def number(self, path: str) -> int | None:
        """A file that holds one whole number."""
        try:
            return int(self.text(path))
        except ValueError:
            return None

    def space(self, path: str) -> Space | None:
        """Size and free space of the file system that a path lies on, or will lie on."""
        place = self._at(path)
        while not place.exists() and place != place.parent:
            place = place.parent  # a folder that is still to be made
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            return None
        return Space(usage.total, usage.free)

    def kernel_options(self) -> dict[str, str]:
        """The words of the kernel's command line: option and value (empty where it has none)."""
        words = (word.partition("=") for word in self.text("proc/cmdline").split())
        return {name: value for name, _, value in words}

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")
