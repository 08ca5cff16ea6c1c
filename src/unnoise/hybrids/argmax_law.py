"""What Gaussian noise and an argmax leave of a category: the exact map from a signal-to-noise ratio to uniform noise.

One of K categories is a corner e_x, noised to w = a e_x + s eps, and z = argmax w.  With mu = a/s the true entry of w/s is
N(mu, 1) and the other K - 1 are standard normal, so by symmetry z is x with probability

    P(mu) = int phi(z - mu) Phi(z)^(K-1) dz,

and any other category equally often.  That is the law of uniform noise, Cat(T e_x + (1 - T)/K), with T = (K P - 1)/(K - 1).

Let M be the largest of the other K - 1, whose density is (K - 1) phi(z) Phi(z)^(K-2).  Since 1 - P = P(M > N(mu, 1)),

    1 - T(mu)        = K/(K-1) E Phi(M - mu)
    T(b) - T(a)      = K/(K-1) E [Phi(M - a) - Phi(M - b)]             T(0) = 0
    T'(mu)           = K/(K-1) E phi(M - mu)                           = K int phi(z - mu) phi(z) Phi(z)^(K-2) dz

All three are means of positive numbers, so that T keeps its digits at small mu, 1 - T at large mu, and their slope
everywhere, which the difference K P - 1 of the definition does not.  The law of M does not depend on mu: its nodes and
weights are found once for each K, by Gauss-Legendre rules on [low, m + 3] and on pieces of eight from there on, m being
the mode of M and low where its density is e^-46 of that at m.  As functions of z the integrands are log-concave with a
curvature of -1 or more, so no mass is left out, up to mu = 52, where 1 - T ends in float64.

The difference of two values of Phi is taken in the tail where both are small; where b - a < 1/100 it is the midpoint rule
with the next two terms, (b - a) phi(h) [1 + r^2 (h^2 - 1)/6 + r^4 (h^4 - 6 h^2 + 3)/120] with h = M - (a + b)/2 and
r = (b - a)/2.
"""

from functools import cache
from math import ceil, log, pi, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.checks import may_read
from unnoise.shapes import Float

REACH = 60.0  # beyond this mu nothing of 1 - T is left in float64
DEPTH = 46.0  # nats below the mode at which the law of M begins
BELOW, ABOVE, PIECE = 64, 32, 8.0  # nodes up to the mode and 3 more, nodes of each piece after it, and its length
SHORT = 0.01  # differences of arguments below this are a midpoint rule
CELLS, NEWTON = 2048, 3  # of the table of log odds from which Newton's rule starts, and its steps
LEAST, MOST = log(1e-16), log(52.0)  # log mu between which it is looked for


def _lower(x: Tensor) -> Tensor:
    """Phi(x), with its digits in the lower tail."""
    return 0.5 * torch.erfc(-x / sqrt(2))


def _density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x.square()) / sqrt(2 * pi)


def _log_weight(z: Tensor, size: int) -> Tensor:
    """log of K phi(z) Phi(z)^(K-2)."""
    return log(size / sqrt(2 * pi)) - 0.5 * z.square() + (size - 2) * torch.special.log_ndtr(z)


@cache
def _rule(size: int) -> tuple[Tensor, Tensor]:
    """Nodes of M and weights that sum to K/(K - 1), on the host."""
    grid = torch.arange(-10.0, 10.0, 0.01, dtype=torch.float64)
    height = _log_weight(grid, size)
    low = float(grid[height > height.max() - DEPTH][0])
    middle, high = float(grid[height.argmax()]) + 3, REACH / 2 + 9
    pieces = ceil((high - middle) / PIECE)
    ends = [low, *np.linspace(middle, high, pieces + 1).tolist()]
    nodes, weights = [], []
    for i, (a, b) in enumerate(zip(ends, ends[1:], strict=False)):
        x, w = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(ABOVE if i else BELOW))
        z = (a + b) / 2 + (b - a) / 2 * x
        nodes.append(z)
        weights.append((b - a) / 2 * w * _log_weight(z, size).exp())
    return torch.cat(nodes), torch.cat(weights)


class ArgmaxLaw:
    """The map for one number of categories: `alpha(mu)` is T, `beta(mu)` is 1 - T, `slope(mu)` is T'.

    Answers are float64, one for each mu >= 0, and can be differentiated by it, twice too.
    """

    def __init__(self, size: int):
        if not isinstance(size, int) or isinstance(size, bool) or size < 2:
            raise ValueError(f"size = {size!r}: an argmax chooses among a number of categories from 2 on")
        self.size = size
        self._rules: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self._tables: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __repr__(self) -> str:
        return f"ArgmaxLaw({self.size})"

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._rules:
            nodes, weights = _rule(self.size)
            self._rules[device] = nodes.to(device), weights.to(device)
        return self._rules[device]

    def _means(self, mu: Any) -> Tensor:
        mu = mu.double() if isinstance(mu, Tensor) else torch.tensor(mu, dtype=torch.float64)
        if may_read(mu) and not bool((mu >= 0).all()):
            worst = mu[~(mu >= 0)].flatten()[0].item()
            raise ValueError(f"mu = {worst:g}: the ratio of signal to noise is a number from 0 on")
        return mu

    def alpha(self, mu: Any) -> Float[Tensor, "*batch"]:
        """T(mu): the share that keeps its category, beyond chance."""
        return _KeptShare.apply(self._means(mu), self)

    def beta(self, mu: Any) -> Float[Tensor, "*batch"]:
        """1 - T(mu), with its digits where T is near 1."""
        return _LostShare.apply(self._means(mu), self)

    def slope(self, mu: Any) -> Float[Tensor, "*batch"]:
        """T'(mu)."""
        mu = self._means(mu)
        nodes, weights = self._on(mu.device)
        return (_density(nodes - mu.clamp_max(2 * REACH).unsqueeze(-1)) * weights).sum(-1)

    def first(self, mu: Any) -> Float[Tensor, "*batch"]:
        """P(mu) = P(argmax = x)."""
        return (1 + (self.size - 1) * self.alpha(mu)) / self.size

    def between(self, low: Any, high: Any) -> Float[Tensor, "*batch"]:
        """T(high) - T(low) for low <= high, with its digits where they are near each other."""
        return _KeptBetween.apply(self._means(low), self._means(high), self)

    def mean_of_log_odds(self, value: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The mu at which log T/(1 - T) has this value: Newton's rule in log mu, from the upper end of a table's cell (the
        odds are convex there, so it comes down to the root and never passes it)."""
        target = value.double()
        with torch.no_grad():
            grid, odds = self._table(target.device)
            u = grid[torch.searchsorted(odds, target.contiguous()).clamp_max(CELLS - 1)]
            for _ in range(NEWTON):
                there, slope = self._log_odds(u)
                u = (u + (target - there).nan_to_num(0.0, 0.0, 0.0) / slope).clamp(LEAST, MOST)
            slope = self._log_odds(u)[1]
        inside = (u > LEAST) & (u < MOST)
        mu = torch.where(inside, u + (target - target.detach()) / slope, u).exp()
        return torch.where(target == torch.inf, torch.inf, torch.where(target == -torch.inf, 0.0, mu))

    def _table(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """log mu and the log odds there."""
        if device not in self._tables:
            grid = torch.linspace(LEAST, MOST, CELLS, dtype=torch.float64, device=device)
            self._tables[device] = grid, self._log_odds(grid)[0]
        return self._tables[device]

    def _log_odds(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """log T/(1 - T) at mu = e^u, and its slope mu T'/(T (1 - T))."""
        mu = u.exp()
        kept, lost = self.alpha(mu), self.beta(mu)
        return kept.log() - lost.log(), mu * self.slope(mu) / (kept * lost)

    def _difference(self, low: Tensor, high: Tensor) -> Tensor:
        nodes, weights = self._on(low.device)
        low, high = (m.clamp_max(2 * REACH).unsqueeze(-1) for m in (low, high))
        h, r2 = nodes - (low + high) / 2, ((high - low) / 2).square()
        h2 = h.square()
        near = (high - low) * _density(h) * (1 + r2 * (h2 - 1) / 6 + r2.square() * (h2.square() - 6 * h2 + 3) / 120)
        x, y, upper = nodes - low, nodes - high, h > 0
        far = _lower(torch.where(upper, -y, x)) - _lower(torch.where(upper, -x, y))
        return (torch.where(high - low < SHORT, near, far) * weights).sum(-1)

    def _tail(self, mu: Tensor) -> Tensor:
        nodes, weights = self._on(mu.device)
        return (_lower(nodes - mu.clamp_max(2 * REACH).unsqueeze(-1)) * weights).sum(-1)


class _LostShare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mu, law):
        ctx.save_for_backward(mu)
        ctx.law = law
        return law._tail(mu)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        return -grad * ctx.law.slope(ctx.saved_tensors[0]), None


class _KeptBetween(torch.autograd.Function):
    @staticmethod
    def forward(ctx, low, high, law):
        ctx.save_for_backward(low, high)
        ctx.law = law
        return law._difference(low, high)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        low, high = ctx.saved_tensors
        return -grad * ctx.law.slope(low), grad * ctx.law.slope(high), None


class _KeptShare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mu, law):
        ctx.save_for_backward(mu)
        ctx.law = law
        return law._difference(torch.zeros_like(mu), mu)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        return grad * ctx.law.slope(ctx.saved_tensors[0]), None
