"""The docs' kind of one's own: its weight, closed form, conversions, weightings, samples and self-conditioning."""

import importlib.util
from pathlib import Path

import pytest
import torch

import unnoise as un
from unnoise.objectives.closed_forms import rate

PATH = Path(__file__).parents[2] / "docs" / "examples" / "own_kind.py"
spec = importlib.util.spec_from_file_location("own_kind", PATH)
own_kind = importlib.util.module_from_spec(spec)
spec.loader.exec_module(own_kind)
EDMOutput = own_kind.EDMOutput

F64 = torch.float64
SCHEDULES = [un.schedules.Cosine(), un.schedules.VE(0.1, 5.0), un.schedules.LinearBeta()]
KINDS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow]


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


class As(un.AnyDenoiser):
    """The same denoiser, told in another kind."""

    def __init__(self, denoiser, kind):
        super().__init__()
        self.process, self.denoiser, self.kind = denoiser.process, denoiser, kind

    def forward(self, x_t, t, /, **condition):
        return self.denoiser(x_t, t, **condition).to(self.kind)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_the_weight_that_follows_from_coefficients_is_that_of_every_kind(schedule):
    t = torch.linspace(0.05, 0.95, 19, dtype=F64)
    for kind in KINDS:
        general = un.predictions.ContinuousPrediction.squared_error_weight.__func__(kind, schedule, t)
        torch.testing.assert_close(general, kind.squared_error_weight(schedule, t), rtol=1e-12, atol=0)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_the_closed_form_is_the_divergence(schedule):
    for process in (un.Gaussian((2,), schedule), un.Gaussian((2,), schedule, [[1.0, 0.6], [0.6, 1.3]])):
        x0, x_t, t = randn(5, 2), randn(5, 2, seed=1), torch.linspace(0.1, 0.9, 5, dtype=F64)
        prediction = EDMOutput(randn(5, 2, seed=2), process, x_t, t)
        fast, slow = (rate(prediction, process, x0, fast) for fast in (True, False))
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
        clean = prediction.to(un.Clean).to(EDMOutput)
        torch.testing.assert_close(clean.value, prediction.value, rtol=1e-10, atol=1e-10)


def test_it_is_what_edm_writes():
    process, t, d = un.Gaussian((2,)), torch.tensor([0.3], dtype=F64), EDMOutput.data_std
    x_t, value = randn(1, 2), randn(1, 2, seed=1)
    alpha, s = process.schedule.alpha(t), process.schedule.sigma(t) / process.schedule.alpha(t)
    skip, out = d**2 / (s**2 + d**2), s * d / (s**2 + d**2) ** 0.5
    torch.testing.assert_close(EDMOutput(value, process, x_t, t).to(un.Clean).value, skip * x_t / alpha + out * value)


@pytest.mark.parametrize("weighting", [None, "Simple", "V", "MinSNR", "X0"])
def test_bound_and_weightings_are_those_of_the_same_network_in_another_kind(weighting):
    model, x0, noise = own_kind.denoiser(), randn(6, 2), un.NoiseSource(3, 6)
    losses = [
        un.Objective(d, weighting and getattr(un.weightings, weighting)(), cutoff=0.01)(x0, noise).loss
        for d in (model, As(model, un.Velocity))
    ]
    torch.testing.assert_close(*losses, rtol=1e-8, atol=1e-10)
    losses[0].mean().backward()
    assert float(model.network.weight.grad.abs().max()) > 0


def test_samples_and_self_conditioning():
    for twice in (False, True):
        model = own_kind.denoiser(twice)
        ours, theirs = (un.sample(d, 50, 12, seed=4)[0] for d in (model, As(model, un.Velocity)))
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
        assert model.passes == 1 + twice
    x, t = randn(3, 2), torch.full((3,), 0.4, dtype=F64)
    first = own_kind.denoiser()(x, t).to(un.Clean).value
    torch.testing.assert_close(model(x, t).value, model.network(x, t, previous=first))
    once = un.sample(own_kind.denoiser(), 50, 12, seed=4)[0]
    assert float((once - ours).detach().abs().max()) > 1e-3
    exact = un.oracles.normal(model.process, torch.zeros(2), torch.eye(2), EDMOutput)
    same = un.oracles.normal(model.process, torch.zeros(2), torch.eye(2), un.Velocity)
    x0 = randn(10, 2, seed=7)
    torch.testing.assert_close(un.bound(exact, x0, seed=0).total, un.bound(same, x0, seed=0).total, rtol=1e-9, atol=1e-9)


def test_a_kind_that_says_nothing_of_x0_somewhere_is_refused():
    """x_0 + eps is a multiple of x_t where alpha = sigma: it determines nothing there."""

    class Sum(un.predictions.ContinuousPrediction):
        @staticmethod
        def target_coefficients(schedule, t):
            one = torch.ones_like(schedule.alpha(t))
            return one, one

    with pytest.raises(TypeError, match="predicts = Sum: it needs an estimate of x_0"):
        un.Denoiser(own_kind.Network(), un.Gaussian((2,)), Sum, self_condition=True)


def test_a_kind_that_extends_another_has_a_weight_of_its_own():
    class Twice(un.Velocity):
        @staticmethod
        def target_coefficients(schedule, t):
            a, b = un.Velocity.target_coefficients(schedule, t)
            return 2 * a, 2 * b

    t, schedule = torch.linspace(0.1, 0.9, 5, dtype=F64), un.schedules.Cosine()
    weight = un.Velocity.squared_error_weight(schedule, t) / 4
    torch.testing.assert_close(Twice.squared_error_weight(schedule, t), weight, rtol=1e-12, atol=0)


def test_the_page_shows_the_module():
    page = (PATH.parents[1] / "extending-prediction.md").read_text(encoding="utf-8")
    assert f"```python\n{PATH.read_text(encoding='utf-8')}```" in page
