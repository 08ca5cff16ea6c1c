"""Sequences that a context-free grammar derives.

A grammar is written as `lark` writes them.  Brought to rules A -> B C and A -> v, what derives a span of n places from i is
found from shorter ones (the inside algorithm),

    inside_n(i, A)  =  sum over A -> B C and k of  inside_k(i, B) inside_{n-k}(i + k, C),
    inside_1(i, A)  =  sum over A -> v of theta_i(v),

and h of a word (`languages`) is inside_L(0, start).  Its slope with respect to each place's law is that sum backwards, which
gives the tilts.  Both take L^3 / 6 products for each rule and row: for lengths up to some 64.  A word with several
derivations is counted several times, on the way alone.

Terminals are regular expressions; each is an automaton over categories, and its states are symbols of the grammar.  So a
category is not split between two terminals, which matters only where categories are of several characters.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from unnoise.guidance.automata import relative
from unnoise.guidance.languages import Language, log_or_zero
from unnoise.guidance.machines import spelled
from unnoise.laws import TINY
from unnoise.shapes import Bool, Int

Rules = set[tuple[str, tuple[str, ...]]]  # head and what it becomes
AT_ONCE = 2**25  # numbers of one row's products that are held at a time, over all rows


class Grammar(Language):
    """`Grammar(rules, words, start, size)`: rules (A, (B, C)), words (A, v) and the symbol that derives sequences.

    Category `end` closes what is written, and what follows it is not read; `empty` says whether nothing may be written at
    all.
    """

    def __init__(
        self,
        rules: Iterable[tuple[str, tuple[str, str]]],
        words: Iterable[tuple[str, int]],
        start: str,
        size: int,
        end: int | None = None,
        empty: bool = False,
        leaf: str | tuple[str, ...] = (),
    ):
        super().__init__(leaf)
        rules, words = _useful(sorted(set(rules)), sorted(set(words)), start)
        names = sorted({start, *(head for head, _ in rules), *(head for head, _ in words)})
        number = {name: i for i, name in enumerate(names)}
        self.size, self.end, self.empty, self.start = size, end, empty and end is not None, number[start]
        self.head = torch.tensor([number[head] for head, _ in rules], dtype=torch.int64)
        self.left = torch.tensor([number[left] for _, (left, _) in rules], dtype=torch.int64)
        self.right = torch.tensor([number[right] for _, (_, right) in rules], dtype=torch.int64)
        self.words = torch.zeros(len(names), size, dtype=torch.float64)
        for name, v in words:
            self.words[number[name], v] = float(v != end)

    def reach(self, length: int) -> bool:
        log_h, _ = self._inside(torch.full((1, length, self.size), 1 / self.size, dtype=torch.float64))
        return bool(log_h.isfinite())

    def has(self, x: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch"]:
        size = self._at_once(x.shape[1])
        parts = [torch.nn.functional.one_hot(part, self.size).double() for part in x.split(size)]
        found = [self._inside(part)[0].isfinite() for part in parts]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.bool, device=x.device)

    def messages(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        parts = [self._both(part) for part in theta.split(self._at_once(theta.shape[1]))]
        return torch.cat([log_h for log_h, _ in parts]), torch.cat([by for _, by in parts])

    def _at_once(self, length: int) -> int:
        return max(1, AT_ONCE // (length * length * max(1, len(self.head))))

    def _inside(self, theta: Tensor) -> tuple[Tensor, list[Tensor]]:
        """log h, and inside_n [batch, starts, symbols] for n = 1 ... L; laws are scaled by their largest entry."""
        top = theta.amax(-1, keepdim=True).clamp_min(TINY)
        theta, symbols = theta / top, len(self.words)
        spans = [torch.einsum("blv,av->bla", theta, self.words.to(theta))]
        for n in range(2, theta.shape[1] + 1):
            left, right = self._halves(spans, n)
            made = (left[..., self.left.to(left.device)] * right[..., self.right.to(left.device)]).sum(2)
            spans.append(made.new_zeros(*made.shape[:2], symbols).index_add_(2, self.head.to(made.device), made))
        whole = spans[-1][:, 0, self.start]
        if self.end is not None:
            whole = whole + self._closed(theta, self._written(spans))[-1]
        return log_or_zero(whole) + top.log().sum((1, 2)), spans

    def _halves(self, spans: list[Tensor], n: int) -> tuple[Tensor, Tensor]:
        """What stands left and right of each cut of the spans of n places: [batch, starts, cuts, symbols]."""
        starts = spans[0].shape[1] - n + 1
        left = torch.stack([spans[k - 1][:, :starts] for k in range(1, n)], 2)
        right = torch.stack([spans[n - k - 1][:, k : k + starts] for k in range(1, n)], 2)
        return left, right

    def _written(self, spans: list[Tensor]) -> list[Tensor]:
        """For l = 0 ... L, what the first l places are worth as a whole word."""
        return [torch.full_like(spans[0][:, 0, 0], float(self.empty)), *(span[:, 0, self.start] for span in spans)]

    def _closed(self, theta: Tensor, written: list[Tensor]) -> list[Tensor]:
        """For l = 0 ... L, the sum over m < l of a word of m places, END, and anything up to place l."""
        found, any_ = [torch.zeros_like(written[0])], theta.sum(-1)
        for place in range(theta.shape[1]):
            found.append(found[-1] * any_[:, place] + written[place] * theta[:, place, self.end])
        return found

    def _both(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        log_h, spans = self._inside(theta)
        slopes = [torch.zeros_like(span) for span in spans]
        slopes[-1][:, 0, self.start] = 1.0
        ends = None if self.end is None else self._ends(theta, spans, slopes)
        self._backwards(spans, slopes)
        put = torch.einsum("bla,av->blv", slopes[0], self.words.to(theta))
        return log_h, relative(put if ends is None else put + ends, theta)

    def _ends(self, theta: Tensor, spans: list[Tensor], slopes: list[Tensor]) -> Tensor:
        """What END adds to the slopes of words, and to those of the places' laws."""
        theta = theta / theta.amax(-1, keepdim=True).clamp_min(TINY)
        after = torch.cat([theta.sum(-1).flip(1).cumprod(1).flip(1)[:, 1:], torch.ones_like(theta[:, :1, 0])], 1)
        for n, slope in enumerate(slopes[:-1], 1):
            slope[:, 0, self.start] += theta[:, n, self.end] * after[:, n]
        written = self._written(spans)
        put = (torch.stack(self._closed(theta, written)[:-1], 1) * after).unsqueeze(-1).repeat(1, 1, self.size)
        put[..., self.end] += torch.stack(written[:-1], 1) * after
        return put

    def _backwards(self, spans: list[Tensor], slopes: list[Tensor]) -> None:
        """The slopes of shorter spans by those of longer ones."""
        device = spans[0].device
        here, there, head = self.left.to(device), self.right.to(device), self.head.to(device)
        for n in range(len(spans), 1, -1):
            left, right = self._halves(spans, n)
            above = slopes[n - 1][..., head].unsqueeze(2)
            to_left = torch.zeros_like(left).index_add_(3, here, above * right[..., there])
            to_right = torch.zeros_like(right).index_add_(3, there, above * left[..., here])
            starts = left.shape[1]
            for k in range(1, n):
                slopes[k - 1][:, :starts] += to_left[:, :, k - 1]
                slopes[n - k - 1][:, k : k + starts] += to_right[:, :, k - 1]


def grammar(
    text: str,
    alphabet: Sequence[str],
    leaf: str | tuple[str, ...] = (),
    end: int | None = None,
    start: str = "start",
) -> Grammar:
    """The whole sequence is derived from `start` by a grammar in the notation of lark; category i stands for alphabet[i].
    Category `end` closes what is written; what follows it is not read."""
    try:
        import lark
    except ImportError as error:
        raise ImportError("grammars need the package lark: pip install 'unnoise[all]'") from error
    try:
        read = lark.Lark(text, start=start, parser="earley", lexer="dynamic_complete", maybe_placeholders=False)
    except Exception as error:
        raise ValueError(f"the grammar cannot be read: {error}") from error
    words = [word if v != end else "" for v, word in enumerate(alphabet)]
    rules: Rules = set()
    for rule in read.rules:
        rules.add((f"rule {rule.origin.name}", tuple(_name(symbol, bool(read.ignore_tokens)) for symbol in rule.expansion)))
    places: set[tuple[str, int]] = set()
    for terminal in read.terminals:
        _spell(terminal.name, *spelled(terminal.pattern.to_regexp(), words, "grammars"), rules, places)
    for name in read.ignore_tokens:  # may stand before everything, and after each terminal
        rules |= {("between", (f"word {name}",)), ("between", (f"word {name}", "between"))}
    for terminal in read.terminals if read.ignore_tokens else []:
        word = f"word {terminal.name}"
        rules |= {(f"{word} and on", (word,)), (f"{word} and on", (word, "between"))}
    first = f"rule {start}"
    rules |= {("whole", (first,)), *([("whole", ("between", first))] if read.ignore_tokens else [])}
    pairs, singles, empty = _normal(rules, places, "whole")
    return Grammar(pairs, singles, "whole", len(alphabet), end, empty, leaf)


def _name(symbol: Any, ignores: bool) -> str:
    if not symbol.is_term:
        return f"rule {symbol.name}"
    return f"word {symbol.name} and on" if ignores else f"word {symbol.name}"


def _spell(name: str, next: list[list[int]], accept: list[bool], rules: Rules, places: set[tuple[str, int]]) -> None:
    """A terminal's automaton as rules: a state is what leads from it to an accepting one, a step a class of categories."""

    def of(state: int) -> str:
        return f"word {name}" + (f" {state}" if state else "")

    for state, row in enumerate(next):
        for v, to in enumerate(row):
            if to < 0:
                continue
            step = f"{of(state)} to {to}"
            places.add((step, v))
            rules.add((of(state), (step, of(to))))
            if accept[to]:
                places.add((of(state), v))
    if accept[0]:
        rules.add((of(0), ()))


def _normal(
    rules: Rules, places: set[tuple[str, int]], start: str
) -> tuple[set[tuple[str, tuple[str, str]]], set[tuple[str, int]], bool]:
    """Rules of two symbols and of one category that derive the same words but the empty one, and whether that is derived."""
    short: Rules = set()
    for head, body in rules:
        while len(body) > 2:
            rest = "then " + " . ".join(body[1:])
            short.add((head, (body[0], rest)))
            head, body = rest, body[1:]
        short.add((head, body))
    nothing = _closed({head for head, body in short if not body}, short)
    units: dict[str, set[str]] = {}
    for head, body in short:
        alone = [*body] if len(body) == 1 else [body[1 - i] for i in range(len(body)) if body[i] in nothing]
        units.setdefault(head, set()).update(symbol for symbol in alone if symbol != head)
    pairs = {(head, body) for head, body in short if len(body) == 2}
    heads = {head for head, _ in short} | {head for head, _ in places}
    found_pairs, found_places = set(pairs), set(places)
    of_pairs, of_places = _grouped(pairs), _grouped(places)
    for head in heads:
        for other in _reached(head, units) - {head}:
            found_pairs |= {(head, body) for body in of_pairs.get(other, ())}
            found_places |= {(head, v) for v in of_places.get(other, ())}
    return found_pairs, found_places, start in nothing  # type: ignore[return-value]


def _closed(known: set[str], rules: Rules) -> set[str]:
    """All heads of rules that become known symbols alone."""
    while True:
        more = {head for head, body in rules if head not in known and all(symbol in known for symbol in body)}
        if not more:
            return known
        known = known | more


def _reached(head: str, units: dict[str, set[str]]) -> set[str]:
    found, open_ = {head}, [head]
    while open_:
        for symbol in units.get(open_.pop(), ()):
            if symbol not in found:
                found.add(symbol)
                open_.append(symbol)
    return found


def _grouped(pairs: Iterable[tuple[str, Any]]) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {}
    for head, body in pairs:
        found.setdefault(head, set()).add(body)
    return found


def _useful(
    rules: list[tuple[str, tuple[str, str]]], words: list[tuple[str, int]], start: str
) -> tuple[list[tuple[str, tuple[str, str]]], list[tuple[str, int]]]:
    """What derives words and is reached from the start."""
    ends = _closed({head for head, _ in words}, set(rules))
    rules = [(head, body) for head, body in rules if all(symbol in ends for symbol in body)]
    below = _grouped(rules)
    units = {head: {symbol for body in bodies for symbol in body} for head, bodies in below.items()}
    reached = _reached(start, units)
    return [rule for rule in rules if rule[0] in reached], [word for word in words if word[0] in reached]
