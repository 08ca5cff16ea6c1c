"""Terms by name, what is printed as a bound and what is not, and terms that an encoder adds."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import weightings
from unnoise.noise import NoiseSource
from unnoise.objectives import Observed, Terms

F64 = torch.float64
X = torch.tensor([[0.3], [-0.8], [1.1]], dtype=F64)


def model(variance=1.0):
    return un.oracles.normal(un.Gaussian((1,)), torch.zeros(1, dtype=F64), torch.tensor([[variance]], dtype=F64))


def test_terms_are_named_and_summed():
    parts = {name: torch.full((2,), value) for name, value in (("prior", 1.0), ("diffusion", 2.0), ("reconstruction", 4.0))}
    terms = Terms({**parts, "entropy": torch.full((2,), -8.0)})
    assert terms.total.tolist() == terms.loss.tolist() == [-1.0, -1.0]
    assert terms.prior is terms["prior"] and terms.diffusion is terms["diffusion"]
    assert terms["entropy"].tolist() == [-8.0, -8.0]
    expected = "prior=1.0000, diffusion=2.0000, reconstruction=4.0000, entropy=-8.0000, total=-1.0000"
    assert repr(terms) == f"Bound(mean over 2 examples: {expected})"


class Half(un.Importance):
    """A rule with weights of its own."""

    def weight(self, t, low):
        return 0.5 * super().weight(t, low)


class Coupled(un.objectives.JointTimes):
    """A rule that draws all states with the noise of the first row: a coupling of data with noise."""

    is_bound = False

    def draw_weighted(self, process, x0, low, noise, known):
        t = low + (1 - low) * noise.uniform()
        law = process.marginal(x0, t)
        return t, law.mean + law.std * noise.at("state").normal((1,))[:1], torch.full_like(t, 1 - low)


def test_what_is_no_bound_is_not_printed_as_one():
    bound = un.bound(model(), X, seed=1)
    assert bound.is_bound and repr(bound).startswith("Bound(")
    pair = un.Denoiser(Pair(), un.Product(a=un.Gaussian((1,)), b=un.Gaussian((1,))))
    others = {
        "weighting": un.Objective(model(), weightings.Simple())(X),
        "sum": un.Objective(model(), weightings.Bound() + weightings.Simple())(X),
        "weights": un.bound(model(), X, times=Half()),
        "coupling": un.bound(model(), X, times=Coupled()),
        "observed": Observed(pair)({"a": X, "b": X}),
    }
    for name, terms in others.items():
        assert not terms.is_bound and repr(terms).startswith("Loss("), name
    assert "loss=" in repr(others["weighting"])
    assert un.bound(model().predicting(None, un.Chain(model().process, 4)), X).is_bound


class Pair(nn.Module):
    def forward(self, x, t):
        return {name: 0.1 * value for name, value in x.items()}


class Encoder(nn.Module):
    """x_0 = x + s eps, read back by p(x | x_0) = N(x_0, s^2)."""

    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(-1.0, dtype=F64))

    def forward(self, x, noise, condition):
        scale = self.log_scale.exp()
        law = torch.distributions.Normal(x, scale)
        x0 = x + scale * noise.normal((1,))
        read = torch.distributions.Normal(x0, scale).log_prob(x)
        return x0, {"entropy": law.log_prob(x0).sum(1), "likelihood": -read.sum(1)}


def test_an_encoder_adds_its_terms():
    encoder, noise = Encoder(), NoiseSource(4, len(X))
    terms = un.Objective(model(), encoder=encoder)(X, noise)
    x0, added = encoder(X, noise.at("encoder"), {})
    inner = un.Objective(model())(x0, noise)
    assert list(terms.terms) == ["prior", "diffusion", "reconstruction", "entropy", "likelihood"]
    torch.testing.assert_close(terms.total, inner.total + added["entropy"] + added["likelihood"])
    assert terms.is_bound and set(un.Objective(model(), encoder=encoder).parameters()) == set(encoder.parameters())
    terms.loss.mean().backward()
    assert float(encoder.log_scale.grad.abs()) > 0
    weighted = un.Objective(model(), weightings.Simple(), encoder=encoder)(X, noise)
    plain = un.Objective(model(), weightings.Simple())(x0, noise)
    torch.testing.assert_close(weighted.loss, plain.loss + added["entropy"] + added["likelihood"])


def test_the_bound_with_an_encoder_bounds_the_data():
    """Data N(0, 1) encoded into N(0, 1 + s^2), whose exact model is known: the mean bound is the entropy of x_0, given
    which x is N(x_0, s^2) to the model.  That exceeds the entropy of the data; without the entropy of e it would not."""
    encoder, rows = Encoder(), 4000
    with torch.no_grad():
        x = NoiseSource(1, rows).normal((1,))
        scale2 = float(encoder.log_scale.exp().square())
        terms = un.bound(model(1 + scale2), x, seed=2, times=un.Importance(2, power=16.0), cutoff=0.1, encoder=encoder)
    entropy = 0.5 * torch.log(torch.tensor(2 * torch.pi * torch.e))
    error = float(terms.total.std() / rows**0.5)
    expected = float(entropy) + 0.5 * float(torch.log(torch.tensor(1 + scale2)))
    assert abs(float(terms.total.mean()) - expected) < 4 * error < 0.2
    assert float(terms.total.mean() - terms["entropy"].mean()) > expected + 8 * error  # as it would be without


def test_what_is_encoded_is_checked():
    with pytest.raises(ValueError, match=r"x0, as encoded, has shape \(3, 2\)"):
        un.bound(model(), X, encoder=lambda x, noise, condition: (x.expand(-1, 2), {}))
