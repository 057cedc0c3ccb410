"""A space goes through the JSON of a study's folder and comes back as the same space."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.space.spaces import TEXT, space
from tuner.errors import InputError
from tuner.space.reading import read_space
from tuner.space.restoring import restored_space
from tuner.space.space import SearchSpace

FOLDER = Path(__file__).parents[2] / "search_spaces"
SPACES = [space(TEXT), *(read_space(path) for path in sorted(FOLDER.glob("*.yaml")))]


@pytest.mark.parametrize("given", SPACES, ids=lambda given: given.name)
def test_a_space_comes_back_from_its_identity(given: SearchSpace) -> None:
    kept = json.loads(json.dumps(given.canonical()))

    back = restored_space(kept, given.name, "study.json")

    assert back.canonical() == given.canonical()
    assert [one.name for one in back.parameters] == [one.name for one in given.parameters]
    assert back.configuration(back.assignment({})) == given.configuration(given.assignment({}))
    for known in given.known_good:
        assert back.broken_rule(known.values) is None


@pytest.mark.parametrize(
    "content", [{}, {"parameters": {"a": 3}}, {"parameters": {"a": {"type": "integer", "low": 1}}}]
)
def test_what_is_no_space_is_refused_with_the_file(content: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"study\.json"):
        restored_space(content, "s", "study.json")
