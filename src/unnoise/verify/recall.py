"""An oracle that remembers: what it was asked before, by another kind or another wrong network, is not worked out again.

The exact expectations of one subject visit the same states at the same times once for every kind, every cut-off and every
wrong network, and the oracle's answer is by far the dearest part of each.  An answer is found again by a fingerprint of the
question and used only where states and times are equal, so that every number stays what it was.
"""

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.oracles import Oracle
from unnoise.predictions import Prediction
from unnoise.shapes import Clock, Float, Tree
from unnoise.tree import leaves

NUMBERS = 30_000_000  # entries of the questions that are kept: 240 MB, and about as much for the answers


class Memo:
    """Questions and answers, the oldest forgotten first."""

    def __init__(self) -> None:
        self.kept: dict[tuple, list[tuple[list[Tensor], Any]]] = {}
        self.size = 0

    def of(self, name: str, x: Tree, t: Clock, answer: Callable[[], Any]) -> Any:
        """The answer to a question that was asked before, else the answer now."""
        asked = [torch.as_tensor(part) for part in (*leaves(x), *leaves(t))]
        if any(part.requires_grad for part in asked):
            return answer()
        key = (name, *((tuple(part.shape), part.dtype, float(part.sum())) for part in asked))
        for before, told in self.kept.get(key, []):
            if all(torch.equal(a, b) for a, b in zip(asked, before, strict=True)):
                return told
        told = answer()
        self.kept.setdefault(key, []).append((asked, told))
        self.size += _size(asked)
        while self.size > NUMBERS and len(self.kept) > 1:
            oldest = self.kept.pop(next(iter(self.kept)))
            self.size -= sum(_size(before) for before, _ in oldest)
        return told


def _size(asked: list[Tensor]) -> int:
    return sum(part.numel() for part in asked)


class Recalled(Oracle):
    """Another oracle's answers, each worked out once."""

    def __init__(self, oracle: Oracle):
        super().__init__(oracle.process, oracle.kinds, oracle.kernel)
        self.oracle, self.memo = oracle, Memo()

    def native(self, x_t: Tree, t: Clock) -> Prediction:
        return copy(self.memo.of("native", x_t, t, lambda: self.oracle.native(x_t, t)))  # some set what it is made of

    def log_prob(self, x0: Tree) -> Float[Tensor, "batch"]:
        return self.oracle.log_prob(x0)

    def log_marginal(self, x_t: Tree, t: Clock) -> Float[Tensor, "batch"]:
        return self.memo.of("log_marginal", x_t, t, lambda: self.oracle.log_marginal(x_t, t))

    def log_decode(self, x0: Tree, x_t: Tree, t: Clock) -> Float[Tensor, "batch"]:
        return self.memo.of("log_decode", {"x0": x0, "x_t": x_t}, t, lambda: self.oracle.log_decode(x0, x_t, t))

    def draw(self, noise: NoiseSource) -> Tree:
        return self.oracle.draw(noise)
