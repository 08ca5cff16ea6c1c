"""Pairs under common noise, and the consistency distillation of categories, by enumeration."""

from itertools import product
from math import log, pi, sqrt

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.distillation import Consistency, consistency
from unnoise.hybrids import common_noise
from unnoise.noise import NoiseSource


def normal_cdf(z):
    return torch.special.ndtr(z)


def first(size: int, mu: float) -> float:
    """P(argmax = x) = int phi(z - mu) Phi(z)^(K - 1) dz, by the trapezoid rule (exact to rounding for such integrands)."""
    z = torch.linspace(-12.0, 12.0 + mu, 4001, dtype=torch.float64)
    density = torch.exp(-0.5 * (z - mu) ** 2) / sqrt(2 * pi)
    return float(torch.trapezoid(density * normal_cdf(z) ** (size - 1), z))


def alpha_of(size: int, mu: float) -> float:
    return (size * first(size, mu) - 1) / (size - 1)


def pair_law(process, alphas: tuple[float, float]) -> torch.Tensor:
    """The joint law of (z_t, z_s) of a token that is 0, by the two draws that make it."""
    (late, early), states = alphas, process.state_space.size
    p = process.noise.log_probs(torch.float64, torch.device("cpu")).exp().reshape(-1, states)[0]
    law = torch.zeros(states, states, dtype=torch.float64)
    law[0, 0] += late
    law[:, 0] += (early - late) * p
    law += (1 - early) * torch.diag(p)
    return law


def drawn_law(process, times, rows: int, draw=common_noise) -> torch.Tensor:
    x0 = torch.zeros(rows, *process.space.shape, dtype=torch.int64)
    t, s = (torch.full((rows,), v, dtype=torch.float64) for v in times)
    z, y = draw(process, x0, (t, s), NoiseSource(3, rows))
    states = process.state_space.size
    return torch.bincount((z * states + y).flatten(), minlength=states**2).double().reshape(states, states) / z.numel()


def argmax_law(size: int, mus: tuple[float, float], rows: int) -> torch.Tensor:
    """The same of the argmax of one Gaussian noise at two ratios of signal to noise."""
    eps = NoiseSource(9, rows).normal((size,))
    z, y = ((eps + mu * torch.eye(size, dtype=torch.float64)[0]).argmax(-1) for mu in mus)
    return torch.bincount(z * size + y, minlength=size**2).double().reshape(size, size) / rows


def far(found, law, rows) -> float:
    """In standard errors, at most over the entries (1e-12 where nothing may be)."""
    return float(((found - law).abs() / (law * (1 - law) / rows).sqrt().clamp_min(1e-12)).max())


@pytest.mark.parametrize("size", [2, 3, 5])
def test_pairs_have_the_law_of_the_gaussian_argmax(size):
    """Both are draws of 200,000: within 6 standard errors in all entries (a false alarm in 10^7); pairs of independent noise
    and pairs along the process are far outside."""
    mus, rows = (0.5, 1.4), 200_000
    alphas = tuple(alpha_of(size, mu) for mu in mus)
    uniform = un.Uniform(size=size)
    law = pair_law(uniform, alphas)
    times = tuple(1 - a for a in alphas)  # of Linear: alpha = 1 - t
    assert far(argmax_law(size, mus, rows), law, rows) < 6
    assert far(drawn_law(uniform, times, rows), law, rows) < 6

    def independent(process, x0, times, noise):
        return [common_noise(process, x0, (t,), noise.at(i))[0] for i, t in enumerate(times)]

    def along(process, x0, times, noise):
        early = process.marginal(x0, times[1]).draw(noise.at("s"))
        return [process.transition(early, times[1], times[0]).draw(noise.at("t")), early]

    for other in (independent, along):
        found = drawn_law(uniform, times, rows, other)
        assert far(found, law, rows) > 15
        for dim in (0, 1):  # each time by itself is as it should be
            one = law.sum(dim)
            assert float(((found.sum(dim) - one).abs() / (one * (1 - one) / rows).sqrt()).max()) < 6


def test_two_categories_in_closed_form():
    """z_t = x if eta > -mu_t/sqrt(2), one normal number eta for both times."""
    mus = (0.4, 1.1)
    late, early = (float(normal_cdf(torch.tensor(mu / sqrt(2), dtype=torch.float64))) for mu in mus)
    law = pair_law(un.Uniform(size=2), tuple(2 * p - 1 for p in (late, early)))
    expected = torch.tensor([[late, 0.0], [early - late, 1 - early]], dtype=torch.float64)
    torch.testing.assert_close(law, expected, rtol=0, atol=1e-14)
    assert abs(alpha_of(2, 0.4) - (2 * late - 1)) < 1e-12


def test_masked_pairs_are_those_of_the_process():
    """Under masking, and only there: the joint law is that of x_s and then x_t given x_s."""
    for process, same in ((un.Masking(size=3), True), (un.Uniform(size=3), False)):
        t, s = 0.7, 0.3
        law, x = pair_law(process, (1 - t, 1 - s)), torch.tensor([0])
        early = process.marginal(x, s).probs[0]
        states = torch.arange(len(early))
        along = (process.transition(states, s, t).probs * early[:, None]).T
        torch.testing.assert_close(law.sum(0), along.sum(0))
        torch.testing.assert_close(law.sum(1), along.sum(1))
        assert (float((law - along).abs().max()) < 1e-12) is same


class Logits(nn.Module):
    """Free logits for each state of two tokens, at two times."""

    def __init__(self, states: int, size: int, cut: float = 0.5, seed: int = 0, scale: float = 1.0):
        super().__init__()
        self.states, self.cut = states, cut
        table = scale * NoiseSource(seed, 2 * states**2).normal((2, size))
        self.table = nn.Parameter(table.reshape(2, states, states, 2, size))

    def forward(self, x, t):
        return self.table[(t > self.cut).long(), x[:, 0], x[:, 1]]


T, S = 0.75, 0.25


def enumerated(process, run: Consistency, law: torch.Tensor) -> torch.Tensor:
    """The loss at the times (T, S) in the mean over x_0 ~ law and both tokens' pairs, exactly."""
    joint = [torch.zeros(0)] * 2
    states, pairs = process.state_space.size, {}
    for x in range(process.space.size):
        rolled = pair_law(process, (1 - T, 1 - S))
        order = torch.arange(states)
        order[0], order[x] = x, 0  # the law of a token x is that of 0 with the names exchanged
        pairs[x] = rolled[order][:, order]
    total = torch.zeros((), dtype=torch.float64)
    for x in product(range(process.space.size), repeat=2):
        joint = pairs[x[0]][:, None, :, None] * pairs[x[1]][None, :, None, :]  # z_t, z_t', z_s, z_s'
        index = torch.tensor(list(product(range(states), repeat=4)))
        weight = joint.reshape(-1) * law[x]
        late, early = index[:, :2], index[:, 2:]
        one = torch.ones(len(index), dtype=torch.float64)
        each = consistency.divergence(run.denoiser(late, T * one), run.before(early, S * one))
        total = total + (weight * torch.where(weight > 0, each, 0.0)).sum()
    return total


def consistent(process, student=None, teacher=None, **options) -> Consistency:
    def made(network):
        return un.Denoiser(network, process)

    sizes = process.state_space.size, process.space.size
    return Consistency(made(student or Logits(*sizes)), made(teacher or Logits(*sizes, seed=1, scale=3.0)), **options)


PROCESSES = {"uniform": un.Uniform(size=2, shape=(2,)), "masking": un.Masking(size=2, shape=(2,))}
LAW = torch.tensor([[0.4, 0.1], [0.15, 0.35]], dtype=torch.float64)


@pytest.mark.parametrize("name", PROCESSES)
def test_the_best_student_is_the_geometric_mean_of_its_teachers(name):
    """For each z_t: log p = E[log q(. | z_s)] + const, and the loss left is -E log of the normaliser; both by enumeration,
    and by the gradient, which is zero there and nowhere near."""
    process, states = PROCESSES[name], PROCESSES[name].state_space.size
    run = consistent(process)
    mean, weights = (
        torch.zeros(states, states, 2, 2, dtype=torch.float64),
        torch.zeros(states, states, 2, dtype=torch.float64),
    )
    teacher = run.before.network.table[0].log_softmax(-1)
    movable = [process.movable(torch.tensor(i)) for i in range(states)]
    for x in product(range(2), repeat=2):
        tokens = []
        for own in x:
            swap = torch.arange(states)
            swap[0], swap[own] = own, 0
            tokens.append(pair_law(process, (1 - T, 1 - S))[swap][:, swap])
        for z, z2, y, y2 in product(range(states), repeat=4):
            w = float(LAW[x] * tokens[0][z, y] * tokens[1][z2, y2])
            for k, (late, early) in enumerate(((z, y), (z2, y2))):
                if w > 0 and movable[late] and movable[early]:
                    mean[z, z2, k] += w * teacher[y, y2, k]
                    weights[z, z2, k] += w
    mean = mean / weights.clamp_min(1e-300).unsqueeze(-1)
    least = -(weights * mean.logsumexp(-1)).sum()
    network = run.denoiser.network
    with torch.no_grad():
        network.table[1] = mean
    loss = enumerated(process, run, LAW)
    gradient = torch.autograd.grad(loss, network.table)[0]
    torch.testing.assert_close(loss.detach(), least.detach(), rtol=0, atol=1e-12)
    assert float(loss.detach()) > 1e-3 and float(gradient.abs().max()) < 1e-12
    with torch.no_grad():
        network.table[1, :, :, 0, 0] += 0.3
    worse = enumerated(process, run, LAW)
    assert float((worse - loss).detach()) > 1e-3 and float(torch.autograd.grad(worse, network.table)[0].abs().max()) > 1e-3


@pytest.mark.parametrize("name", PROCESSES)
def test_zero_where_the_teacher_says_the_same_at_all_pairs(name):
    """Tokens that do not depend on each other: the leave-one-out law is p itself at every state and time, and the loss is 0
    if and only if the student says so too."""
    process, p = PROCESSES[name], torch.tensor([0.3, 0.7], dtype=torch.float64)
    run = consistent(process)
    for denoiser in (run.denoiser, run.before):
        with torch.no_grad():
            denoiser.network.table.copy_(p.log())
    alone = torch.outer(p, p)
    assert abs(float(enumerated(process, run, alone).detach())) < 1e-15
    with torch.no_grad():
        run.denoiser.network.table[1, -1, -1, 0, 0] += 0.2
    assert float(enumerated(process, run, alone).detach()) > 1e-5


@pytest.mark.parametrize("name", PROCESSES)
def test_what_is_drawn_has_that_mean(name):
    """The loss over 40,000 rows at the same two times, within 5 standard errors of the enumerated one (a false alarm in a
    million).  Mutants: noise of their own for the two times, the teacher asked at t, KL the other way round."""
    process, rows = PROCESSES[name], 40_000
    run = consistent(process, rounds=1, delta=T - S)
    exact = float(enumerated(process, run, LAW).detach())
    x0 = torch.multinomial(LAW.flatten(), rows, True, generator=torch.Generator().manual_seed(0))
    x0 = torch.stack([x0 // 2, x0 % 2], 1)
    t, s = (torch.full((rows,), v, dtype=torch.float64) for v in (T, S))

    def off(pair=run.pair, time=s, swap=False) -> float:
        with torch.no_grad():
            late, early = pair(x0, t, s, NoiseSource(5, rows), {})
            both = run.denoiser(late, t), run.before(early, time)
            each = consistency.divergence(*(both[::-1] if swap else both))
        return abs(float(each.mean()) - exact) / (float(each.std()) / rows**0.5)

    def independent(x0, t, s, noise, told):
        return run.pair(x0, t, s, noise, told)[0], run.pair(x0, t, s, noise.at("other"), told)[1]

    assert off() < 5
    assert off(independent) > 8 and off(time=t) > 8 and off(swap=True) > 8


def test_rounds_hand_the_student_on_and_double_delta():
    run = consistent(PROCESSES["uniform"], rounds=3, delta=1 / 8)
    assert run.gap == 1 / 8 and not run.advance(0.2)
    with torch.no_grad():
        run.denoiser.network.table.fill_(2.0)
    assert run.advance(0.34) and run.gap == 1 / 4 and bool((run.before.network.table == 2.0).all())
    other = consistent(PROCESSES["uniform"], rounds=3, delta=1 / 8)
    other.restore(run.kept())
    assert other.gap == 1 / 4 and torch.equal(other.before.network.table, run.before.network.table)
    assert bool((other.denoiser.network.table != 2.0).any())  # the student's weights are not among them
    with pytest.raises(ValueError, match="doubled in 9 rounds"):
        consistent(PROCESSES["uniform"], rounds=9, delta=1 / 8)


@torch.no_grad()
def test_one_step_of_two_bits_that_are_equal():
    """Masked: whatever the network, one step is a product law.  Its KL is the bits' total correlation, log 2, at least, and
    its total variation sqrt(2) - 1: with the right marginals 1/2, a little less where both bits lean to one side, the least
    at p = q = 1/sqrt(2).  Uniform noise: the first state is random, and both bits may follow one of its."""
    law = torch.tensor([[0.5, 0.0], [0.0, 0.5]], dtype=torch.float64)
    p = torch.linspace(0, 1, 101, dtype=torch.float64)
    rows = torch.stack([1 - p, p], -1)
    products = rows[:, None, :, None] * rows[None, :, None, :]  # all product laws on a grid
    distance = (products - law).abs().sum((-1, -2)) / 2
    best = sqrt(2) - 1
    assert best <= float(distance.min()) < best + 1e-2 and float(distance[50, 50]) == 0.5
    edge = torch.tensor([1 - sqrt(0.5), sqrt(0.5)], dtype=torch.float64)
    assert abs(float((torch.outer(edge, edge) - law).abs().sum() / 2) - best) < 1e-15
    inner = products[1:-1, 1:-1]
    divergences = (law * ((law.clamp_min(1e-300)).log() - inner.log())).sum((-1, -2))
    assert abs(float(divergences.min()) - log(2)) < 1e-12
    for seed in range(5):
        masked = un.Denoiser(Logits(3, 2, seed=seed), PROCESSES["masking"])
        q = masked(torch.tensor([[2, 2]]), 1.0).step(0.0).probs[0, :, :2]
        assert float((torch.outer(q[0], q[1]) - law).abs().sum() / 2) >= best

    class FirstBit(nn.Module):
        def forward(self, x, t):
            return 60.0 * nn.functional.one_hot(x[:, :1].expand(-1, 2), 2).double()

    uniform, total = un.Denoiser(FirstBit(), PROCESSES["uniform"]), torch.zeros(2, 2, dtype=torch.float64)
    for z in product(range(2), repeat=2):
        q = uniform(torch.tensor([z]), 1.0).step(0.0).probs[0]
        total += torch.outer(q[0], q[1]) / 4
    assert float((total - law).abs().sum() / 2) < 1e-12


def test_a_product_of_both_kinds():
    both = un.Product(number=un.Gaussian((1,), un.schedules.Cosine()), letters=un.Masking(size=3, shape=(2,)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 7, dtype=torch.float64)

        def forward(self, x, t):
            out = self.body(torch.cat([x["number"], x["letters"].double(), t[:, None]], 1))
            return {"number": out[:, :1], "letters": out[:, 1:].reshape(-1, 2, 3)}

    x0 = {"number": NoiseSource(0, 64).normal((1,)), "letters": (NoiseSource(1, 64).uniform((2,)) * 3).long()}
    student = un.distill(un.Denoiser(Net(), both), x0, "consistency", 3, updates=6, rounds=3, delta=1 / 16)
    x, info = un.sample(student, 5, seed=0)
    assert info.calls in (3, 4) and x["number"].shape == (5, 1) and int(x["letters"].max()) < 3
    with pytest.raises(ValueError, match="leaf 'letters' is noised by Masking"):
        un.distill(un.Denoiser(Net(), both), x0, "progressive", 3)
