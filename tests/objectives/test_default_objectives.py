"""What a process answers for: its decoder and its times; and what is said where it answers nothing."""

from dataclasses import replace

import pytest
import torch

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.objectives import default_decoder, default_times, default_weighting
from unnoise.objectives.closed_forms import closed_form, rate

X = torch.tensor([[0.3], [-0.8]], dtype=torch.float64)


class Alone(un.Process):
    """A process that extends none of the library's families: it answers as another, but is not of its class."""

    has_density = True

    def __init__(self):
        super().__init__()
        self.inner = un.Gaussian((1,))
        self.space = self.state_space = self.inner.space
        self.cutoff = self.inner.cutoff

    def noiseless(self, t):
        return self.inner.noiseless(t)

    def prior_kl(self, x0, t=1.0):
        return self.inner.prior_kl(x0, t)

    def marginal(self, x0, t):
        return self.inner.marginal(x0, t)

    def reverse(self, x_t, x0, t):
        return self.inner.reverse(x_t, x0, t)


class Guess(AnyDenoiser):
    def __init__(self, process):
        super().__init__()
        self.process, self.kinds = process, None

    def forward(self, x_t, t, **condition):
        return un.Clean(0.5 * x_t, un.Gaussian((1,)), x_t, t)


def test_a_process_of_ones_own_is_told_what_it_lacks():
    with pytest.raises(TypeError, match=r"Alone has no default decoder.*decoder=.*default_decoder\.register\(Alone\)"):
        un.Objective(Guess(Alone()))
    with pytest.raises(TypeError, match="Alone has no default decoder"):
        un.bound(Guess(un.Product(a=Alone(), b=un.Masking(2, (1,)))), {"a": X, "b": torch.zeros(2, 1).long()})
    with pytest.raises(ValueError, match="the noise is 0 at the cut-off t = 0, where the bound of continuous data diverges"):
        un.Objective(Guess(Alone()), decoder=un.decoders.GaussianDecoder(), cutoff=0.0)


class AsGaussian(un.decoders.Decoder):
    needs_network = needs_state = False

    def nll(self, process, prediction, x0, x_eps, eps):
        return un.decoders.GaussianDecoder().nll(process.inner, prediction, x0, x_eps, eps)


def test_a_decoder_is_given_or_registered():
    class Registered(Alone):
        pass

    default_decoder.register(Registered)(lambda process: AsGaussian())
    plain = un.bound(Guess(un.Gaussian((1,))), X, seed=1)
    for ours in (
        un.bound(Guess(Alone()), X, seed=1, decoder=AsGaussian()),
        un.bound(Guess(Registered()), X, seed=1),
    ):
        torch.testing.assert_close(ours.total, plain.total, rtol=1e-12, atol=0)
    with pytest.raises(TypeError, match="decoder GaussianDecoder does not fit Alone: leave it out"):  # it was given
        un.bound(Guess(Alone()), X, decoder=un.decoders.GaussianDecoder())


def test_times_and_weighting():
    assert type(default_times(Alone())) is un.Importance and default_weighting(Alone()).is_bound

    class Timed(Alone):
        pass

    default_times.register(Timed)(lambda process: un.Stratified(3))
    assert un.Objective(Guess(Timed()), decoder=AsGaussian()).times.draws == 3
    assert isinstance(default_times(un.Chain(un.Masking(2, (3,)), 4)), un.MaskedCount)


def test_draws_of_a_process_that_says_nothing_are_taken_to_jump():
    class Learned(Alone):
        def __init__(self):
            super().__init__()
            self.inner = un.Gaussian((1,), un.schedules.Learned(hidden=3))

    with pytest.raises(ValueError, match="Learned: a learned schedule.*no unbiased gradient.*reparametrised = True"):
        un.Objective(Guess(Learned()), decoder=AsGaussian())

    class Smooth(Learned):
        reparametrised = True

    un.Objective(Guess(Smooth()), decoder=AsGaussian())


# -- closed forms -----------------------------------------------------------------------------------------------------


class Named(un.Gaussian):
    """A subclass that adds a name."""

    def __init__(self):
        super().__init__((1,))
        self.name = "numbers"

    def describe(self):
        return self.name


class Slow(un.Gaussian):
    """A subclass with a generator of its own."""

    def local(self, x, t):
        forward = super().local(x, t)
        return replace(forward, diffusion=0.5 * forward.diffusion)


def test_a_subclass_keeps_the_closed_form_as_long_as_it_redefines_nothing():
    assert closed_form.of(Named, un.Clean) is closed_form.of(un.Gaussian, un.Clean) is not None
    assert closed_form.of(Slow, un.Clean) is None
    assert closed_form.of(type("Further", (Slow,), {}), un.Clean) is None

    class Kind(un.Clean):
        pass

    assert closed_form.of(un.Gaussian, Kind) is None  # a kind of one's own has a form of its own, or none
    t = torch.tensor([0.3, 0.6], dtype=torch.float64)
    plain, slow = (rate(un.Clean(0.5 * X, p, 0.9 * X, t), p, X) for p in (Named(), Slow((1,))))
    torch.testing.assert_close(plain, rate(un.Clean(0.5 * X, Named(), 0.9 * X, t), Named(), X, fast=False))
    torch.testing.assert_close(slow, 0.5 * plain)


def test_a_closed_form_is_registered_from_outside():
    class Mine(Slow):
        pass

    @closed_form.register(Mine, un.Clean)
    def seven(prediction, x0):
        return torch.full((len(x0),), 7.0)

    t = torch.tensor([0.3, 0.6], dtype=torch.float64)
    assert rate(un.Clean(X, Mine((1,)), X, t), Mine((1,)), X).tolist() == [7.0, 7.0]
