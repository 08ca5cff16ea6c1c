"""Gradients of the bound and of its integrand, against finite differences, for every process and prediction."""

import pytest
import torch

import unnoise as un
from unnoise.laws import LOG_ZERO
from unnoise.objectives import closed_forms
from unnoise.objectives.closed_forms import rate

schedules = un.schedules
F64 = torch.float64
ROWS = 2
MIXED = schedules.PerCoordinate([schedules.Linear(), schedules.Polynomial(2.0)])

PROCESSES = {
    "gaussian": lambda: un.Gaussian((2,), schedules.Linear()),
    "gaussian-exploding": lambda: un.Gaussian((2,), schedules.VE(0.1, 5.0)),
    "gaussian-per-coordinate": lambda: un.Gaussian((2,), MIXED),
    "masking": lambda: un.Masking(3, 2),
    "masking-sizes": lambda: un.Masking([2, 3], schedule=schedules.Cosine()),
    "uniform": lambda: un.Uniform(3, 2, schedules.Cosine()),
    "uniform-sizes": lambda: un.Uniform([2, 3]),
    "uniform-per-coordinate": lambda: un.Uniform(3, 2, MIXED),
}
NUMBERS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow]
CATEGORIES = [un.Posterior, un.RawPosterior, un.Ratio, un.Rates]
CASES = [
    pytest.param(name, kind, id=f"{name}-{kind.__name__}")
    for name in PROCESSES
    for kind in (NUMBERS if name.startswith("gaussian") else CATEGORIES)
]
ON_GRID = [
    *[case for case in CASES if not (case.values[0].startswith("masking") and case.values[1] is un.Ratio)],
    pytest.param("gaussian", un.Mean, id="gaussian-Mean"),
    pytest.param("masking", un.Transition, id="masking-Transition"),
    pytest.param("uniform-sizes", un.Transition, id="uniform-sizes-Transition"),
]
GRID = [0.1, 0.4, 0.7, 0.9]


def grid_of(process):
    """Masking must end at t = 1, where its prior is; elsewhere a grid that stops short keeps rates finite."""
    return [*GRID[:-1], 1.0] if isinstance(process, un.Masking) else GRID


def source(seed):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=source(seed))


def random_data(process, rows=ROWS, seed=0):
    if isinstance(process, un.Product):
        return {name: random_data(leaf, rows, seed + i) for i, (name, leaf) in enumerate(process.leaves.items())}
    if isinstance(process, un.Gaussian):
        return randn(rows, *process.space.shape, seed=seed)
    states = process.space.states()
    return states[torch.randint(len(states), (rows,), generator=source(seed))]


class Nothing(un.decoders.Decoder):
    """No last term: what is differentiated is the integral, or the sum over steps."""

    needs_network = needs_state = False

    def nll(self, process, prediction, x0, x_eps, eps):
        return torch.zeros(len(x0), dtype=F64)


class Fixed(torch.nn.Module):
    """A network that says the same whatever it is asked: its output is the variable of the gradient check."""

    output = None

    def forward(self, x, t):
        return self.output


def value_shape(process, kind):
    if isinstance(process, un.Gaussian):
        return (ROWS, 2)
    return (ROWS, 2, process.state_space.size if kind is un.Transition else process.space.size)


def check(function, *values, fast_mode=False):
    """The gradient is that of the function, and it is not nothing."""
    leaves = [value.clone().requires_grad_() for value in values]
    assert torch.autograd.gradcheck(function, leaves, eps=1e-6, atol=1e-7, rtol=1e-5, fast_mode=fast_mode)
    gradients = torch.autograd.grad(function(*leaves).sum(), leaves)
    assert all(float(g.abs().max()) > 1e-3 for g in gradients)


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("fast", [True, False])
def test_rate(name, kind, fast):
    process = PROCESSES[name]()
    x0 = random_data(process)
    t = torch.tensor([0.45, 0.85], dtype=F64)
    x_t = process.marginal(x0, t).draw(un.NoiseSource(3, ROWS))
    if isinstance(process, un.Masking):
        x_t[:, 0] = process.mask
    check(lambda v: rate(kind(v, process, x_t, t), process, x0, fast), randn(*value_shape(process, kind), seed=1))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_bound(name, kind):
    """The whole bound at one random time per row, reconstruction included."""
    process = PROCESSES[name]()
    x0, network = random_data(process), Fixed()
    decoder = (
        un.decoders.GaussianDecoder(network=True) if isinstance(process, un.Gaussian) else un.decoders.CategoricalDecoder()
    )
    if kind in (un.Ratio, un.Rates):
        decoder = Nothing()  # those of an arbitrary network belong to no clean law, so there is no posterior to decode by
    objective = un.Objective(un.Denoiser(network, process, kind), decoder=decoder, cutoff=0.05)

    def total(value):
        network.output = value
        return objective(x0, un.NoiseSource(1, ROWS)).total

    check(total, randn(*value_shape(process, kind), seed=1))


@pytest.mark.parametrize(("name", "kind"), ON_GRID)
def test_chain_bound(name, kind):
    """Discrete time: the KLs of the kernels of every step."""
    process = PROCESSES[name]()
    x0, network = random_data(process), Fixed()
    objective = un.Objective(
        un.Denoiser(network, un.Chain(process, grid_of(process)), kind), times=un.Grid(), decoder=Nothing()
    )

    def diffusion(value):
        network.output = value
        return objective(x0, un.NoiseSource(1, ROWS)).diffusion

    check(diffusion, randn(*value_shape(process, kind), seed=1), fast_mode=True)


@pytest.mark.parametrize("kind", [*NUMBERS, un.Mean])
def test_learned_variance(kind):
    """Both outputs of a network that returns (prediction, v) receive the gradient of the kernels' KL."""
    process = PROCESSES["gaussian"]()
    x0, network = random_data(process), Fixed()
    denoiser = un.Denoiser(network, un.Chain(process, GRID), kind, variance=un.variances.LearnedVariance())
    objective = un.Objective(denoiser, times=un.Grid())

    def total(value, v):
        network.output = (value, v)
        return objective(x0, un.NoiseSource(1, ROWS)).total

    check(total, randn(ROWS, 2, seed=1), randn(ROWS, 2, seed=2).sigmoid())


def test_product_bound():
    process = un.Product(a=PROCESSES["gaussian"](), b=PROCESSES["uniform-sizes"](), c=PROCESSES["masking"]())
    x0, network = random_data(process), Fixed()
    objective = un.Objective(un.Denoiser(network, process, {"a": un.Velocity}), cutoff=0.05)

    def total(a, b, c):
        network.output = {"a": a, "b": b, "c": c}
        return objective(x0, un.NoiseSource(2, ROWS)).total

    check(total, *[randn(*value_shape(leaf, None), seed=i) for i, leaf in enumerate(process.leaves.values())])


@pytest.mark.parametrize("weighting", ["Simple", "X0", "V", "MinSNR", "EDMWeighting", "SigmoidWeighting"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_weighted_loss(weighting, kind):
    process = PROCESSES["gaussian"]()
    x0, network = random_data(process), Fixed()
    objective = un.Objective(un.Denoiser(network, process, kind), weighting=getattr(un.weightings, weighting)())

    def loss(value):
        network.output = value
        return objective(x0, un.NoiseSource(4, ROWS)).loss

    check(loss, randn(ROWS, 2, seed=1))


@pytest.mark.parametrize("kind", CATEGORIES[:2])
@pytest.mark.parametrize("name", ["masking", "uniform", "uniform-sizes"])
def test_cross_entropy_loss(name, kind):
    process = PROCESSES[name]()
    x0, network = random_data(process), Fixed()
    weighting = un.weightings.CrossEntropy()
    objective = un.Objective(un.Denoiser(network, process, kind), weighting=weighting, cutoff=0.05)

    def loss(value):
        network.output = value
        return objective(x0, un.NoiseSource(1, ROWS)).loss

    check(loss, randn(*value_shape(process, kind), seed=1))


# -- the streamed path ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uniform", "uniform-sizes", "uniform-per-coordinate"])
@pytest.mark.parametrize("lazy", [False, True])
def test_streamed_gradient_is_the_whole_one(name, lazy, monkeypatch):
    """Recomputed chunk by chunk, the gradient of logits, or of features and head, is the one in a single piece."""
    process, rows = PROCESSES[name](), 8
    x0 = random_data(process, rows)
    t = torch.linspace(0.1, 0.9, rows, dtype=F64)
    x_t = process.marginal(x0, t).draw(un.NoiseSource(3, rows))
    weight = randn(5, 3, seed=7).requires_grad_()
    features = randn(rows, 2, 5 if lazy else 3, seed=8).requires_grad_()
    calls = []

    def head(h):
        calls.append(len(h))
        return h @ weight

    def gradients(chunk):
        monkeypatch.setattr(closed_forms, "CHUNK", chunk)
        calls.clear()
        loss = rate(un.Posterior(features, process, x_t, t, head=head if lazy else None), process, x0).sum()
        return torch.autograd.grad(loss, [features, weight] if lazy else [features])

    whole = gradients(2**20)
    assert calls == ([2 * rows] if lazy else [])
    parts = gradients(3 * 5)
    assert not lazy or (max(calls) == 5 and len(calls) == 8)  # four chunks, each evaluated again for its gradient
    for a, b in zip(parts, whole, strict=True):
        assert float(b.abs().max()) > 1e-2
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
    slow = rate(un.Posterior(features, process, x_t, t, head=head if lazy else None), process, x0, fast=False).sum()
    torch.testing.assert_close(torch.autograd.grad(slow, features)[0], whole[0], rtol=1e-9, atol=1e-10)


# -- impossible categories --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("impossible", [LOG_ZERO, -float("inf"), -200.0])
@pytest.mark.parametrize("kind", CATEGORIES[:2])
@pytest.mark.parametrize("name", ["masking", "uniform"])
@pytest.mark.parametrize("fast", [True, False])
def test_finite_where_categories_are_impossible(name, kind, impossible, fast):
    """A network that rules a category out (not x_0's) gets a finite loss and gradient, zero on that category."""
    process = PROCESSES[name]()
    x0 = torch.tensor([[0, 1], [1, 0]])
    value = randn(ROWS, 2, 3, seed=1)
    value[..., 2] = impossible
    t = torch.tensor([0.3, 0.8], dtype=F64)
    other = 3 if name == "masking" else 1
    for x_t in (x0.clone(), torch.full_like(x0, other)):
        value = value.detach().requires_grad_()
        loss = rate(kind(value, process, x_t, t), process, x0, fast)
        gradient = torch.autograd.grad(loss.sum(), value)[0]
        assert loss.isfinite().all() and gradient.isfinite().all()
        assert float(gradient[..., 2].abs().max()) < 1e-12
    assert float(gradient.abs().max()) > 1e-3


@pytest.mark.parametrize(("name", "kind"), [case for case in CASES if "sizes" in case.values[0]])
@pytest.mark.parametrize("discrete", [False, True])
def test_entries_beyond_a_coordinates_categories_get_no_gradient(name, kind, discrete):
    process = PROCESSES[name]()
    x0, network = random_data(process), Fixed()
    denoiser = un.Denoiser(network, un.Chain(process, grid_of(process)) if discrete else process, kind)
    objective = un.Objective(denoiser, times=un.Grid() if discrete else None, decoder=Nothing())
    network.output = randn(*value_shape(process, kind), seed=1).requires_grad_()
    value = objective(x0, un.NoiseSource(1, ROWS)).diffusion
    gradient = torch.autograd.grad(value.sum(), network.output)[0]
    assert value.isfinite().all() and gradient.isfinite().all()
    assert float(gradient[:, 0, 2].abs().max()) == 0.0  # coordinate 0 has two categories
    assert float(gradient.abs().max()) > 1e-3


# -- learned schedules ------------------------------------------------------------------------------------------------


class Power(schedules.Schedule):
    """alpha = 1 - t^p, sigma = t^p with a learned p."""

    def __init__(self, power=1.3):
        super().__init__()
        self.power = torch.nn.Parameter(torch.tensor(power, dtype=F64))

    def exact_alpha(self, t):
        return 1 - t**self.power

    def exact_sigma(self, t):
        return t**self.power


class Timed(torch.nn.Module):
    """A network that depends on state and time."""

    def __init__(self, process):
        super().__init__()
        self.process = process
        if not isinstance(process, un.Gaussian):
            self.table = randn(2, process.state_space.size, process.space.size, seed=3)

    def forward(self, x, t):
        if isinstance(self.process, un.Gaussian):
            return 0.4 * x * torch.cos(3 * t).unsqueeze(1) + t.unsqueeze(1)
        return (self.table[0, x] + self.table[1, x.flip(1)]) * (1 + 2 * t).reshape(-1, 1, 1)


LEARNED = {
    "gaussian-exact": (lambda s: un.Gaussian((1,), s), {"exact": True, "times": un.Quadrature(12)}),
    "gaussian-drawn": (lambda s: un.Gaussian((1,), s), {}),
    "gaussian-chain": (lambda s: un.Gaussian((1,), s), {"grid": GRID, "exact": True}),
    "uniform-exact": (lambda s: un.Uniform(3, 2, s), {"exact": True, "times": un.Quadrature(12)}),
    "uniform-chain": (lambda s: un.Uniform(3, 2, s), {"grid": GRID, "exact": True}),
    "masking-exact": (lambda s: un.Masking(3, 2, s), {"exact": True, "times": un.Quadrature(12)}),
    "masking-count": (lambda s: un.Masking(3, 2, s), {"times": un.MaskedCount(4), "cutoff": 0.1}),
}


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("make", "options"), LEARNED.values(), ids=LEARNED.keys())
def test_a_learned_schedule_gets_the_bounds_gradient(make, options, fast):
    """Through marginals, rates, weights and the network's own dependence on x_t and t; central differences agree."""
    schedule, options = Power(), dict(options)
    process = make(schedule)
    x0 = random_data(process, 3)
    kind = un.Noise if isinstance(process, un.Gaussian) else un.Posterior
    grid = options.pop("grid", None)
    denoiser = un.Denoiser(Timed(process), process if grid is None else un.Chain(process, grid), kind)

    def total():
        return un.bound(denoiser, x0, seed=5, fast=fast, **options).total.sum()

    value = total()
    gradient = torch.autograd.grad(value, schedule.power)[0].item()
    h, values = 1e-5, []
    with torch.no_grad():
        for shift in (-h, 2 * h):
            schedule.power += shift
            values.append(total().item())
    assert abs(gradient) > 1e-3
    assert gradient == pytest.approx((values[1] - values[0]) / (2 * h), rel=1e-5, abs=1e-6)
    assert any(p is schedule.power for p in denoiser.parameters())
