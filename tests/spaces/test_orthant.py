"""Positive numbers: what is refused, the operator and its adjoint, reversal, steps, distances."""

import numpy as np
import pytest
import torch

import unnoise as un

SPACE = un.Orthant((2,))
X = torch.tensor([[0.5, 1.3], [2.0, 0.1]], dtype=torch.float64)


def field(x):
    return un.Local(torch.stack([1 - x[:, 0], x[:, 0] - 0.5 * x[:, 1]], -1), 0.7 + 0.2 * x)


def q(x):
    return (x[:, 0].square() * x[:, 1].square() * (1 + x[:, 0])) * (-x.sum(-1)).exp()


def phi(x):
    return x[:, 0].square() * x[:, 1] + x[:, 1].square()


@pytest.mark.parametrize(
    ("number", "message"),
    [(-0.5, "has the number -0.5, .*shift or leave out"), (float("nan"), "nan, .*drop or impute"), (float("inf"), "inf, ")],
)
def test_what_is_not_positive_is_refused(number, message):
    SPACE.check(torch.tensor([[0.0, 1.0]]))
    with pytest.raises(ValueError, match=message):
        SPACE.check(torch.tensor([[1.0, number]]))
    with pytest.raises(TypeError, match="pass x.float()"):
        SPACE.check(torch.tensor([[1, 2]]))


def test_the_adjoint_identity():
    """int q L phi = int phi L* q, by Gauss and Laguerre: polynomials times e^{-x}, so exact."""
    z, w = (torch.as_tensor(part) for part in np.polynomial.laguerre.laggauss(12))
    x, weights = torch.cartesian_prod(z, z), torch.outer(w * z.exp(), w * z.exp()).flatten()
    left = (weights * q(x) * SPACE.act(field(x), phi, x)).sum()
    right = (weights * phi(x) * SPACE.adjoint(field, q, x)).sum()
    assert torch.allclose(left, right, rtol=1e-10) and abs(float(left)) > 1


def test_the_reversed_generator_undoes_the_flow():
    """L*_reversed q = -L* q; `backward` is the same by a slope.  A mutant without g^2 in the drift is not."""

    def back(x):
        return SPACE.reverse(field, lambda y: q(y).log(), x)

    assert torch.allclose(SPACE.adjoint(back, q, X), -SPACE.adjoint(field, q, X), atol=1e-10)

    def forgotten(x):
        local = back(x)
        return un.Local(local.drift - local.diffusion, local.diffusion)

    assert float((SPACE.adjoint(forgotten, q, X) + SPACE.adjoint(field, q, X)).abs().max()) > 0.01


def test_steps_stay_positive_with_the_right_mean_and_variance():
    """4.5 standard errors: a false alarm in 1e-4 of runs."""
    n, h = 40000, torch.tensor(0.01)
    x = X[:1].expand(n, 2)
    local = field(x)
    moved = SPACE.move(SPACE.freeze(local, x), local, x, h, un.NoiseSource(0, n))
    mean = X[0] + 0.01 * local.drift[0]
    assert bool(((moved.mean(0) - mean).abs() < 4.5 * moved.std(0) / n**0.5).all())
    assert torch.allclose(moved.var(0), 0.01 * local.diffusion[0] * mean, rtol=0.05)
    assert float(SPACE.move(SPACE.freeze(local, x), local, x, torch.tensor(5.0), un.NoiseSource(0, n)).min()) > 0


def test_the_distance_of_two_drifts():
    one = field(X)
    two = un.Local(torch.zeros_like(X), one.diffusion)
    assert torch.allclose(SPACE.divergence(one, two, X), 0.5 * (one.drift.square() / (one.diffusion * X)).sum(-1))
    assert bool(SPACE.divergence(one, un.Local(one.drift, 2 * one.diffusion), X).isinf().all())
