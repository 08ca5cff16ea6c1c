"""Values of the wrong shape are refused by name: outputs of a leaf, values, tilts, marginals, weights."""

import jaxtyping
import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.predictions import tilt
from unnoise.predictions.variance import LearnedVariance, PosteriorVariance
from unnoise.samplers import FromGenerator

X, C = torch.zeros(4, 2), torch.zeros(4, 2, dtype=torch.int64)


class Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, t):
        return self.function(x)


@pytest.fixture(autouse=True)
def unannotated():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def numbers(function=lambda x: 0.5 * x, **options):
    return un.Denoiser(Returns(function), un.Gaussian((2,)), un.Clean, **options)


def categories(process):
    return un.Denoiser(Returns(lambda x: torch.zeros(*x.shape, 3)), process)


def test_an_output_names_its_leaf():
    inner = un.Product(job=un.Uniform(4, (1,)))
    outer = un.Product(age=un.Gaussian((2,)), rest=inner)
    good = {"age": X, "rest": {"job": torch.zeros(4, 1, 4)}}
    x = {"age": X, "rest": {"job": C[:, :1]}}
    for output, error, message in (
        ({**good, "age": X[:, :1]}, ValueError, r"leaf 'age': the network returned shape \(4, 1\); expected \(4, 2\)"),
        ({**good, "age": X.long()}, TypeError, "leaf 'age': the network returned dtype"),
        ({**good, "rest": {"job": X}}, ValueError, r"leaf 'rest': leaf 'job': the network returned shape \(4, 2\)"),
    ):
        with pytest.raises(error, match=message):
            un.Denoiser(Returns(lambda x, output=output: output), outer)(x, 0.5)
    assert un.Denoiser(Returns(lambda x: good), outer)(x, 0.5).leaves.keys() == {"age", "rest"}


def test_a_second_output_is_read_or_refused():
    with pytest.raises(ValueError, match=r"pair \(prediction, v\), but nothing reads v: .*variance=LearnedVariance\(\)"):
        numbers(lambda x: (x, x))(X, 0.5)
    for variance in (LearnedVariance(), PosteriorVariance()):
        assert numbers(lambda x: (x, x), variance=variance)(X, 0.5).extra is not None


@pytest.mark.parametrize("process", [un.Uniform(3, (2,)), un.Masking(3, (2,))])
def test_another_value_has_the_shape_of_the_kind(process):
    for told, wrong in ((numbers()(X, 0.5), X[:, :1]), (categories(process)(C, 0.5), torch.zeros(4, 2))):
        with pytest.raises(ValueError, match=rf"the value of \w+ is of shape \({', '.join(map(str, wrong.shape))}\): pass"):
            told.with_value(wrong)
        assert torch.equal(told.with_value(told.value + 1).value, told.value + 1)
    with pytest.raises(ValueError, match="the value of Clean is a float: pass a tensor of shape"):
        numbers()(X, 0.5).with_value(0.5)
    ratio = categories(process)(C, 0.5).to(un.Ratio)
    wide = process.widen(ratio.value)
    assert torch.equal(ratio.with_value(wide).value, wide)


def test_a_tilt_has_the_shape_of_the_state():
    told, of_categories = numbers()(X, 0.5), categories(un.Uniform(3, (2,)))(C, 0.5)
    of_counts = un.CountRatio(torch.zeros(4, 2, 2), un.Thinning((2,), immigration=1.0), C, 0.5)
    for prediction, wrong in (
        (told, torch.ones(4)),
        (told, torch.ones(2)),
        (of_categories, torch.zeros(4, 2)),
        (of_categories.to(un.Ratio), torch.zeros(4, 2)),
        (of_counts, torch.zeros(4, 2)),
    ):
        with pytest.raises(ValueError, match=r"the `by` of a tilt is of shape \(.*pass a tensor of shape \(4, 2"):
            tilt(prediction, wrong)
    assert torch.equal(tilt(told, torch.ones(1, 2)).value, tilt(told, torch.ones(4, 2)).value)
    law = torch.tensor([0.0, 1.0, 2.0])
    for kind in (of_categories, of_categories.to(un.Ratio)):
        assert torch.equal(tilt(kind, law.reshape(1, 1, 3)).value, tilt(kind, law.expand(4, 2, 3)).value)


class Marginal(un.AnyDenoiser):
    def __init__(self, log_q):
        super().__init__()
        self.process, self.log_q = un.Gaussian((2,), un.schedules.LinearBeta()), log_q

    def forward(self, x_t, t, /, **condition):
        return un.FromMarginal(self.log_q, self.process, x_t, t)


def test_a_marginal_has_one_number_per_row():
    options = {"x": X, "start": 0.9, "end": 0.1, "steps": 2, "sampler": FromGenerator(), "seed": 0}
    for log_q in (lambda x, t: -x.square() / 2, lambda x, t: -x.square().sum(1, keepdim=True) / 2):
        with pytest.raises(ValueError, match=r"what log_q\(x, t\) returned is of shape \(4, \d\): .* \(4,\)"):
            un.sample(Marginal(log_q), **options)
    x, _ = un.sample(Marginal(lambda x, t: -x.square().sum(1) / 2), **options)
    assert x.isfinite().all()


class Three(un.weightings.GaussianWeighting):
    def __init__(self, weight):
        self.weight = weight

    def on_clean(self, schedule, t):
        return self.weight


@pytest.mark.parametrize("weight", [torch.ones(3), 1.0])
def test_a_weight_is_one_number_per_time(weight):
    with pytest.raises(
        TypeError, match=r"Three\.on_clean\(t\) returned .* for t of shape \(4,\): return one number per time"
    ):
        un.Objective(numbers(), Three(weight))(X)
    fit = un.Objective(numbers(), Three(torch.ones(4, dtype=torch.float64)))(X, un.NoiseSource(0, 4))
    same = un.Objective(numbers(), un.weightings.X0())(X, un.NoiseSource(0, 4))
    assert torch.equal(fit.loss, same.loss)
