"""YAML with positions, and the errors that name them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.document import Node, parse_document, read_document, write_document
from tuner.errors import (
    EXIT_BAD_INPUT,
    EXIT_BROKEN_ENVIRONMENT,
    EXIT_NOTHING_RAN,
    EXIT_TUNER_ERROR,
    BrokenEnvironment,
    InputError,
    NothingRan,
    TunerError,
    did_you_mean,
    nearest,
)


def node(text: str) -> Node:
    """The node under the key `x`."""
    return parse_document(f"x: {text}", "f.yaml").mapping()["x"]


# --- what a word is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("on", "on"),
        ("yes", "yes"),
        ("n", "n"),
        ("true", True),
        ("False", False),
        ("128", 128),
        ("-3", -3),
        ("0", 0),
        ("1e-5", 1e-5),
        ("0.88", 0.88),
        (".5", 0.5),
        ("2.", 2.0),
        ("1.5e3", 1500.0),
        ("-.inf", -math.inf),
        # words and no numbers in disguise
        ("010", "010"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-31", "2026-01-31"),
        ("1e5e5", "1e5e5"),
        ("0.5.12", "0.5.12"),
        ('"1"', "1"),
        ("'true'", "true"),
        ("", None),
        ("~", None),
        ("null", None),
        ("LL,LL128,Simple", "LL,LL128,Simple"),
    ],
)
def test_what_a_plain_word_is(text: str, value: object) -> None:
    found = node(text).value
    assert found == value
    assert type(found) is type(value)


def test_nothing_is_an_empty_document() -> None:
    assert parse_document("", "f.yaml").mapping() == {}
    assert parse_document("# only a comment\n", "f.yaml").mapping() == {}


# --- where it stands ----------------------------------------------------------------------------------------


def test_a_node_knows_its_file_its_line_and_its_path() -> None:
    root = parse_document("a: 1\nb:\n  c:\n    - x\n    - d: 5\n", "f.yaml")
    inner = root.mapping()["b"].mapping()["c"].sequence()[1].mapping()["d"]
    assert (inner.file, inner.line, inner.path) == ("f.yaml", 5, "b.c[1].d")
    assert str(inner.refuse("too small", hint="make it larger")) == (
        "f.yaml:5: b.c[1].d: too small\n  hint: make it larger"
    )
    assert root.plain() == {"a": 1, "b": {"c": ["x", {"d": 5}]}}


def test_the_root_is_refused_without_a_key() -> None:
    assert str(Node({}, "f.yaml").refuse("it is empty")) == "f.yaml: it is empty"


# --- what a reader asks for ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ask", "message"),
    [
        ("5", lambda n: n.text(), "f.yaml:1: x: expected text, got int 5\n  hint: put it in quotes"),
        ("", lambda n: n.text(), "f.yaml:1: x: expected text, got nothing"),
        ("[a]", lambda n: n.text(), "f.yaml:1: x: expected text, got a list"),
        ("' '", lambda n: n.text(), "f.yaml:1: x: must not be empty"),
        (
            "lgo",
            lambda n: n.text(one_of=("log", "lin")),
            "x: 'lgo' is not possible here\n  hint: did you mean 'log'?",
        ),
        ("1", lambda n: n.boolean(), "x: expected true or false, got int 1"),
        ("yes", lambda n: n.boolean(), "x: expected true or false, got str 'yes'"),
        ("true", lambda n: n.integer(), "x: expected a whole number, got bool True"),
        ("1.0", lambda n: n.integer(), "x: expected a whole number, got float 1.0"),
        ("0", lambda n: n.integer(least=1), "x: 0 is below the least possible, 1"),
        ("9", lambda n: n.integer(most=8), "x: 9 is above the most possible, 8"),
        ("true", lambda n: n.number(), "x: expected a number, got bool True"),
        ("'1'", lambda n: n.number(), "x: expected a number, got str '1'"),
        (".nan", lambda n: n.number(), "x: expected a finite number, got float nan"),
        (".inf", lambda n: n.number(), "x: expected a finite number, got float inf"),
        ("0.5", lambda n: n.number(least=1.0), "x: 0.5 is below the least possible, 1.0"),
        ("", lambda n: n.scalar(), "x: expected a single value, got nothing"),
        ("{a: 1}", lambda n: n.scalar(), "x: expected a single value, got keys and values"),
        ("a", lambda n: n.sequence(), "x: expected a list, got str 'a'"),
        ("[]", lambda n: n.sequence(least=1), "x: expected at least 1 item, got 0"),
        ("[1]", lambda n: n.sequence(least=2), "x: expected at least 2 items, got 1"),
        ("a", lambda n: n.mapping(), "x: expected keys and values, got str 'a'"),
        (
            "{lwo: 1}",
            lambda n: n.mapping(known=("low", "high")),
            "x.lwo: unknown key\n  hint: did you mean 'low'?",
        ),
        (
            "{zz: 1}",
            lambda n: n.mapping(known=("low", "high")),
            "x.zz: unknown key\n  hint: known: high, low",
        ),
        ("{low: 1}", lambda n: n.mapping(required=("low", "high")), "x: the key 'high' is missing"),
    ],
)
def test_a_wrong_value_is_refused(text: str, ask: Callable[[Node], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        ask(node(text))
    assert str(caught.value).endswith(message)
    assert str(caught.value).startswith("f.yaml:1: x")


def test_a_right_value_is_given() -> None:
    assert node("a").text(one_of=("a",)) == "a"
    assert node("3").number(least=3, most=3) == 3.0
    assert node("3").integer(least=3, most=3) == 3
    assert node("true").boolean() is True
    assert node("1.5").scalar() == 1.5
    assert [item.value for item in node("[1, 2]").sequence(least=2)] == [1, 2]
    assert {key: item.value for key, item in node("{a: 1, b: off}").items()} == {"a": 1, "b": "off"}
    assert node("").is_null()
    assert not node("[]").is_scalar()


# --- what is no document ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: a: this key stands here twice (first on line 1)"),
        ("a:\n  b: {c: 1, c: 2}", "f.yaml:2: a.b.c: this key stands here twice"),
        ("a: [1", "f.yaml:1: this is not valid YAML"),
        ("a: 1\n---\nb: 2", "f.yaml:2: this is not valid YAML"),
        ("- 1", "f.yaml:1: the file must hold keys and values"),
        ("word", "f.yaml:1: the file must hold keys and values"),
        ("[a]: 1", "f.yaml:1: top level: a key must be a single word"),
        ("x: {[a]: 1}", "f.yaml:1: x: a key must be a single word"),
        ("a: !!python/name:os.system x", "f.yaml:1: this is not valid YAML"),
        ("a: !!binary aGk=", "f.yaml:1: a: a value of the kind"),
        ("a: !!timestamp 2026-01-31", "f.yaml:1: a: a value of the kind"),
        ("a: !!int many", "f.yaml: this is not valid YAML"),
        ("a: &a [*a]", "f.yaml: this is not valid YAML"),
        ("a: " + "[" * 5000, "f.yaml: this is not valid YAML"),
        ("a: '\x01'", "f.yaml: this is not valid YAML"),
        ("a: " + "9" * 5000, "f.yaml: this is not valid YAML"),
    ],
)
def test_what_is_no_document_is_refused(text: str, fragment: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_document(text, "f.yaml")
    assert fragment in str(caught.value)


def test_a_tag_constructs_nothing() -> None:
    assert parse_document("a: !!python/object/apply:os.system [ls]", "f.yaml").plain() == {"a": ["ls"]}


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.yaml: there is no such file"):
        read_document(tmp_path / "missing.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        read_document(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(InputError, match=r"latin\.yaml: cannot be read"):
        read_document(tmp_path / "latin.yaml")
    (tmp_path / "good.yaml").write_text("a: é", encoding="utf-8")
    assert read_document(tmp_path / "good.yaml").plain() == {"a": "é"}


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_document_or_an_input_error(text: str) -> None:
    try:
        assert isinstance(parse_document(text, "f.yaml").plain(), dict)
    except InputError as error:
        assert str(error).startswith("f.yaml")


# --- writing ------------------------------------------------------------------------------------------------

_TEXTS = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.sampled_from(
        ["off", "1e-5", "010", "12:30", "~", "", "null", "1_000", "=", "<<", "0x1f", "true", ".inf"]
    ),
)
_CONTENT = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(_TEXTS, _CONTENT, max_size=4))
def test_what_is_written_is_read_back(content: dict[str, object]) -> None:
    assert parse_document(write_document(content), "f.yaml").plain() == content


@pytest.mark.parametrize(
    "word", ["off", "yes", "no", "1e-5", "010", "12:30", "1_000", "2026-01-31", "~", "128"]
)
def test_other_readers_take_written_text_for_text(word: str) -> None:
    """SGLang reads its `--config` as YAML 1.1, where `off` is false and `12:30` is 750."""
    assert yaml.safe_load(write_document({"key": word})) == {"key": word}


def test_keys_are_written_in_their_order() -> None:
    assert write_document({"b": 1, "a": [1, "é"]}) == "b: 1\na:\n- 1\n- é\n"


# --- errors -------------------------------------------------------------------------------------------------


def test_each_error_has_its_exit_code() -> None:
    codes = {kind: kind("x").exit_code for kind in (TunerError, InputError, BrokenEnvironment, NothingRan)}
    assert codes == {
        TunerError: EXIT_TUNER_ERROR,
        InputError: EXIT_BAD_INPUT,
        BrokenEnvironment: EXIT_BROKEN_ENVIRONMENT,
        NothingRan: EXIT_NOTHING_RAN,
    }
    assert len({*codes.values(), 0}) == 5


@pytest.mark.parametrize(
    ("word", "match"),
    [
        ("mem-fraction-static", "mem_fraction_static"),
        ("mem_fracton_static", "mem_fraction_static"),
        ("NCCL-ALGO", "NCCL_ALGO"),
        ("nccl_algo", "NCCL_ALGO"),
        ("entirely different", None),
    ],
)
def test_the_nearest_spelling(word: str, match: str | None) -> None:
    assert nearest(word, ["mem_fraction_static", "NCCL_ALGO"]) == match


def test_a_hint_names_the_nearest_or_all_or_nothing() -> None:
    assert did_you_mean("loww", ["low", "high"]) == "did you mean 'low'?"
    assert did_you_mean("xyz", ["low", "high"]) == "known: high, low"
    assert did_you_mean("xyz", []) == ""
