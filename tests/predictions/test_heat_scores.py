"""Scores on closed spaces: their units, their algebra, and the kernels that follow from them."""

import pytest
import torch

import unnoise as un
from unnoise.oracles import heat_mixture
from unnoise.predictions import combine, score_of_flow, tilt

PROCESS = un.WrappedNormal((2,))
X0 = torch.tensor([[0.3, -2.0], [3.0, 1.0]], dtype=torch.float64)


def oracle(predicts=None, process=PROCESS):
    means = torch.tensor([[-2.5, 0.4], [0.3, 2.8], [1.5, -1.0]], dtype=torch.float64)
    return heat_mixture(process, torch.tensor([0.2, 0.5, 0.3]), means, torch.tensor([0.1, 0.3, 0.05]), predicts)


def test_units_change_nothing():
    x_t = PROCESS.marginal(X0, 0.7).draw(un.NoiseSource(0, 2))
    unit, plain = oracle()(x_t, 0.7), oracle(un.TangentScore)(x_t, 0.7)
    assert type(unit) is un.UnitScore and type(plain) is un.TangentScore
    assert torch.allclose(unit.score(), plain.value, rtol=1e-13)
    assert torch.allclose(unit.to(un.TangentScore).to(un.UnitScore).value, unit.value, rtol=1e-13)
    assert torch.allclose(unit.value * PROCESS.score_size(0.7, x_t), plain.value)
    target = un.UnitScore.target(PROCESS, X0, x_t, torch.tensor([0.7, 0.7]).double())
    assert torch.allclose(target * PROCESS.score_size(0.7, x_t), PROCESS.marginal(X0, 0.7).score(x_t))
    with pytest.raises(un.InexactConversion, match="tells of no x_0 on a closed space"):
        unit.to(un.Clean)


def test_the_score_is_that_of_the_marginal():
    truth = oracle()
    for t in (0.05, 0.4, 0.8, 1.0):
        x_t = PROCESS.marginal(X0, t).draw(un.NoiseSource(1, 2)).requires_grad_()
        slope = torch.autograd.grad(truth.log_marginal(x_t, t).sum(), x_t)[0]
        assert torch.allclose(truth(x_t.detach(), t).score(), slope, rtol=1e-10, atol=1e-13)
        energy = truth.predicting(un.Energy)(x_t.detach(), t)
        assert torch.allclose(energy.by_leaf().score(), slope, rtol=1e-10, atol=1e-13)


def test_a_step_by_the_score_has_the_moments_of_the_posterior():
    """Of data on one point: mean w score, and on average the variance that the ways round leave, w - w^2 E score^2."""
    one = un.WrappedNormal((1,))
    x0 = torch.zeros(1, 1, dtype=torch.float64)
    for s, t in ((0.2, 0.3), (0.7, 0.8), (0.9, 0.91)):
        v, step = float(one.variance(t, x0)), float(one.step_variance(s, t, x0))
        nodes, log_weight = one.support(x0, t)
        x_t = nodes[:, 0]
        score = one.marginal(torch.zeros_like(x_t), t).score(x_t)
        law = one.reverse_step(x_t, score, s, t)
        way = x_t + 2 * torch.pi * torch.arange(-8, 9, dtype=torch.float64)  # all ways from x_0 = 0, and their shares
        share = (-way.square() / (2 * v)).softmax(1)
        mean = (share * way).sum(1, keepdim=True)
        assert torch.allclose(un.Circle().project(law.mean - x_t + step / v * mean), torch.zeros_like(x_t), atol=1e-9)
        spread = step * (v - step) / v + (step / v) ** 2 * ((share * way.square()).sum(1, keepdim=True) - mean.square())
        average, square = ((log_weight.exp() * value).sum() for value in (spread, score.square()))
        assert float(average) == pytest.approx(step - step**2 * float(square), rel=1e-9)
        assert float(law.variance[0]) == pytest.approx(float(average), abs=0.13 * step**2 * float(square))


def test_combinations_and_tilts_are_those_of_scores():
    x_t = PROCESS.marginal(X0, 0.6).draw(un.NoiseSource(0, 2))
    unit, plain = oracle()(x_t, 0.6), oracle(un.TangentScore)(x_t, 0.6)
    both = combine([unit, plain], [2.0, -0.5])
    assert torch.allclose(both.score(), 1.5 * plain.value)
    by = torch.tensor([[1.0, 0.0], [0.5, -2.0]], dtype=torch.float64)
    assert torch.allclose(tilt(unit, by).score(), plain.value + by)


def test_the_flow_tells_its_score():
    x_t = PROCESS.marginal(X0, 0.6).draw(un.NoiseSource(0, 2))
    unit = oracle()(x_t, 0.6)
    assert torch.allclose(score_of_flow(PROCESS, x_t, unit.flow_velocity(), unit.t), unit.score())
    # data on a point: one step leads to where the flow does, towards x_0
    at = heat_mixture(un.WrappedNormal((1,)), torch.ones(1), torch.tensor([[3.0]]), torch.tensor([1e-8]))
    x_t = torch.tensor([[-3.0], [2.9]], dtype=torch.float64)
    prediction = at(x_t, 0.3)
    s = torch.full((2,), 0.1, dtype=torch.float64)
    ratio = (prediction.process.schedule.sigma(s) / prediction.process.schedule.sigma(prediction.t)).unsqueeze(1)
    gap = un.Circle().project(x_t - 3.0)
    assert torch.allclose(un.Circle().project(prediction.flow_step(s) - 3.0), ratio * gap, atol=1e-5)
    assert torch.allclose(un.Circle().project(prediction.clean() - 3.0), torch.zeros(2, 1).double(), atol=1e-4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(TypeError, match="choose UnitScore or TangentScore"):
        un.Denoiser(torch.nn.Identity(), PROCESS, predicts=un.Clean)
    with pytest.raises(TypeError, match="UnitScore does not fit Gaussian"):
        un.Denoiser(torch.nn.Identity(), un.Gaussian((2,)), predicts=un.UnitScore)
    with pytest.raises(TypeError, match="no probability flow"):
        un.Posterior(torch.zeros(1, 2, 3), un.Uniform(3, (2,)), torch.zeros(1, 2, dtype=torch.int64), 0.5).flow_velocity()
    with pytest.raises(TypeError, match="no flow of Uniform tells its score"):
        score_of_flow(un.Uniform(3), torch.zeros(1), torch.zeros(1), torch.zeros(1))
