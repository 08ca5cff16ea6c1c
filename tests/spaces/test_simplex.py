"""The simplex: what is refused, its operator against derivatives by hand, steps that stay inside."""

import pytest
import torch

import unnoise as un

SPACE = un.Simplex(3)
X = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64)


def field(x):
    return un.Local(torch.stack([x[:, 1], x[:, 2] * 0.5, -x[:, 1] - x[:, 2] * 0.5], -1), 0.7 + x[:, :1])


def q(x):
    return (x[:, 0].square() * x[:, 1] * x[:, 2].square()) * (1 + x[:, 0])


def phi(x):
    return x[:, 0].square() * x[:, 1] + x[:, 2].exp()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.5, 0.3, 0.3], "row 1 of x sums to 1.1, .*which divides by the sum"),
        ([0.6, 0.6, -0.2], "negative share -0.2, .*which cuts it to 0"),
        ([0.5, float("nan"), 0.5], "has the share nan, .*drop or impute"),
    ],
)
def test_what_is_no_composition_is_refused(row, message):
    with pytest.raises(ValueError, match=message):
        SPACE.check(torch.tensor([[1.0, 0.0, 0.0], row]))


def test_zeros_are_points_and_can_be_left():
    edge = SPACE.check(torch.tensor([[0.6, 0.4, 0.0]]))
    assert torch.allclose(SPACE.inside(edge, 0.01), torch.tensor([[0.592, 0.398, 0.01]]))
    assert torch.allclose(SPACE.project(torch.tensor([[2.0, 3.0, -1.0]])), torch.tensor([[0.4, 0.6, 0.0]]))
    assert torch.equal(SPACE.vertices(torch.tensor([2])), torch.tensor([[0.0, 0.0, 1.0]]))
    with pytest.raises(ValueError, match="at least 2"):
        un.Simplex(1)
    with pytest.raises(ValueError, match="below 1/3"):
        SPACE.inside(edge, 0.4)


def test_the_rule_integrates_polynomials():
    x, weights = SPACE.nodes(8)
    assert abs(float(weights.sum()) - 0.5) < 1e-12
    assert abs(float((weights * x[:, 0] * x[:, 1] ** 2).sum()) - 2 / 120) < 1e-12


def test_the_adjoint_identity():
    """int q L phi = int phi L* q: q vanishes at the edge; polynomials, so that Gauss's rule is exact but for an
    exponential.
    """
    x, weights = SPACE.nodes(14)
    left = (weights * q(x) * SPACE.act(field(x), phi, x)).sum()
    right = (weights * phi(x) * SPACE.adjoint(field, q, x)).sum()
    assert abs(float(left - right)) < 1e-9 and abs(float(left)) > 1e-4


def test_the_reversed_generator_undoes_the_flow():
    """L*_reversed q = -L* q; and `backward` is the same by a slope."""

    def back(x):
        return SPACE.reverse(field, lambda y: q(y).log(), x)

    assert torch.allclose(SPACE.adjoint(back, q, X), -SPACE.adjoint(field, q, X), atol=1e-9)
    leaf = X.clone().requires_grad_()
    slope = torch.autograd.grad(q(leaf).log().sum(), leaf)[0]
    assert torch.allclose(SPACE.backward(field, slope, X).drift, back(X).drift)
    assert float(back(X).drift.sum(-1).abs().max()) < 1e-12


def test_steps_stay_inside_with_the_right_mean_and_covariance():
    """4.5 standard errors: a false alarm in 1e-4 of runs."""
    n, h = 40000, torch.tensor(0.01)
    x = X[:1].expand(n, 3)
    local = field(x)
    moved = SPACE.move(SPACE.freeze(local, x), local, x, h, un.NoiseSource(0, n))
    SPACE.check(moved)
    mean = X[0] + 0.01 * local.drift[0]
    assert bool(((moved.mean(0) - mean).abs() < 4.5 * moved.std(0) / n**0.5).all())
    wanted = 0.01 * float(local.diffusion[0]) * (torch.diag(mean) - mean[:, None] * mean)
    assert torch.allclose(torch.cov(moved.T), wanted, rtol=0.05)
    far = SPACE.move(SPACE.freeze(local, x), local, x, torch.tensor(3.0), un.NoiseSource(0, n))
    SPACE.check(far)
    assert SPACE.step_law(local, x, h).log_prob(moved).isfinite().all()


def test_the_distance_of_two_drifts():
    """1/2 gap . a^+ gap, with the matrix's own pseudo-inverse; infinite where the noises differ."""
    one, two = field(X), un.Local(torch.zeros_like(X), field(X).diffusion)
    for i in range(2):
        a = one.diffusion[i] * (torch.diag(X[i]) - X[i][:, None] * X[i])
        exact = 0.5 * one.drift[i] @ torch.linalg.pinv(a) @ one.drift[i]
        assert torch.allclose(SPACE.divergence(one, two, X)[i], exact)
    assert bool(SPACE.divergence(one, un.Local(one.drift, 2 * one.diffusion), X).isinf().all())
