"""Rules, weightings and encoders of one's own: what is no bound is not told as one, and nothing of a bound is lost."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import weightings
from unnoise.noise import NoiseSource
from unnoise.objectives import Observed, UniformTimes

F64 = torch.float64
X = torch.tensor([[0.3], [-0.8], [1.1]], dtype=F64)


def model():
    return un.oracles.normal(un.Gaussian((1,)), torch.zeros(1, dtype=F64), torch.tensor([[0.5]], dtype=F64))


@pytest.mark.parametrize("name", ["prior", "diffusion", "reconstruction", "total", "loss"])
def test_an_encoder_takes_no_term_of_the_bound_away(name):
    with pytest.raises(ValueError, match=f"names a term '{name}', which a bound has already"):
        un.bound(model(), X, encoder=lambda x, noise, condition: (x, {name: torch.zeros(3, dtype=F64)}))


@pytest.mark.parametrize("term", [torch.zeros(3, 1), torch.zeros(()), torch.zeros(1), 0.5])
def test_an_encoders_term_has_a_number_per_row(term):
    """A column of them would make a table of all pairs of rows."""
    with pytest.raises(ValueError, match=r"the encoder's term 'entropy' is .*one number per row, \(3,\)"):
        un.bound(model(), X, encoder=lambda x, noise, condition: (x, {"entropy": term}))


def test_an_encoder_keeps_the_rows():
    with pytest.raises(ValueError, match="the encoder made 1 rows of 3"):
        un.bound(model(), X, encoder=lambda x, noise, condition: (x[:1], {}))


@pytest.mark.parametrize("rule", [UniformTimes(0), un.Importance(0), un.Stratified(-1)])
@pytest.mark.parametrize("weighting", [None, weightings.Simple()])
def test_no_times_at_all_are_no_loss_of_zero(rule, weighting):
    with pytest.raises(ValueError, match="at least one time per row"):
        un.Objective(model(), weighting, times=rule)(X)


class Even:
    """A weight of no density, mixed in from outside."""

    def weight(self, t, low):
        return torch.ones_like(t)


class Mixed(Even, un.Importance):
    pass


class Vouched(Even, un.Importance):
    is_bound = True


class Heir(Vouched):
    pass


def test_weights_that_are_mixed_in_are_no_bounds():
    result = un.bound(model(), X, times=Mixed(), seed=0)
    assert not result.is_bound and repr(result).startswith("Loss(")
    assert Vouched.is_bound and Heir.is_bound and un.Importance.is_bound


class Hundredfold(weightings.Bound):
    """A rate of its own, written as a subclass of the bound."""

    def leaf_rate(self, prediction, process, x0, fast, free=None):
        return 100 * super().leaf_rate(prediction, process, x0, fast, free)


class FromScratch(weightings.Weighting):
    def leaf_rate(self, prediction, process, x0, fast, free=None):
        return 100 * weightings.Bound().leaf_rate(prediction, process, x0, fast, free)


class Renamed(weightings.Bound):
    pass


@pytest.mark.parametrize("chain", [False, True])
def test_a_subclass_of_the_bound_with_a_rate_of_its_own_is_minimised(chain):
    grid = torch.tensor([0.1, 0.3, 0.6, 0.9], dtype=F64)
    denoiser = model().predicting(None, un.Chain(model().process, grid)) if chain else model()
    noise = NoiseSource(1, 3)
    result = un.Objective(denoiser, Hundredfold())(X, noise)
    plain = un.Objective(denoiser)(X, noise)
    assert not result.is_bound and Renamed.is_bound and Renamed.bound_share == 1
    torch.testing.assert_close(result.total, plain.total)
    assert torch.equal(result.loss, un.Objective(denoiser, FromScratch())(X, noise).loss)
    if not chain:
        torch.testing.assert_close(result.loss, 100 * plain.diffusion)


class Shrink(nn.Module):
    def forward(self, x, t):
        return 0.5 * x


@pytest.mark.parametrize("kind", [un.Velocity, un.Clean, un.Flow])
def test_balanced_on_a_chain_that_ends_in_noise(kind):
    """At t = 1 the weights are the limits that 0/0 has there: those of a chain that ends just before."""
    process, losses = un.Gaussian((1,)), []
    for last in (1.0, 1 - 1e-9):
        chain = un.Chain(process, torch.tensor([0.01, 0.5, last], dtype=F64))
        objective = un.Objective(un.Denoiser(Shrink(), chain, kind), weightings.Balanced(), times=un.Grid())
        losses.append(objective(X, NoiseSource(2, 3)).loss)
    assert losses[0].isfinite().all()
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-6, atol=1e-6)


class Pair(nn.Module):
    def forward(self, x, t):
        return {name: 0.1 * value for name, value in x.items()}


def test_observed_leaves_stand_at_times_that_a_chain_leaves_out():
    process = un.Product(a=un.Gaussian((1,)), b=un.Gaussian((1,)))
    with pytest.raises(TypeError, match="a chain's grid leaves out"):
        Observed(un.Denoiser(Pair(), un.Chain(process, 8)))


def test_a_value_for_a_leaf_that_is_not_there_is_refused():
    denoiser = un.Denoiser(Pair(), un.Product(a=un.Gaussian((1,)), b=un.Gaussian((1,))))
    with pytest.raises(ValueError, match=r"no leaf \['c'\] to give a value"):
        denoiser({"a": X, "b": X}, 0.5).with_value({"c": X})
