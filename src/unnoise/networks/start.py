"""What a network starts from: the best linear denoiser of the numbers given the labels, and the labels given the numbers.

A law of few parameters is fitted to the rows in no time (`linear_law`): the numbers z of all leaves together are

    z = m + sum_j B_j[label_j] + e,      e ~ N(0, S),

so where the labels K are masked, z has the mean m + sum over the others and the covariance C = S + sum_K V_j, with V_j the
covariance of B_j over its labels.  x_t = alpha z + sigma eps and v = alpha eps - sigma z are a turn of (z, eps), each number
by its own angle, since each leaf has its own time.  So log p(v | x_t) is a quadratic with the precision and the mean

    M = R (sigma C^-1 sigma + alpha^2) R,      v_0 = M^-1 R (sigma C^-1 (alpha R x_t - mean) - alpha sigma R x_t),

R = 1/(alpha^2 + sigma^2); nothing is divided by a sigma, and a leaf at time 0, which is known, drops out by itself.  With
M = L L^T the answer of a network f is read as

    v = v_0 + L^-T f,      logits = log P(label_j | x_t, labels revealed) + f :

what f has to find has variance 1 in every direction, however close to each other the numbers lie, and a network that answers
nothing leaves the samples of the fitted law.  A masked label a shifts the mean by B_j[a], and V_j is no noise any more: with
g = C^-1 (E[z | x_t] - mean), A = C^-1 - C^-1 Cov(z | x_t) C^-1 and r = min(labels - 1, numbers)

    log P(a | x_t) = log P(a | labels revealed) + sure_j (B_j[a] g - B_j[a] A B_j[a] / 2) / (1 - E[B_j A B_j] / r) + const,

with the law of the labels among themselves (`label_law`): Bayes' rule for two labels where sure_j = 1, and for more where
their effects spread alike in all directions.  sure_j <= 1 is what makes the labels of rows left out likeliest: numbers that
are not normal are no reason to be certain.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.checks import leaf_time
from unnoise.networks.linear_law import LinearLaw
from unnoise.processes import FiniteProcess, Gaussian, Process
from unnoise.shapes import AnyState, Float, Int, Tree

LEAST = 1e-3  # of the share of the spread that a label's own effects leave


class LinearStart(nn.Module):
    """`start(output, x_t, t)`: the output of a network on top of the law; for velocities and logits."""

    mean: Tensor
    covariance: Tensor
    precision: Tensor
    effects: Tensor
    spread: Tensor
    offset: Tensor
    log_shares: Tensor
    log_weights: Tensor
    told: Tensor
    given: Tensor
    known: Tensor
    rank: Tensor
    sure: Tensor

    def __init__(self, process: Process, law: LinearLaw):
        super().__init__()
        leaves = process.base.leaves or {"": process.base}
        self.process = process  # a part, as that of a denoiser is: its schedule may be learned
        self.numbers = [name for name, leaf in leaves.items() if isinstance(leaf, Gaussian)]
        self.labels = [name for name, leaf in leaves.items() if isinstance(leaf, FiniteProcess)]
        self.label_sizes = [(name, leaves[name].space.size) for name in self.labels]  # type: ignore[attr-defined]
        self.widths = [leaves[name].space.dimension for name in self.numbers]  # type: ignore[attr-defined]
        law.check(sum(self.widths), [size for name in self.labels for size in leaves[name].space.coordinate_sizes])  # type: ignore
        size, count = max(law.sizes, default=0), len(law.sizes)
        effects = torch.zeros(count, size + 1, len(law.mean), dtype=torch.float64)  # the last: masked
        shares = torch.zeros(count, size, dtype=torch.float64)
        for j, (own, log_share) in enumerate(zip(law.effect_parts(), law.share_parts(), strict=True)):
            effects[j, : len(own)], shares[j, : len(own)] = own, log_share
        classes = law.label_law()
        told = torch.zeros(count, size + 1, len(classes.log_weights), dtype=torch.float64)  # the last: masked, says nothing
        for j, own in enumerate(classes.log_given.split(list(law.sizes), 1) if count else ()):
            told[j, : own.shape[1]] = own.T
        tensors = {"mean": law.mean, "covariance": law.covariance, "precision": torch.linalg.inv(law.covariance)}
        tensors |= {"effects": effects.flatten(0, 1), "spread": law.spreads(), "log_shares": shares}
        tensors |= {"log_weights": classes.log_weights, "told": told.flatten(0, 1), "given": told[:, :size].exp()}
        for name, value in tensors.items():
            self.register_buffer(name, value, persistent=False)
        known = torch.arange(size) < torch.tensor(law.sizes or [0]).unsqueeze(1)
        self.register_buffer("known", known[:count].double(), persistent=False)
        rank = [[max(1, min(own - 1, len(law.mean)))] for own in law.sizes]
        self.register_buffer("rank", torch.tensor(rank, dtype=torch.float64).reshape(count, 1), persistent=False)
        self.register_buffer("sure", law.sure.reshape(count, 1), persistent=False)
        self.register_buffer("offset", torch.arange(count) * (size + 1), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> "LinearStart":
        """Moved to a device, the law stays in float64."""
        super()._apply(lambda tensor: fn(tensor).to(tensor.dtype), recurse)
        return self

    def forward(self, output: Tree, x_t: AnyState, t: AnyState) -> Tree:
        answers: AnyState = output if isinstance(output, Mapping) else {"": output}
        states, result = x_t if isinstance(x_t, Mapping) else {"": x_t}, dict(answers)
        labels = self._labels(states) if self.labels else None
        logits = self._among_themselves(labels)
        if self.numbers:
            answer = torch.cat([answers[name].reshape(len(answers[name]), -1) for name in self.numbers], 1)
            value, evidence = self._denoised(answer.double(), states, labels, t)
            logits = logits + evidence
            for name, own in zip(self.numbers, value.split(self.widths, 1), strict=True):
                result[name] = own.reshape(answers[name].shape).to(torch.promote_types(answers[name].dtype, torch.float32))
        place = 0
        for name, size in self.label_sizes:
            answer, columns = answers[name], states[name][0].numel()
            own = logits[..., place : place + columns, :size].to(answer.dtype)
            result[name] = answer + own.reshape(*own.shape[:-2], *answer.shape[1:])
            place += columns
        return result if isinstance(output, Mapping) else result[""]

    def _labels(self, states: Mapping[str, Tensor]) -> Int[Tensor, "batch coordinates"]:
        """Of all leaves, a masked one being the last."""
        size = self.log_shares.shape[1]
        parts = [torch.where(states[n] >= own, size, states[n]) for n, own in self.label_sizes]
        return torch.cat([part.reshape(len(part), -1) for part in parts], 1)

    def _among_themselves(self, labels: Tensor | None) -> Float[Tensor, "*batch coordinates size"]:
        """log P(label | labels revealed) of every coordinate that is masked."""
        if labels is None or len(self.log_weights) == 1:
            return self.log_shares
        which = (self.log_weights + self.told[self.offset + labels].sum(1)).softmax(-1)
        return torch.einsum("bc,jac->bja", which, self.given).log()

    def _denoised(
        self, answer: Float[Tensor, "batch d"], states: Mapping[str, Tensor], labels: Tensor | None, t: AnyState
    ) -> tuple[Tensor, Tensor]:
        """The velocity of the numbers with the network's answer, and what they say of the labels without."""
        x = torch.cat([states[name].double().reshape(len(answer), -1) for name in self.numbers], 1)
        alpha, sigma = self._alpha_sigma(states, t)
        mean, precision = self._given(labels, len(x))
        turned = 1 / (alpha.square() + sigma.square())
        seen = turned * x
        pull = torch.einsum("bde,be->bd", precision, alpha * seen - mean)
        towards = turned * (sigma * pull - alpha * sigma * seen)
        scaled = turned * sigma
        half = scaled.unsqueeze(-1) * precision
        matrix = half * scaled.unsqueeze(-2) + torch.diag_embed((turned * alpha).square())
        factor, _ = torch.linalg.cholesky_ex(matrix)
        white = torch.linalg.solve_triangular(factor, towards.unsqueeze(-1), upper=False)
        both = torch.cat([white, white + answer.unsqueeze(-1)], -1)
        base, value = torch.linalg.solve_triangular(factor.mT, both, upper=True).unbind(-1)
        if labels is None:
            return value, torch.zeros_like(self.log_shares)
        pull = torch.einsum("bde,be->bd", precision, turned * (alpha * x - sigma * base) - mean)
        told = torch.linalg.solve_triangular(factor, half, upper=False)
        return value, self._evidence(pull, precision - told.mT @ told)

    def _evidence(self, pull: Float[Tensor, "b d"], information: Float[Tensor, "b d d"]) -> Float[Tensor, "b labels size"]:
        """What x_t adds to log P(label | labels revealed), up to a constant, of every coordinate as if it were masked."""
        count, size = self.log_shares.shape
        effects = self.effects.reshape(count, size + 1, -1)[:, :size].flatten(0, 1)
        each = ((effects @ information) * effects).sum(-1).reshape(-1, count, size)
        spread = (each * self.log_shares.exp() * self.known).sum(-1, keepdim=True) / self.rank
        found = (pull @ effects.T).reshape(-1, count, size) - 0.5 * each
        return self.sure * found / (1 - spread).clamp_min(LEAST)

    def _alpha_sigma(self, states: Mapping[str, Tensor], t: AnyState) -> tuple[Tensor, Tensor]:
        """Of every number, [batch, d]."""
        process, found = self.process.base, []
        for name, width in zip(self.numbers, self.widths, strict=True):
            leaf: Any = process.leaves[name] if process.leaves else process
            time = leaf.times(leaf_time(t, name) if name else t, states[name])
            both = leaf.schedule.alpha(time), leaf.schedule.sigma(time)
            found.append([v.double().reshape(len(v), 1).expand(-1, width) for v in both])
        alpha, sigma = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        return alpha, sigma

    def _given(self, labels: Tensor | None, rows: int) -> tuple[Tensor, Tensor]:
        """The mean and the precision of the numbers given the labels that are revealed."""
        if labels is None or not len(self.effects):
            return self.mean, self.precision.expand(rows, -1, -1)
        size = self.log_shares.shape[1]
        mean = self.mean + self.effects[self.offset + labels].sum(1)
        masked = (labels == size).to(self.mean.dtype)
        covariance = self.covariance + torch.einsum("bj,jde->bde", masked, self.spread)
        return mean, torch.cholesky_inverse(torch.linalg.cholesky_ex(covariance)[0])
