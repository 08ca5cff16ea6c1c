"""Guidance by measurements without weights: the one law that is a posterior's, how far the others are, and weights that mend
all of them."""

from math import inf, log2

import pytest
import torch
from gaussian_chain import COVARIANCE, F64, MEAN, NOISE, OPERATOR, ORACLE, PROCESS, Y, law_of_steps, posterior, weighed

import unnoise as un

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
T = torch.linspace(0.05, 0.95, 6).double()


def guided(how="moments", model=ORACLE, y=Y, **options):
    return un.guidance.PosteriorSampling(model, OPERATOR, y, NOISE, how, **options)


def clean(denoiser, x=X, t=T, **condition):
    with torch.no_grad():
        return denoiser(x, t, **condition).to(un.Clean).value


BY_COORDINATE = un.schedules.PerCoordinate([un.schedules.Polynomial(power) for power in (1.0, 1.5, 2.0, 3.0)])
PROCESSES = {
    "one schedule": PROCESS,
    "straight paths": un.Gaussian((4,), un.schedules.Linear()),
    "correlated noise": un.Gaussian((4,), covariance=COVARIANCE.flip(0).flip(1) + torch.eye(4)),
    "a schedule for each": un.Gaussian(
        (4,), un.schedules.PerCoordinate([un.schedules.Polynomial(p) for p in (1.0, 1.5, 2.0, 3.0)])
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_moments_are_bayes_rule_for_normal_data(name):
    """At every state and time the prediction is that of the posterior's own oracle."""
    process = PROCESSES[name]
    model = un.oracles.normal(process, MEAN, COVARIANCE)
    exact = un.oracles.normal(process, *posterior()[:2])
    torch.testing.assert_close(clean(guided(model=model)), clean(exact), rtol=1e-7, atol=1e-7)
    assert float((clean(guided("likelihood", model)) - clean(exact)).abs().max()) > 0.03
    assert float((clean(guided("dps", model)) - clean(exact)).abs().max()) > 0.3


def gaps(law):
    mean, covariance, _ = posterior()
    return float((law[0] - mean).abs().max()), float((law[1] - covariance).abs().max())


def flow_law(denoiser, steps):
    """(mean, covariance) of what DDIM makes of the prior, an affine map."""
    probe = torch.cat([torch.zeros(1, 4), torch.eye(4)]).double()
    x, _ = un.sample(denoiser, x=probe, start=denoiser.latest, steps=steps, sampler=un.samplers.DDIM(), seed=0)
    slope = (x[1:] - x[0]).T
    return x[0], slope @ slope.T


@pytest.mark.parametrize("law", [law_of_steps, flow_law])
def test_moments_lead_to_the_posterior(law):
    """Covariances in closed form: at order 1 in the steps.  Means: all but what the first state does not know, at
    alpha/sigma = e^-5, of which a flow forgets nothing."""
    with torch.no_grad():
        found = [gaps(law(guided(), steps)) for steps in (64, 128)]
    assert log2(found[0][1] / found[1][1]) == pytest.approx(1, abs=0.15), found
    assert found[1][0] < 0.005


def test_the_others_lead_elsewhere():
    """The likelihood's law in closed form; that of dps by 2,000 draws, of which 4 standard errors are 0.09."""
    with torch.no_grad():
        assert 0.04 < gaps(law_of_steps(guided("likelihood", reach=inf), 256))[0] < 0.1
        x, _ = un.sample(guided("dps", reach=inf), 2000, steps=64, seed=0, dtype=F64, sampler=un.samplers.Ancestral())
    assert 0.15 < gaps((x.mean(0), x.T.cov()))[0] < 0.5


@pytest.mark.parametrize("how, strength", [("dps", 0.3), ("likelihood", 1.0), ("moments", 1.0)])
def test_weights_mend_all_of_them(how, strength):
    """As proposals of particles: the normaliser of the discretised target within 4 standard errors, and its mean."""
    target, proposer = un.targets.measured(ORACLE, OPERATOR, Y, NOISE), guided(how, strength=strength)
    mean, covariance, log_z = posterior(*law_of_steps(ORACLE, 16, start=proposer.latest))
    _, info = un.sample(proposer, 1000, steps=16, seed=0, dtype=F64, sampler=un.samplers.Particles(8, target))
    z = (info.particles.log_normaliser - log_z).exp()
    assert abs(float(z.mean()) - 1) < 4 * float(z.std()) / 1000**0.5 < 0.2
    assert float(((weighed(info)[0] - mean) / covariance.diagonal().sqrt()).abs().max()) < 0.15


def test_moments_propose_with_fewer_particles():
    """16 neighbours of correlation 0.9, every fourth measured: 2 particles led by moments tell the density of y more closely
    than 8 that `measured` leads, and 16 that the model proposes; by the spread of its logarithm over 200 groups."""
    place = torch.arange(16, dtype=F64)
    model = un.oracles.normal(un.Gaussian((16,)), 0 * place, 0.9 ** (place[:, None] - place).abs())
    operator, y = un.guidance.Inpainting(place % 4 == 1), torch.tensor([1.0, -1.0, 0.5, 0.0], dtype=F64)
    target = un.targets.measured(model, operator, y, 0.2)
    led = un.guidance.PosteriorSampling(model, operator, y, 0.2)

    def spread(proposer, particles):
        _, info = un.sample(proposer, 200, steps=32, seed=0, dtype=F64, sampler=un.samplers.Particles(particles, target))
        return float(info.particles.log_normaliser.std())

    least = spread(led, 2)
    assert least < 0.7 * spread(target, 8) and least < 0.7 * spread(model, 16)


def test_strength_is_a_factor():
    plain = clean(ORACLE)
    for how in ("dps", "likelihood", "moments"):
        whole, half = (clean(guided(how, reach=inf, strength=by)) - plain for by in (1.0, 0.5))
        torch.testing.assert_close(half, whole / 2)


def test_a_gradient_is_shortened_to_its_reach():
    """In its own direction, row by row, where what it makes of A m is longer than twice y - A m; moments never are."""
    plain = clean(ORACLE)
    left = (Y - OPERATOR(plain)).norm(dim=1)
    for how in ("dps", "likelihood", "moments"):
        for reach, strength in ((2.0, 1.0), (1.0, 3.0)):
            whole = clean(guided(how, reach=inf, strength=strength)) - plain
            length = OPERATOR(whole).norm(dim=1)
            share = (reach * strength * left / length).clamp_max(1.0)
            assert bool((share < 1).any()) or how != "dps"
            assert bool((share == 1).all()) or how != "moments"
            found = clean(guided(how, reach=reach, strength=strength)) - plain
            torch.testing.assert_close(found, whole * share.unsqueeze(1))


@pytest.mark.parametrize(
    "how, sampler, far",
    [
        ("dps", None, 100),
        ("dps", un.samplers.DDIM(), 100),
        ("dps", un.samplers.Ancestral(), 0),  # noise in every step forgets what was too far
        ("likelihood", None, 0.12),
        ("likelihood", un.samplers.DDIM(), 0.12),
        ("likelihood", un.samplers.Ancestral(), 0.2),
    ],
)
def test_numbers_that_go_together_do_not_run_away(how, sampler, far):
    """Two groups of 64 numbers that are nearly one, every other one measured.  Given y their mean is 1.5, give or take
    0.025, and the group is known: what is drawn lies there, within 4 deviations; by gradients of any length it does not."""
    one = torch.ones(64, dtype=F64)
    covariance = (0.99 * torch.outer(one, one) + 0.01 * torch.eye(64)).expand(2, 64, 64)
    model = un.oracles.mixture(un.Gaussian((64,)), torch.tensor([0.5, 0.5]), torch.stack([2 * one, -2 * one]), covariance)
    operator, y = un.guidance.Inpainting(torch.arange(64) % 2 == 0), 1.5 * torch.ones(32, dtype=F64)

    def off(reach):
        led = un.guidance.PosteriorSampling(model, operator, y, 0.1, how, reach=reach)
        x, _ = un.sample(led, 32, steps=32, seed=0, dtype=F64, sampler=sampler)
        return float((x - 1.5).mean(1).abs().max())

    assert off(2.0) < 0.1
    assert off(inf) > far


def test_rows_have_measurements_of_their_own():
    ys = torch.stack([Y, -Y] * 3)
    for how in ("dps", "likelihood", "moments"):
        together = clean(guided(how, y="seen"), seen=ys)
        for k in range(2):
            torch.testing.assert_close(together[k::2], clean(guided(how, y=ys[k]))[k::2])


def test_a_leaf_of_a_product():
    """The other leaf is as the model says."""
    process = un.Product(x=PROCESS, c=un.Masking(2, ()))
    leaves = {
        "x": un.oracles.GaussianLeaf(MEAN.unsqueeze(0), COVARIANCE.unsqueeze(0)),
        "c": un.oracles.CategoricalLeaf(torch.tensor([[[0.3, 0.7]]]).double().log().squeeze(1)),
    }
    model = un.oracles.Components(process, torch.ones(1), leaves)
    x = {"x": X, "c": torch.full((6,), 2)}
    found = guided(model=model, leaf="x")(x, T)
    torch.testing.assert_close(found["x"].to(un.Clean).value.detach(), clean(guided()), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found["c"].logits, model(x, T)["c"].logits)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.9))

    def forward(self, x, t):
        return self.scale * x.tanh() * t.unsqueeze(1)


@pytest.mark.parametrize("how", ["dps", "likelihood", "moments"])
@pytest.mark.parametrize("kind", [un.Noise, un.Velocity, un.Clean])
def test_networks_in_single_precision(how, kind):
    model = un.Denoiser(Small(), PROCESS, predicts=kind)
    x, info = un.sample(guided(how, model), 3, steps=8, seed=0)
    assert x.dtype == torch.float32 and bool(x.isfinite().all()) and info.calls == 8
    assert type(guided(how, model)(x, torch.full((3,), 0.5))) is kind


def test_a_run_can_be_differentiated():
    """By the first states: two steps of the guided flow against differences."""

    def end(x):
        return un.sample(guided(), x=x, start=0.5, steps=2, grad=True, sampler=un.samplers.DDIM(), seed=0)[0].sum()

    x = X[:1].clone().requires_grad_()
    (slope,) = torch.autograd.grad(end(x), x)
    step = 1e-5 * torch.eye(4, dtype=F64)
    wanted = torch.stack([(end(X[:1] + h) - end(X[:1] - h)).detach() / 2e-5 for h in step])
    torch.testing.assert_close(slope[0], wanted, rtol=1e-5, atol=1e-6)


def test_what_is_no_way_is_refused():
    with pytest.raises(ValueError, match="how = 'best': choose 'dps', 'likelihood', 'moments'"):
        guided("best")
    with pytest.raises(ValueError, match="strength = nan"):
        guided(strength=float("nan"))
    with pytest.raises(ValueError, match="reach = 0.0: a gradient leads some way"):
        guided(reach=0.0)
    with pytest.raises(TypeError, match="speaks of numbers"):
        guided(model=un.oracles.table(un.Masking(2, (2,)), torch.full((4,), 0.25)))
