"""Numbers as people write them: separators of thousands, decimal commas, currencies, percent, parentheses below zero.

The form is found from all texts of a column together.  A text is a sign, a unit and digits; with `#` for its digits it is a
template, `-$#` or `(#)`, and a column has one template for numbers above zero and one for those below.
"""

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import ClassVar

import numpy as np

from unnoise.data.scales import NUMBER, Decimals

_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RON|BRL|MXN|ZAR|TRY|RUB|KRW|SGD|HKD|ILS|THB"
_UNIT = rf"(?:[A-Z]{{0,2}}[$€£¥₹₽₩₪₫₴₺฿¢]|Rs\.?|kr\.?|zł|Kč|Ft|{_CODES})"
_TEXT = re.compile(rf"([(+\-−]?\s?(?:{_UNIT}\s?)?[(+\-−]?)(\d(?:[\d.,'’\s]*\d)?|[.,]\d+)([+\-−]?\)?\s?(?:{_UNIT}|%|‰)?\)?)")
_GROUPS = re.compile(r"[.,'’\s]")


@lru_cache
def _body(decimal: str, group: str, codes: bool) -> re.Pattern[str]:
    """The digits of a number: grouped by three or not at all, and no zero before other digits unless `codes`."""
    group = r"\s" if group.isspace() else re.escape(group)
    grouped = rf"[1-9]\d{{0,2}}(?:{group}\d{{3}})+|" if group else ""
    whole = r"\d+" if codes else r"0|[1-9]\d*"
    return re.compile(rf"(?:{grouped}{whole})(?:{re.escape(decimal)}\d+)?|{re.escape(decimal)}\d+")


def _unit(template: str) -> str:
    """A template without its sign."""
    return re.sub(r"[-−+()]", "", template).strip()


def _below(template: str) -> bool:
    return bool(set(template) & set("-−("))


@dataclass(frozen=True)
class WrittenNumbers:
    """Numbers of one form, with `least` to `most` decimals as in `Decimals`."""

    positive: str  # templates
    negative: str
    zero: str
    decimal: str
    group: str  # "" where digits are not grouped
    group_from: int  # digits before the decimal sign from which they are
    least: int
    most: int | None
    step: int = 1
    start: int = 0
    note: str = ""  # what is unclear about it

    noun: ClassVar[str] = "number"

    @classmethod
    def understand(cls, texts: list[str], codes: bool = False, decimal: str | None = None) -> "WrittenNumbers | None":
        """None where they have no common form.  `decimal`: what other columns, or people, say of the decimal sign."""
        texts = [text.strip() for text in texts]
        if not texts or not _TEXT.fullmatch(texts[0]):
            return None
        matches = [_TEXT.fullmatch(text) for text in texts]
        parts = [(f"{m[1]}#{m[3]}", m[2]) for m in matches if m]
        templates = _templates(parts) if len(parts) == len(texts) else None
        found = _separators([body for _, body in parts], codes, decimal) if templates else None
        if templates is None or found is None:
            return None
        sign, group, note = found
        bodies = [body for _, body in parts]
        wholes = [body.split(sign)[0] for body in bodies]
        lengths = {len(body) - len(whole) - 1 if sign in body else 0 for body, whole in zip(bodies, wholes, strict=True)}
        most = max(lengths) if max(lengths) <= 15 else None
        return cls(*templates, sign, group, _group_from(wholes, group), 0 if most is None else min(lengths), most, note=note)

    @property
    def _digits(self) -> Decimals:
        return Decimals(self.least, self.most, self.step, self.start)

    def narrowed(self, texts: list[str]) -> "WrittenNumbers":
        """The same with the decimals of these alone."""
        digits = Decimals(self.least, self.most).narrowed(self.plain(texts))
        return replace(self, least=digits.least, most=digits.most)

    def on_grid(self, texts: list[str]) -> "WrittenNumbers":
        grid = self._digits.on_grid(self.plain(texts))
        return replace(self, step=grid.step, start=grid.start)

    def plain(self, texts: list[str]) -> list[str]:
        """With a sign before them and a decimal point; "" where a text is none of these numbers."""
        body, unit = _body(self.decimal, self.group, True), _unit(self.positive)
        return [self._plain(_TEXT.fullmatch(text.strip()), body, unit) for text in texts]

    def _plain(self, match: re.Match[str] | None, body: re.Pattern[str], unit: str) -> str:
        if match is None or not body.fullmatch(match[2]) or _unit(f"{match[1]}#{match[3]}") not in (unit, "#"):
            return ""
        whole, _, part = match[2].partition(self.decimal)
        digits = _GROUPS.sub("", whole) or "0"
        return ("-" if _below(match[1] + match[3]) else "") + digits + ("." + part if part else "")

    def parse(self, texts: list[str]) -> np.ndarray:
        return Decimals(0, 0).parse([text or "nan" for text in self.plain(texts)])

    def write(self, values: np.ndarray) -> list[str]:
        return [self._spelt(text) for text in self._digits.write(values)]

    def spelt(self, texts: list[str]) -> list[str]:
        """Plain numbers in this form, none rounded."""
        return [self._spelt(f"{Decimal(text.strip()):f}") if NUMBER.fullmatch(text) else text for text in texts]

    def _spelt(self, text: str) -> str:
        template = self.negative if text.startswith("-") else self.positive if text.strip("0.") else self.zero
        whole, _, part = text.removeprefix("-").partition(".")
        part = part.ljust(self.least, "0")
        if self.group and whole.isdigit() and len(whole) >= self.group_from:
            whole = f"{int(whole):,}".replace(",", self.group)
        return template.replace("#", whole + (self.decimal + part if part else ""))

    def arrow(self) -> str:
        return "int64" if self.most == 0 else "double"

    @property
    def said(self) -> str:
        """Which sign is which, where points and commas might be either."""
        if self.group in (".", ","):
            return f"thousands by {self.group!r}"
        return "decimal comma" if self.most and self.decimal == "," else ""

    @property
    def evidence(self) -> str | None:
        """What it says of the decimal sign in other columns."""
        return None if self.note or not (self.group or self.most) else self.decimal


def _templates(parts: list[tuple[str, str]]) -> tuple[str, str, str] | None:
    """For numbers above, below and at zero; None where there are several."""
    seen = {template for template, _ in parts}
    if len({_unit(template) for template in seen}) > 1 or any(t.count("(") != t.count(")") for t in seen):
        return None
    unit = _unit(next(iter(seen)))
    below = sorted(template for template in seen if _below(template))
    above = sorted(template for template in seen if not _below(template))
    if len(above) == 2:  # a plus before all but zeros
        above.sort(key=lambda template: "+" not in template)
        if any(body.strip("0.,") for template, body in parts if template == above[1]):
            return None
    if len(below) > 1 or len(above) > 2 or any(len(re.findall(r"[-−+(]", template)) > 1 for template in seen):
        return None
    positive = above[0] if above else unit
    return positive, below[0] if below else "-" + unit, above[1] if len(above) == 2 else positive


def _separators(bodies: list[str], codes: bool, hint: str | None) -> tuple[str, str, str] | None:
    """The decimal sign, the separator of groups, and what is unclear about them."""
    seen = {" " if sign.isspace() else sign for sign in set("".join(bodies)) if not sign.isdigit()}
    fits = []
    for decimal in (".", ","):
        others = sorted(seen - {decimal})
        group = others[0] if others else ""
        if len(others) <= 1 and all(map(_body(decimal, group, codes).fullmatch, bodies)):
            fits.append((decimal, group))
    if not fits:
        return None
    if len(fits) == 2 and hint is not None:
        fits = [fit for fit in fits if fit[0] == hint]
    decimal, group = fits[0]
    if len(fits) == 2 and seen == {","} and any(len(body) > 3 for body in bodies if "," not in body):
        decimal, group = fits[1]  # 1234 beside 1,234
    if group == " ":
        group = next(sign for body in bodies for sign in body if sign.isspace())
    unclear = len(fits) == 2 and seen == {","} and (decimal == "," or all("," in body for body in bodies))
    return decimal, group, _unclear(decimal) if unclear else ""


def _unclear(decimal: str) -> str:
    if decimal == ",":
        return "its comma is read as the decimal sign; should it separate thousands, say form: decimal point"
    return "its comma is read as the separator of thousands; should it be the decimal sign, say form: decimal comma"


def _group_from(wholes: list[str], group: str) -> int:
    """5 where 1234 stands beside 12 345."""
    if not group:
        return 4
    plain = any(len(whole) == 4 and whole.isdigit() for whole in wholes)
    return 5 if plain and not any(len(whole) == 5 and not whole.isdigit() for whole in wholes) else 4
