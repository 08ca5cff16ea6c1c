"""Cox-Ingersoll-Ross: where a positive number is after a time tau.

    generator   1/2 [x d^2 + (alpha - x/s) d],      stationary law  pi = Gamma(alpha, s)

is dx = k (m - x) dt + sigma sqrt(x) dW with sigma = 1, k = 1/(2s), m = alpha s, and so d = 4 k m/sigma^2 = 2 alpha.  With

    S = s (1 - e^{-tau/2s}),    lambda = x_0 e^{-tau/2s}/S,    F(z) = sum_n z^n/(n! Gamma(alpha + n)),

    x = S Gamma(alpha + N),  N ~ Poisson(lambda);      q = x^{alpha-1} S^{-alpha} e^{-lambda - x/S} F(lambda x/S).

**Draws.**  2x/S is a noncentral chi square of 2 alpha degrees of freedom, of which one holds all of its centre:
x = S/2 (Z + sqrt(2 lambda))^2 + S Gamma(alpha - 1/2), exactly, for alpha > 1/2.

**Densities.**  F(z) = z^{-nu/2} I_nu(2 sqrt z), nu = alpha - 1.  Its terms have one peak, at n (n + nu) = z, of the width
z^{1/4}/sqrt 2: they are summed around it, in logarithms; for large z it is the series of Hankel.  What is added is
-(sqrt lambda - sqrt(x/S))^2 and log F - 2 sqrt z, neither of which is a difference of large numbers.

**Bridges.**  x_s between x_0 and x_t has the density prop. to x^{alpha-1} e^{-x/kappa} F(a x) F(b x), whose integral Weber
knew: kappa^alpha e^{(a+b) kappa} F(a b kappa^2).  It is kappa Gamma(alpha + N + 2 eta), N ~ Poisson((a + b) kappa), and eta
with the probabilities prop. to (a b kappa^2)^n/(n! Gamma(alpha + n)) (Pitman and Yor).
"""

from math import pi

import torch
from torch import Tensor

from unnoise.gamma_laws import LEAST, GammaLaw, draw_log_gamma
from unnoise.laws import Law, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import Float

LARGE = 1e6  # z from which on Hankel's series is used
HANKEL = 10  # its terms
REACH, MARGIN = 9.0, 24  # standard deviations of n, and a few more, that count
HELD = 2**21  # terms of a sum that are held at once


def log_series(z: Tensor, alpha: Tensor) -> Tensor:
    """log F(z) - 2 sqrt(z), entry by entry; differentiable."""
    if bool((alpha == 1).all()):  # F(z) = I_0(2 sqrt z)
        return torch.special.i0e(2 * z.clamp_min(1e-290).sqrt()).log()
    nu = alpha.expand_as(z) - 1
    large = z.detach() > torch.maximum(16 * nu.detach() ** 4, torch.full_like(z, LARGE))
    flat, flat_nu = torch.where(large, 1.0, z).flatten(), nu.flatten()
    if len(flat):
        most = _width(float(flat.detach().max())) + 1
        rows = max(1, HELD // most)
        parts = [_summed(*part) for part in zip(flat.split(rows), flat_nu.split(rows), strict=True)]
        small = torch.cat(parts).reshape(z.shape)
        return torch.where(large, _hankel(torch.where(large, z, 4 * LARGE), nu), small)
    return z


def _width(z: float) -> int:
    return int(2 * (REACH * (z**0.25 / 2**0.5) + MARGIN))


def _terms(z: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    """n and the logarithms of the terms, around their peak."""
    middle = (-nu / 2 + (nu.square() / 4 + z).sqrt()).detach().floor()
    count = _width(float(z.detach().max()))
    n = (middle - count // 2).clamp_min(0).unsqueeze(-1) + torch.arange(count + 1, dtype=torch.float64, device=z.device)
    return n, n * z.clamp_min(1e-290).log().unsqueeze(-1) - torch.lgamma(n + 1) - torch.lgamma(n + 1 + nu.unsqueeze(-1))


def _summed(z: Tensor, nu: Tensor) -> Tensor:
    return _terms(z, nu)[1].logsumexp(-1) - 2 * z.clamp_min(1e-290).sqrt()


def _hankel(z: Tensor, nu: Tensor) -> Tensor:
    """I_nu(w) e^{-w} = (2 pi w)^{-1/2} [1 - (mu - 1)/(8w) + (mu - 1)(mu - 9)/(2! (8w)^2) - ...], mu = 4 nu^2.

    w = 2 sqrt z.
    """
    w, mu = 2 * z.sqrt(), 4 * nu.square()
    term = total = torch.ones_like(w)
    for k in range(1, HANKEL):
        term = -term * (mu - (2 * k - 1) ** 2) / (k * 8 * w)
        total = total + term
    return total.log() - 0.5 * (2 * pi * w).log() - 0.5 * nu * z.log()


def draw_noncentral(shape: Tensor, centre: Tensor, noise: NoiseSource) -> Tensor:
    """Gamma(shape + N), N ~ Poisson(centre), for shapes above 1/2."""
    form = tuple(shape.shape[1:])
    root = noise.at("z").normal(form) + (2 * centre).sqrt()
    return 0.5 * root.square() + draw_log_gamma(shape - 0.5, noise.at("rest")).exp()


def draw_bessel(z: Tensor, alpha: Tensor, noise: NoiseSource) -> Tensor:
    """Whole numbers with the probabilities z^n/(n! Gamma(alpha + n)) over F(z), by inverting their distribution function."""
    u, nu = noise.uniform(tuple(z.shape[1:])).flatten(), (alpha.expand_as(z) - 1).flatten()
    rows, drawn = max(1, HELD // (_width(float(z.max())) + 1)), []
    for part_z, part_nu, part_u in zip(z.flatten().split(rows), nu.split(rows), u.split(rows), strict=True):
        n, terms = _terms(part_z, part_nu)
        place = torch.searchsorted(terms.softmax(-1).cumsum(-1), part_u.unsqueeze(-1)).clamp_max(n.shape[-1] - 1)
        drawn.append(n.gather(-1, place)[:, 0])
    return torch.cat(drawn).reshape(z.shape)


class CIRLaw(Law):
    """Where the diffusion from `start` is after the time tau of each row; coordinates are independent."""

    def __init__(self, start: Float[Tensor, "batch *shape"], tau: Float[Tensor, "batch"], alpha: Tensor, scale: Tensor):
        self.start = start
        tau = tau.double().reshape(-1, *[1] * (start.ndim - 1))
        self.alpha, self.scale = (v.to(start.device).expand(start.shape) for v in (alpha, scale))
        self.width = -self.scale * torch.expm1(-tau / (2 * self.scale))  # S
        self.centre = start.double() * torch.exp(-tau / (2 * self.scale)) / self.width  # lambda

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        y = x.double().clamp_min(LEAST)
        return sum_coordinates(self.each(y))

    def each(self, y: Tensor) -> Tensor:  # type: ignore[override]
        return self.log_ratios(y) + self.stationary.log_probs(y)

    @property
    def stationary(self) -> GammaLaw:
        return GammaLaw(self.alpha, self.scale, self.start)

    def log_ratios(self, x: Tensor) -> Float[Tensor, "batch *shape"]:
        """log q/pi of each coordinate."""
        y = x.double().clamp_min(LEAST)
        scaled = y / self.width
        apart = -(self.centre.clamp_min(1e-290).sqrt() - scaled.sqrt()).square()
        value = apart + log_series(self.centre * scaled, self.alpha) + torch.lgamma(self.alpha)
        return value + y / self.scale - self.alpha * (self.width / self.scale).log()

    def lines(self, x: Tensor) -> Float[Tensor, "batch *shape"]:
        """x d log(q/pi), differentiable where x is."""
        with torch.inference_mode(False), torch.enable_grad():
            again = x.requires_grad
            leaf = x.double() if again else x.detach().double().requires_grad_()
            log_x = leaf.clamp_min(LEAST).log()
            found = torch.autograd.grad(self.log_ratios(log_x.exp()).sum(), log_x, create_graph=again)[0]
            return found if again else found.detach()

    def score(self, x: Tensor) -> Tensor:
        y = x.double().clamp_min(LEAST)
        return ((self.lines(x) + self.alpha - 1) / y - 1 / self.scale).to(x.dtype)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError(
            f"the divergence of a Cox-Ingersoll-Ross law from a {type(other).__name__} has no closed form: prior_kl of the "
            f"process says that from the stationary law"
        )

    def draw(self, noise: NoiseSource) -> Tensor:
        drawn = self.width * draw_noncentral(self.alpha, self.centre, noise)
        return drawn.clamp_min(LEAST).to(self.start.dtype)


class CIRBridge(Law):
    """x_s given both ends: first and second are the laws from x_0 to s, and from x_s to t (its start is not read)."""

    def __init__(self, first: CIRLaw, second: CIRLaw, x_t: Tensor, tau: Tensor):
        self.like, self.alpha = first.start, first.alpha
        fade = torch.exp(-tau.double().reshape(-1, *[1] * (x_t.ndim - 1)) / (2 * first.scale))  # e^{-tau/2s} from s to t
        self.a, self.b = first.centre / first.width, fade * x_t.double() / second.width.square()
        self.kappa = 1 / (1 / first.width + fade / second.width)

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return sum_coordinates(self.log_probs(x))

    def log_probs(self, x: Tensor) -> Float[Tensor, "batch *shape"]:
        """Of each coordinate."""
        y, a, b, kappa = x.double().clamp_min(LEAST), self.a, self.b, self.kappa
        both = log_series(a * y, self.alpha) + log_series(b * y, self.alpha)
        whole = log_series(a * b * kappa.square(), self.alpha) + self.alpha * kappa.log()
        exponent = -((y / kappa).sqrt() - (a * kappa).sqrt() - (b * kappa).sqrt()).square()  # with the 2 sqrt of all three
        return (self.alpha - 1) * y.log() + both - whole + exponent

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError(f"the divergence of a bridge from a {type(other).__name__} has no closed form")

    def draw(self, noise: NoiseSource) -> Tensor:
        eta = draw_bessel(self.a * self.b * self.kappa.square(), self.alpha, noise.at("eta"))
        drawn = draw_noncentral(self.alpha + 2 * eta, (self.a + self.b) * self.kappa, noise.at("place"))
        return (self.kappa * drawn).clamp_min(LEAST).to(self.like.dtype)


__all__ = ["CIRBridge", "CIRLaw", "draw_bessel", "draw_noncentral", "log_series"]
