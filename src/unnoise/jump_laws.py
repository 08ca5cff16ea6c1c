"""Laws of numbers that were noised and thrown: mixtures of normal laws, each the same in every direction.

    p(x) = sum_c w_c N(x; m_c, v_c I)

With N ~ Poisson(L) throws of the variance w each, on top of a variance v,

    p(x) = sum_n e^{-L} L^n/n! N(x; m, v + n w),

the sum being cut where a tail of 1e-14 is left.  A throw moves all coordinates at once, so that n is one number for the
whole vector: the coordinates are not independent.  Everything is in logarithms and in float64; the score is the mean of
those of the components under their weights given x.

The divergence of two such laws has no closed form.  In pairs of components the log-sum inequality bounds it,

    KL(p || p') <= sum_c w_c [log(w_c/w'_c) + KL(N_c || N'_c)],                                           (`kl_bound`)

with equality where the component can be told from x.
"""

from math import log, pi, prod

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from unnoise.laws import Law, draw_categories
from unnoise.noise import NoiseSource
from unnoise.shapes import Float

TAIL = 1e-14  # of the number of throws, left out
LOG_TWO_PI = log(2 * pi)


def poisson_terms(mean: float) -> int:
    """How many terms of a Poisson law leave a tail below TAIL."""
    n = torch.arange(int(mean + 12 * mean**0.5 + 40), dtype=torch.float64)
    tail = poisson_log_weights(torch.tensor(mean, dtype=torch.float64), len(n)).exp().flip(0).cumsum(0).flip(0)
    return int((tail >= TAIL).sum()) + 1


def poisson_log_weights(mean: Float[Tensor, "*batch"], terms: int) -> Float[Tensor, "*batch terms"]:
    """log Poisson(n; mean), n = 0 ... terms - 1."""
    n = torch.arange(terms, dtype=torch.float64, device=mean.device)
    mean = mean.double().unsqueeze(-1)
    log_power = torch.where(n == 0, 0.0, n * mean.clamp_min(1e-300).log())
    return log_power - mean - torch.lgamma(n + 1)


def squared(gap: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    return gap.square().sum(-1)


def log_normal(square: Tensor, variance: Tensor, dimension: int) -> Tensor:
    """log N at a squared distance from the mean."""
    variance = variance.clamp_min(1e-300)
    return -0.5 * (square / variance + dimension * (variance.log() + LOG_TWO_PI))


class IsotropicMixture(Law):
    """sum_c w_c N(m_c, v_c I): log-weights and variances [batch, components], means [batch, components or 1, d].

    States have the shape [batch, *shape] with d numbers in all.
    """

    def __init__(
        self,
        log_weight: Float[Tensor, "batch components"],
        mean: Float[Tensor, "batch any d"],
        variance: Float[Tensor, "batch components"],
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.float64,
    ):
        self.log_weight, self.mean, self.variance = log_weight.double(), mean.double(), variance.double()
        self.shape, self.dtype = shape, dtype

    @property
    def dimension(self) -> int:
        return prod(self.shape)

    def flat(self, x: Tensor) -> Float[Tensor, "batch 1 d"]:
        return x.double().reshape(len(x), 1, -1)

    def log_terms(self, x: Tensor) -> Float[Tensor, "batch components"]:
        """log w_c N(x; m_c, v_c)."""
        return self.log_weight + log_normal(squared(self.flat(x) - self.mean), self.variance, self.dimension)

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return self.log_terms(x).logsumexp(1)

    def log_prob_at(self, nodes: Float[Tensor, "nodes batch *shape"]) -> Float[Tensor, "nodes batch"]:
        """log p at several states of each row."""
        x = nodes.double().reshape(*nodes.shape[:2], 1, -1)
        return (self.log_weight + log_normal(squared(x - self.mean), self.variance, self.dimension)).logsumexp(2)

    def score(self, x: Tensor) -> Tensor:
        """grad log p."""
        weight = self.log_terms(x).softmax(1) / self.variance.clamp_min(1e-300)
        return (weight.unsqueeze(-1) * (self.mean - self.flat(x))).sum(1).reshape(x.shape).to(x.dtype)

    def draw(self, noise: NoiseSource) -> Tensor:
        which = draw_categories(self.log_weight.log_softmax(1), noise.at("component"))
        row = torch.arange(len(which), device=which.device)
        mean = self.mean.expand(-1, self.log_weight.shape[1], -1)[row, which]
        z = noise.normal((self.dimension,)).to(mean.device)
        drawn = mean + self.variance[row, which].clamp_min(0).sqrt().unsqueeze(1) * z
        return drawn.reshape(-1, *self.shape).to(self.dtype)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError(
            "the divergence of mixtures of normal laws has no closed form (kl_bound is at least as large), so there is no "
            "bound in steps: take the bound in continuous time, of the process itself instead of a Chain"
        )

    def kl_bound(self, other: "IsotropicMixture") -> Float[Tensor, "batch"]:
        """A number that the divergence does not exceed, by pairs of components."""
        excess = self.variance / other.variance - 1
        shift = squared(self.mean - other.mean) / other.variance
        pairs = self.log_weight - other.log_weight + 0.5 * (self.dimension * (excess - torch.log1p(excess)) + shift)
        return (self.log_weight.exp() * pairs).sum(1)


def graded_nodes(
    centre: Float[Tensor, "batch d"], width: Float[Tensor, "batch"], reach: Float[Tensor, "batch"], d: int
) -> tuple[Float[Tensor, "batch nodes d"], Float[Tensor, "batch nodes"]]:
    """Nodes and log-weights of integrals over all x of what is as narrow as `width` at the centre and as wide as `reach`.

    The distance from the centre is r = width sinh u: on the line both ways with u in equal steps, in the plane with u at
    Legendre's nodes and equal angles, dx = r dr dangle.  Both rules have geometric accuracy for such integrands.
    """
    if d > 2:
        raise ValueError(f"an integral over {d} numbers is out of reach of nodes (at most 2): draw instead")
    most = torch.asinh(reach / width).unsqueeze(1)
    if d == 1:
        u = most * torch.linspace(-1.0, 1.0, LINE, dtype=torch.float64, device=width.device)
        log_weight = (width.unsqueeze(1) * u.cosh() * (2 * most / (LINE - 1))).log()
        return (centre + width.unsqueeze(1) * u.sinh()).unsqueeze(-1), log_weight
    place, share = (torch.as_tensor(part, dtype=torch.float64, device=width.device) for part in leggauss(RADII))
    u = most * (0.5 + 0.5 * place)
    angle = torch.arange(ANGLES, dtype=torch.float64, device=width.device) * (2 * pi / ANGLES)
    r = width.unsqueeze(1) * u.sinh()
    around = torch.stack([angle.cos(), angle.sin()], 1)
    nodes = centre[:, None, None] + r[:, :, None, None] * around
    step = 0.5 * most * share * (2 * pi / ANGLES)
    log_weight = (r * width.unsqueeze(1) * u.cosh() * step).log().unsqueeze(-1).expand(-1, -1, ANGLES)
    return nodes.flatten(1, 2), log_weight.flatten(1)


LINE, RADII, ANGLES = 129, 48, 32  # of graded nodes on the line, and in the plane
