"""Columns that stand beside a model and not in it: identifiers, which samples get anew, and private texts, which stay empty.

An identifier is made by a `Numbering`, which goes on after the last number that was seen, or by a `Pattern`, which draws a
character from the letters or digits of its place.  Neither gives an identifier of the training rows.  A pattern knows these
by a set of bits, one for the hash of each, so none is stored; it may take a new one for a seen one, never the reverse.
"""

import base64
import hashlib
import re
import string
from collections import Counter as Tally
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

DENSE = 4  # numbers of a counter fill at least this part, one in so many, of the range from the first to the last
ENOUGH = 20  # rows for each of the characters of a place, from which no others may stand there
ROOM = 100  # there must be so many times as many identifiers as rows
CHUNK = 1024
GLANCE = 50
_COUNTED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)
_CLASSES = (
    string.digits,
    string.digits + "abcdef",
    string.digits + "ABCDEF",
    string.ascii_uppercase,
    string.ascii_lowercase,
    string.digits + string.ascii_uppercase,
    string.digits + string.ascii_lowercase,
    string.ascii_letters,
    string.digits + string.ascii_letters,
)


@dataclass(frozen=True)
class Numbering:
    """A prefix, a number, padded with zeros to a width, and a suffix; the next number is `first`."""

    prefix: str
    suffix: str
    width: int
    first: int

    @classmethod
    def of(cls, texts: list[str]) -> "Numbering | None":
        """None where they are not the numbers of one counter, or too thin in their range for one."""
        parts = [_COUNTED.fullmatch(text) for text in texts[:GLANCE]]
        if len({(m[1], m[3]) if m else None for m in parts}) == 1:
            parts += [_COUNTED.fullmatch(text) for text in texts[GLANCE:]]
        affixes = {(m[1], m[3]) if m else None for m in parts}
        if len(affixes) != 1 or None in affixes:
            return None
        digits = [m[2] for m in parts if m]
        widths, numbers = {len(one) for one in digits}, list(map(int, digits))
        padded = any(one[0] == "0" and len(one) > 1 for one in digits)
        if padded and len(widths) > 1:
            return None
        if max(numbers) - min(numbers) >= DENSE * len(numbers) and len(widths) == 1:
            return None
        ((prefix, suffix),) = [affix for affix in affixes if affix]
        return cls(prefix, suffix, widths.pop() if padded else 0, max(numbers) + 1)

    def make(self, rows: int, seed: int) -> list[str]:
        return [f"{self.prefix}{self.first + i:0{self.width}d}{self.suffix}" for i in range(rows)]

    def __str__(self) -> str:
        return f"{self.prefix}{'#' * max(self.width, 1)}{self.suffix}"


@dataclass(frozen=True)
class Pattern:
    """One set of characters for each place, and the bits of what was seen."""

    places: tuple[str, ...]
    taken: str  # bits in base64

    @classmethod
    def of(cls, texts: list[str]) -> "Pattern":
        """Of the texts that have the commonest length."""
        length = Tally(map(len, texts)).most_common(1)[0][0]
        alike = np.array([text for text in texts if len(text) == length]).view("U1").reshape(-1, length)
        seen = ["".join(np.unique(place)) for place in alike.T]
        places = tuple(one if ENOUGH * len(one) <= len(alike) else _class(one) for one in seen)
        if prod(map(len, places)) < ROOM * len(texts):
            places = tuple(map(_class, seen))
        bits = np.zeros(1 << max(10, (16 * len(texts)).bit_length()), dtype=bool)
        bits[[_hash(text) % len(bits) for text in texts]] = True
        return cls(places, base64.b64encode(np.packbits(bits).tobytes()).decode())

    def make(self, rows: int, seed: int) -> list[str]:
        bits = np.unpackbits(np.frombuffer(base64.b64decode(self.taken), dtype=np.uint8))
        g, places, made = np.random.default_rng(seed), list(self.places), dict[str, None]()
        while len(made) < rows:
            before = len(made)
            u = g.random((CHUNK, len(places)))
            drawn = [np.array(list(place))[(u[:, i] * len(place)).astype(int)] for i, place in enumerate(places)]
            for text in map("".join, zip(*drawn, strict=True)):
                if not bits[_hash(text) % len(bits)]:
                    made[text] = None
            if len(made) - before < CHUNK / 64:  # there are no more of this length
                places.append(string.digits)
        return list(made)[:rows]

    def __str__(self) -> str:
        return "".join(place if len(place) == 1 else "#" if place.isdigit() else "*" for place in self.places)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _class(seen: str) -> str:
    """The characters that may stand in a place: the one that always does, or a class that holds all that do."""
    if len(seen) == 1:
        return seen
    return next((one for one in _CLASSES if set(seen) <= set(one)), seen)


def maker_of(texts: list[str]) -> Numbering | Pattern:
    return Numbering.of(texts) or Pattern.of(texts)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A column beside the model."""

    name: str
    kind: str  # identifier, private or text
    what: str  # in words
    blank: str = ""  # how an empty cell is written
    maker: Numbering | Pattern | None = None  # of identifiers
    note: str = ""  # what is unclear about it

    @property
    def values(self) -> str:
        return f"{self.what}; empty in samples" if self.maker is None else f"made anew like {self.maker}; {self.what}"

    def cells(self, rows: int, seed: int) -> list[str | None]:
        return [None] * rows if self.maker is None else [*self.maker.make(rows, seed)]

    def to_json(self) -> dict[str, Any]:
        maker = self.maker and {"of": type(self.maker).__name__, **vars(self.maker)}
        return {**vars(self), "maker": maker}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "LeftOut":
        made = data["maker"] and dict(data["maker"])
        if made:
            of = made.pop("of")
            made = Numbering(**made) if of == "Numbering" else Pattern(tuple(made["places"]), made["taken"])
        return cls(**{**data, "maker": made})
