"""Sequences that an automaton accepts.

An automaton has states, a start, a table next[state, category] and states that accept (-1: there is no way on).  The
probability of a word (`languages`) is

    h = f_L . accept,     f_0 = start,     f_l(s') = sum over (s, v) with next[s, v] = s' of f_{l-1}(s) theta_l(v),

and with b the same from the other end, that after v is put at l

    h^{l=v}  =  sum_s f_{l-1}(s) b_l(next[s, v]) .

So one pass over the sequence, of S K products for each position, gives h and the tilt of every position.

    regular(pattern, alphabet)     by a regular expression (needs the package interegular)
    Automaton(next, accept)        by a table of one's own
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unnoise.guidance.languages import Language, log_or_zero
from unnoise.guidance.machines import spelled
from unnoise.laws import LOG_ZERO, TINY
from unnoise.shapes import Bool, Int

AT_ONCE = 2**25  # numbers that are held at a time for a part of the rows


class Automaton(Language):
    """`Automaton(next, accept, start=0, leaf=())`: next [states, categories] of state numbers or -1, accept [states]."""

    def __init__(self, next: Any, accept: Any, start: int = 0, leaf: str | tuple[str, ...] = ()):
        super().__init__(leaf)
        self.next, self.accept = torch.as_tensor(next), torch.as_tensor(accept).bool()
        states = len(self.accept)
        if self.next.ndim != 2 or len(self.next) != states or self.next.dtype.is_floating_point:
            raise ValueError(
                f"next has shape {tuple(self.next.shape)}; expected [states, categories] for {states} states, whole"
            )
        if not bool(((self.next >= -1) & (self.next < states)).all()) or not 0 <= start < states:
            raise ValueError(f"next leads, or the automaton starts, outside of its {states} states (-1: no way on)")
        self.start, self.size = start, self.next.shape[1]
        self.table = torch.where(self.next < 0, states, self.next)  # one more state, from which nothing is accepted

    def reach(self, length: int) -> bool:
        here = {self.start}
        for _ in range(length):
            here = {int(to) for state in here for to in self.next[state].unique() if to >= 0}
        return any(bool(self.accept[state]) for state in here)

    def has(self, x: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch"]:
        table = torch.cat([self.table, torch.full((1, self.size), len(self.accept))]).to(x.device)
        state = torch.full((len(x),), self.start, device=x.device)
        for place in range(x.shape[1]):
            state = table[state, x[:, place]]
        return torch.cat([self.accept, torch.zeros(1, dtype=torch.bool)]).to(x.device)[state]

    def messages(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        table, accept = self.table.to(theta.device), self.accept.to(theta.device)
        at_once = max(1, AT_ONCE // (len(accept) * (theta.shape[1] + 2 * self.size)))
        parts = [messages(part, table, accept, self.start) for part in theta.split(at_once)]
        return torch.cat([log_h for log_h, _ in parts]), torch.cat([by for _, by in parts])


def messages(theta: Tensor, table: Tensor, accept: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """(log h [batch], log h^{l=v} - log h [batch, length, size]) of factorised laws theta; scales are kept apart."""
    rows, length, size = theta.shape
    states = len(accept)
    here = torch.nn.functional.one_hot(torch.tensor(start, device=theta.device), states).to(theta).expand(rows, -1)
    forward, log_h = [], theta.new_zeros(rows)
    for place in range(length):
        forward.append(here)
        flow = here.unsqueeze(2) * theta[:, place].unsqueeze(1)  # [rows, states, size]
        here = theta.new_zeros(rows, states + 1).index_add_(1, table.flatten(), flow.flatten(1))[:, :states]
        scale = here.sum(1, keepdim=True)
        here, log_h = here / scale.clamp_min(TINY), log_h + log_or_zero(scale.squeeze(1))
    log_h = log_h + log_or_zero((here * accept.to(theta)).sum(1))
    back, by = accept.to(theta).expand(rows, -1), []
    for place in reversed(range(length)):
        after = torch.cat([back, back.new_zeros(rows, 1)], 1)[:, table.flatten()].reshape(rows, states, size)
        put = (forward[place].unsqueeze(2) * after).sum(1)  # h^{l=v} up to a factor of the row and place
        by.append(relative(put, theta[:, place]))
        back = (after * theta[:, place].unsqueeze(1)).sum(2)
        back = back / back.amax(1, keepdim=True).clamp_min(TINY)
    return log_h, torch.stack(by[::-1], 1)


def relative(put: Tensor, theta: Tensor) -> Tensor:
    """log h^{l=v} - log h by h^{l=v} up to factors of rows and places."""
    whole = (put * theta).sum(-1, keepdim=True).clamp_min(TINY)
    return torch.where(put > 0, (put / whole).clamp_min(TINY).log(), LOG_ZERO)


def regular(pattern: str, alphabet: Sequence[str], leaf: str | tuple[str, ...] = (), end: int | None = None) -> Automaton:
    """The whole sequence matches a regular expression, `.` being any symbol; category i stands for alphabet[i], one or more
    characters.  Category `end` closes what is written; what follows it is not read."""
    words = ["" if v == end else word for v, word in enumerate(alphabet)]
    if not any(words):
        raise ValueError("the alphabet is empty: name what the categories stand for, such as 'ACGT'")
    next, accept = spelled(pattern, words, "regular expressions")
    if not any(accept):
        raise ValueError(
            f"the regular expression {pattern!r} matches nothing that is written in {shortened(list(filter(None, words)))}"
        )
    return Automaton(*(ended(next, accept, end) if end is not None else (next, accept)), leaf=leaf)


def shortened(alphabet: Sequence[str]) -> str:
    """The first of its symbols."""
    return ", ".join(map(repr, alphabet[:8])) + (f" ... ({len(alphabet)} symbols)" if len(alphabet) > 8 else "")


def ended(next: list[list[int]], accept: list[bool], end: int) -> tuple[list[list[int]], list[bool]]:
    """The table with a category that leads from states that accept to one more, which all others leave as it is."""
    closed = len(next)
    for row, yes in zip(next, accept, strict=True):
        row[end] = closed if yes else -1
    return [*next, [closed] * len(next[0])], [*accept, True]
