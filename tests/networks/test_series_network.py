"""Series: exact on the law it starts from, neutral before, for any length, and chosen where it is asked for."""

import json
from math import pi

import pytest
import torch

import unnoise as un
from unnoise import networks
from unnoise.networks import SeriesNet, SeriesNetConfig, default_network
from unnoise.networks.scale_mixture import ScaleMixture, fit_scale_mixture, shrunk_gaussian
from unnoise.objectives import Objective, Quadrature

SHAPES = [(24,), (17,), (3, 21), (1, 5)]


def rows(shape, n=200, seed=0, loud=True):
    """Smooth rows, some of them louder than others."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(n, *shape, generator=generator).cumsum(-1)
    scale = torch.randint(1, 4, (n,), generator=generator).float() if loud else torch.ones(n)
    x = steps * scale.reshape(-1, *[1] * len(shape))
    return (x - x.mean(0)) / x.std(0)


def network(shape, seed=0, **options):
    return default_network(un.Gaussian(shape), "tiny", series=True, seed=seed, **options)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_starts_at_velocity_0_and_every_parameter_learns(shape):
    process = un.Gaussian(shape)
    net = network(shape)
    assert type(net) is SeriesNet
    denoiser, x0 = un.Denoiser(net, process, un.predictions.default_kind(process)), rows(shape, 6)
    assert not bool(denoiser(x0, 0.5).value.any())
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-2)
    for step in range(2):
        optimiser.zero_grad()
        un.bound(denoiser, x0, seed=step).loss.mean().backward()
        optimiser.step()
    dead = [name for name, p in net.named_parameters() if p.grad is None or not bool((p.grad != 0).any())]
    assert not dead or shape[-1] < 6 and all("norm" in name for name in dead)  # few places are one token for attention


def test_the_velocity_of_the_fitted_law_is_exact():
    """Against Bayes by sums over scales, each with dense matrices, in double precision."""
    shape, net = (2, 9), network((2, 9)).double().eval()
    x0 = rows(shape).double()
    net.fit_base(x0)
    law = ScaleMixture(net.centre, net.directions, net.variances, net.scales, net.log_weights)
    assert len(set(law.scales.tolist())) > 1
    covariance = (law.directions * law.variances) @ law.directions.T
    x_t, eye = torch.randn(7, 18, dtype=torch.float64), torch.eye(18, dtype=torch.float64)
    for t in (1e-3, 0.3, 0.8, 0.999):
        alpha, sigma = torch.tensor(pi / 2 * t).double().cos(), torch.tensor(pi / 2 * t).double().sin()
        clean, logs = [], []
        for scale, weight in zip(law.scales, law.log_weights, strict=True):
            own = scale**2 * covariance
            total = alpha**2 * own + sigma**2 * eye
            clean.append(law.centre + alpha * (x_t - alpha * law.centre) @ torch.linalg.solve(total, own))
            marginal = torch.distributions.MultivariateNormal(alpha * law.centre, total)
            logs.append(weight + marginal.log_prob(x_t))
        posterior = torch.stack(logs, 1).softmax(1)
        expected = (posterior.unsqueeze(-1) * torch.stack(clean, 1)).sum(1)
        velocity = alpha * (x_t - alpha * expected) / sigma - sigma * expected
        out = net(x_t.reshape(7, *shape), torch.full((7,), t, dtype=torch.float64)).flatten(1)
        torch.testing.assert_close(out, velocity, rtol=1e-6, atol=1e-6)


@pytest.mark.conformance
def test_the_bound_of_the_start_is_the_law_s_own_nats():
    """The bound of an exact denoiser is -log p(x_0) up to the cut-off.  A gap of 5 standard errors is a false alarm once in
    two million."""
    shape = (12,)
    net, process, x0 = network(shape, width=16, multipliers=[1]).eval(), un.Gaussian(shape), rows(shape, 300)
    net.fit_base(x0)
    law = fit_scale_mixture(x0.double())
    denoiser = un.Denoiser(net, process, un.predictions.default_kind(process))
    objective, few = Objective(denoiser, times=Quadrature(48, power=16.0)), x0[:40]
    with torch.no_grad():
        totals = torch.stack([objective(few, un.NoiseSource(0, torch.arange(40)).at(i)).total.double() for i in range(4)])
    gap = (totals.mean(0) - law.nll(few.double())).mean()
    error = float(totals.std(0).mean()) / (40 * 4) ** 0.5
    assert abs(float(gap)) < 5 * error < 5.0


def test_the_law_is_the_better_one_on_other_rows():
    """Loud and quiet rows have a law of several scales, better than the Gaussian by 5 standard errors; others have
    the Gaussian's own."""
    shape = (24,)
    x, new = rows(shape, 200).double(), rows(shape, 200, seed=1).double()
    mean, covariance = shrunk_gaussian(x)
    gaussian = -torch.distributions.MultivariateNormal(mean, covariance).log_prob(new)
    better = gaussian - fit_scale_mixture(x).nll(new)
    assert float(better.mean()) > 5 * float(better.std()) / 200**0.5
    plain, new = rows(shape, 200, loud=False).double(), rows(shape, 200, 1, loud=False).double()
    mean, covariance = shrunk_gaussian(plain)
    gaussian = -torch.distributions.MultivariateNormal(mean, covariance).log_prob(new)
    assert abs(float((gaussian - fit_scale_mixture(plain).nll(new)).mean())) < 0.5


def test_the_nats_of_a_law_integrate():
    """A law on two coordinates: its density sums to 1 over a fine grid."""
    law = fit_scale_mixture(rows((2,), 100).double())
    axis = torch.linspace(-12, 12, 801, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    assert float((-law.nll(points)).exp().sum() * (axis[1] - axis[0]) ** 2) == pytest.approx(1, abs=1e-3)


def test_what_was_fitted_is_saved_with_the_weights():
    net = network((24,))
    net.fit_base(rows((24,)))
    again = networks.build(**json.loads(json.dumps(networks.described(net))), seed=1)
    again.load_state_dict(net.state_dict())
    x, t = torch.randn(3, 24), torch.tensor([0.1, 0.5, 0.9])
    assert torch.equal(net.eval()(x, t), again.eval()(x, t)) and bool(net(x, t).any())


def test_without_a_base():
    """Another schedule than the cosine has none; nor have rows of too many places."""
    other = default_network(un.Gaussian((24,), un.schedules.Linear()), "tiny", series=True)
    assert not other.config.base and not any("variances" in name for name in other.state_dict())
    other.fit_base(rows((24,)))
    assert other(rows((24,), 3), torch.full((3,), 0.5)).shape == (3, 24)
    assert not default_network(un.Gaussian((3000,)), "tiny", series=True).config.base
    assert type(default_network(un.Gaussian((24,)), "tiny")).__name__ == "MLP"


def test_few_rows_have_more_dropout_and_presets_grow():
    from unnoise.networks.presets import planned

    hints = [{"series": True, "rows": n} for n in (80, 2000, 10**5)]
    shares = [planned(un.Gaussian((24,)), "tiny", None, hint)["options"]["dropout"] for hint in hints]
    assert shares == [0.4, 0.2, 0.0]
    sizes = [networks.count_parameters(default_network(un.Gaussian((64,)), p, series=True)) for p in networks.PRESETS]
    assert sizes[0] < 5e5 < sizes[1] < sizes[2]


def test_self_conditioning_and_errors():
    net = network((24,), self_condition=True)
    x, t = rows((24,), 3), torch.full((3,), 0.5)
    assert net(x, t, previous=x).shape == x.shape == net(x, t).shape
    with pytest.raises(ValueError, match="takes no previous estimate"):
        network((24,))(x, t, previous=x)
    with pytest.raises(ValueError, match="width = 20: choose a multiple of 16"):
        SeriesNetConfig(shape=[24], width=20)
    with pytest.raises(ValueError, match="pass .length. or .channels, length."):
        SeriesNetConfig(shape=[2, 3, 4])


def test_bfloat16_keeps_the_base():
    net = network((24,)).eval()
    net.fit_base(rows((24,)))
    x, t = rows((24,), 5), torch.linspace(0.01, 0.9, 5)
    exact = net(x, t)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        rough = net(x, t)
    torch.testing.assert_close(rough.float(), exact, rtol=1e-4, atol=1e-4)
