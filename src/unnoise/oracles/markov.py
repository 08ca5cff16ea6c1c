"""A Markov chain along the sequence: exact posteriors at any length, by forward-backward.

Data: x^1 ~ initial, x^{k+1} | x^k ~ transition[:, x^k] (row = destination).  Given x_t every coordinate contributes the
evidence e_k(a) = q(x_t^k | a), and

    left_1 = initial,    left_{k+1}(b) = sum_a transition[b, a] e_k(a) left_k(a)
    right_d = 1,         right_k(a)    = sum_b transition[b, a] e_{k+1}(b) right_{k+1}(b)

The leave-one-out posterior of coordinate k is left_k right_k, normalised: its own evidence never enters.
"""

import torch
from torch import Tensor

from unnoise.laws import draw_categories, log_of
from unnoise.noise import NoiseSource
from unnoise.oracles.base import Oracle
from unnoise.predictions import Kinds, Posterior, Prediction
from unnoise.processes import FiniteProcess
from unnoise.shapes import Clock, Float
from unnoise.spaces import Finite


class MarkovChain(Oracle):
    """`MarkovChain(process, initial [K], transition [K, K])` on a process with states of shape (length,)."""

    def __init__(self, process: FiniteProcess, initial: Tensor, transition: Tensor, predicts: Kinds = None):
        super().__init__(process, predicts)
        space = process.base.space
        if not isinstance(space, Finite) or len(space.shape) != 1:
            raise ValueError(f"a Markov chain runs along one axis of categories; the space is {space}")
        initial, transition = initial.double(), transition.double()
        if tuple(initial.shape) != (space.size,) or tuple(transition.shape) != (space.size, space.size):
            raise ValueError(
                f"initial has shape {tuple(initial.shape)} and transition {tuple(transition.shape)}; "
                f"{space.size} categories need ({space.size},) and ({space.size}, {space.size})"
            )
        for name, column in (("initial", initial), *((f"transition[:, {a}]", c) for a, c in enumerate(transition.T))):
            if not bool((column >= 0).all()) or abs(float(column.sum()) - 1) > 1e-6:
                raise ValueError(
                    f"{name} sums to {float(column.sum()):g} with least entry {float(column.min()):g}: each column is a law "
                    f"(row = destination), so divide it by its sum, or transpose the matrix"
                )
        self.length = space.shape[0]
        self.log_initial, self.log_transition = log_of(initial / initial.sum()), log_of(transition / transition.sum(0))

    @property
    def _base(self) -> FiniteProcess:
        return self.process.base  # type: ignore[return-value]  # its space was looked at when the oracle was made

    def _evidence(self, x_t: Tensor, t: Clock) -> Float[Tensor, "batch length size"]:
        process = self._base
        return process.log_evidence(x_t, None, process.times(t, x_t))[..., : process.space.size]

    def _left(self, evidence: Tensor) -> Float[Tensor, "batch length size"]:
        message, out = self.log_initial.expand(len(evidence), -1), []
        for k in range(self.length):
            out.append(message)
            message = (self.log_transition + (message + evidence[:, k]).unsqueeze(1)).logsumexp(-1)
        return torch.stack(out, 1)

    def _right(self, evidence: Tensor) -> Float[Tensor, "batch length size"]:
        message, out = torch.zeros_like(evidence[:, 0]), []
        for k in reversed(range(self.length)):
            out.append(message)
            message = (self.log_transition.T + (message + evidence[:, k]).unsqueeze(1)).logsumexp(-1)
        return torch.stack(out[::-1], 1)

    def native(self, x_t: Tensor, t: Clock) -> Prediction:
        evidence = self._evidence(x_t, t)
        log_theta = (self._left(evidence) + self._right(evidence)).log_softmax(-1)
        return Posterior(log_theta, self._base, x_t, t)

    def log_prob(self, x0: Tensor) -> Float[Tensor, "batch"]:
        steps = self.log_transition[x0[:, 1:], x0[:, :-1]].sum(-1)
        return self.log_initial[x0[:, 0]] + steps

    def log_marginal(self, x_t: Tensor, t: Clock) -> Float[Tensor, "batch"]:
        evidence = self._evidence(x_t, t)
        return (self._left(evidence)[:, -1] + evidence[:, -1]).logsumexp(-1)

    def draw(self, noise: NoiseSource) -> Tensor:
        rows = len(noise.rows)
        x = draw_categories(self.log_initial.expand(rows, -1), noise.at(0))
        out = [x]
        for k in range(1, self.length):
            x = draw_categories(self.log_transition.T[x], noise.at(k))
            out.append(x)
        return torch.stack(out, 1)
