"""Schedules whose alpha' is infinite at t = 1: exact bounds are -log q there too, and no rule visits t = 1 itself."""

import pytest
import torch

import unnoise as un
from unnoise.objectives.quadrature import late_grading
from unnoise.objectives.times import LAST, MaskedCount

S, F64, CPU = un.schedules, torch.float64, torch.device("cpu")
LAW = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=F64)


def power(a):
    return S.Custom(lambda t: (1 - t) ** a, lambda t: t)


def circle():
    return S.Custom(lambda t: (1 - t**2).sqrt(), lambda t: t)


def oracle(process, schedule):
    return un.oracles.table(process(2, (2,), schedule=schedule), LAW)


@pytest.mark.parametrize("process", [un.Masking, un.Uniform])
@pytest.mark.parametrize("schedule", [S.Sigmoid(), circle(), power(0.5), power(0.75), power(0.9)])
def test_exact_bounds_are_exact(process, schedule):
    model = oracle(process, schedule)
    x = model.process.space.states()
    # 1 - t^2 near t = 1, and 1 - alpha near t = 0, lose digits in this schedule's own formula
    near = 1e-9 if not isinstance(schedule, S.Custom) else 1e-8
    for fast in (True, False):
        gap = un.bound(model, x, exact=True, fast=fast).total + LAW.log()
        assert gap.abs().max() < near


@pytest.mark.parametrize("a, wanted", [(0.25, 4.0), (0.5, 2.0), (0.75, 8 / 3)])
def test_the_grading_follows_from_the_slope(a, wanted):
    process = un.Masking(2, (1,), schedule=power(a))
    assert float(late_grading(process, CPU)) == pytest.approx(wanted, abs=1e-6)
    assert float(late_grading(un.Product(a=un.Masking(2, (1,)), b=process), CPU)) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    "schedule", [S.Linear(), S.Cosine(), S.LinearBeta(), S.LogSNRLinear(), S.CosineOffset(), S.Learned()]
)
def test_other_schedules_keep_their_nodes_bit_for_bit(schedule):
    process, x0 = un.Gaussian((1,), schedule), torch.zeros(1, 1)
    plain, asked = (un.Quadrature(64, late=late).visit(process, x0, 1e-3, un.NoiseSource(0, 1)) for late in (1.0, None))
    assert torch.equal(plain.t, asked.t) and torch.equal(plain.weight, asked.weight)


def test_the_sigmoid_falls_at_its_end():
    assert S.Sigmoid().d_alpha(1.0) == -torch.inf
    assert S.Sigmoid().alpha(1.0) == 0


def test_no_time_is_one():
    class Ones(un.NoiseSource):
        def uniform(self, *arguments, **options):
            return torch.ones_like(super().uniform(*arguments, **options))

        def shared_uniform(self, *arguments, **options):
            return torch.ones_like(super().shared_uniform(*arguments, **options)) - 2.0**-53

    x0 = torch.zeros(1, 2, dtype=torch.int64)
    process = un.Masking(2, (2,), schedule=S.Sigmoid())
    for rule in (un.objectives.UniformTimes(), un.Importance(), un.objectives.Stratified(), MaskedCount()):
        visits = rule.visit(process, x0, 0.0, Ones(0, 1))
        assert visits.t.max() <= LAST and visits.weight.isfinite().all()
        assert (visits.weight * process.schedule.d_alpha(visits.t)).isfinite().all()


@pytest.mark.parametrize("schedule", [S.Sigmoid(), circle()])
def test_random_times_agree(schedule):
    model = oracle(un.Uniform, schedule)
    x = model.process.space.states()[:1].expand(4000, 2)
    values = un.bound(model, x, seed=0).total
    assert abs(values.mean() + LAW[0].log()) < 4 * values.std() / 4000**0.5  # a right rule is beyond with probability 6e-5


class Nothing(un.predictions.ContinuousPrediction):
    """0 x_0 + 0 eps: D = 0 everywhere."""

    @staticmethod
    def target_coefficients(schedule, t):
        return 0 * schedule.alpha(t), 0 * schedule.alpha(t)


class Zero(torch.nn.Module):
    def forward(self, x, t):
        return 0 * x


def test_a_nan_is_the_networks_only_where_it_is():
    denoiser = un.Denoiser(Zero(), un.Gaussian((2,)), predicts=Nothing)
    with pytest.raises(FloatingPointError, match="the network's values are finite, and what is made of them is not"):
        un.bound(denoiser, torch.ones(2, 2), seed=0)
