"""The same denoiser without what is known: the other side of guidance towards columns that were never conditions.

A model of p(x, y) whose y is masked, or may stand at time 0, knows both laws of the rest: with y in its place its
predictions are those given y, and with y hidden those of the rest alone.  Hidden is

    coordinates of a masked leaf   MASK, of which nothing else is asked: they are as if not revealed yet
    other leaves, as a whole       at t = 1, by one draw of the noise for all rows and times: where alpha = 0 the law of the
                                   rest does not depend on x_1

Predictions are then read at the state that was asked about: those of a masked leaf's other coordinates as they are, for the
logits of masking depend on the state through the network alone, those of hidden leaves as they would be with y.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser, Query
from unnoise.noise import NoiseSource
from unnoise.predictions import Posterior, Prediction, ProductPrediction
from unnoise.processes import Process
from unnoise.shapes import AnyState, Tree
from unnoise.tree import batch_size


class Hidden:
    """`Hidden(process, {"sex": fixed})`: which coordinates of each leaf are known, each of the shape of one row."""

    def __init__(self, process: Process, fixed: Mapping[str, Tensor]):
        self.process, self.fixed = process.base, dict(fixed)
        unknown_names = sorted(set(self.fixed) - set(process.base.leaves))
        if unknown_names:
            raise ValueError(f"hidden names {unknown_names}; the leaves are {sorted(process.base.leaves)}")
        for name, which in self.fixed.items():
            leaf = process.base.leaves[name]
            if not leaf.absorbing and not bool(which.all()):
                raise ValueError(f"only a part of the leaf {name!r} is known: one that is not masked is hidden as a whole")

    @property
    def _held(self) -> list[str]:
        return [name for name in self.fixed if not self.process.leaves[name].absorbing]

    def query(self, x_t: AnyState, t: Any, condition: Mapping[str, Any]) -> Query:
        """What is asked without what is known."""
        states: dict[str, Any] = dict(x_t)
        for name, which in self.fixed.items():
            leaf: Any = self.process.leaves[name]
            own: Any = x_t[name]
            if leaf.absorbing:
                states[name] = torch.where(which.to(own.device), leaf.mask, own)
            else:
                same = NoiseSource(0, torch.zeros(len(own), dtype=torch.int64), own.device).at("hidden", name)
                states[name] = leaf.prior(len(own), own.dtype, own.device).draw(same).to(own)
        held, rows = self._held, batch_size(x_t)
        if not held:
            return states, t, condition
        clock = t if isinstance(t, dict) else dict.fromkeys(x_t, t)
        ones = torch.ones(rows, dtype=torch.float64, device=states[held[0]].device)
        return states, {name: ones if name in held else clock[name] for name in x_t}, condition

    def at(self, prediction: Prediction, like: Prediction) -> Prediction:
        """The prediction that was made without it, at the state of the other."""
        whole, other = prediction.by_leaf(), like.by_leaf()
        assert isinstance(whole, ProductPrediction) and isinstance(other, ProductPrediction)
        found: dict[str, Prediction] = {}
        for name, leaf in whole.leaves.items():
            if name not in self.fixed:
                found[name] = leaf
            elif self.process.leaves[name].absorbing:
                found[name] = _seen_from(leaf.to(Posterior), other.leaves[name].x_t)
            else:
                found[name] = other.leaves[name]
        return ProductPrediction(found, other.process, other.x_t, other.t)


class WithoutKnown(AnyDenoiser):
    """A denoiser that is not shown what is known; at what is hidden it says what it would say if it were shown."""

    def __init__(self, denoiser: AnyDenoiser, hidden: Hidden):
        super().__init__()
        self.denoiser, self.process, self.hidden = denoiser, denoiser.process, hidden

    @property
    def passes(self) -> int:
        return 2 * self.denoiser.passes

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Prediction:
        like, prediction = self.denoiser.together([(x_t, t, condition), self.hidden.query(x_t, t, condition)])
        return self.hidden.at(prediction, like)


def _seen_from(posterior: Posterior, x_t: Tree) -> Posterior:
    own: Any = copy(posterior)
    own.x_t = x_t
    return own
