"""Gamma and Dirichlet draws by their moments, divergences by quadrature."""

import numpy as np
import torch

from unnoise.gamma_laws import Dirichlet, GammaLaw, draw_log_gamma
from unnoise.noise import NoiseSource


def test_draws_have_the_moments_of_their_law():
    """E log g = digamma(a), Var log g = trigamma(a), E g = a; 4.5 standard errors, a false alarm in 1e-4 of runs."""
    n, a = 40000, torch.tensor([0.05, 0.7, 1.0, 4.0, 300.0], dtype=torch.float64)
    drawn = draw_log_gamma(a.expand(n, 5), NoiseSource(0, n))
    spread = torch.polygamma(1, a).sqrt()
    assert bool(((drawn.mean(0) - torch.digamma(a)).abs() < 4.5 * spread / n**0.5).all())
    assert bool(((drawn.exp().mean(0) - a).abs() < 4.5 * (a / n) ** 0.5).all())


def test_dirichlet_density_and_divergence():
    z, w = np.polynomial.legendre.leggauss(80)
    x = torch.as_tensor((z + 1) / 2)
    x, w = torch.stack([x, 1 - x], -1), torch.as_tensor(w / 2)
    p, q = (Dirichlet(torch.tensor([a], dtype=torch.float64).expand(80, 2), x) for a in ([3.0, 2.0], [4.0, 5.0]))
    assert abs(float((w * p.log_prob(x).exp()).sum()) - 1) < 1e-9
    exact = (w * p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x))).sum()
    assert abs(float(p.kl(q)[0] - exact)) < 1e-6
    assert bool(
        (Dirichlet(torch.tensor([[1.0, 2.0, 3.0]]), torch.zeros(1, 3)).draw(NoiseSource(0, 1)).sum(-1) - 1).abs() < 1e-6
    )


def test_gamma_density_and_divergence():
    x = torch.linspace(1e-4, 80, 400001, dtype=torch.float64)
    h = float(x[1] - x[0])
    p, q = GammaLaw(torch.tensor(3.0), 1.5, x), GammaLaw(torch.tensor(2.0), 2.0, x)
    assert abs(h * float(p.log_prob(x).exp().sum()) - 1) < 1e-6
    exact = h * float((p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x))).sum())
    assert abs(float(p.kl(q)[0]) - exact) < 1e-6
