"""Data in bins, under a density of numbers: dequantisation.

A pixel k = 0 ... 255 is a bin: bin k of each coordinate is [low + k w, low + (k + 1) w).  A density p on numbers gives it
the probability P(k) = int p over the bin, and with any law q(u | k) of u in (0, 1), x = low + w (k + u), and d coordinates

    log P(k) = log E_q [p(x) w^d / q(u | k)]  >=  E_q [log p(x) - log q(u | k)] + d log w

by Jensen's inequality.  With q uniform the gap is the divergence of the uniform law from p within the bin; it closes for
q(u | k) proportional to p (variational dequantisation), where every single draw gives log P(k).  With S draws

    log (1/S) sum_s p(x_s) w^d / q(u_s | k)

is a tighter bound, in expectation, the tighter the more draws.  That asks for an estimate of p with mean p, as an exact
density and the weights of paths are.  Where log p is estimated, log p + e with E e = 0 (Hutchinson's trace), one draw is
still a bound, for its logarithm has the right mean.  Several are none: E exp e > 1 by the same inequality, and as S grows
the answer goes to log E_q [p(x) w^d / q(u | k) E exp e], above log P(k).

The answer is log P(k), the width of the bins included: its bits per dimension are those of the integers, with no offset.

A dequantisation is any module `forward(k, v) -> (u, log q(u | k))` that turns v, independent uniform numbers in (0, 1) of
k's shape, into u of the same shape; log q is summed over coordinates.  To train one, add log q to a bound:

    x, log_q = dequantised.draw(k, noise)
    loss = (un.bound(denoiser, x).total + log_q).mean()
"""

from collections.abc import Callable
from math import log
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.conditions import tiled
from unnoise.denoiser import AnyDenoiser
from unnoise.laws import sum_coordinates
from unnoise.likelihoods.base import Likelihood, LikelihoodInfo
from unnoise.noise import NoiseSource
from unnoise.processes import Process
from unnoise.shapes import Float, Int, Tree
from unnoise.spaces import INTEGERS
from unnoise.tree import tile

Dequantisation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class UniformDequantisation(nn.Module):
    """u = v, with density 1."""

    def forward(
        self, k: Int[Tensor, "batch *shape"], v: Float[Tensor, "batch *shape"]
    ) -> tuple[Float[Tensor, "batch *shape"], Float[Tensor, "batch"]]:
        return v, sum_coordinates(torch.zeros_like(v))


class VariationalDequantisation(nn.Module):
    """A logistic law in each coordinate: logit u = shift + scale logit v, with q(u | k) = dv/du.

    `network(k) -> [batch, *shape, 2]` says shift and log scale, from k as floats.  Without one they are lines in the bin's
    number, scaled to [-1, 1] by `bins`, with coefficients of each coordinate's own.  All zeros are the uniform law.
    """

    def __init__(self, shape: tuple[int, ...] = (), bins: int = 256, network: nn.Module | None = None):
        super().__init__()
        if bins < 2:
            raise ValueError(f"bins = {bins}: data in bins has at least two")
        self.bins, self.network = bins, network
        if network is None:
            self.constant, self.slope = (nn.Parameter(torch.zeros(*shape, 2, dtype=torch.float64)) for _ in range(2))

    def parameters_of(self, k: Int[Tensor, "batch *shape"]) -> tuple[Tensor, Tensor]:
        """Shift and log scale."""
        if self.network is not None:
            said = self.network(k.float()).double()
        else:
            said = self.constant + self.slope * (2 * k.double() / (self.bins - 1) - 1).unsqueeze(-1)
        return said[..., 0], said[..., 1]

    def forward(
        self, k: Int[Tensor, "batch *shape"], v: Float[Tensor, "batch *shape"]
    ) -> tuple[Float[Tensor, "batch *shape"], Float[Tensor, "batch"]]:
        """du/dv = scale u (1 - u) / (v (1 - v)), in logarithms."""
        shift, log_scale = self.parameters_of(k)
        from_v = v.log() - torch.log1p(-v)
        from_u = shift + log_scale.exp() * from_v
        log_inner_u = nn.functional.logsigmoid(from_u) + nn.functional.logsigmoid(-from_u)
        return from_u.sigmoid(), sum_coordinates(v.log() + torch.log1p(-v) - log_inner_u - log_scale)


class Dequantised(Likelihood):
    """log P of integers k, bounded from below by a likelihood of numbers at low + width (k + u).

    Several draws under a density that is itself estimated (`info.estimated`) bound nothing, and `info.bound` says so.
    `info.error` is one standard error of the estimate over its draws, with the method's own on top; None for one draw.
    """

    takes_states = False  # its data are the numbers of bins, which it checks itself

    def __init__(
        self,
        method: Likelihood,
        width: float = 1.0,
        low: float = 0.0,
        dequantisation: Dequantisation | None = None,
        draws: int = 1,
    ):
        if not width > 0:
            raise ValueError(f"width = {width:g} of the bins must be positive")
        if draws < 1:
            raise ValueError(f"draws = {draws}: at least one is needed")
        self.method, self.width, self.low, self.draws = method, width, low, draws
        self.dequantisation = dequantisation or UniformDequantisation()

    def refuse(self, process: Process) -> str | None:
        return self.method.refuse(process)

    def draw(
        self, k: Tree, noise: NoiseSource, dtype: torch.dtype = torch.float64
    ) -> tuple[Float[Tensor, "batch *shape"], Float[Tensor, "batch"]]:
        """A number in the bin of each coordinate, and the log-density of x = low + width (k + u) that drew it."""
        if not isinstance(k, Tensor) or k.dtype not in INTEGERS:
            what = k.dtype if isinstance(k, Tensor) else type(k).__name__
            raise TypeError(f"x0 is {what}, but bins are numbered by integers: pass ((x0 - low) / width).floor().long()")
        u, log_q = self.dequantisation(k, noise.uniform(tuple(k.shape[1:])))
        return (self.low + self.width * (k.double() + u)).to(dtype), log_q - k[:1].numel() * log(self.width)

    @torch.no_grad()
    def log_prob(
        self, denoiser: AnyDenoiser, x0: Tree, noise: NoiseSource, condition: dict[str, Any]
    ) -> tuple[Float[Tensor, "batch"], LikelihoodInfo]:
        count, several = len(x0), noise.repeated(self.draws)
        x, log_q = self.draw(tile(x0, self.draws), several.at("dequantise"), denoiser.dtype)
        log_p, info = self.method.log_prob(denoiser, x, several, tiled(condition, self.draws))
        weights = (log_p - log_q).reshape(self.draws, count)
        info.density += f", over bins of width {self.width:g}"
        info.bound, own = self.draws == 1 or not info.estimated, info.error
        info.error = None
        if self.draws > 1:
            relative = (weights - weights.logsumexp(0)).exp() * self.draws  # mean 1
            info.error = relative.std(0) / self.draws**0.5
            if own is not None:
                info.error = info.error + own.reshape(self.draws, count).mean(0)
        return weights.logsumexp(0) - log(self.draws), info
