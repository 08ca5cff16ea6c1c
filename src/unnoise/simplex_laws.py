"""The Wright-Fisher diffusion after a time tau: what a composition x_0 has become.

Its generator is 1/2 sum x_i (delta_ij - x_j) d_i d_j + 1/2 sum (alpha_i - theta x_i) d_i, theta = |alpha|.  Of M lines that
are left (`ancestry`), L_i are of the colour i, and they are pseudo-counts of a Dirichlet law:

    M ~ q_M(tau),     L ~ Multinomial(M, x_0),     x ~ Dirichlet(alpha + L).

So it is drawn, exactly, and so it has its density, over that of the stationary law pi = Dirichlet(alpha):

    R(x, x_0) = q(x | x_0)/pi(x) = sum_M q_M (theta)_M M! sum_{|L| = M} prod_i (x_i x_0i)^{L_i}/(L_i! (alpha_i)_{L_i}).

The inner sum is a coefficient of u^M in the product of the series 0F1(alpha_i; z_i u), z = x x_0: a convolution of them, of
positive terms.  With z_i rho^l the sequences are scaled so that their product peaks where the sum over M does, so that also
by fast Fourier transforms, whose error is of the size of the peak, R keeps its relative precision in every tail.  R is
symmetric, and from a vertex e_k it is a power series in x_k alone,

    R(x, e_k) = sum_M q_M (theta)_M/(alpha_k)_M x_k^M.

The slope of log R is the expected number of lines of each colour, given x and x_0: x_i d_i log R = E[L_i].  With these
`lines` l the matrix a = diag(x) - x x^T of the diffusion gives a grad log R = l - x |l|.
"""

import torch
from torch import Tensor

from unnoise.ancestry import draw_lines, log_lines, most_lines
from unnoise.gamma_laws import LEAST, Dirichlet
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.shapes import Float, Int

VERTEX = 1 - 1e-6  # compositions with an entry above count as a vertex, where the series in one entry is used
HELD = 2**21  # terms of a sum that are held at once
TINY = 1e-290
LEAST_TILT, BISECTIONS = -20.0, 40  # of log rho
NOISE = 1e-15  # of a product over its peak: smaller terms are rounding


class WrightFisherLaw(Law):
    """Where the diffusion from `start` is after the time tau of each row; `vertices` says that all starts are vertices."""

    def __init__(
        self,
        start: Float[Tensor, "batch size"],
        tau: Float[Tensor, "batch"],
        alpha: Float[Tensor, "size"],
        vertices: bool = False,
    ):
        self.start, self.vertices = start, vertices
        self.tau = tau.double().reshape(-1).expand(len(start))
        self.alpha = alpha.double().to(start.device)
        self.theta = float(self.alpha.sum())

    @property
    def stationary(self) -> Dirichlet:
        return Dirichlet(self.alpha.expand(self.start.shape), self.start)

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return self.stationary.log_prob(x) + self.log_ratio(x)

    def log_ratio(self, x: Tensor) -> Float[Tensor, "batch"]:
        """log R(x, x_0), differentiable in x."""
        if self.vertices:
            k = self.start.argmax(-1)
            own = x.double().gather(-1, k.unsqueeze(-1))[:, 0]
            return log_vertex_ratio(own, self.tau, self.alpha[k], self.theta)
        return log_ratio(x.double() * self.start.double(), self.tau, self.alpha)

    def lines(self, x: Tensor) -> Float[Tensor, "batch size"]:
        """E[L_i | x, x_0]: x_i d_i log R."""
        if self.vertices:
            k = self.start.argmax(-1)
            own = x.double().gather(-1, k.unsqueeze(-1))[:, 0]
            mean = vertex_lines(own, self.tau, self.alpha[k], self.theta)
            return torch.zeros_like(x, dtype=torch.float64).scatter(-1, k.unsqueeze(-1), mean.unsqueeze(-1))
        with torch.inference_mode(False), torch.enable_grad():
            again = x.requires_grad
            leaf = x.double() if again else x.detach().double().requires_grad_()
            log_x = leaf.clamp_min(LEAST).log()
            value = log_ratio(log_x.exp() * self.start.double(), self.tau, self.alpha)
            found = torch.autograd.grad(value.sum(), log_x, create_graph=again)[0]
            return found if again else found.detach()

    def score(self, x: Tensor) -> Tensor:
        """The gradient of the log-density as a function of all entries, along the simplex: of entries that sum to 0."""
        slope = (self.lines(x) + self.alpha - 1) / x.double().clamp_min(LEAST)
        return (slope - slope.mean(-1, keepdim=True)).to(x.dtype)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError(
            f"the divergence of a Wright-Fisher law from a {type(other).__name__} has no closed form: prior_kl of the "
            f"process says that from the stationary law"
        )

    def draw(self, noise: NoiseSource) -> Tensor:
        lines = draw_lines(self.tau, self.theta, noise.at("ancestry"))
        if self.vertices:
            counts = lines.unsqueeze(-1) * torch.nn.functional.one_hot(self.start.argmax(-1), self.start.shape[-1])
        else:
            counts = draw_counts(lines, self.start.double(), noise.at("colours"))
        return Dirichlet(self.alpha + counts, self.start).draw(noise.at("place"))


def draw_counts(
    lines: Int[Tensor, "batch"], share: Float[Tensor, "batch size"], noise: NoiseSource
) -> Float[Tensor, "batch size"]:
    """Multinomial numbers, each line by itself; rows with many lines go together, so that few are drawn in vain."""
    size, most = share.shape[-1], int(lines.max()) if len(lines) else 0
    counts = torch.zeros(share.shape, dtype=torch.float64, device=share.device)
    order, below = share.cumsum(-1), torch.zeros(share.shape, dtype=torch.float64, device=share.device)
    total, first, width = order[:, -1:], 0, 16
    while first < most:
        rows = (lines > first).nonzero()[:, 0]
        u = noise.of(rows).at(first).uniform((width,))
        u = torch.where(first + torch.arange(width, device=u.device) < lines[rows, None], u, 2.0)
        for i in range(size):  # how many fall below the upper edge of colour i
            edge = (order[rows, i] / total[rows, 0]).unsqueeze(-1) if i + 1 < size else 1.5
            below[rows, i] = (u < edge).sum(-1).double()
        counts[rows] += torch.diff(below[rows], dim=-1, prepend=torch.zeros_like(below[rows, :1]))
        first, width = first + width, 2 * width
    return counts


def _vertex_terms(own: Tensor, tau: Tensor, alpha_k: Tensor, theta: float) -> tuple[Tensor, Tensor]:
    log_q = log_lines(tau, theta)
    m = torch.arange(log_q.shape[-1], dtype=torch.float64, device=tau.device)
    a, whole = alpha_k.unsqueeze(-1), torch.tensor(theta, dtype=torch.float64, device=tau.device)
    rising = torch.lgamma(whole + m) - torch.lgamma(whole) - torch.lgamma(a + m) + torch.lgamma(a)
    return log_q + rising + m * own.clamp_min(TINY).log().unsqueeze(-1), m


def log_vertex_ratio(own: Tensor, tau: Tensor, alpha_k: Tensor, theta: float) -> Tensor:
    """log R(x, e_k) of x_k = own; own, tau and alpha_k are [rows]."""
    return _vertex_terms(own, tau, alpha_k, theta)[0].logsumexp(-1)


def vertex_lines(own: Tensor, tau: Tensor, alpha_k: Tensor, theta: float) -> Tensor:
    """E[M | x_k = own, e_k]."""
    terms, m = _vertex_terms(own, tau, alpha_k, theta)
    return (terms.softmax(-1) * m).sum(-1)


def log_ratio(z: Float[Tensor, "batch size"], tau: Float[Tensor, "batch"], alpha: Float[Tensor, "size"]) -> Tensor:
    """log R of z = x x_0, entry by entry."""
    most = most_lines(float(tau.detach().min()), float(alpha.sum())) + 1 if len(tau) else 1
    rows = max(1, HELD // (most * z.shape[-1]))
    parts = zip(z.split(rows), tau.split(rows), strict=True)
    return torch.cat([_some_log_ratio(*part, alpha) for part in parts])


def _some_log_ratio(z: Tensor, tau: Tensor, alpha: Tensor) -> Tensor:
    theta = float(alpha.sum())
    log_q = log_lines(tau, theta)
    m = torch.arange(log_q.shape[-1], dtype=torch.float64, device=z.device)
    shared = z.clamp_min(TINY)
    log_rho = _tilt(shared.detach(), log_q.detach(), alpha)
    terms = m * (shared.log() + log_rho).unsqueeze(-1)
    terms = terms - torch.lgamma(m + 1) - torch.lgamma(alpha.unsqueeze(-1) + m) + torch.lgamma(alpha).unsqueeze(-1)
    top = terms.detach().amax(-1, keepdim=True)
    sequences = (terms - top).exp()
    product, scale = sequences[:, 0], top.sum((1, 2))
    for i in range(1, z.shape[-1]):
        product = _convolved(product, sequences[:, i])
        largest = product.detach().amax(-1, keepdim=True)
        product, scale = product / largest, scale + largest[:, 0].log()
    whole = torch.tensor(theta, dtype=torch.float64, device=z.device)
    weights = log_q + torch.lgamma(whole + m) - torch.lgamma(whole) + torch.lgamma(m + 1) - m * log_rho
    log_product = torch.where(product > NOISE, product.clamp_min(NOISE).log(), -torch.inf)
    return (weights + log_product).logsumexp(-1) + scale


def _tilt(z: Tensor, log_q: Tensor, alpha: Tensor) -> Tensor:
    """log rho of each row, by bisection: rho moves the product's peak to M(rho) = sum_i E[l_i], by Amos's estimate of a
    ratio of Bessel functions, and there terms of the sum over M should neither rise nor fall.
    """
    theta, most = float(alpha.sum()), log_q.shape[-1] - 1
    rise = torch.diff(log_q, dim=-1, append=log_q[:, -1:] - 1e3).clamp(-1e3, 1e3)
    high = 2 * torch.tensor(most + theta + 1.0, dtype=z.dtype, device=z.device).log() - z.amax(-1, keepdim=True).log()
    low = torch.full_like(high, LEAST_TILT)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        y = z * middle.exp()
        mean = (2 * y / (alpha - 0.5 + (4 * y + (alpha + 0.5).square()).sqrt())).sum(-1, keepdim=True).clamp_max(most)
        rising = rise.gather(-1, mean.long()) + (theta + mean).log() + (mean + 1).log() > middle
        low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
    return (low + high) / 2


def _convolved(first: Tensor, second: Tensor) -> Tensor:
    """The first terms of the product of two series, row by row."""
    count = first.shape[-1]
    size = 2 ** (2 * count - 1).bit_length()
    return torch.fft.irfft(torch.fft.rfft(first, size) * torch.fft.rfft(second, size), size)[:, :count]
