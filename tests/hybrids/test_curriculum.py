"""The curriculum: what its loss estimates, what it does not, and its end, which is the bound."""

import sys
from math import sqrt

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.hybrids import ArgmaxLaw, Cooling, Curriculum, argmax_law, duo
from unnoise.hybrids import softened as softened_module
from unnoise.networks.transformer import SequenceTransformer, SequenceTransformerConfig
from unnoise.noise import NoiseSource
from unnoise.objectives.closed_forms import rate

RANGE = (3.5, 0.0)


class Seen(nn.Module):
    """Leave-one-out logits from the other token and the time; `mixture` is taken and left aside, or is what is heard."""

    def __init__(self, hears: float = 0.0):
        super().__init__()
        self.hears, self.scale = hears, nn.Parameter(torch.tensor(0.8, dtype=torch.float64))

    def forward(self, x, t, mixture=None):
        logits = torch.sin(3.0 * x.flip(-1).double().unsqueeze(-1) + torch.arange(3) + t[:, None, None].double())
        logits = self.scale * logits
        return logits if mixture is None or not self.hears else 0 * logits + self.hears * mixture


def process_of(schedule=None, shape=(2,)) -> un.Uniform:
    return un.Uniform(3, shape, schedule)


def exact(denoiser, x0: torch.Tensor) -> torch.Tensor:
    """The integral over the range of the expected rate, by quadrature over log-SNR and enumeration of z_t."""
    process, law = denoiser.process, ArgmaxLaw(3)
    points = states(process.state_space)
    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(40))
    total = torch.zeros(len(x0), dtype=torch.float64)
    for node, weight in zip(nodes, weights, strict=True):
        mu = ((RANGE[0] + RANGE[1]) / 2 + node * (RANGE[0] - RANGE[1]) / 2).div(2).exp()
        t = process.schedule.time_of_alpha(law.alpha(mu))
        share = weight * (RANGE[0] - RANGE[1]) / 2 * mu / 2 * law.slope(mu) / -process.schedule.d_alpha(t)
        for i, x in enumerate(x0):
            data, clock = x.expand_as(points), t.expand(len(points))
            q = process.marginal(data, clock).log_prob(points).exp()
            total[i] += share * (q * rate(denoiser(points, clock), process, data)).sum()
    return total


ROWS = 12_000


def estimate(objective: Curriculum, x0: torch.Tensor, rows: int = ROWS) -> tuple[float, float]:
    """The loss's mean over many rows of one x_0, and its standard error.  Times are stratified: the error is smaller."""
    loss = objective(x0.expand(rows, -1), NoiseSource(3, rows)).loss
    return float(loss.mean()), float(loss.std()) / sqrt(rows)


@pytest.mark.parametrize(
    "schedule, top, rows", [(None, None, ROWS), (None, 1, ROWS), (un.hybrids.ArgmaxSchedule(3), 1, 2000)]
)
@torch.no_grad()
def test_the_loss_is_the_uniform_bound_of_its_range(schedule, top, rows):
    """For a network that leaves the mixture aside; 4.5 standard errors at most: a false alarm in 150,000."""
    denoiser = un.Denoiser(Seen(), process_of(schedule))
    objective = Curriculum(denoiser, log_snr=RANGE, top=top)
    x0 = torch.tensor([[0, 2]])
    mean, error = estimate(objective, x0, rows)
    assert abs(mean - float(exact(denoiser, x0))) < 4.5 * error


@torch.no_grad()
def test_a_token_kept_too_often_is_caught(monkeypatch):
    """z_t = x wherever x is among the two largest: alpha no longer fits the weights."""
    denoiser, right = un.Denoiser(Seen(), process_of()), softened_module.sparse

    def kept(x, mu, tau, size, top, noise):
        found = right(x, mu, tau, size, top, noise)
        v = softened_module.upper_normals(size - 1, 2, tuple(x.shape[1:]), noise.at("largest"))
        own = mu.reshape(-1, 1) + noise.at("own").normal(tuple(x.shape[1:]))
        return softened_module.Softened(torch.where(own > v[..., 1], x, found.z), found.mixture)

    monkeypatch.setattr("unnoise.hybrids.curriculum.sparse", kept)
    x0 = torch.tensor([[0, 2]])
    mean, error = estimate(Curriculum(denoiser, log_snr=RANGE, top=2), x0)
    assert abs(mean - float(exact(denoiser, x0))) > 10 * error


@torch.no_grad()
def test_while_it_is_soft_it_bounds_nothing():
    """One token of a uniform law.  Of the other coordinates there is nothing to know, so that the least loss of any network
    of z_t is that of uniform logits; one that hears the mixture is below it."""
    process, x0 = process_of(shape=(1,)), torch.tensor([[1]])
    best = un.Denoiser(Seen(1e-9), process)
    hears = un.Denoiser(Seen(0.7), process)
    losses = []
    for denoiser in (best, hears):
        objective = Curriculum(denoiser, lambda done: 0.5, log_snr=RANGE)
        assert not objective.is_bound
        terms = objective(x0.expand(ROWS, -1), NoiseSource(3, ROWS))
        assert not terms.is_bound
        losses.append(terms.loss)
    gap = losses[0] - losses[1]
    assert float(gap.mean()) > 5 * float(gap.std()) / sqrt(ROWS)


@torch.no_grad()
def test_in_the_end_it_is_the_bound():
    denoiser = un.Denoiser(Seen(), process_of())
    objective, plain = Curriculum(denoiser), un.Objective(denoiser)
    x0, noise = torch.tensor([[0, 2], [1, 1]]).repeat(5, 1), NoiseSource(0, 10)
    assert objective.phase == 1 and not torch.equal(objective(x0, noise).loss, plain(x0, noise).loss)
    objective.begin(0.2)
    found, expected = objective(x0, noise), plain(x0, noise)
    assert objective.phase == 0 and objective.is_bound and found.is_bound
    assert torch.equal(found.loss, expected.loss) and torch.equal(found.prior, expected.prior)
    bound = un.bound(denoiser, states(denoiser.process.space), exact=True)  # what is said of the model, at any time
    objective.begin(0.0)
    assert torch.equal(un.bound(denoiser, states(denoiser.process.space), exact=True).total, bound.total)
    assert 0.1 < float(torch.exp(-bound.total).sum()) <= 1


@torch.no_grad()
def test_the_prior_is_that_of_the_noisy_end():
    """KL(Cat(alpha e_x + (1 - alpha)/K) || uniform), for both coordinates."""
    objective = Curriculum(un.Denoiser(Seen(), process_of()), log_snr=RANGE)
    x0 = torch.tensor([[0, 2]])
    alpha = float(ArgmaxLaw(3).alpha(1.0))
    law = torch.tensor([alpha + (1 - alpha) / 3, (1 - alpha) / 3, (1 - alpha) / 3], dtype=torch.float64)
    kl = 2 * float((law * (3 * law).log()).sum())
    assert float(objective(x0, NoiseSource(0, 1)).prior) == pytest.approx(kl, rel=1e-9)


def test_the_temperature_falls_and_a_resumed_training_has_its_own():
    cooling = Cooling()
    assert [cooling(d) for d in (0.0, 0.1, 0.2, 0.7)] == [0.1, 0.1, 0.0, 0.0]
    assert cooling(0.15) == pytest.approx(10**-1.5) and cooling(0.19999) == pytest.approx(0.01, rel=1e-3)
    objective = Curriculum(un.Denoiser(Seen(), process_of()))
    for done in (0.0, 0.12, 0.18):
        objective.begin(done)
        again = Curriculum(un.Denoiser(Seen(), process_of()))
        again.begin(done)
        assert float(objective.temperature) == float(again.temperature) == cooling(done)
    assert "temperature" not in objective.state_dict()  # a function of the step, and nothing to save


def test_the_published_range():
    law = ArgmaxLaw(50257)
    alpha = law.alpha(torch.tensor([3.5, 1.75], dtype=torch.float64).div(2).exp())
    assert alpha.tolist() == pytest.approx([0.9283, 0.0383], abs=5e-5)
    objective = Curriculum(un.Denoiser(Seen(), process_of()))
    own = ArgmaxLaw(3).alpha(torch.tensor(objective.log_snr, dtype=torch.float64).div(2).exp())
    torch.testing.assert_close(own, torch.tensor([0.9283, 0.0383], dtype=torch.float64), rtol=1e-9, atol=0)


class NothingIsRead(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__
        assert not any(part in name for part in ("_local_scalar_dense", "nonzero", "masked_select")), f"{name} waits"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("top", [None, 2])
def test_an_update_does_not_wait_for_the_device(top, monkeypatch):
    for module in (un.checks, un.predictions.finite, un.processes.rank_one, argmax_law):
        monkeypatch.setattr(module, "may_read", lambda x: False)
    monkeypatch.setattr(sys.modules["unnoise.objectives.bound"], "may_read", lambda x: False)
    objective = Curriculum(un.Denoiser(Seen(), process_of()), top=top)
    x0, noise = torch.tensor([[0, 2], [1, 1]]), NoiseSource(0, 2)
    with NothingIsRead():
        for done in (0.0, 0.15):
            objective.begin(done)
            objective(x0, noise).loss.mean().backward()
    assert objective.denoiser.network.scale.grad.isfinite()
    with pytest.raises(AssertionError, match="waits"), NothingIsRead():
        objective.temperature.item()


def test_it_trains_a_transformer_from_what_the_data_asks_for():
    """Words of three letters, masked or not: the loss of both phases falls, and the network learns from mixtures."""
    made = duo(un.Masking(27, (3,)))
    assert type(made.process) is un.Uniform and made.process.space.size == 27
    torch.manual_seed(0)
    network = SequenceTransformer(SequenceTransformerConfig(size=27, width=32, layers=1, heads=2))
    denoiser = un.Denoiser(network, made.process)
    objective = made.objective(denoiser, top=5)
    x0 = torch.tensor([[3, 1, 20], [4, 15, 7]]).repeat(16, 1)
    before = un.bound(denoiser, x0, seed=0).total.mean().detach()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for step in range(40):
        objective.begin(step / 150)
        optimiser.zero_grad()
        objective(x0, NoiseSource(step, 32)).loss.mean().backward()
        optimiser.step()
    assert not objective.soft
    assert float(un.bound(denoiser, x0, seed=0).total.mean().detach()) < 0.8 * float(before)


def test_refusals():
    denoiser = un.Denoiser(Seen(), process_of())
    with pytest.raises(ValueError, match="Uniform noise"):
        Curriculum(un.Denoiser(Seen(), un.Masking(3, (2,))))
    with pytest.raises(ValueError, match="falls"):
        Curriculum(denoiser, log_snr=(1.0, 2.0))
    with pytest.raises(ValueError, match="top = 3: of 3 tokens 1 to 2"):
        Curriculum(denoiser, top=3)
    with pytest.raises(ValueError, match="the cooling gave nan"):
        Curriculum(denoiser, lambda done: float("nan"))
    with pytest.raises(ValueError, match="leave exact and chains"):
        Curriculum(denoiser, exact=True)
    with pytest.raises(ValueError, match="hot = 0.1, cold = 0.2"):
        Cooling(cold=0.2)
    with pytest.raises(ValueError, match="start = 0.5, stop = 0.2"):
        Cooling(start=0.5)
    for process in (un.Gaussian((2,)), un.Uniform([2, 3])):
        with pytest.raises(ValueError, match="tokens of one alphabet"):
            duo(process)
