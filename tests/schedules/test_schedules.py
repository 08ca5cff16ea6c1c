"""Schedules against values computed to 50 digits, at both ends of time, in float64 and from float32 times."""

import mpmath as mp
import pytest
import torch
from torch import nn

from unnoise.schedules import (
    EDM,
    VE,
    Cosine,
    CosineOffset,
    Custom,
    FromBetas,
    FromSDE,
    Learned,
    Linear,
    LinearBeta,
    LogSNRLinear,
    OneMinusCosine,
    PerCoordinate,
    Polynomial,
    Power,
    Sigmoid,
    SubVP,
)

mp.mp.dps = 50
TIMES = [1e-7, 1e-4, 0.3, 0.9, 1 - 1e-4, 1 - 1e-6]


def logistic(x):
    return 1 / (1 + mp.exp(-x))


def edm_sigma(t):
    low, high = (mp.mpf(value) ** (mp.mpf(1) / 7) for value in (0.002, 80.0))
    return (low + t * (high - low)) ** 7


def cosine_angles(t, s):
    return s / (1 + s) * mp.pi / 2, (t + s) / (1 + s) * mp.pi / 2


def linear_beta(t):
    """log alpha of the linear rate."""
    return -(mp.mpf(0.1) * t + (mp.mpf(20) - mp.mpf(0.1)) * t**2 / 2) / 2


def sigmoid_signal(t, start, end, temperature):
    """alpha^2, as a plain difference."""
    v = start + t * (end - start)
    s_v, s_start, s_end = (logistic(x / mp.mpf(temperature)) for x in (v, mp.mpf(start), mp.mpf(end)))
    return (s_end - s_v) / (s_end - s_start)


def bent() -> Learned:
    """A learned schedule away from where it starts."""
    schedule = Learned(hidden=5, high=9.0, low=-7.0)
    with torch.no_grad():
        for i, parameter in enumerate(schedule.interior()):
            parameter += torch.sin(torch.arange(parameter.numel()).double() + i).reshape(parameter.shape)
    return schedule.requires_grad_(False)


BENT = bent()


def learned_log_snr(t):
    """The formula with plain differences."""

    def positive(raw):
        return [mp.log(1 + mp.exp(mp.mpf(v))) for v in raw.flatten().tolist()]

    (w,), a, b = positive(BENT.slope), positive(BENT.height), positive(BENT.steepness)
    c = [mp.mpf(v) for v in BENT.centre.tolist()]
    (above,), (below,), middle = positive(BENT.above), positive(BENT.below), mp.mpf(BENT.middle.item())

    def h(u):
        return w * u + sum(x * logistic(y * (u - z)) for x, y, z in zip(a, b, c, strict=True))

    return middle - below + (above + below) * (h(mp.mpf(1)) - h(t)) / (h(mp.mpf(1)) - h(mp.mpf(0)))


BETAS = [0.01, 0.2, 0.05, 0.6, 0.3]


def table_of_betas(t):
    """alpha^2 falls by 1 - beta in each of five steps, log alpha along a line in between."""
    done, log_alpha = mp.floor(min(t * 5, mp.mpf(4))), mp.mpf(0)
    for i, beta in enumerate(BETAS):
        share = mp.mpf(1) if i < done else t * 5 - done if i == done else mp.mpf(0)
        log_alpha += share * mp.log(1 - mp.mpf(beta)) / 2
    return mp.exp(log_alpha)


# name: (schedule, alpha, sigma), the last two as functions of a 50-digit time
SCHEDULES = {
    "Linear": (Linear(), lambda t: 1 - t, lambda t: t),
    "Cosine": (Cosine(), lambda t: mp.cos(mp.pi * t / 2), lambda t: mp.sin(mp.pi * t / 2)),
    "Polynomial(2)": (Polynomial(), lambda t: 1 - t**2, lambda t: t**2),
    "Polynomial(0.75)": (Polynomial(0.75), lambda t: 1 - t ** mp.mpf("0.75"), lambda t: t ** mp.mpf("0.75")),
    "LinearBeta": (
        LinearBeta(),
        lambda t: mp.exp(-(mp.mpf(0.1) * t + (mp.mpf(20) - mp.mpf(0.1)) * t**2 / 2) / 2),
        lambda t: mp.sqrt(-mp.expm1(-(mp.mpf(0.1) * t + (mp.mpf(20) - mp.mpf(0.1)) * t**2 / 2))),
    ),
    "VE": (VE(), lambda t: mp.mpf(1), lambda t: mp.mpf(0.01) * (mp.mpf(50) / mp.mpf(0.01)) ** t),
    "EDM": (EDM(), lambda t: mp.mpf(1), edm_sigma),
    "LogSNRLinear": (
        LogSNRLinear(),
        lambda t: mp.sqrt(logistic(mp.mpf(13.3) - t * (mp.mpf(13.3) + 5))),
        lambda t: mp.sqrt(logistic(-mp.mpf(13.3) + t * (mp.mpf(13.3) + 5))),
    ),
    "SubVP": (SubVP(), lambda t: mp.exp(linear_beta(t)), lambda t: -mp.expm1(2 * linear_beta(t))),
    "Sigmoid": (
        Sigmoid(),
        lambda t: mp.sqrt(sigmoid_signal(t, -3, 3, 1.0)),
        lambda t: mp.sqrt(1 - sigmoid_signal(t, -3, 3, 1.0)),
    ),
    "Sigmoid(0, 3, 0.7)": (
        Sigmoid(0.0, 3.0, 0.7),
        lambda t: mp.sqrt(sigmoid_signal(t, 0, 3, 0.7)),
        lambda t: mp.sqrt(1 - sigmoid_signal(t, 0, 3, 0.7)),
    ),
    "CosineOffset": (
        CosineOffset(),
        lambda t: mp.cos(cosine_angles(t, mp.mpf(0.008))[1]) / mp.cos(cosine_angles(t, mp.mpf(0.008))[0]),
        lambda t: mp.sqrt(
            1 - (mp.cos(cosine_angles(t, mp.mpf(0.008))[1]) / mp.cos(cosine_angles(t, mp.mpf(0.008))[0])) ** 2
        ),
    ),
    "Power(2)": (Power(), lambda t: (1 - t) ** 2, lambda t: 1 - (1 - t) ** 2),
    "Power(3.5)": (Power(3.5), lambda t: (1 - t) ** mp.mpf(3.5), lambda t: 1 - (1 - t) ** mp.mpf(3.5)),
    "OneMinusCosine": (OneMinusCosine(), lambda t: 1 - mp.cos(mp.pi * (1 - t) / 2), lambda t: mp.cos(mp.pi * (1 - t) / 2)),
    "FromBetas": (FromBetas(BETAS), lambda t: table_of_betas(t), lambda t: mp.sqrt(1 - table_of_betas(t) ** 2)),
    "Learned": (BENT, lambda t: mp.sqrt(logistic(learned_log_snr(t))), lambda t: mp.sqrt(logistic(-learned_log_snr(t)))),
    "Custom": (
        Custom(lambda t: (1 - t) * (-t).exp(), lambda t: t**1.5),
        lambda t: (1 - t) * mp.exp(-t),
        lambda t: t ** mp.mpf(1.5),
    ),
    "FromSDE": (  # the Ornstein-Uhlenbeck process dx = -0.75 x dt + sqrt(1.25) dw
        FromSDE(lambda t: -0.75, lambda t: 1.25 * torch.ones_like(t)),
        lambda t: mp.exp(-mp.mpf(0.75) * t),
        lambda t: mp.sqrt(-mp.mpf(1.25) * mp.expm1(-mp.mpf(1.5) * t) / mp.mpf(1.5)),
    ),
}
VANISHING = [  # alpha_1 = 0, sigma_0 = 0, sigma_1 = 1
    *("Linear", "Cosine", "Polynomial(2)", "Polynomial(0.75)", "Sigmoid", "Sigmoid(0, 3, 0.7)", "CosineOffset", "Custom")
]
BY_DIFFERENCE = {"Custom": ["beta"]}  # 1 - alpha of a user's alpha: correct to rounding of alpha only

QUANTITIES = {
    "alpha": lambda a, s, t: a(t),
    "sigma": lambda a, s, t: s(t),
    "beta": lambda a, s, t: 1 - a(t),
    "log_snr": lambda a, s, t: 2 * mp.log(a(t) / s(t)),
    "d_alpha": lambda a, s, t: mp.diff(a, t),
    "d_sigma": lambda a, s, t: mp.diff(s, t),
    "d_log_snr": lambda a, s, t: 2 * (mp.diff(a, t) / a(t) - mp.diff(s, t) / s(t)),
    "drift": lambda a, s, t: mp.diff(a, t) / a(t),
    "diffusion": lambda a, s, t: 2 * s(t) * mp.diff(s, t) - 2 * s(t) ** 2 * mp.diff(a, t) / a(t),
}


def times(dtype=torch.float64):
    return torch.tensor(TIMES, dtype=dtype)


def exact(t):
    """The times that the tensor really holds, to 50 digits."""
    return [mp.mpf(value) for value in t.double().tolist()]


def assert_close(values, reference, relative, absolute=0.0):
    for value, truth in zip(values.double().tolist(), reference, strict=True):
        assert abs(mp.mpf(value) - truth) <= relative * abs(truth) + absolute, f"{value!r} is not {mp.nstr(truth, 20)}"


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_values_in_float64_and_from_float32_times(name, quantity):
    schedule, alpha, sigma = SCHEDULES[name]
    for dtype, relative in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        t = times(dtype)
        values = getattr(schedule, quantity)(t)
        assert values.dtype == dtype
        absolute = 2.3e-16 if quantity in BY_DIFFERENCE.get(name, []) else 0.0
        assert_close(values, [QUANTITIES[quantity](alpha, sigma, u) for u in exact(t)], relative, absolute)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_plain_number_is_a_float64_time(name):
    schedule, alpha, sigma = SCHEDULES[name]
    for function, truth in ((schedule.alpha, alpha), (schedule.sigma, sigma)):
        assert function(0.3).dtype == torch.float64
        assert_close(function(0.3).reshape(1), [truth(mp.mpf(0.3))], 1e-14)
        assert function(1).dtype == torch.float64


@pytest.mark.parametrize("name", VANISHING)
def test_both_ends_are_exact(name):
    schedule = SCHEDULES[name][0]
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert schedule.alpha(ends).tolist() == [1.0, 0.0]
    assert schedule.sigma(ends).tolist() == [0.0, 1.0]
    assert schedule.beta(ends).tolist() == pytest.approx([0.0, 1.0], abs=2.3e-16)
    assert schedule.log_snr(ends).tolist() == [torch.inf, -torch.inf]
    assert schedule.step_alpha(0.0, 1.0).item() == 0.0
    assert schedule.step_beta(0.0, 1.0).item() == pytest.approx(1.0, abs=2.3e-16)
    assert schedule.step_variance(0.0, 1.0).item() == 1.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_derivatives_are_those_of_autograd(name):
    schedule = SCHEDULES[name][0]
    for function, slope in ((schedule.alpha, schedule.d_alpha), (schedule.sigma, schedule.d_sigma)):
        middle = torch.tensor([0.05, 0.3, 0.9], dtype=torch.float64)  # nearer to the ends autograd loses digits
        t = middle.clone().requires_grad_()
        value = function(t)
        gradient = torch.autograd.grad(value.sum(), t)[0] if value.requires_grad else torch.zeros_like(t)
        torch.testing.assert_close(gradient, slope(middle), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_drift_and_diffusion_satisfy_the_moment_equations(name):
    """d alpha/dt = f alpha and d sigma^2/dt = 2 f sigma^2 + g^2."""
    schedule, alpha, sigma = SCHEDULES[name]
    t = times()
    f, g2 = schedule.drift(t), schedule.diffusion(t)
    assert_close(f * schedule.alpha(t), [mp.diff(alpha, u) for u in exact(t)], 1e-12)
    pull = 2 * f * schedule.sigma(t).square()
    for value, size, u in zip((pull + g2).tolist(), (pull.abs() + g2).tolist(), exact(t), strict=True):
        truth = mp.diff(lambda v: sigma(v) ** 2, u)
        assert abs(mp.mpf(value) - truth) <= 1e-12 * size  # two terms may cancel, so relative to their size
    assert bool((g2 > 0).all())


@pytest.mark.parametrize("name", SCHEDULES)
def test_log_snr_inverts(name):
    schedule = SCHEDULES[name][0]
    t = times()
    # where log_snr is nearly linear in t, its rounding is a fixed time and not a share of t
    atol = {"VE": 2e-15, "EDM": 2e-15, "LogSNRLinear": 2e-15, "Learned": 2e-15, "FromSDE": 1e-14}.get(name, 0.0)
    torch.testing.assert_close(schedule.time_of_log_snr(schedule.log_snr(t)), t, rtol=1e-12, atol=atol)
    value = torch.tensor([-1.0, 0.5, 3.0])
    back = schedule.time_of_log_snr(value)
    assert back.dtype == torch.float32
    torch.testing.assert_close(schedule.log_snr(schedule.time_of_log_snr(value.double())), value.double())


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name not in ("VE", "EDM")])
def test_beta_and_alpha_invert(name):
    schedule = SCHEDULES[name][0]
    t = times()
    atol = {"Custom": 1e-15, "LogSNRLinear": 1e-14, "Learned": 1e-14}.get(name, 0.0)  # beta by difference; beta_0 > 0
    flat = {"Power(2)", "Power(3.5)", "OneMinusCosine"}  # beta' = 0 at t = 1: its last digit is 2^-53/beta' of t
    rounding = 2.0**-52 / schedule.d_alpha(t).abs() if name in flat else torch.zeros_like(t)
    assert bool(((schedule.time_of_beta(schedule.beta(t)) - t).abs() <= 1e-12 * t + atol + rounding).all())
    middle = t[2:4]
    torch.testing.assert_close(schedule.time_of_alpha(schedule.alpha(middle)), middle, rtol=1e-12, atol=0)
    alpha = float(schedule.alpha(0.3))
    assert abs(schedule.time_of_alpha(alpha).item() - 0.3) < 1e-13  # a plain number is not rounded to float32


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_compose(name):
    schedule = SCHEDULES[name][0]
    r, s, t = (torch.tensor(v, dtype=torch.float64) for v in ([1e-7, 1e-4, 0.3], [1e-4, 0.3, 0.9], [0.3, 0.9, 1 - 1e-6]))
    close = {"rtol": 1e-12, "atol": 0}
    keep = schedule.step_alpha(s, t)
    torch.testing.assert_close(schedule.step_alpha(r, t), keep * schedule.step_alpha(r, s), **close)
    torch.testing.assert_close(schedule.step_beta(r, t), schedule.step_beta(s, t) + keep * schedule.step_beta(r, s), **close)
    variance = schedule.step_variance(s, t) + keep.square() * schedule.step_variance(r, s)
    torch.testing.assert_close(schedule.step_variance(r, t), variance, **close)


@pytest.mark.parametrize("name", SCHEDULES)
def test_short_steps_keep_their_digits(name):
    schedule, alpha, sigma = SCHEDULES[name]
    for dtype, relative in ((torch.float64, 1e-10), (torch.float32, 1e-6)):
        s, t = torch.tensor([1e-4, 0.3, 0.9], dtype=dtype), torch.tensor([1.1e-4, 0.3001, 0.9001], dtype=dtype)
        pairs = list(zip(exact(s), exact(t), strict=True))
        assert_close(schedule.step_alpha(s, t), [alpha(v) / alpha(u) for u, v in pairs], relative)
        absolute = 2.3e-16 if name in BY_DIFFERENCE else 0.0
        assert_close(schedule.step_beta(s, t), [(alpha(u) - alpha(v)) / alpha(u) for u, v in pairs], relative, absolute)
        truth = [sigma(v) ** 2 - (alpha(v) / alpha(u)) ** 2 * sigma(u) ** 2 for u, v in pairs]
        assert_close(schedule.step_variance(s, t), truth, relative)


def test_a_steep_sigmoid_keeps_its_digits():
    """alpha falls to 1e-7 and below, where a difference of logistic functions has no digits left."""
    schedule, t, s = Sigmoid(0.0, 3.0, 0.1), times(), torch.tensor([0.0, 5e-5, 0.2, 0.8, 1 - 2e-4, 1 - 2e-6]).double()
    signal = [sigmoid_signal(u, 0, 3, 0.1) for u in exact(t)]
    before = [sigmoid_signal(u, 0, 3, 0.1) for u in exact(s)]
    assert signal[-1] < 1e-16
    assert_close(schedule.alpha(t), [mp.sqrt(v) for v in signal], 1e-13)
    assert_close(schedule.sigma(t), [mp.sqrt(1 - v) for v in signal], 1e-13)
    assert_close(schedule.step_variance(s, t)[1:], [1 - v / u for u, v in zip(before, signal, strict=True)][1:], 1e-12)
    assert_close(schedule.step_beta(s, t)[1:], [1 - mp.sqrt(v / u) for u, v in zip(before, signal, strict=True)][1:], 1e-12)
    torch.testing.assert_close(schedule.time_of_log_snr(schedule.log_snr(t)), t, rtol=1e-12, atol=0)
    torch.testing.assert_close(schedule.time_of_alpha(schedule.alpha(t[2:])), t[2:], rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: SubVP(-1.0, 20.0), "beta_min = -1.0.*positive"),
        (lambda: SubVP(0.1, float("nan")), "beta_max = nan.*positive"),
        (lambda: Sigmoid(3.0, -3.0), "start = 3.0, end = -3.0.*choose start < end"),
        (lambda: Sigmoid(temperature=0.0), "temperature = 0.0 must be positive"),
        (lambda: Sigmoid(temperature=0.001), "temperature = 0.001 is too steep.*at least 0.01"),
        (lambda: CosineOffset(0.0), r"offset = 0.0 must be positive.*Cosine\(\)"),
        (lambda: CosineOffset(float("inf")), "offset = inf"),
        (lambda: Learned(high=-3.0, low=3.0), "high = -3.0 must exceed low = 3.0"),
        (lambda: Learned(low=-float("inf")), "low = -inf is no finite log-SNR"),
        (lambda: Learned((2,), high=torch.zeros(3)), r"high has shape \(3,\).*shape \(2,\)"),
        (lambda: Learned(hidden=1), "hidden = 1.*16 is usual"),
        (lambda: Learned((0,)), r"shape = \(0,\).*such as"),
        (lambda: Learned((2,)).time_of_log_snr(0.0), "coordinates have schedules of their own"),
        (lambda: Learned((2,)).time_of_beta(0.5), "coordinates have schedules of their own"),
    ],
)
def test_refusals_name_the_value_and_the_remedy(make, names):
    with pytest.raises(ValueError, match=names):
        make()


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_per_coordinate_is_each_schedule_in_its_place(quantity):
    names = ["Linear", "Cosine", "LinearBeta", "VE", "EDM", "Custom"]
    schedule = PerCoordinate([SCHEDULES[name][0] for name in names], (2, 3))
    t = times()
    values = getattr(schedule, quantity)(t)
    assert values.shape == (len(TIMES), 2, 3)
    assert getattr(schedule, quantity)(0.3).shape == (2, 3)
    for i, name in enumerate(names):
        _, alpha, sigma = SCHEDULES[name]
        absolute = 2.3e-16 if quantity in BY_DIFFERENCE.get(name, []) else 0.0
        reference = [QUANTITIES[quantity](alpha, sigma, u) for u in exact(t)]
        assert_close(values[:, i // 3, i % 3], reference, 1e-12, absolute)


def test_per_coordinate_steps():
    parts = [Linear(), Cosine()]
    schedule, s, t = PerCoordinate(parts), torch.tensor([0.1, 0.2]).double(), torch.tensor([0.5, 0.9]).double()
    for name in ("step_alpha", "step_beta", "step_variance"):
        expected = torch.stack([getattr(part, name)(s, t) for part in parts], -1)
        torch.testing.assert_close(getattr(schedule, name)(s, t), expected, rtol=1e-14, atol=0)


class Power(nn.Module):
    """t^p with learned p."""

    def __init__(self, rest: bool):
        super().__init__()
        self.power, self.rest = nn.Parameter(torch.tensor(2.0, dtype=torch.float64)), rest

    def forward(self, t):
        return 1 - t**self.power if self.rest else t**self.power


def test_derivatives_of_a_learned_schedule_reach_its_parameters():
    schedule = Custom(Power(rest=True), Power(rest=False))
    a, s = (p for _, p in sorted(schedule.named_parameters()))
    t = torch.tensor([0.2, 0.7], dtype=torch.float64)
    d_power = t + 2 * t * t.log()  # d/dp of p t^(p-1) at p = 2
    expected = {
        "d_alpha": (-d_power, 0 * t),
        "d_sigma": (0 * t, d_power),
        # drift = -p t^(p-1) / (1 - t^p)
        "drift": (-d_power / (1 - t**2) - 2 * t * t**2 * t.log() / (1 - t**2) ** 2, 0 * t),
    }
    for name, (by_a, by_s) in expected.items():
        value = getattr(schedule, name)(t)
        gradients = torch.autograd.grad(value.sum(), (a, s), allow_unused=True)
        for gradient, truth in zip(gradients, (by_a, by_s), strict=True):
            found = torch.zeros((), dtype=torch.float64) if gradient is None else gradient
            torch.testing.assert_close(found, truth.sum(), rtol=1e-12, atol=1e-15)
    # the bound's weight -d log_snr/dt depends on both powers
    gradients = torch.autograd.grad(schedule.d_log_snr(t).sum(), (a, s))
    for parameter, gradient in zip((a, s), gradients, strict=True):
        with torch.no_grad():
            h = 1e-6
            parameter += h
            above = schedule.d_log_snr(t).sum()
            parameter -= 2 * h
            below = schedule.d_log_snr(t).sum()
            parameter += h
        torch.testing.assert_close(gradient, (above - below) / (2 * h), rtol=1e-7, atol=0)


def test_a_fixed_schedule_builds_no_graph():
    t = times()
    schedule = SCHEDULES["Custom"][0]
    assert not schedule.d_alpha(t).requires_grad
    assert not schedule.d_log_snr(t).requires_grad


def test_from_sde_gives_linear_beta_back():
    truth = LinearBeta(0.1, 20.0)
    schedule = FromSDE(lambda t: -0.5 * (0.1 + 19.9 * t), lambda t: 0.1 + 19.9 * t)
    t = times()
    for quantity in QUANTITIES:
        found, expected = getattr(schedule, quantity)(t), getattr(truth, quantity)(t)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(schedule.drift(t), -0.5 * (0.1 + 19.9 * t), rtol=1e-14, atol=0)
    torch.testing.assert_close(schedule.diffusion(t), 0.1 + 19.9 * t, rtol=1e-14, atol=0)
    torch.testing.assert_close(schedule.time_of_log_snr(truth.log_snr(t)), t, rtol=1e-10, atol=1e-14)


def test_from_sde_without_drift_adds_the_variance():
    schedule = FromSDE(lambda t: 0.0, lambda t: 2 * t)
    t = times()
    torch.testing.assert_close(schedule.sigma(t), t, rtol=1e-13, atol=0)
    torch.testing.assert_close(schedule.alpha(t), torch.ones_like(t), rtol=0, atol=0)


class Rate(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.8, dtype=torch.float64))

    def forward(self, t):
        return -self.rate * torch.ones_like(t)


def test_from_sde_learns_its_drift():
    schedule = FromSDE(Rate(), lambda t: 1.0)
    t = torch.tensor([0.4], dtype=torch.float64)
    (parameter,) = schedule.parameters()
    # sigma^2 = (1 - exp(-2 r t)) / (2 r)
    r, u = 0.8, 0.4
    variance = -mp.expm1(-2 * r * u) / (2 * r)
    slope = float((u * mp.exp(-2 * r * u) - variance) / r)
    gradient = torch.autograd.grad(schedule.sigma(t).square().sum(), parameter)[0].item()
    assert gradient == pytest.approx(slope, rel=1e-12)


def test_numbers_follow_their_schedule():
    """What a schedule keeps between steps goes with the first attribute that is set, and is never kept of tensors."""
    schedule = Polynomial(2.0)
    assert schedule.numbers(0.5) == (0.75, 0.25)
    schedule.power = 1.0
    assert schedule.numbers(0.5) == (0.5, 0.5)
    scale = torch.tensor(1.0, requires_grad=True)
    assert Custom(lambda t: 1 - scale * t, lambda t: scale * t).numbers(0.5) is None
    assert Learned().numbers(0.5) is None
    schedule.register_buffer("table", torch.ones(2))
    assert schedule.numbers(0.5) is None


def test_a_table_of_betas_is_its_chain():
    """At every i/T the products of 1 - beta, as numpy has them; and a chain of T steps takes the table's own steps."""
    betas = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
    schedule, t = FromBetas(betas), torch.arange(1001, dtype=torch.float64) / 1000
    kept = torch.cat([torch.ones(1, dtype=torch.float64), (1 - betas).cumprod(0)])
    torch.testing.assert_close(schedule.alpha(t).square(), kept, rtol=1e-12, atol=0)
    torch.testing.assert_close(schedule.step_variance(t[:-1], t[1:])[1:], betas[1:], rtol=1e-9, atol=0)
    for wrong in ([], [[0.1]], [0.1, 0.0], [0.5, 1.0]):
        with pytest.raises(ValueError, match="beta"):
            FromBetas(torch.tensor(wrong))
