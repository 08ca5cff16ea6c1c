"""Sequences that an automaton accepts, as a factor with exact weights under masking.

An automaton has states, a start, a table next[state, category] and states that accept (-1: there is no way on).  For a
factorised law theta_l(v) of what is masked, with known categories as point masses, the probability to be accepted is

    h = f_L . accept,     f_0 = start,     f_l(s') = sum over (s, v) with next[s, v] = s' of f_{l-1}(s) theta_l(v),

and with b the same from the other end, that after v is put at l

    h^{l=v}  =  sum_s f_{l-1}(s) b_l(next[s, v]) .

So one pass over the sequence, of S K products for each position, gives h and the tilt of every position: proposals draw
v in proportion to theta_l(v) h^{l=v}, and the weight of a step is the ratio of h by the next call of the network to what
this call expected.  One at a time these weights are exact (`samplers.Particles`); what has no accepted completion is never
proposed.

    regular(pattern, alphabet)     by a regular expression (needs the package interegular)
    Automaton(next, accept)        by a table of one's own
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unnoise.guidance.twists import Twist
from unnoise.laws import LOG_ZERO, TINY
from unnoise.predictions import Posterior, Prediction, ProductPrediction, tilt
from unnoise.processes import Process
from unnoise.shapes import Float, Int, Tree
from unnoise.tree import pick


class Automaton(Twist):
    """`Automaton(next, accept, start=0, leaf=())`: next [states, categories] of state numbers or -1, accept [states].

    `leaf` is the path of the sequence in a product, ("text",), or () for a process that is one leaf.
    """

    def __init__(self, next: Any, accept: Any, start: int = 0, leaf: str | tuple[str, ...] = ()):
        self.next, self.accept = torch.as_tensor(next), torch.as_tensor(accept).bool()
        states = len(self.accept)
        if self.next.ndim != 2 or len(self.next) != states or self.next.dtype.is_floating_point:
            raise ValueError(
                f"next has shape {tuple(self.next.shape)}; expected [states, categories] for {states} states, whole"
            )
        if not bool(((self.next >= -1) & (self.next < states)).all()) or not 0 <= start < states:
            raise ValueError(f"next leads, or the automaton starts, outside of its {states} states (-1: no way on)")
        self.start, self.leaf = start, (leaf,) if isinstance(leaf, str) else tuple(leaf)
        self.table = torch.where(self.next < 0, states, self.next)  # one more state, from which nothing is accepted

    def refuse(self, process: Process) -> str | None:
        own: Any = process
        for name in self.leaf:
            if name not in own.leaves:
                return f"there is no leaf {name!r} for the automaton; the leaves are {sorted(own.leaves)}"
            own = own.leaves[name]
        if own.leaves:
            return f"an automaton reads one sequence: name its leaf, leaf={sorted(own.leaves)[0]!r}"
        size, shape = getattr(own.space, "size", None), own.space.shape
        if size != self.next.shape[1] or len(shape) != 1:
            return f"the automaton reads {self.next.shape[1]} categories in a row, and {own.space} is something else"
        if not own.absorbing:
            return (
                f"an automaton leads what is masked, and {type(own).__name__} masks nothing: use a rule without a lead, "
                f"un.targets.restricted(model, automaton.accepts)"
            )
        return None if self.reach(shape[0]) else f"the automaton accepts no sequence of length {shape[0]}"

    def reach(self, length: int) -> bool:
        """Whether any sequence of this length is accepted."""
        here = {self.start}
        for _ in range(length):
            here = {int(to) for state in here for to in self.next[state].unique() if to >= 0}
        return any(bool(self.accept[state]) for state in here)

    def accepts(self, x0: Tree) -> Tensor:
        """Of each row."""
        x0 = pick(x0, self.leaf)
        table = torch.cat([self.table, torch.full((1, self.table.shape[1]), len(self.accept))]).to(x0.device)
        state = torch.full((len(x0),), self.start, device=x0.device)
        for place in range(x0.shape[1]):
            state = table[state, x0[:, place]]
        return torch.cat([self.accept, torch.zeros(1, dtype=torch.bool)]).to(x0.device)[state]

    def at_the_end(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"]:
        return torch.where(self.accepts(x0), 0.0, -torch.inf).double()

    def on_the_way(self, prediction: Prediction) -> tuple[Float[Tensor, "batch"] | None, Prediction]:
        return self._leaf(prediction, self.leaf)

    def _leaf(self, prediction: Prediction, path: tuple[str, ...]) -> tuple[Tensor, Prediction]:
        if not path:
            return self._led(prediction)
        whole: Any = prediction.by_leaf()
        log_h, led = self._leaf(whole.leaves[path[0]], path[1:])
        leaves = {**whole.leaves, path[0]: led}
        return log_h, ProductPrediction(leaves, whole.process, whole.x_t, whole.t)

    def _led(self, prediction: Any) -> tuple[Tensor, Prediction]:
        law = prediction.to(Posterior)
        theta = self.theta(law.x_t, law.logits.double().softmax(-1))
        log_h, by = messages(theta, self.table.to(theta.device), self.accept.to(theta.device), self.start)
        return log_h, tilt(law, by.to(law.logits.dtype))

    def theta(self, x: Int[Tensor, "batch length"], law: Float[Tensor, "batch length size"]) -> Tensor:
        """The law of what is masked, point masses of what is known."""
        size = law.shape[-1]
        known = (x < size).unsqueeze(-1)
        return torch.where(known, torch.nn.functional.one_hot(x.clamp_max(size - 1), size).to(law.dtype), law)


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
        whole = (put * theta[:, place]).sum(1, keepdim=True).clamp_min(TINY)
        by.append(torch.where(put > 0, (put / whole).clamp_min(TINY).log(), LOG_ZERO))
        back = (after * theta[:, place].unsqueeze(1)).sum(2)
        back = back / back.amax(1, keepdim=True).clamp_min(TINY)
    return log_h, torch.stack(by[::-1], 1)


def log_or_zero(x: Tensor) -> Tensor:
    """log x, -inf where it is 0."""
    return torch.where(x > 0, x.clamp_min(TINY).log(), -torch.inf)


def regular(pattern: str, alphabet: Sequence[str], leaf: str | tuple[str, ...] = ()) -> Automaton:
    """The whole sequence matches a regular expression; category i stands for alphabet[i], one or more characters."""
    try:
        import interegular
    except ImportError as error:
        raise ImportError("regular expressions need the package interegular: pip install 'unnoise[all]'") from error
    try:
        machine = interegular.parse_pattern(pattern).to_fsm()
    except Exception as error:
        raise ValueError(f"the regular expression {pattern!r} cannot be read: {error}") from error
    numbers = {
        state: i for i, state in enumerate(sorted(machine.states, key=lambda state: (state != machine.initial, state)))
    }
    next = [[_walked(machine, state, word, numbers) for word in alphabet] for state in numbers]
    return Automaton(next, [state in machine.finals for state in numbers], leaf=leaf)


def _walked(machine: Any, state: Any, word: str, numbers: dict[Any, int]) -> int:
    """Where a category's characters lead; -1: nowhere."""
    if not word:
        return -1
    for character in word:
        known = machine.map.get(state, {})
        symbol = machine.alphabet[character]
        if symbol not in known:
            return -1
        state = known[symbol]
    return numbers[state]
