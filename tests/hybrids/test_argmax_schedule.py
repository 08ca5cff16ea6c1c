"""The schedule, the process under it, and what it has in common with the argmax of a Gaussian path: one time, not two."""

from math import pi

import numpy as np
import pytest
import torch
from torch import Tensor

import unnoise as un
from unnoise.hybrids import ArgmaxLaw, ArgmaxSchedule
from unnoise.verify.bounds import fast_path_checks, identity_checks
from unnoise.verify.kernels import kernel_checks
from unnoise.verify.rows import Place
from unnoise.verify.run import checks
from unnoise.verify.schedules import schedule_checks
from unnoise.verify.subjects import finite_subject

SCHEDULES = {
    "usual": lambda size: ArgmaxSchedule(size),
    "published range": lambda size: ArgmaxSchedule(size, un.schedules.LogSNRLinear(3.5, 1.75)),
    "wide": lambda size: ArgmaxSchedule(size, un.schedules.LogSNRLinear(5.0, -9.0)),
}


@pytest.mark.parametrize("name, size", [("usual", 27), ("usual", 50257), ("published range", 50257), ("wide", 2)])
def test_identities_derivatives_inverses_and_steps(name, size):
    """All that `unnoise verify --schedule` asks of a schedule of one's own."""
    rows = list(schedule_checks(SCHEDULES[name](size), Place(name)))
    assert len(rows) > 40 and [row for row in rows if not row.ok] == []


def test_a_wrong_slope_is_caught(monkeypatch):
    right = ArgmaxLaw.slope
    monkeypatch.setattr(ArgmaxLaw, "slope", lambda self, mu: 1.001 * right(self, mu))
    rows = list(schedule_checks(ArgmaxSchedule(27), Place("wrong")))
    assert [row for row in rows if not row.ok and row.quantity.startswith("d_alpha")]


def test_ends():
    schedule = ArgmaxSchedule(27)
    assert float(schedule.beta(0.0)) == pytest.approx(1e-5) and float(schedule.alpha(1.0)) == pytest.approx(1e-3)
    straight = ArgmaxSchedule(27, un.schedules.Linear())
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert straight.alpha(ends)[1] == 0 == straight.beta(ends)[0] and straight.d_alpha(ends).isfinite().all()
    assert float(straight.time_of_alpha(straight.alpha(0.4))) == pytest.approx(0.4, abs=1e-12)


def test_gradients_reach_a_learned_path():
    learned = un.schedules.Learned(high=4.0, low=-4.0)
    schedule = ArgmaxSchedule(5, learned)
    schedule.alpha(torch.tensor(0.4, dtype=torch.float64)).backward()
    mu = lambda: (learned.log_snr(0.4) / 2).exp()  # noqa: E731
    found = learned.above.grad.clone()
    learned.above.grad = None
    (schedule.law.slope(mu().detach()) * mu()).backward()
    torch.testing.assert_close(found, learned.above.grad, rtol=1e-10, atol=0)


@pytest.mark.conformance
def test_the_process_under_it_is_like_any_other():
    """Kernels, generator, bound and closed form, by `verify`."""
    subject = finite_subject(un.Uniform(3, (2,), ArgmaxSchedule(3)), "Uniform/Argmax")
    subject.kinds, subject.grid_kind = subject.kinds[:1], None
    subject.checks, subject.cutoffs = (kernel_checks, identity_checks, fast_path_checks), (0.1,)
    rows = list(checks(subject))
    assert len(rows) > 20 and [row for row in rows if not row.ok] == []


LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)


class WrongNetwork(torch.nn.Module):
    """Logits of its own making, for each pair of tokens."""

    def forward(self, x, t):
        return torch.sin(3.0 * x.flip(-1).double().unsqueeze(-1) + torch.arange(3) + t[:, None, None])


def test_the_bound_is_the_uniform_bound():
    """For any network that is not told the time the two ends of alpha decide; here both are 1 and 0 as good as exactly."""
    path = un.schedules.LogSNRLinear(4.7, -20.0)
    bounds = []
    for schedule in (ArgmaxSchedule(3, path), un.schedules.Linear()):
        oracle = un.oracles.table(un.Uniform(3, (2,), schedule), LAW)
        x = oracle.process.space.states()
        exact = un.bound(oracle, x, exact=True, times=un.Quadrature(160)).total
        torch.testing.assert_close(exact, -oracle.log_prob(x), rtol=0, atol=1e-8)
        network = WrongNetwork()
        network.forward = lambda x, t, own=network: WrongNetwork.forward(own, x, 0 * t)  # type: ignore[method-assign]
        wrong = un.bound(un.Denoiser(network, oracle.process), x, exact=True, times=un.Quadrature(160)).total
        assert 0.1 < float(torch.exp(-wrong).sum()) <= 1 and bool((wrong + oracle.log_prob(x)).max() > 0.01)
        bounds.append(wrong)
    torch.testing.assert_close(*bounds, rtol=0, atol=1e-6)


# -- the argmax of a Gaussian path, by quadrature -----------------------------------------------------------------------


def legendre(low: Tensor | float, high: Tensor | float, count: int) -> tuple[Tensor, Tensor]:
    x, w = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(count))
    low, high = (torch.as_tensor(v, dtype=torch.float64).unsqueeze(-1) for v in (low, high))
    return (low + high) / 2 + (high - low) / 2 * x, (high - low) / 2 * w


def bell(z: Tensor) -> Tensor:
    return torch.exp(-0.5 * z.square()) / (2 * pi) ** 0.5


ndtr = torch.special.ndtr


def first_at(means: Tensor, std: float = 1.0) -> Tensor:
    """P(the first of independent normal numbers with these means is the largest)."""
    z, w = legendre(means[..., 0] - 8 * std, means[..., 0] + 8 * std, 48)
    others = torch.stack([ndtr((z - means[..., j : j + 1]) / std) for j in range(1, means.shape[-1])]).prod(0)
    return (w * bell((z - means[..., :1]) / std) / std * others).sum(-1)


def both_first(size: int, late: float, early: float) -> Tensor:
    """P(argmax w_t = argmax w_s = x | x) of the Gaussian path, w in units of its noise: a Markov path with correlation
    mu_t/mu_s of the noises."""
    rho, zero = late / early, torch.zeros((), dtype=torch.float64)
    v, weight = legendre(early - 8.0, early + 8.0, 48)  # the true entry at s; the others lie below it
    weight, others = weight * bell(v - early), []
    for _ in range(size - 1):
        u, w = legendre(torch.full_like(v, -8.0), v.clamp(-8, 8), 48)
        others.append((u, w * bell(u)))
    total = zero
    if size == 2:
        u, w = others[0]
        means = torch.stack([(late + rho * (v - early)).unsqueeze(-1).expand_as(u), rho * u], -1)
        return (weight * (w * first_at(means, (1 - rho**2) ** 0.5)).sum(-1)).sum()
    (u, w), (u2, w2) = others
    for i in range(len(v)):
        means = torch.stack(
            torch.broadcast_tensors((late + rho * (v[i] - early)), rho * u[i][:, None], rho * u2[i][None, :]), -1
        )
        total = total + weight[i] * (w[i][:, None] * w2[i][None, :] * first_at(means, (1 - rho**2) ** 0.5)).sum()
    return total


@pytest.mark.parametrize("size", [2, 3])
def test_one_time_marginals_are_those_of_uniform_noise_and_two_time_ones_are_not(size):
    schedule = ArgmaxSchedule(size, un.schedules.Linear())
    process, (s, t) = un.Uniform(size, (), schedule), (0.4, 0.6)
    early, late = (float(schedule.mean(torch.tensor(v, dtype=torch.float64))) for v in (s, t))
    x = torch.zeros(1, dtype=torch.int64)
    for mean, time in ((early, s), (late, t)):  # P by its own quadrature, the others equally often
        means = torch.zeros(size, dtype=torch.float64)
        means[0] = mean
        own = first_at(means)
        law = torch.full((size,), (1 - float(own)) / (size - 1), dtype=torch.float64)
        law[0] = own
        torch.testing.assert_close(process.marginal(x, time).probs[0], law, rtol=0, atol=1e-10)
    gaussian = both_first(size, late, early)
    chain = process.marginal(x, s).probs[0, 0] * process.transition(x, s, t).probs[0, 0]
    common = process.marginal(x, t).probs[0, 0]  # one noise for both times: what is first at t was first at s
    assert float(chain - gaussian) > 0.02 and float(common - chain) > 0.01


def test_the_two_time_figure_is_a_figure():
    """For two categories, by the bivariate normal law: an orthant probability in closed form at mu = 0."""
    assert float(both_first(2, 1e-12, 1e-12 / 0.5)) == pytest.approx(0.25 + np.arcsin(0.5) / (2 * pi), abs=1e-9)


def test_refusals():
    per = un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Cosine()])
    with pytest.raises(ValueError, match=r"a schedule for each of \(2,\)"):
        ArgmaxSchedule(3, per)
    with pytest.raises(ValueError, match="size = 1"):
        ArgmaxSchedule(1)
