"""The text of a condition taken apart: words, then a tree. What the words mean is decided in `rules`.

    condition   = all {"or" all}
    all         = negation {"and" negation}
    negation    = ["not"] comparison
    comparison  = sum [("==" | "!=" | "<" | "<=" | ">" | ">=") sum  |  ["not"] "in" "[" item {"," item} "]"]
    sum         = product {("+" | "-") product}
    product     = factor {("*" | "/" | "%") factor}
    factor      = ["-"] (number | "quoted text" | word | "(" condition ")")

A word may hold hyphens (`pcie-ipc`), so a minus needs a space before it. Nothing is ever evaluated by Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from tuner.errors import InputError

MOST_TOKENS = 200
MOST_NESTING = 20

ORDERS = ("<", "<=", ">", ">=")
COMPARISONS = ("==", "!=", *ORDERS)
KEYWORDS = ("and", "or", "not", "in")

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.]))"
    r"""|(?P<text>"[^"]*"|'[^']*')"""
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_.]*(?:-[A-Za-z0-9_.]+)*)"
    r"|(?P<sign>==|!=|<=|>=|[-<>()\[\],+*/%])"
)
_OTHER_TONGUES = {"=": "==", "&&": "and", "||": "or", "!": "not", "&": "and", "|": "or"}


@dataclass(frozen=True)
class Token:
    """A word of a condition: its kind (number, text, word, sign, end), its spelling, its position from 1."""

    kind: str
    text: str
    at: int


@dataclass(frozen=True)
class Number:
    """A number as written."""

    value: int | float
    token: Token


@dataclass(frozen=True)
class Quoted:
    """Text in quotes: always a value."""

    value: str
    token: Token


@dataclass(frozen=True)
class Word:
    """A bare word: a parameter or a value."""

    name: str
    token: Token


@dataclass(frozen=True)
class Negative:
    """A number with its sign turned."""

    operand: Tree
    token: Token


@dataclass(frozen=True)
class Arithmetic:
    """Two numbers and one of + - * / %."""

    left: Tree
    right: Tree
    token: Token


@dataclass(frozen=True)
class Comparison:
    """Two sides and one of the comparisons."""

    left: Tree
    right: Tree
    token: Token


@dataclass(frozen=True)
class Membership:
    """A value looked up in a list; `wanted` is false for `not in`."""

    left: Tree
    items: tuple[Written, ...]
    wanted: bool
    token: Token


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    operand: Tree
    token: Token


@dataclass(frozen=True)
class Several:
    """Conditions joined by `and` or `or` (the text of the token)."""

    operands: tuple[Tree, ...]
    token: Token


Written = Number | Quoted | Word
"""A single value, or the name of a parameter."""

Tree = Written | Negative | Arithmetic | Comparison | Membership | Not | Several


def parse(text: str) -> tuple[Tree, str]:
    """The tree of a condition, and the condition respelled with single spaces.

    Raises `InputError` for a text that is no condition.
    """
    tokens = _tokens(text)
    parser = _Parser(text, tokens)
    tree = parser.condition()
    parser.expect_end()
    return tree, _respelled(tokens[:-1])


def refusal(text: str, token: Token, what: str, *, hint: str = "") -> InputError:
    """The error to raise for a word of a condition: the condition, the place, what is wrong."""
    return InputError(f"in '{text}' at character {token.at}: {what}", hint=hint)


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _strange(text, position)
        if match.lastgroup is not None and match.lastgroup != "space":
            tokens.append(Token(match.lastgroup, match.group(), position + 1))
        position = match.end()
        if len(tokens) > MOST_TOKENS:
            raise InputError(
                f"a condition of more than {MOST_TOKENS} words is too long",
                hint="forbid the combinations one by one",
            )
    tokens.append(Token("end", "the end", len(text) + 1))
    return tokens


def _respelled(tokens: list[Token]) -> str:
    text = ""
    for token in tokens:
        tight = not text or text[-1] in "([" or token.text in (")", "]", ",")
        text += token.text if tight else f" {token.text}"
    return text


def _strange(text: str, position: int) -> InputError:
    piece = re.match(r"[&|=!]+|[\w.]+|.", text[position:], re.DOTALL)
    found = piece.group() if piece else text[position]
    other = _OTHER_TONGUES.get(found)
    hint = f"write {other}" if other else "text with other signs than letters, digits, _ . - goes in quotes"
    if found in ('"', "'"):
        hint = "the closing quote is missing"
    return refusal(text, Token("strange", found, position + 1), f"'{found}' has no meaning here", hint=hint)


class _Parser:
    """Recursive descent over the tokens; one method per line of the grammar."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._nesting = 0

    def condition(self) -> Tree:
        parts = [self._all()]
        token = self._peek()
        while self._take("or"):
            parts.append(self._all())
        return Several(tuple(parts), token) if len(parts) > 1 else parts[0]

    def expect_end(self) -> None:
        token = self._peek()
        if token.kind == "end":
            return
        if token.text in COMPARISONS or token.text in ("in", "not"):
            raise self._refuse(token, "comparisons cannot be chained", hint="join two comparisons with and")
        raise self._refuse(token, f"'{token.text}' is not expected", hint="join conditions with and / or")

    def _all(self) -> Tree:
        parts = [self._negation()]
        token = self._peek()
        while self._take("and"):
            parts.append(self._negation())
        return Several(tuple(parts), token) if len(parts) > 1 else parts[0]

    def _negation(self) -> Tree:
        token = self._peek()
        if self._take("not"):
            self._descend(token)
            operand = self._negation()
            self._nesting -= 1
            return Not(operand, token)
        return self._comparison()

    def _comparison(self) -> Tree:
        left = self._sum()
        token = self._peek()
        if self._take(*COMPARISONS):
            return Comparison(left, self._sum(), token)
        if self._take("in"):
            return Membership(left, self._list(), True, token)
        if token.text == "not" and token.kind == "word":
            self._advance()
            if not self._take("in"):
                raise self._refuse(token, "'not' stands before a condition, or before 'in'")
            return Membership(left, self._list(), False, token)
        return left

    def _list(self) -> tuple[Written, ...]:
        self._expect("[")
        items = [self._item()]
        while self._take(","):
            items.append(self._item())
        self._expect("]")
        return tuple(items)

    def _item(self) -> Written:
        item = self._factor()
        if isinstance(item, (Number, Quoted, Word)):
            return item
        raise self._refuse(item.token, "a list holds numbers, words and quoted text")

    def _sum(self) -> Tree:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Tree:
        return self._chain(self._factor, "*", "/", "%")

    def _chain(self, part: Callable[[], Tree], *signs: str) -> Tree:
        tree = part()
        token = self._peek()
        while self._take(*signs):
            tree = Arithmetic(tree, part(), token)
            token = self._peek()
        return tree

    def _factor(self) -> Tree:
        token = self._peek()
        if self._take("-"):
            self._descend(token)
            operand = self._factor()
            self._nesting -= 1
            if isinstance(operand, Number):
                return Number(-operand.value, token)
            return Negative(operand, token)
        return self._atom()

    def _atom(self) -> Tree:
        token = self._advance()
        if token.kind == "number":
            return Number(self._number(token), token)
        if token.kind == "text":
            return Quoted(token.text[1:-1], token)
        if token.kind == "word" and token.text not in KEYWORDS:
            return Word(token.text, token)
        if token.text == "(":
            self._descend(token)
            inner = self.condition()
            self._expect(")")
            self._nesting -= 1
            return inner
        if token.kind == "end":
            raise self._refuse(token, "the condition stops too early; a parameter or a value is missing")
        raise self._refuse(token, f"expected a parameter or a value, got '{token.text}'")

    def _number(self, token: Token) -> int | float:
        try:
            value = float(token.text) if re.search(r"[.eE]", token.text) else int(token.text)
        except ValueError:  # Python refuses to read integers of thousands of digits
            raise self._refuse(token, "this number is too long") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self._refuse(token, "this number is too large")
        return value

    # --- tokens -------------------------------------------------------------------------------------

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _take(self, *spellings: str) -> bool:
        token = self._peek()
        if token.kind in ("word", "sign") and token.text in spellings:
            self._next += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        token = self._peek()
        if not self._take(sign):
            raise self._refuse(token, f"expected '{sign}', got '{token.text}'")

    def _descend(self, token: Token) -> None:
        self._nesting += 1
        if self._nesting > MOST_NESTING:
            raise self._refuse(token, f"nested more than {MOST_NESTING} deep")

    def _refuse(self, token: Token, what: str, *, hint: str = "") -> InputError:
        return refusal(self._text, token, what, hint=hint)
