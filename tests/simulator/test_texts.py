"""Text, tokens and the prefix cache."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tuner.simulator.prefix_cache import PrefixCache
from tuner.simulator.texts import Corpus, tokenize


def test_the_same_seed_writes_the_same_text() -> None:
    first, again, other = Corpus(1), Corpus(1), Corpus(2)
    assert first.text(40, 0, 500) == again.text(40, 0, 500)
    assert first.text(40, 0, 500) != other.text(40, 0, 500)


@given(
    start=st.integers(0, 2000), first=st.integers(0, 50), middle=st.integers(0, 50), last=st.integers(0, 50)
)
def test_pieces_make_up_the_whole_and_need_no_escaping(
    start: int, first: int, middle: int, last: int
) -> None:
    corpus = Corpus(7)
    a, b, c = first, first + middle, first + middle + last
    assert corpus.text(start, a, b) + corpus.text(start, b, c) == corpus.text(start, a, c)
    assert len(json.loads(b"[%b]" % corpus.ids(start, a, c))) == c - a
    text = corpus.text(start, a, c).decode("ascii")
    assert json.loads(f'"{text}"') == text


def test_sentences_do_not_repeat_themselves() -> None:
    words = Corpus(3).text(0, 0, 400).decode().split()
    runs = {tuple(words[place : place + 8]) for place in range(len(words) - 8)}
    assert len(runs) > 0.98 * (len(words) - 8)
    assert len(set(words)) > 40


def test_a_prompt_is_counted_in_pieces_of_words() -> None:
    assert tokenize("the server tune") == ["the", " server", " tune"]
    assert tokenize("internationally, yes") == ["intern", "ationa", "lly", ",", " yes"]
    assert tokenize("") == []


def test_a_cache_knows_shared_beginnings() -> None:
    cache = PrefixCache(10_000)
    prompt = list(range(100))
    assert cache.match(prompt) == 0
    cache.insert(prompt)
    assert cache.match(prompt) == 99
    assert cache.match([*prompt[:70], -1, *prompt[70:]]) == 64
    assert cache.match([*prompt, 7]) == 96
    assert cache.match([-1, *prompt]) == 0
    cache.clear()
    assert cache.match(prompt) == 0


def test_a_cache_forgets_what_was_not_used_for_longest() -> None:
    cache = PrefixCache(96)
    old, new, newest = ([marker] * 32 for marker in ("a", "b", "c"))
    for prompt in (old, new, newest):
        cache.insert(prompt)
    assert cache.match(old) == 31
    cache.insert(["d"] * 32)
    assert cache.match(new) == 0
    assert cache.match(old) == 31
    assert PrefixCache(96, enabled=False).match(old) == 0
