"""SGLang's version numbers, compared the way the package index orders them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

_PATTERN = re.compile(
    r"^v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<stage>a|alpha|b|beta|c|rc|pre|preview)[-_.]?(?P<stage_number>\d*))?"
    r"(?:[-_.]?post[-_.]?(?P<post>\d*))?"
    r"(?:[-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?$",
    re.IGNORECASE,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1}
_CANDIDATE = 2
_FINAL = 3
_BEFORE_ALL_STAGES = -1
_NO_DEV = 1 << 62


@total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """A version such as `0.5.12.post1`, `0.5.0rc2` or `0.5.4.dev3+g1234567`.

    Ordered like PEP 440 without epochs: dev < alpha < beta < rc < final < post; `0.5` equals `0.5.0`, and
    what follows a `+` does not count.
    """

    text: str
    release: tuple[int, ...]
    stage: tuple[int, int]
    post: int
    dev: int

    @property
    def _key(self) -> tuple[tuple[int, ...], tuple[int, int], int, int]:
        return self.release, self.stage, self.post, self.dev

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self.text


def parse_version(text: str) -> Version | None:
    """The version that `text` spells, or None where it spells none."""
    match = _PATTERN.match(text.strip())
    if match is None:
        return None
    release = [int(part) for part in match["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    post = -1 if match["post"] is None else int(match["post"] or 0)
    dev = _NO_DEV if match["dev"] is None else int(match["dev"] or 0)
    if match["stage"] is not None:
        stage = (_STAGES.get(match["stage"].lower(), _CANDIDATE), int(match["stage_number"] or 0))
    elif match["post"] is None and match["dev"] is not None:
        # A development build of a release comes before the release's own alphas.
        stage = (_BEFORE_ALL_STAGES, 0)
    else:
        stage = (_FINAL, 0)
    return Version(text.strip(), tuple(release), stage, post, dev)


def version(text: str) -> Version:
    """Like `parse_version` for a version written in this program. Raises `ValueError` where it is none."""
    parsed = parse_version(text)
    if parsed is None:
        raise ValueError(f"'{text}' is no version")
    return parsed


@dataclass(frozen=True)
class VersionRange:
    """Versions from `low` to `high`, both included; None where that side is open."""

    low: Version | None = None
    high: Version | None = None

    def __contains__(self, candidate: Version) -> bool:
        if self.low is not None and candidate < self.low:
            return False
        return self.high is None or candidate <= self.high

    def shown(self) -> str:
        """For people: `0.5.14 to 0.5.19`, `0.5.21 or newer`."""
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}"
        if self.low is not None:
            return f"{self.low} or newer"
        return f"{self.high} or older" if self.high is not None else "an unknown version"


ANY_VERSION = VersionRange()
"""Nothing is known."""
