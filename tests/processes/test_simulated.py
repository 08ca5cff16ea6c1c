"""Processes that are known by their generator alone, against what is known of the same ones in closed form.

Means over drawn paths are checked at five standard errors: by chance they are off once in two million runs.
"""

from math import e, log, pi

import pytest
import torch

import unnoise as un
from unnoise.laws import Categorical, Normal
from unnoise.objectives.path_bound import visited

ROWS = 20_000


def normal_prior(rows):
    return Normal(torch.zeros(rows, 1, dtype=torch.float64), torch.ones((), dtype=torch.float64))


def ornstein(steps, visits=4):
    """dx = -2 (1 + t) x dt + sqrt(4 (1 + t)) dW: it rests in N(0, 1)."""

    def local(x, t):
        speed = 2 * (1 + t).unsqueeze(1)
        return un.Local(drift=-speed * x, diffusion=2 * speed * torch.ones_like(x))

    return un.Simulated(un.Euclidean((1,)), local, normal_prior, steps, visits)


class Linear(torch.nn.Module):
    """The slope -c x: of data N(0, 1) with c = 1."""

    def __init__(self, c=1.0):
        super().__init__()
        self.c = torch.nn.Parameter(torch.tensor(c, dtype=torch.float64))

    def forward(self, x, t):
        return -self.c * x


def exact_bound(steps, c, x0):
    """The chain's own bound at x_0 with the slope -c x, by the moments of a Gaussian path."""
    h, mean, variance, total = 1 / steps, x0, 0.0, 0.0
    for k in range(steps):
        speed = 2 * (1 + k * h)
        keep, noise = 1 - speed * h, 2 * speed * h
        # x' = keep x + sqrt(noise) z; back: x ~ N(x' (1 + speed h - noise c), noise)
        back = 1 + speed * h - noise * c
        gap_mean, gap_variance = mean * (1 - back * keep), variance * (1 - back * keep) ** 2 + back**2 * noise
        forward = -0.5 * log(2 * pi * e * noise)
        total += forward + 0.5 * log(2 * pi * noise) + (gap_mean**2 + gap_variance) / (2 * noise)
        mean, variance = keep * mean, keep**2 * variance + noise
    return total + 0.5 * log(2 * pi) + (mean**2 + variance) / 2


def mean_of(values):
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


@pytest.mark.parametrize("visits", [3, 40])
@pytest.mark.parametrize("c", [1.0, 0.6])
def test_the_path_bound_of_a_linear_process_is_that_of_its_gaussian_path(c, visits):
    denoiser = un.Denoiser(Linear(c), ornstein(40, visits))
    x0 = torch.full((ROWS, 1), 0.7, dtype=torch.float64)
    found, error = mean_of(un.bound(denoiser, x0, seed=0).total.detach())
    assert abs(found - exact_bound(40, c, 0.7)) < 5 * error and error < 0.07
    assert abs(found - exact_bound(40, c + 0.6, 0.7)) > 5 * error  # another model has another one


def test_the_chains_bound_tends_to_the_continuous_one_with_order_one():
    """With the exact slope of data N(0, 1) that is -log N(x; 0, 1), the law of all times."""
    wanted = 0.5 * log(2 * pi) + 0.5 * 0.7**2
    gaps = [exact_bound(steps, 1.0, 0.7) - wanted for steps in (50, 100, 200, 400)]
    orders = [log(a / b, 2) for a, b in zip(gaps, gaps[1:], strict=False)]
    assert min(gaps) > 0 and all(0.9 < order < 1.15 for order in orders), (gaps, orders)


def birth_death(steps, visits=5):
    """Five levels, up at rate 2 (4 - x)/4 and down at rate 2 x/4, faster with time: it rests in Binomial(4, 1/2)."""

    def local(x, t):
        speed = 4 * (1 + t).reshape(-1, 1, 1)
        level = torch.arange(5)
        up = torch.where(level == (x + 1).unsqueeze(-1), (4 - x).unsqueeze(-1) / 4, 0.0)
        down = torch.where(level == (x - 1).unsqueeze(-1), x.unsqueeze(-1) / 4, 0.0)
        return un.Local(log_rates=(speed * (up + down)).clamp_min(1e-300).log().clamp_min(-1e30))

    law = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0], dtype=torch.float64) / 16
    return un.Simulated(un.Finite(5, (1,)), local, lambda rows: Categorical(law.log().expand(rows, 1, 5)), steps, visits)


class Tabled(torch.nn.Module):
    """Differences of a table of log q: the exact ones for the law at rest."""

    def __init__(self, wrong=0.0):
        super().__init__()
        self.log_q = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0], dtype=torch.float64).log()
        self.wrong = torch.nn.Parameter(torch.tensor(wrong, dtype=torch.float64))

    def forward(self, x, t):
        table = self.log_q + self.wrong * torch.arange(5)
        return table - table[x].unsqueeze(-1)


def enumerated_bound(denoiser, states):
    """E[sum log q/p - log p(x_T)] from each of these states, by the matrices of all steps."""
    process, n = denoiser.process, len(states)
    here, there = states.repeat_interleave(n, 0), states.repeat(n, 1)
    law, total, h = torch.eye(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64), torch.tensor(1 / process.steps)
    for k in range(process.steps):
        t = torch.full((n,), (k + 1) / process.steps, dtype=torch.float64)
        local = process.local(here, k / process.steps)
        forward = process.space.step_law(local, here, h).log_prob(there).reshape(n, n)  # [x, x']
        back = un.Local(log_rates=denoiser(states, t).local().log_rates.detach().repeat(n, 1, 1))
        back = process.space.step_law(back, there, h).log_prob(here).reshape(n, n)
        total += law @ (forward.exp() * (forward - back).clamp(-1e6, 1e6)).sum(1)
        law = law @ forward.exp()
    return total - law @ process.prior(n).log_prob(states)


def test_the_path_bound_of_a_chain_of_jumps_is_that_of_its_enumerated_paths():
    process, levels = birth_death(16), torch.arange(5).unsqueeze(1)
    for wrong in (0.0, 0.4):
        denoiser = un.Denoiser(Tabled(wrong), process)
        total = enumerated_bound(denoiser, levels)
        x0 = torch.tensor([0, 3]).repeat_interleave(ROWS // 2).unsqueeze(1)
        found = un.bound(denoiser, x0, seed=1).total.detach().reshape(2, -1)
        for row, start in zip(found, (0, 3), strict=True):
            mean, error = mean_of(row)
            assert abs(mean - float(total[start])) < 4 * error and error < 0.05
        assert float((-total).exp().sum()) <= 1 + 1e-9  # a bound on a law of five levels


def test_the_chain_of_jumps_tends_to_its_continuous_bound_with_order_one():
    """With a wrong slope, from each level.  Rates and reverse rates share the clock c = int speed dt, so that
    int p_t f dt is f^T int_0^c exp(u R) du, an exponential of twice the size; c = 6."""
    levels, wrong, clock = torch.arange(5).unsqueeze(1), 0.4, 6.0
    process = birth_death(16)
    rates = process.local(levels, 0.0).rates.squeeze(1).T / 4  # [to, from], at unit speed
    back = un.Denoiser(Tabled(wrong), process)(levels, torch.full((5,), 0.5)).local().rates.squeeze(1).T.detach() / 4
    back = back / (1 + round(0.5 * 16 - 1) / 16)  # the speed of the step before t = 1/2
    cost = (rates * (rates.clamp_min(1e-300).log() - back.T.clamp_min(1e-300).log())).sum(0) + back.sum(0) - rates.sum(0)
    generator = rates - torch.diag(rates.sum(0))
    both = torch.zeros(10, 10, dtype=torch.float64)
    both[:5, :5], both[:5, 5:] = generator, torch.eye(5)
    power = torch.linalg.matrix_exp(clock * both)
    wanted = cost @ power[:5, 5:] - process.prior(1).log_probs[0, 0] @ power[:5, :5]
    gaps = [enumerated_bound(un.Denoiser(Tabled(wrong), birth_death(n)), levels) - wanted for n in (25, 50, 100)]
    sizes = [float(gap.abs().max()) for gap in gaps]
    orders = [log(a / b, 2) for a, b in zip(sizes, sizes[1:], strict=False)]
    assert sizes[0] > 1e-3 and all(0.9 < order < 1.15 for order in orders), (sizes, orders)


def test_drawn_samples_have_the_law_at_rest():
    """The reverse of a process at rest is itself: 20,000 draws, each level within five standard errors."""
    drawn, info = un.sample(un.Denoiser(Tabled(), birth_death(40)), ROWS, seed=2)
    assert info.calls == 40
    share = torch.bincount(drawn.flatten(), minlength=5) / ROWS
    law = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    assert bool(((share - law).abs() < 5 * (law * (1 - law) / ROWS).sqrt() + 1 / 40).all())
    numbers, _ = un.sample(un.Denoiser(Linear(), ornstein(100)), ROWS, seed=2)
    assert abs(float(numbers.mean())) < 0.05 and abs(float(numbers.var()) - 1) < 0.08


class Kicks(un.JumpKernel):
    """N(0, 0.5^2) kicks at rate 4."""

    def log_rate(self, x, y):
        z = ((y - x) / 0.5).squeeze(-1)
        return log(4 / 0.5) - 0.5 * log(2 * pi) - 0.5 * z.square()

    def nodes(self, x):
        steps = torch.linspace(-2.5, 2.5, 31, dtype=torch.float64)
        return x.unsqueeze(1) + steps.reshape(1, -1, 1), torch.full((len(x), 31), log(5 / 30), dtype=torch.float64)


class Spread(un.AnyDenoiser):
    """The exact reverse of a Brownian motion with kicks of data N(0, 1): given n kicks x_t is N(0, 1 + t + n/4)."""

    def __init__(self, process):
        super().__init__()
        self.process = process

    def log_q(self, x, t):
        t = torch.as_tensor(t, dtype=torch.float64).clamp_min(1e-9).expand(len(x)).unsqueeze(1)
        n = torch.arange(40)
        weight = torch.xlogy(n, 4 * t) - 4 * t - torch.lgamma(n + 1.0)
        variance = 1 + t + n / 4
        return (weight - 0.5 * x.square() / variance - 0.5 * (2 * pi * variance).log()).logsumexp(1)

    def forward(self, x_t, t, **condition):
        return un.FromMarginal(self.log_q, self.process, x_t, t)


def jump_diffusion(steps):
    """At the end the prior is the exact marginal."""
    n = torch.arange(40)
    log_weight, std = torch.xlogy(n, torch.tensor(4.0)) - 4 - torch.lgamma(n + 1.0), (2 + n / 4).sqrt()

    class AtEnd(un.laws.Law):
        def __init__(self, rows):
            self.rows = rows

        def log_prob(self, x):
            return (log_weight - 0.5 * (x / std).square() - std.log() - 0.5 * log(2 * pi)).logsumexp(1)

        def kl(self, other):
            raise TypeError

        def draw(self, noise):
            raise TypeError

    local = lambda x, t: un.Local(diffusion=torch.ones_like(x), jumps=Kicks())  # noqa: E731
    return un.Simulated(un.Euclidean((1,)), local, AtEnd, steps, visits=steps)


def kernel(still, spread, places, rates, h, to):
    """log density at the points `to` of a step from each point: hold, or a kick to one of the places and on; [from, to]."""
    events, share = h * rates.sum(1, keepdim=True), rates / rates.sum(1, keepdim=True)
    centres = torch.cat([still, still + places], 1)  # [from, 1 + nodes]
    weight = torch.cat([(-events).exp(), -torch.expm1(-events) * share], 1).log()
    z = (to - centres.unsqueeze(-1)) / spread
    return (weight.unsqueeze(-1) - 0.5 * z.square()).logsumexp(1) - log(spread) - 0.5 * log(2 * pi)


def gridded_bound(denoiser, x0):
    """E[sum log q/p - log p(x_T)] from x_0, by sums over a grid of 2/5 of a step's width: e^-123 is what they leave out."""
    process = denoiser.process
    h = 1 / process.steps
    grid = torch.arange(-11.0, 11.0, 0.4 * h**0.5, dtype=torch.float64)
    column, width = grid.unsqueeze(1), float(grid[1] - grid[0])

    def forward(points):
        y, rates = Kicks().rates(points)
        return kernel(points, h**0.5, y.squeeze(-1) - points, rates, h, grid)

    step, total = forward(grid.unsqueeze(1)), 0.0
    for k in range(process.steps):
        local = denoiser(column, torch.full((len(grid),), (k + 1) * h, dtype=torch.float64)).local()
        y, rates = local.jumps.rates(column)
        start = torch.tensor([[x0]], dtype=torch.float64) if k == 0 else column
        back = kernel(column + h * local.drift, h**0.5, y.squeeze(-1) - column, rates, h, start.squeeze(1)).T  # [x, x']
        ahead = forward(start) if k == 0 else step
        law = torch.ones(1, dtype=torch.float64) if k == 0 else law * width
        total += float(law @ (ahead.exp() * (ahead - back).clamp(-1e6, 1e6)).sum(1)) * width
        law = law @ ahead.exp()
    return total - float(law @ process.prior(len(grid)).log_prob(column)) * width


def test_the_path_bound_of_a_jump_diffusion_is_the_chains_own():
    """By sums over a grid; the mutant with jumps turned round is far from it."""
    x0 = torch.full((2000, 1), 0.5, dtype=torch.float64)
    denoiser = Spread(jump_diffusion(8))
    wanted = gridded_bound(denoiser, 0.5)
    found, error = mean_of(un.bound(denoiser, x0, seed=3).total.detach())
    assert abs(found - wanted) < 4 * error and error < 0.02, (found, wanted, error)
    denoiser.log_q, right = lambda x, t: -right(x, t), denoiser.log_q
    found, error = mean_of(un.bound(denoiser, x0[:200], seed=3).total.detach())
    assert found - wanted > 10 * error


def test_the_jump_diffusions_chain_tends_to_the_continuous_bound_with_order_one():
    """With the exact reverse that is -log N(x_0; 0, 1)."""
    wanted = 0.5 * log(2 * pi) + 0.125
    gaps = [gridded_bound(Spread(jump_diffusion(steps)), 0.5) - wanted for steps in (4, 8, 16)]
    orders = [log(a / b, 2) for a, b in zip(gaps, gaps[1:], strict=False)]
    assert min(gaps) > 0 and all(0.8 < order < 1.2 for order in orders), (gaps, orders)


@pytest.mark.conformance
def test_training_finds_the_slope():
    process = ornstein(50, visits=2)
    denoiser = un.Denoiser(Linear(0.2), process)
    optimiser = torch.optim.Adam(denoiser.parameters(), lr=0.05)
    objective = un.Objective(denoiser)
    for i in range(60):
        x0 = un.NoiseSource(i, 256).normal((1,))
        optimiser.zero_grad()
        objective(x0, un.NoiseSource(i, 256)).loss.mean().backward()
        optimiser.step()
    assert abs(denoiser.network.c.item() - 1) < 0.1


def test_every_part_of_a_path_is_visited_once():
    steps = visited(ornstein(40, 4), 1000, un.NoiseSource(0, 1000))
    assert torch.equal(steps // 10, torch.arange(4).unsqueeze(1).expand(-1, 1000))
    assert torch.equal(visited(ornstein(4, 9), 3, un.NoiseSource(0, 3))[:, 0], torch.arange(4))


def test_what_is_no_process_is_refused_with_where_and_why():
    x0 = torch.ones(3, 1, dtype=torch.float64)

    def made(**parts):
        local = lambda x, t: un.Local(**{name: part(x, t) for name, part in parts.items()})  # noqa: E731
        return un.Denoiser(Linear(), un.Simulated(un.Euclidean((1,)), local, normal_prior, 10))

    with pytest.raises(ValueError, match="at t = 0 the generator has the diffusion -1 \\(row 0\\): it is a variance"):
        un.bound(made(diffusion=lambda x, t: -torch.ones_like(x)), x0)
    with pytest.raises(ValueError, match="at t = 0 the generator's drift in row 0 is not finite"):
        un.bound(made(drift=lambda x, t: x / 0, diffusion=lambda x, t: torch.ones_like(x)), x0)
    with pytest.raises(ValueError, match="a path has exploded by t ="):
        un.bound(made(drift=lambda x, t: 1e4 * x, diffusion=lambda x, t: torch.ones_like(x)), x0)
    with pytest.raises(ValueError, match="has the bound of its paths alone"):
        un.bound(un.Denoiser(Linear(), ornstein(10)), x0, exact=True)
    with pytest.raises(TypeError, match="predicts = Score"):
        un.Denoiser(Linear(), ornstein(10), un.Score)
    with pytest.raises(TypeError, match="no known density under a simulated process"):
        ornstein(10).marginal(x0, 0.5).log_prob(x0)
    with pytest.raises(TypeError, match="a slope says nothing of far places"):
        un.bound(un.Denoiser(Linear(), jump_diffusion(4)), x0)


def test_states_are_drawn_by_paths():
    process = ornstein(50)
    x = process.marginal(torch.full((ROWS, 1), 1.0, dtype=torch.float64), 0.5).draw(un.NoiseSource(0, ROWS))
    mean = 1.0
    for k in range(25):
        mean *= 1 - 2 * (1 + k / 50) / 50
    assert abs(float(x.mean()) - mean) < 5 * float(x.std()) / ROWS**0.5
