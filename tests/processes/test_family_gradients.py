"""Gradients of the exact bound, against finite differences: in the network's outputs, and in a learned schedule."""

import pytest
import torch

import unnoise as un
from unnoise import d3pm, noise_laws, rate_matrices, schedules

F64 = torch.float64
NEAR = [torch.tensor([0.7, 0.2, 0.1], dtype=F64), torch.tensor([0.1, 0.3, 0.6], dtype=F64)]
CYCLE = torch.eye(3, dtype=F64).roll(1, 0) + 0.2


def moving(t):
    return torch.stack([1 - 0.8 * t, 0.8 * t], -1)


def interpolation(schedule):
    return un.Interpolation(3, (), torch.tensor([0.5, 0.3, 0.2], dtype=F64), schedule)


def lacking(schedule):
    """A category that noise never draws."""
    return un.Interpolation(3, (), torch.tensor([0.6, 0.4, 0.0], dtype=F64), schedule)


def mixture(schedule):
    return un.Mixture(3, (), laws=NEAR, weights=moving, schedule=schedule)


def masked_mixture(schedule):
    return un.Mixture(3, (), laws=[noise_laws.uniform(3), noise_laws.mask(3)], weights=moving, schedule=schedule)


def neighbours(schedule):
    return un.RateMatrix(rate_matrices.nearest_neighbour(3), (), schedule)


def sparse(schedule):
    return un.RateMatrix(rate_matrices.nearest_neighbour(3).to_sparse(), (), schedule)


def eigen(schedule):
    return un.RateMatrix(rate_matrices.nearest_neighbour(3), (), schedule, method="eigen")


def cycle(schedule):
    return un.RateMatrix(rate_matrices.relaxed(CYCLE.clone().fill_diagonal_(0)), (), schedule)


def birth_death(schedule):
    return un.BirthDeath(2, (), schedule, occupancy=0.4)


def pure_death(schedule):
    return un.BirthDeath(2, (), schedule, occupancy=0.0)


FAMILIES = [interpolation, lacking, mixture, masked_mixture, neighbours, cycle, birth_death, pure_death]
OTHER_PATHS = [sparse, eigen]
KINDS = [un.Posterior, un.RawPosterior, un.Ratio, un.Rates]
CASES = [*[(f, kind) for f in FAMILIES for kind in KINDS], *[(f, un.Posterior) for f in OTHER_PATHS]]
ON_GRID = [(f, kind) for f in FAMILIES for kind in (un.Posterior, un.Transition)]


def names(cases):
    return [f"{family.__name__}-{kind.__name__}" for family, kind in cases]


class Logits(torch.nn.Module):
    """One row of outputs per state; the table is the variable of the gradient check."""

    table: torch.Tensor

    def forward(self, x, t):
        return self.table[x] * (1 + t).unsqueeze(-1)


class Nothing(un.decoders.Decoder):
    """No last term."""

    needs_network = needs_state = False

    def nll(self, process, prediction, x0, x_eps, eps):
        return torch.zeros(len(x0), dtype=F64)


def check(denoiser, network, width, **options):
    """The gradient is that of the bound, and it is not nothing."""
    states, x0 = denoiser.process.state_space.size, denoiser.process.space.states()
    table = torch.randn(states, width, dtype=F64, generator=torch.Generator().manual_seed(1))

    def total(table):
        network.table = table
        return un.bound(denoiser, x0, exact=True, **options).total

    assert bool(total(table).isfinite().all())
    table.requires_grad_()
    assert torch.autograd.gradcheck(total, [table], eps=1e-6, atol=1e-7, rtol=1e-5, fast_mode=True)
    assert float(torch.autograd.grad(total(table).sum(), table)[0].abs().max()) > 1e-3


@pytest.mark.parametrize(("family", "kind"), CASES, ids=names(CASES))
def test_bound(family, kind):
    network = Logits()
    denoiser = un.Denoiser(network, family(schedules.Cosine()), kind)
    decoder = Nothing() if kind in (un.Ratio, un.Rates) else un.decoders.CategoricalDecoder()  # those belong to no clean law
    width = denoiser.process.state_space.size if kind in (un.Ratio, un.Rates) else denoiser.process.space.size
    check(denoiser, network, width, times=un.Quadrature(4), cutoff=0.05, decoder=decoder)


@pytest.mark.parametrize(("family", "kind"), ON_GRID, ids=names(ON_GRID))
def test_chain_bound(family, kind):
    network = Logits()
    denoiser = un.Denoiser(network, un.Chain(family(schedules.Cosine()), [0.0, 0.3, 0.8, 1.0]), kind)
    width = denoiser.process.state_space.size if kind is un.Transition else denoiser.process.space.size
    check(denoiser, network, width)


@pytest.mark.parametrize("kind", [un.Posterior, un.RawPosterior, un.Transition])
@pytest.mark.parametrize("matrices", [d3pm.gaussian(3, [0.1, 0.3, 0.5]), d3pm.absorbing(3, [0.2, 0.5, 1.0])])
def test_matrix_chain_bound(matrices, kind):
    network = Logits()
    chain = un.MatrixChain(matrices, (), size=3)
    check(un.Denoiser(network, chain, kind), network, chain.state_space.size if kind is un.Transition else 3)


# -- learned schedules --------------------------------------------------------------------------------------------------


class Power(schedules.Schedule):
    """alpha = 1 - t^p with a learned p."""

    def __init__(self, power=1.3):
        super().__init__()
        self.power = torch.nn.Parameter(torch.tensor(power, dtype=F64))

    def exact_alpha(self, t):
        return 1 - t**self.power

    def exact_beta(self, t):
        return t**self.power

    exact_sigma = exact_beta


RULES = {
    "continuous": {"times": un.Quadrature(8)},
    "chain": {"grid": [0.0, 0.3, 0.8, 1.0]},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("family", [*FAMILIES, *OTHER_PATHS], ids=lambda f: f.__name__)
def test_a_learned_schedule(family, rule):
    """Through kernels, rates and the network's own dependence on x_t and t; central differences agree."""
    schedule, options = Power(), dict(RULES[rule])
    process, network = family(schedule), Logits()
    grid = options.pop("grid", None)
    generator = torch.Generator().manual_seed(1)
    network.table = torch.randn(process.state_space.size, 3, dtype=F64, generator=generator)
    denoiser = un.Denoiser(network, process if grid is None else un.Chain(process, grid))
    x0 = process.space.states()

    def total():
        return un.bound(denoiser, x0, exact=True, **options).total.sum()

    gradient = torch.autograd.grad(total(), schedule.power)[0].item()
    h, values = 1e-5, []
    with torch.no_grad():
        for shift in (-h, 2 * h):
            schedule.power += shift
            values.append(total().item())
    assert abs(gradient) > 1e-3
    assert gradient == pytest.approx((values[1] - values[0]) / (2 * h), rel=1e-5, abs=1e-6)
