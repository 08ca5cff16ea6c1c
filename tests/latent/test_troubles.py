"""What goes wrong with codes is detected, and named."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.latent import NormalCode, NumbersLaw, Perceptual, classifier
from unnoise.latent.extras import Adversarial
from unnoise.noise import NoiseSource

SPACE = un.Euclidean((2,))
NOISE = NoiseSource(0, 64)
X = NOISE.normal((2,), torch.float32)


class Says(nn.Module):
    """Mean and log-variance by two functions of the data."""

    def __init__(self, mean, log_variance=-2.0):
        super().__init__()
        self.mean, self.log_variance = mean, log_variance

    def forward(self, x):
        mean = self.mean(x)
        return torch.stack([mean, torch.full_like(mean, self.log_variance)], -1)


class Wide(nn.Module):
    def __init__(self, given=2, out=2):
        super().__init__()
        self.out = nn.Linear(given, out)

    def forward(self, z):
        return self.out(z)


def code(encoder, decoder=None, **options):
    return NormalCode(SPACE, (2,), encoder, decoder or Wide(), NumbersLaw((2,), 0.5), **options)


def troubles(encoder):
    own = code(encoder)
    return own.troubles(own.monitor(X, NOISE))


def test_collapse_has_a_name():
    assert troubles(Says(lambda x: x)) == {}
    assert troubles(Says(lambda x: x * torch.tensor([1.0, 0.0]))) == {}  # one of two may be idle
    found = troubles(Says(lambda x: 0.0 * x))
    assert set(found) == {"posterior collapse"} and "2 of 2 latent coordinates" in found["posterior collapse"]
    found = troubles(Says(lambda x: x, -16.0))
    assert set(found) == {"entropy collapse"} and "2 of 2 latent coordinates" in found["entropy collapse"]
    assert "entropy collapse" in troubles(Says(lambda x: 1e-6 * x, -20.0))  # all to one point


def test_information_is_that_of_a_normal_channel():
    """z = x + noise of variance v: 1/2 log(1 + 1/v) nats for each coordinate, of 4096 rows within 3 %."""
    noise = NoiseSource(1, 4096)
    own = code(Says(lambda x: x, -2.0))
    seen = own.monitor(noise.normal((2,), torch.float32), noise.at("n"))
    exact = torch.log1p(torch.tensor(2.0).exp()).item()
    assert seen["information"] == pytest.approx(exact, rel=0.03)
    assert seen["coordinates"] == 2 and seen["idle"] == seen["sharp"] == 0


class Learned(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope, self.log_variance = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return torch.stack([self.slope * x, self.log_variance.expand_as(x)], -1)


class Nothing(nn.Module):
    """Velocity 0: the exact denoiser of N(0, 1)."""

    def forward(self, z, t):
        return torch.zeros_like(z)


class Signed(NoiseSource):
    def normal(self, shape=(), dtype=torch.float64):
        n = super().normal(shape, dtype)
        return torch.cat([n[:64], -n[64:]])


class Pairs(NoiseSource):
    """Rows 64, 65, ... have the noise of rows 0, 1, ..., but minus the encoder's: what is odd in it cancels."""

    def __init__(self, seed):
        super().__init__(seed, torch.arange(64).repeat(2))
        self.seed = seed

    def at(self, *labels):
        if labels == ("encoder",):
            return Signed(1000 + self.seed, self.rows)
        return NoiseSource(self.seed, self.rows).at(*labels)


@pytest.mark.parametrize("without", [True, False])
def test_training_without_the_entropy_shrinks_to_a_point_and_is_seen(without):
    torch.manual_seed(0)
    own = code(Learned(), Wide())
    objective = un.Objective(un.Denoiser(Nothing(), un.Gaussian((2,)), code=own), cutoff=0.01)
    optimiser = torch.optim.Adam(own.parameters(), lr=0.2, betas=(0.5, 0.8))
    for step in range(200):
        terms = objective(X.repeat(2, 1), Pairs(step))
        loss = terms.total - terms["entropy"] if without else terms.total
        optimiser.zero_grad()
        loss.mean().backward()
        optimiser.step()
    seen = own.monitor(X, NOISE)
    assert ("entropy collapse" in own.troubles(seen)) == without, seen


def test_what_networks_return_is_looked_at():
    process = un.Gaussian((2,))
    network = un.networks.default_network(process, "tiny", width=8, seed=0)

    def bound(encoder, decoder=None, own=process):
        return un.bound(un.Denoiser(network, own, code=code(encoder, decoder)), X, seed=0)

    with pytest.raises(FloatingPointError, match="the encoder of NormalCode returned nan for row 5"):
        bound(Says(lambda x: x.index_fill(0, torch.tensor([5]), float("nan"))))
    with pytest.raises(ValueError, match=r"the encoder of NormalCode returned \(64, 1, 2\): return mean.*\(64, 2, 2\)"):
        bound(Says(lambda x: x[:, :1]))
    with pytest.raises(ValueError, match=r"the decoder of NormalCode returned \(64, 3\): return the numbers.*\(64, 2\)"):
        bound(Says(lambda x: x), Wide(out=3))
    with pytest.raises(ValueError, match="x0, as encoded, has shape"):
        bound(Says(lambda x: x), own=un.Gaussian((3,)))


def test_a_first_stage_that_breaks_says_so():
    class Breaks(Wide):
        def forward(self, z):
            return super().forward(z) * float("inf")

    own = code(Says(lambda x: x), Breaks(), settled=True, first_steps=2)
    with pytest.raises(FloatingPointError, match="the decoder of NormalCode returned"):
        own.prepare(lambda n: X[:n], None, torch.device("cpu"), 0)


def test_further_losses_are_for_images_in_two_stages():
    image = un.Euclidean((8, 8))
    with pytest.raises(ValueError, match="compares images of numbers"):
        NormalCode.of(un.Finite(3, (8,)), settled=True, extras=(Perceptual(1.0),))
    with pytest.raises(ValueError, match="joint training is on the bound alone"):
        NormalCode.of(image, extras=(Adversarial(1.0),))


def test_features_are_of_a_classifier_that_learns():
    """Images of a bright side, by how they are turned: without labels the classifier tells it of 9 in 10 at least."""
    x = 0.3 * NoiseSource(0, 128).normal((1, 8, 8), torch.float32)
    x[:, :, :2] += 2.0
    network = classifier(x, seed=0)
    turned = torch.cat([torch.rot90(x, i, (2, 3)) for i in range(4)])
    right = network(turned).argmax(1) == torch.arange(4).repeat_interleave(128)
    assert float(right.double().mean()) > 0.9
    own = Perceptual(2.0, network.features)
    data = NumbersLaw((8, 8))
    own.begin(x[:, 0], data, torch.device("cpu"), 0)
    assert float(own.loss(x[:, 0], x[:, 0], 0.0).abs().max()) == 0
    blurred = torch.nn.functional.avg_pool2d(x, 3, 1, 1)[:, 0]
    assert float(own.loss(x[:, 0], blurred, 0.0).mean()) > 1.0


def test_a_critic_learns_to_tell_data_from_means():
    data, own = NumbersLaw((8, 8)), Adversarial(1.0)
    x = NoiseSource(0, 64).normal((8, 8), torch.float32)
    torch.manual_seed(0)
    own.begin(x, data, torch.device("cpu"), 0)
    flat = torch.zeros_like(x).requires_grad_()
    for _ in range(60):
        loss = own.loss(x, flat, 1.0)
    assert float(own.critic(x.unsqueeze(1)).mean()) > 0.5 and float(loss.detach().mean()) / 64 > 0.5
    (slope,) = torch.autograd.grad(loss.sum(), flat)
    assert float(slope.abs().max()) > 0 and float(own.loss(x, flat.detach(), 0.0).abs().max()) == 0
