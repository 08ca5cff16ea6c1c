"""A Markov model with back-off: the best a table of counts can say of a sequence, a baseline for sequences of any kind.

With c(s a) the number of times that symbol a follows context s of length k in the training rows, and c(s) their sum over a,

    p_k(a | s) = (c(s a) + m_k p_{k-1}(a | s without its first symbol)) / (c(s) + m_k),      p_{-1} = 1/size.

Where a context is rare, or was never seen, the shorter one speaks.  The strengths m_k and the order are chosen on held-out
rows, one order after the other, until a longer context helps no more.  The first symbols of a row have the context there is.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from unnoise.shapes import Float, Int

STRENGTHS = tuple(2.0**i for i in range(-2, 11))
LARGEST = 2**62  # codes of contexts are 64-bit integers


@dataclass
class SymbolCounts:
    """How often each word of k + 1 symbols and each context of k occurs, by the codes that do."""

    words: Int[Tensor, "words"]
    word_counts: Float[Tensor, "words"]
    contexts: Int[Tensor, "contexts"]
    context_counts: Float[Tensor, "contexts"]

    @classmethod
    def of(cls, x: Int[Tensor, "rows length"], k: int, size: int) -> "SymbolCounts":
        words, n = codes(x, k, size).flatten().unique(return_counts=True)
        contexts, which = (words // size).unique(return_inverse=True)
        totals = torch.zeros(len(contexts), dtype=torch.float64).index_add(0, which, n.double())
        return cls(words, n.double(), contexts, totals)

    def sharpened(self, p: Float[Tensor, "rows length"], code: Int[Tensor, "rows places"], size: int, m: float) -> Tensor:
        """p_k from p_{k-1} at the places whose context is long enough; the places before them keep theirs."""
        places = code.shape[1]
        early, p = p[:, : p.shape[1] - places], p[:, p.shape[1] - places :]
        c, n = _found(self.words, self.word_counts, code), _found(self.contexts, self.context_counts, code // size)
        return torch.cat([early, (c + m * p) / (n + m)], 1)


def codes(x: Int[Tensor, "rows length"], k: int, size: int) -> Int[Tensor, "rows places"]:
    """One number for each word of k + 1 symbols in a row, its last symbol the lowest digit."""
    if size ** (k + 1) >= LARGEST:
        raise ValueError(f"words of {k + 1} among {size} symbols have no 64-bit code: choose a lower order")
    places = max(0, x.shape[1] - k)
    code = torch.zeros(x.shape[0], places, dtype=torch.int64)
    for j in range(k + 1):
        code = code * size + x[:, j : j + places]
    return code


def _found(keys: Tensor, values: Tensor, wanted: Tensor) -> Tensor:
    """The value of each key that is there, else 0."""
    place = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    return torch.where(keys[place] == wanted, values[place], 0.0)


@dataclass
class Markov:
    size: int
    counts: list[SymbolCounts] = field(default_factory=list)
    strengths: list[float] = field(default_factory=list)

    @property
    def order(self) -> int:
        return len(self.counts) - 1

    def log_prob(self, x: Int[Tensor, "rows length"]) -> Float[Tensor, "rows"]:
        """log p(x) in nats, exact."""
        p = torch.full(x.shape, 1 / self.size, dtype=torch.float64)
        for k, (counts, m) in enumerate(zip(self.counts, self.strengths, strict=True)):
            p = counts.sharpened(p, codes(x, k, self.size), self.size, m)
        return p.log().sum(1)


def fit_markov(train: Int[Tensor, "rows length"], held: Int[Tensor, "held length"], size: int, highest: int = 16) -> Markov:
    """The order and strengths that make the held-out rows likeliest, chosen greedily."""
    model, p = Markov(size), torch.full(held.shape, 1 / size, dtype=torch.float64)
    for k in range(min(highest, train.shape[1] - 1) + 1):
        if size ** (k + 1) >= LARGEST:
            break
        counts, code = SymbolCounts.of(train, k, size), codes(held, k, size)
        tried = [(counts.sharpened(p, code, size, m), m) for m in STRENGTHS]
        better, m = max(tried, key=lambda pair: float(pair[0].log().sum()))
        if k and float(better.log().sum()) <= float(p.log().sum()):
            break
        model.counts.append(counts)
        model.strengths.append(m)
        p = better
    return model
