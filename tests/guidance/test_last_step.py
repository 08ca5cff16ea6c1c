"""The last step of numbers ends on points, whose weight nothing could tell: they are the models' own, whatever proposes."""

import pytest
import torch
from gaussian_chain import F64, NOISE, OPERATOR, ORACLE, Y, euler, law_of_steps, posterior, weighed

import unnoise as un
from unnoise.samplers import proposals

TARGET = un.targets.measured(ORACLE, OPERATOR, Y, NOISE)


def off(steps=4, sampler=None, denoiser=TARGET, step=None, start=1.0, **options):
    """(log of the normaliser in standard errors, greatest gap of the means in deviations), of 1,000 groups of 8; in a few
    steps, so that the last one is long."""
    mean, covariance, log_z = posterior(*law_of_steps(ORACLE, steps, step, start))
    sampler = sampler or un.samplers.Particles(8, **options)
    _, info = un.sample(denoiser, 1000, steps=steps, seed=0, dtype=F64, sampler=sampler, start=start)
    z = (info.particles.log_normaliser - log_z).exp()
    gap = (weighed(info)[0] - mean) / covariance.diagonal().sqrt()
    return abs(float(z.mean()) - 1) / float(z.std() / 1000**0.5), float(gap.abs().max())


def planted(process, own, law, s):
    """The last point is that of whatever proposes."""
    return law


SETTINGS = {
    "kernels": {},
    "Euler's steps": {"steps": 12, "proposal": un.samplers.FromGenerator(), "step": euler, "start": 0.95},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_last_point_is_the_models_own(name, monkeypatch):
    """4 standard errors of the normaliser (false alarms: 6e-5); the mutant is off by many, and shifts the mean."""
    error, gap = off(**SETTINGS[name])
    assert error < 4 and gap < 0.12
    monkeypatch.setattr(proposals, "points_of", planted)
    error, gap = off(**SETTINGS[name])
    assert error > 8 and gap > 0.15


def test_the_last_point_is_the_target_s_where_another_denoiser_proposes(monkeypatch):
    """A model that has other data in mind proposes for ORACLE."""
    other = un.oracles.normal(ORACLE.process, torch.full((4,), 0.5, dtype=F64), torch.eye(4, dtype=F64))
    error, gap = off(2, un.samplers.Particles(8, TARGET), other)
    assert error < 4 and gap < 0.25
    monkeypatch.setattr(proposals, "points_of", planted)
    error, gap = off(2, un.samplers.Particles(8, TARGET), other)
    assert error > 8


def test_categories_beside_numbers_are_still_proposed_and_weighed():
    """Of a product only the leaf that ends on points is the models' own."""
    process = un.Product(a=un.Gaussian((1,)), b=un.Uniform(3, (1,)))
    leaves = {
        "a": un.oracles.GaussianLeaf(torch.tensor([[0.2]]).double(), torch.ones(1, 1, 1).double()),
        "b": un.oracles.CategoricalLeaf(torch.tensor([[[0.2, 0.3, 0.5]]]).double().log()),
    }
    own = un.oracles.Components(process, torch.ones(1), leaves)(
        {"a": torch.zeros(2, 1).double(), "b": torch.zeros(2, 1).long()}, torch.full((2,), 0.3)
    )
    moved = un.predictions.tilt(own, {"a": torch.ones(2, 1).double(), "b": torch.tensor([1.0, 0, 0]).expand(2, 1, 3)})
    last, near = torch.tensor(0.0).double(), torch.tensor(0.1).double()
    law = proposals.points_of(process, own.step(last), moved.step(last), 0.0)
    assert torch.equal(law.leaves["a"].mean, own.step(last).leaves["a"].mean)
    assert torch.equal(law.leaves["b"].log_probs, moved.step(last).leaves["b"].log_probs)
    assert proposals.ends_on_points(process, 0.0) and not proposals.ends_on_points(process, 0.1)
    law = proposals.points_of(process, own.step(near), moved.step(near), 0.1)
    assert torch.equal(law.leaves["a"].mean, moved.step(near).leaves["a"].mean)
