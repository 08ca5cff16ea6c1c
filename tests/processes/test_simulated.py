"""Processes that are known by their generator alone, against what is known of the same ones in closed form.

Means over drawn paths are checked at five standard errors: by chance they are off once in two million runs.
"""

from math import e, log, pi

import pytest
import torch

import unnoise as un
from unnoise.laws import Categorical, Normal
from unnoise.objectives.path_bound import visited
from unnoise.spaces.finite import leap

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


def test_the_path_bound_of_a_chain_of_jumps_is_that_of_its_enumerated_paths():
    process, levels = birth_death(16), torch.arange(5).unsqueeze(1)
    for wrong in (0.0, 0.4):
        denoiser, total = un.Denoiser(Tabled(wrong), process), torch.zeros(5, dtype=torch.float64)
        law, h = torch.eye(5, dtype=torch.float64), torch.tensor(1 / 16)  # [from x_0, now]
        for k in range(16):
            forward = leap(levels, process.local(levels, k / 16).rates, h).log_probs.squeeze(1)  # [x, x']
            back = denoiser(levels, torch.full((5,), (k + 1) / 16, dtype=torch.float64)).local()
            back = leap(levels, back.rates, h).log_probs.squeeze(1).detach()  # [x', x]
            total += law @ (forward.exp() * (forward - back.T).clamp(-1e6, 1e6)).sum(1)
            law = law @ forward.exp()
        total -= law @ process.prior(1).log_probs[0, 0]
        x0 = torch.tensor([0, 3]).repeat_interleave(ROWS // 2).unsqueeze(1)
        found = un.bound(denoiser, x0, seed=1).total.detach().reshape(2, -1)
        for row, start in zip(found, (0, 3), strict=True):
            mean, error = mean_of(row)
            assert abs(mean - float(total[start])) < 5 * error and error < 0.05
        assert float((-total).exp().sum()) <= 1 + 1e-9  # a bound on a law of five levels


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


def test_a_jump_diffusion_bounds_its_data_ever_better():
    """-log N(x; 0, 1) from above, by less and less as steps shrink; the mutant with jumps turned round is far above."""
    x0 = torch.full((1000, 1), 0.5, dtype=torch.float64)
    wanted, gaps = 0.5 * log(2 * pi) + 0.125, []
    for steps in (8, 32):
        found, error = mean_of(un.bound(Spread(jump_diffusion(steps)), x0, seed=3).total.detach())
        gaps.append(found - wanted)
        assert found > wanted - 5 * error and error < 0.03
    assert gaps[1] < 0.5 * gaps[0] and gaps[1] < 0.08, gaps


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

    with pytest.raises(ValueError, match="at t = 0 the generator has the diffusion -1: it is a variance"):
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
