"""Regular expressions as tables of states, by categories.

`interegular` reads the expression and makes a deterministic automaton of characters.  A category is one or more of them, and
leads from a state along all of them; states that no category can tell apart are then one.

Two steps of the package are replaced.  It looks states up in a list, which takes the square of their number: here they are
looked up in a dictionary, and counted, for an automaton may have 2^n states for an expression of n symbols (`.*A.{30}`
remembers which of the last 31 symbols were A).  And it finds the fewest states by reversing the automaton twice, which may
take as many on the way even where the end is small (`.{30}A.*` reversed is the expression above).  Here they are found
by splitting (Moore): classes of states, at first those that accept and those that do not, are split by the classes that
their categories lead to, until nothing splits.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor

LARGEST = 20_000  # states, of the expression or of a part of it
OTHERS = Lock()  # the replaced function is the package's, one for all threads


class _TooLarge(Exception):
    pass


def spelled(pattern: str, words: Sequence[str], what: str) -> tuple[list[list[int]], list[bool]]:
    """(next [states, categories], accept [states]) of a regular expression, `.` being any character; the first state is the
    start, -1 leads nowhere, and an empty word is no category.
    """
    machine = _machine(pattern, what)
    found, next = {machine.initial: 0}, []
    for state in (order := [machine.initial]):  # grows on the way
        row = []
        for word in words:
            to = _walked(machine, state, word)
            if to is not None and to not in found:
                found[to] = len(order)
                order.append(to)
            row.append(-1 if to is None else found[to])
        next.append(row)
    return fewest(next, [state in machine.finals for state in order])


def _machine(pattern: str, what: str) -> Any:
    try:
        import interegular
    except ImportError as error:
        raise ImportError(f"{what} need the package interegular: pip install 'unnoise[all]'") from error
    try:
        read = interegular.parse_pattern(f"(?s:{pattern})")
        with _counted(interegular.fsm):
            return read.to_fsm()
    except _TooLarge:
        raise ValueError(
            f"the regular expression {pattern!r} has more than {LARGEST:,} states: give its gaps one length in place of a "
            f"range, shorten them, or let it begin with a fixed number of symbols"
        ) from None
    except Exception as error:
        why = str(error).strip().partition("\n")[0] or f"{type(error).__name__}; is a bracket open, or a repeat of nothing?"
        raise ValueError(f"the regular expression {pattern!r} cannot be read: {why}") from error


def _walked(machine: Any, state: Any, word: str) -> Any:
    """The state after the characters of a category; None: there is no way."""
    if not word:
        return None
    for character in word:
        state = machine.map.get(state, {}).get(machine.alphabet[character])
        if state is None:
            return None
    return state


@contextmanager
def _counted(package: Any) -> Iterator[None]:
    """While an expression is read, states are looked up by their hash, and too many of them are an error."""

    def crawl(alphabet: Any, initial: Any, final: Callable[..., bool], follow: Callable[..., Any]) -> Any:
        found, order = {_key(initial): 0}, [initial]
        map: dict[int, dict[Any, int]] = {}
        for i, state in enumerate(order):  # grows on the way
            map[i] = {}
            for transition in alphabet.by_transition:
                try:
                    to = follow(state, transition)
                except package.OblivionError:
                    continue
                if (key := _key(to)) not in found:
                    found[key] = len(order)
                    order.append(to)
                map[i][transition] = found[key]
            if len(order) > LARGEST:
                raise _TooLarge
        finals = {i for i, state in enumerate(order) if final(state)}
        return package.FSM(alphabet=alphabet, states=range(len(order)), initial=0, finals=finals, map=map)

    with OTHERS:
        kept, package.crawl = package.crawl, crawl
        try:
            yield
        finally:
            package.crawl = kept


def _key(state: Any) -> Any:
    """What the package takes for states: numbers, sets of pairs, dicts of numbers."""
    return frozenset(state.items()) if isinstance(state, dict) else frozenset(state) if isinstance(state, set) else state


def fewest(next: list[list[int]], accept: list[bool]) -> tuple[list[list[int]], list[bool]]:
    """The same words with the fewest states: those that no word tells apart are one, and what leads to no word is -1."""
    table, accepts = torch.tensor(next).reshape(len(accept), -1), torch.tensor([*accept, False])
    table = torch.where(table < 0, len(accept), table)
    table = torch.cat([table, torch.full_like(table[:1], len(accept))])  # the last one is nowhere
    found, of = 0, accepts.long()
    while found < (many := int(of.max()) + 1):
        found, of = many, _split(of, table)
    numbers = {int(of[-1]): -1}
    firsts: list[int] = []
    for state, own in enumerate(of.tolist()[:-1]):  # the start first
        if own not in numbers or (own == of[-1] and not firsts):
            numbers[own] = len(firsts)
            firsts.append(state)
    if numbers[int(of[-1])] == 0:  # nothing is accepted at all
        return [[-1] * table.shape[1]], [False]
    return [[numbers[to] for to in of[table[state]].tolist()] for state in firsts], [
        bool(accepts[state]) for state in firsts
    ]


def _split(of: Tensor, table: Tensor) -> Tensor:
    return torch.unique(torch.cat([of.unsqueeze(1), of[table]], 1), dim=0, return_inverse=True)[1]
