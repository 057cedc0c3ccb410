from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.sglang.versions import ANY_VERSION, VersionRange, parse_version, version

IN_ORDER = [
    "0.4.6.post5",
    "0.4.9",
    "0.5.0.dev1",
    "0.5.0rc2",
    "0.5.0",
    "0.5.0.post1.dev3",
    "0.5.0.post1",
    "0.5.4.dev3",
    "0.5.4",
    "0.5.12",
    "0.5.12.post1",
    "0.5.20",
    "0.6",
]


def test_versions_are_ordered_like_releases_and_not_like_words() -> None:
    parsed = [version(text) for text in IN_ORDER]
    shuffled = [*parsed[1::2], *parsed[::2]]
    assert sorted(shuffled) == parsed
    assert len(set(parsed)) == len(parsed)


@pytest.mark.parametrize(
    ("one", "same"),
    [("0.5", "0.5.0"), ("v0.5.1", "0.5.1"), ("0.5.1+cu129", "0.5.1"), ("0.5.0-rc.2", "0.5.0rc2")],
)
def test_spellings_of_the_same_version_are_equal(one: str, same: str) -> None:
    assert version(one) == version(same)
    assert hash(version(one)) == hash(version(same))


@given(st.text(max_size=20))
def test_any_text_is_a_version_or_none(text: str) -> None:
    parsed = parse_version(text)
    assert parsed is None or str(parsed) == text.strip()


@given(st.lists(st.sampled_from(IN_ORDER), min_size=2, max_size=2))
def test_order_is_total(pair: list[str]) -> None:
    low, high = (version(text) for text in pair)
    assert (low < high) + (low == high) + (low > high) == 1


def test_what_is_no_version_is_refused_where_one_is_needed() -> None:
    with pytest.raises(ValueError, match="'latest' is no version"):
        version("latest")


def test_a_range_holds_its_ends_and_says_what_it_is() -> None:
    span = VersionRange(version("0.5.14"), version("0.5.19"))
    assert version("0.5.14") in span
    assert version("0.5.19") in span
    assert version("0.5.20") not in span
    assert version("0.5.13.post1") not in span
    assert span.shown() == "0.5.14 to 0.5.19"
    assert VersionRange(version("0.5.21")).shown() == "0.5.21 or newer"
    assert VersionRange(None, version("0.5.3")).shown() == "0.5.3 or older"
    assert version("9") in ANY_VERSION
