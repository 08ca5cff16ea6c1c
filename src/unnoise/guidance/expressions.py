"""Rules on columns as they are written, and as trees: `age >= 18 and income == '>50K'`.

A language of its own, of which nothing is ever executed:

    rule        part or part or ...
    part        term and term and ...
    term        not term | test
    test        sum [== != < <= > >= sum ...] | sum [not] in (sum, ...) | sum is [not] missing
    sum         product + product - ...
    product     factor * factor / ...
    factor      -factor | 12.5 | 'text' | column | `any column` | (rule)

Comparisons chain, 18 <= age < 65.  What a name, a text or a number means is not known here (`rules` reads the tree); every
node keeps its place in the text, for messages with a caret under it.
"""

import re
from dataclasses import dataclass

from unnoise.paths import BadData

WORDS = ("and", "or", "not", "in", "is", "missing")
SIGNS = ("==", "!=", "<=", ">=", "<", ">")
DEEP, LONG = 20, 100  # nested so deep, or as long a sum, is no rule that anybody wrote
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<quoted>`[^`]*`)"
    r"|(?P<name>[^\W\d]\w*)|(?P<sign>==|!=|<=|>=|[-+*/()<>,\[\]]))"
)
_SLIPS = {"=": "compare with ==", "!": "write not, or !=", "&": "write and", "|": "write or", "'": "close the quotes"}
_SLIPS |= {'"': "close the quotes", "`": "close the backticks", ".": "rules know columns by their names, and no attributes"}
_SLIPS |= {"%": "there is + - * /"}


@dataclass(frozen=True)
class Spot:
    """Where in a rule something stands."""

    rule: str
    start: int
    end: int

    def error(self, what: str, *others: "Spot") -> BadData:
        """A message with a caret under the place, and under others."""
        under = [range(one.start, max(one.end, one.start + 1)) for one in (self, *others)]
        mark = "".join("^" if any(i in one for one in under) else " " for i in range(max(one.stop for one in under)))
        return BadData(f"--where: {what}\n    {self.rule}\n    {mark}")

    def to(self, other: "Spot") -> "Spot":
        return Spot(self.rule, self.start, other.end)


@dataclass(frozen=True)
class Node:
    place: Spot


@dataclass(frozen=True)
class NumberWritten(Node):
    text: str


@dataclass(frozen=True)
class TextWritten(Node):
    text: str


@dataclass(frozen=True)
class NameWritten(Node):
    name: str


@dataclass(frozen=True)
class Arithmetic(Node):
    """Of two numbers; a factor with a minus is 0 - factor."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Comparison(Node):
    """`operands[i] signs[i] operands[i + 1]` for all i."""

    operands: tuple[Node, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Membership(Node):
    operand: Node
    options: tuple[Node, ...]


@dataclass(frozen=True)
class Missing(Node):
    operand: Node


@dataclass(frozen=True)
class Negation(Node):
    part: Node


@dataclass(frozen=True)
class Conjunction(Node):
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternative(Node):
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Token:
    kind: str  # number, text, quoted, name, sign, end
    text: str
    place: Spot

    def is_word(self, *words: str) -> bool:
        return self.kind == "name" and self.text in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs


def parsed(rule: str) -> Node:
    """The tree of a rule; `BadData` with its place where it cannot be read."""
    rule = " ".join(rule.splitlines())
    if not rule.strip():
        raise BadData("--where: the rule is empty: write one, such as \"age >= 18 and sex == 'Female'\"")
    return Parser(tokens(rule)).whole()


def tokens(rule: str) -> list[Token]:
    found, at = [], 0
    while rule[at:].strip():
        match = _TOKEN.match(rule, at)
        if match is None or match.lastgroup is None:
            at = len(rule) - len(rule[at:].lstrip())
            what = _SLIPS.get(rule[at], "a rule has columns, numbers, texts in quotes and signs")
            raise Spot(rule, at, at + 1).error(f"{rule[at]!r} cannot be read: {what}")
        kind, at = match.lastgroup, match.end()
        found.append(Token(kind, match[kind], Spot(rule, match.start(kind), at)))
    return [*found, Token("end", "", Spot(rule, len(rule.rstrip()), len(rule.rstrip()) + 1))]


class Parser:
    """One method for each line of the grammar."""

    def __init__(self, found: list[Token]):
        self.tokens, self.at, self.depth = found, 0, 0

    @property
    def here(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def takes(self, *signs: str) -> bool:
        if self.here.is_sign(*signs):
            self.at += 1
            return True
        return False

    def takes_word(self, word: str) -> bool:
        if self.here.is_word(word):
            self.at += 1
            return True
        return False

    def whole(self) -> Node:
        found = self.rule()
        if self.here.kind == "end":
            return found
        if self.here.is_sign(")", "]"):
            raise self.here.place.error(f"nothing opens this {self.here.text}: leave it out")
        if self.here.is_sign("("):
            raise self.here.place.error("a rule calls nothing: it has columns, numbers and texts")
        hint = f"join them by {'and, or, or a sign' if self.here.text.lower() not in WORDS else self.here.text.lower()}"
        raise self.here.place.error(f"{self.here.text} follows what is complete: {hint}")

    def rule(self) -> Node:
        parts = [self.part()]
        while self.takes_word("or"):
            parts.append(self.part())
        return parts[0] if len(parts) == 1 else Alternative(parts[0].place.to(parts[-1].place), tuple(parts))

    def part(self) -> Node:
        parts = [self.term()]
        while self.takes_word("and"):
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else Conjunction(parts[0].place.to(parts[-1].place), tuple(parts))

    def term(self) -> Node:
        begin = self.here.place
        if not self.takes_word("not"):
            return self.test()
        self.deeper()
        part = self.term()
        self.depth -= 1
        return Negation(begin.to(part.place), part)

    def test(self) -> Node:
        first = self.sum()
        if self.here.is_sign(*SIGNS):
            operands, signs = [first], list[str]()
            while self.here.is_sign(*SIGNS):
                signs.append(self.take().text)
                operands.append(self.sum())
            return Comparison(first.place.to(operands[-1].place), tuple(operands), tuple(signs))
        if self.takes_word("is"):
            return self.missing(first)
        if self.here.is_word("not") and self.tokens[self.at + 1].is_word("in"):
            self.at += 2
            within = self.options(first)
            return Negation(within.place, within)
        return self.options(first) if self.takes_word("in") else first

    def missing(self, operand: Node) -> Node:
        inverted, last = self.takes_word("not"), self.here.place
        if not self.takes_word("missing"):
            raise last.error("after `is` comes missing, or not missing; values are compared with ==")
        place = operand.place.to(last)
        return Negation(place, Missing(place, operand)) if inverted else Missing(place, operand)

    def options(self, operand: Node) -> Node:
        if not self.here.is_sign("(", "["):
            raise self.here.place.error("after `in` come values in parentheses, ('a', 'b')")
        opening, found = self.take(), list[Node]()
        closing = ")" if opening.text == "(" else "]"
        while not self.here.is_sign(closing):
            found.append(self.sum())
            if not self.here.is_sign(closing) and not self.takes(","):
                raise self.unclosed(opening, closing)
        if not found:
            raise opening.place.to(self.here.place).error("no value is in an empty list: name some")
        return Membership(operand.place.to(self.take().place), operand, tuple(found))

    def sum(self) -> Node:
        return self.chain(("+", "-"), self.product)

    def product(self) -> Node:
        return self.chain(("*", "/"), self.factor)

    def chain(self, signs, each) -> Node:
        """One part after another, from the left."""
        found, count = each(), 0
        while self.here.is_sign(*signs):
            sign, count = self.take(), count + 1
            if count > LONG:
                raise sign.place.error(f"more than {LONG} of them in a row: add a column to the data instead")
            right = each()
            found = Arithmetic(found.place.to(right.place), sign.text, found, right)
        return found

    def factor(self) -> Node:
        token = self.take()
        if token.is_sign("-"):
            self.deeper()
            right = self.factor()
            self.depth -= 1
            if isinstance(right, NumberWritten):
                text = right.text[1:] if right.text.startswith("-") else f"-{right.text}"
                return NumberWritten(token.place.to(right.place), text)
            return Arithmetic(token.place.to(right.place), "-", NumberWritten(token.place, "0"), right)
        if token.is_sign("("):
            return self.inner(token)
        if token.kind == "number":
            return NumberWritten(token.place, token.text)
        if token.kind == "text":
            return TextWritten(token.place, token.text[1:-1])
        if token.kind == "quoted":
            return NameWritten(token.place, token.text[1:-1])
        if token.kind == "name" and token.text not in WORDS:
            return self.name(token)
        self.at -= 1
        what = "the rule ends" if token.kind == "end" else f"{token.text} stands"
        raise token.place.error(f"{what} where a column, a number or a text is expected")

    def name(self, token: Token) -> Node:
        if self.here.is_sign("("):
            raise token.place.to(self.here.place).error("a rule calls nothing: it has columns, numbers and texts")
        return NameWritten(token.place, token.text)

    def inner(self, opening: Token) -> Node:
        self.deeper()
        found = self.rule()
        self.depth -= 1
        if not self.here.is_sign(")"):
            raise self.unclosed(opening, ")")
        self.take()
        return found

    def unclosed(self, opening: Token, closing: str) -> BadData:
        if self.here.kind == "end":
            return opening.place.error(f"nothing closes this {opening.text}: add {closing}")
        return self.here.place.error(f"{self.here.text} stands where {closing} or a sign is expected")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEP:
            raise self.here.place.error(f"nested deeper than {DEEP}: write it more simply")
