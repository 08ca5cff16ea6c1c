"""Which columns are identifiers, which are private, and which are free text: judged by the whole column.

A form that is private as such (an e-mail address, a telephone or account number) is so however often its values recur.
Names and free text are told by their number: a column of words that are mostly distinct is no category.
"""

import re
from collections.abc import Callable

import numpy as np

from unnoise.data.columns import Texts

NAMES = 20  # a column of so many words may have them all distinct
MOST = 0.9  # share of the distinct values that must look alike
CHECKED = 0.8  # share of them whose check digits are right: by chance 0.1 of card numbers are, 0.01 of account numbers
FEWEST = 5  # running numbers of fewer rows prove nothing

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}")
_URL = re.compile(r"(?:https?://|www\.)\S+")
_IP = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}")
_PHONE = re.compile(r"(?:\+|00|\()?\d[\d\s().\-/]{5,}\d(?:\s?(?:x|ext\.?)\s?\d+)?")
_DATED = re.compile(r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})(?!\d)")
_IBAN = re.compile(r"[A-Z]{2}\d{2}[ ]?[A-Z0-9](?:[A-Z0-9 ]){10,38}")
_CARD = re.compile(r"\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{13,19}")
_PERSON = re.compile(r"[^\W\d_a-z][\w'’.\-]*(?:,? (?:[a-z]{2,3} )?[^\W\d_a-z][\w'’.\-]*){1,4}")
_WORD = re.compile(r"[^\W\d_a-z][\w'’\-]+")
_CODE = re.compile(r"(?=.*\d)[\w./:#-]+")
YEARS = (1500, 2200)  # running numbers within are years

_NUMBERED = r"(?:[ _.-]*(?:no|nr|num|number|nummer|id)s?)?$"
_NAMED_ID = re.compile(
    r"(?:^|[^a-z])(?:ids?|uuid|guid|key|index|idx|nr|no|num|code|serial|unnamed: ?0|rownames?)$|^id(?:[^a-z]|$)"
)
_NAMED_TIME = re.compile(r"year|jahr|month|week|(?:^|[^a-z])(?:days?|time|date|hours?|minutes?|seconds?|age|t)(?:[^a-z]|$)")
_NAMED_PHONE = re.compile(r"phone|mobile|fax|telefon|(?:^|[^a-z])tel(?:[^a-z]|$)|handy")
_NAMED_ACCOUNT = re.compile(rf"iban|(?:account|acct|konto|card|passport|tax|steuer){_NUMBERED}|ssn|social.?sec")
_NAMED_PERSON = re.compile(
    r"(?:^|[^a-z])(?:(?:first|last|full|sur|given|family|middle|nick|user|vor|nach|person|client|customer|patient|employee"
    r"|student|contact|owner)[ _.-]?)?names?$|^(?:person|patient|author)$"
)


def lower_name(name: str) -> str:
    """`customerId` and `Customer ID` as `customer id`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower().strip()


def _share(pattern: re.Pattern[str], texts: list[str]) -> float:
    return sum(pattern.fullmatch(text) is not None for text in texts) / len(texts)


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _luhn(text: str) -> bool:
    """The check digit of card numbers."""
    digits = [int(one) for one in reversed(_digits(text))]
    return sum(digits[::2]) % 10 == -sum(sum(divmod(2 * one, 10)) for one in digits[1::2]) % 10


def _mod97(text: str) -> bool:
    """The check digits of an IBAN."""
    text = text.replace(" ", "")
    return int("".join(str(int(one, 36)) for one in text[4:] + text[:4])) % 97 == 1


def _checked(pattern: re.Pattern[str], check: Callable[[str], bool], texts: list[str]) -> bool:
    some = texts[:1000]
    if _share(pattern, some) < MOST:
        return False
    return bool(np.mean([check(text) for text in some if pattern.fullmatch(text)]) >= CHECKED)


def _is_phone(text: str) -> bool:
    """7 to 15 digits, with a sign of a telephone number: +, parentheses, or two separators."""
    marks = len(re.findall(r"[\s().\-/]+", text.strip()))
    if _DATED.match(text):
        return False
    return bool(_PHONE.fullmatch(text)) and 7 <= len(_digits(text)) <= 15 and (text[0] in "+(" or marks >= 2)


def private_form(values: Texts) -> str | None:
    """What a column holds whose every value is private by its form, however often it recurs."""
    texts, name = [text.strip() for text in values.distinct[:20_000]], lower_name(values.name)
    for pattern, what in ((_EMAIL, "e-mail addresses"), (_URL, "web addresses"), (_IP, "network addresses")):
        if _share(pattern, texts) >= MOST:
            return what
    if _checked(_IBAN, _mod97, texts) or (_share(_IBAN, texts) >= MOST and _NAMED_ACCOUNT.search(name)):
        return "account numbers"
    if len(texts) >= FEWEST and _checked(_CARD, _luhn, texts):
        return "card numbers"
    if _share(_CARD, texts) >= MOST and any(not text.isdigit() for text in texts):
        return "account numbers"
    long = np.mean([len(_digits(text)) >= 6 for text in texts]) >= MOST
    crowd = len(values.distinct) > max(NAMES, int((values.index >= 0).sum()) / 2)
    if long and _NAMED_ACCOUNT.search(name) and crowd:
        return "account numbers"
    if np.mean([_is_phone(text) for text in texts]) >= MOST or (long and _NAMED_PHONE.search(name)):
        return "telephone numbers"
    return None


def private_number(values: Texts) -> str | None:
    """The same of whole numbers: what they are named or checked by, and digits in threes that are always as many."""
    lengths = {len(_digits(text)) for text in values.distinct}
    if not all(re.fullmatch(r"\d[\d\s]*", text) for text in values.distinct) or min(lengths) < 6:
        return None
    if any(not text.isdigit() for text in values.distinct):
        return "telephone numbers" if len(lengths) == 1 and min(lengths) >= 9 else None
    return private_form(values)


def private_words(values: Texts, most: int) -> tuple[str, str] | None:
    """Kind and description of a column of words that is no category; `most`: categories that a column may have."""
    words, rows = values.distinct, int((values.index >= 0).sum())
    some = [word.strip() for word in words[:20_000]]
    if len(words) > NAMES and _NAMED_PERSON.search(lower_name(values.name)) and _is_name(some):
        return "private", "names"
    crowd = len(words) > max(NAMES, rows / 2)
    if not crowd and len(words) <= most:
        return None
    what = f"{len(words):,} distinct values in {rows:,} rows"
    if _share(_CODE, some) >= 1 and len(set(map(len, some))) <= 6:
        return "identifier", f"identifiers, {what}"
    if _is_name(some):
        return "private", f"names, {what}"
    return "text", f"free text, {what}" if crowd else f"texts, {what}"


def _is_name(words: list[str]) -> bool:
    return _share(_PERSON, words) >= MOST or _share(_WORD, words) >= MOST


def running(values: Texts) -> str | None:
    """Whole numbers, all distinct, that are identifiers: a sequence without gaps, or numbers of a column named so."""
    own = values.index[values.index >= 0]
    if len(values.distinct) != len(own) or len(own) < FEWEST or not all(re.fullmatch(r"\d+", t) for t in values.distinct):
        return None
    numbers = [int(text) for text in values.distinct]
    first, last = min(numbers), max(numbers)
    named = _NAMED_ID.search(lower_name(values.name)) is not None
    in_order = [numbers[i] for i in own]
    rising = in_order == sorted(in_order)
    whole = last - first + 1 == len(numbers)
    time = (YEARS[0] <= first and last <= YEARS[1]) or _NAMED_TIME.search(lower_name(values.name))
    if whole and not time and (rising or named or first in (0, 1)) and (len(own) >= NAMES or rising):
        return f"running numbers {first} ... {last}"
    if named and len(own) > NAMES and (rising or len(str(first)) == len(str(last)) >= 4):
        return f"identifiers, {len(numbers):,} distinct numbers"
    return None
