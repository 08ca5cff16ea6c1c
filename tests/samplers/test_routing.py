"""Routed decoding: by chance it is the ancestral kernel, exactly; by score it keeps what a heuristic can promise."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.noise import NoiseSource
from unnoise.samplers import Tokens, routing, sample
from unnoise.samplers.problem import Problem
from unnoise.samplers.routing import Routed, best

STEADY = un.schedules.LinearBeta(2.0, 2.0)
LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)
SKEW = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
HALF = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)  # noise never draws the last category
OWN = un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Polynomial(3.0)])

PROCESSES = {
    "masking": lambda: un.Masking(3, (2,)),
    "masking-own": lambda: un.Masking(3, (2,), OWN),
    "uniform": lambda: un.Uniform(3, (2,), STEADY),
    "skew": lambda: un.Interpolation(3, (2,), SKEW, STEADY),
    "half": lambda: un.Interpolation(3, (2,), HALF),
    "with-mask": lambda: un.Interpolation(3, (2,), un.noise_laws.uniform_with_mask(3), STEADY),
}


def routed_probs(oracle, t: float, s: float) -> torch.Tensor:
    """sum_a theta(a) [keep e_x + renew p + (1 - keep - renew) e_a], a row for each state and coordinate."""
    process = oracle.process
    x = states(process.state_space)
    sampler = Routed("random")
    times = torch.tensor([t, s], dtype=torch.float64)
    tables = sampler.tables(Problem(oracle, times, NoiseSource(0, len(x)), {}))
    theta = oracle(x, t).to(un.RawPosterior).log_probs().exp()
    count = process.state_space.size
    eye = torch.eye(count, dtype=torch.float64)
    noise = process.noise.log_probs(torch.float64, x.device).exp()
    total = torch.zeros(*x.shape, count, dtype=torch.float64)
    for a in range(process.space.size):
        keep, renew = sampler.shares(process, tables, x, torch.full_like(x, a), 0)
        rest = (1 - keep - renew).unsqueeze(-1)
        assert float(torch.stack([keep, renew, rest.squeeze(-1)]).min()) > -1e-15
        kernel = keep.unsqueeze(-1) * eye[x] + renew.unsqueeze(-1) * noise + rest * eye[a]
        total += theta[..., a : a + 1] * kernel
    return total


@pytest.mark.parametrize("times", [(0.7, 0.4), (1.0, 0.6), (0.5, 0.0), (0.999, 0.001)])
@pytest.mark.parametrize("process", PROCESSES)
def test_by_chance_it_is_the_ancestral_kernel(process, times):
    oracle = un.oracles.table(PROCESSES[process](), LAW)
    t, s = times
    points = states(oracle.process.state_space)
    if t == 1 and process in ("masking", "masking-own", "half"):  # only what noise draws is possible there
        points = points[oracle.process.movable(points).all(1)]
    rows = [i for i, x in enumerate(states(oracle.process.state_space).tolist()) if x in points.tolist()]
    expected = oracle(points, t).step(s).probs
    torch.testing.assert_close(routed_probs(oracle, t, s)[rows], expected, rtol=0, atol=1e-12)


def test_a_wrong_lambda_is_caught(monkeypatch):
    right = Routed.shares

    def wrong(self, process, tables, x, a, i):  # the print without p(x_t): noise would mask again
        keep, renew = right(self, process, tables, x, a, i)
        alpha_t, beta_t, beta_s, survives, _ = tables.table[:, i]
        leave = beta_s * (1 - survives) / (alpha_t + beta_t)
        return torch.where(x == a, 1 - leave, keep), torch.where(x == a, leave, renew)

    monkeypatch.setattr(Routed, "shares", wrong)
    for process in ("masking", "uniform"):
        oracle = un.oracles.table(PROCESSES[process](), LAW)
        expected = oracle(states(oracle.process.state_space), 0.7).step(0.4).probs
        assert float((routed_probs(oracle, 0.7, 0.4) - expected).abs().max()) > 0.01


@pytest.mark.parametrize("process", ["masking", "uniform", "with-mask"])
def test_draws_by_chance_have_the_law(process, monkeypatch):
    oracle, n = un.oracles.table(PROCESSES[process](), LAW), 20_000
    x = states(oracle.process.state_space)[7:8].expand(n, -1).contiguous()
    probs = oracle(x[:1], 0.7).step(0.4).probs[0]

    def off() -> float:
        drawn, _ = sample(oracle, sampler=Routed("random"), grid=[0.7, 0.4], x=x, seed=2)
        found = torch.stack([column.bincount(minlength=probs.shape[-1]) for column in drawn.T]) / n
        return float(((found - probs) / (probs * (1 - probs) / n).sqrt().clamp_min(1e-9)).abs().max())

    assert Routed("random").order == 1 and Routed("random", Tokens(0.5)).order is None
    assert off() < 4.5
    right = Routed.shares
    monkeypatch.setattr(Routed, "shares", lambda *args: right(*args)[::-1])
    assert off() > 10


class Table(nn.Module):
    """Logits of each coordinate that depend on time and on its own neighbour, so that scores change from step to step."""

    def __init__(self, size: int, length: int, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.base = nn.Parameter(2 * torch.randn(length, size, generator=generator))
        self.pull = nn.Parameter(2 * torch.randn(size + 1, size, generator=generator))

    def forward(self, x, t):
        return self.base * (1 + torch.sin(9 * t)).reshape(-1, 1, 1) + self.pull[x.roll(1, 1)]


SIZE, LENGTH, STEPS = 4, 7, 9
BUILD = {
    "masking": lambda: un.Masking(SIZE, (LENGTH,)),
    "uniform": lambda: un.Uniform(SIZE, (LENGTH,), un.schedules.Cosine()),
    "given": lambda: un.Interpolation(SIZE, (LENGTH,), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)),
}


class Watched(Routed):
    """Notes what each step saw and did."""

    def __init__(self, *args):
        super().__init__(*args)
        self.log: list = []

    def _by_score(self, tables, state, a, log_p, fresh, chance, i):
        moved, memory = super()._by_score(tables, state, a, log_p, fresh, chance, i)
        self.log.append((state.memory.denoised, memory.denoised, state.x, a, log_p, moved))
        return moved, memory


@pytest.mark.parametrize("tokens", [None, Tokens(0.0), Tokens(top_p=0.8)], ids=["plain", "argmax", "top-p"])
@pytest.mark.parametrize("name", BUILD)
def test_what_routing_by_score_promises(name, tokens):
    process = BUILD[name]()
    denoiser = un.Denoiser(Table(SIZE, LENGTH), process)
    sampler = Watched("score", tokens)
    assert sampler.order is None
    x, info = sample(denoiser, 50, STEPS, sampler, trajectory=True, seed=0)
    counts = [int(LENGTH * float(process.schedule.alpha(t)) + 0.5) for t in info.times[1:]]
    assert counts == sorted(counts) and counts[-1] == LENGTH and len(set(counts)) > 4
    dropped = 0
    for (before, after, x_t, a, log_p, x_s), count in zip(sampler.log, counts, strict=True):
        assert bool((after.sum(1) == count).all())  # exactly k_s
        shown = torch.where(before, x_t, a)
        score = log_p.gather(-1, shown.unsqueeze(-1)).squeeze(-1)
        worst = torch.where(after, score, torch.inf).min(1).values
        assert bool((torch.where(after, -torch.inf, score).max(1).values <= worst).all())  # the best ones
        assert torch.equal(x_s[after], shown[after])  # what was denoised is kept, what was not takes a
        dropped += int((before & ~after).sum())
        if name == "masking":
            assert bool((x_s == process.mask).eq(~after).all())
    assert (dropped == 0) == (name == "masking")
    assert bool((x < SIZE).all()) and info.calls == STEPS
    assert torch.equal(info.jumps, sum((p != q).sum(1) for p, q in pairwise(info.trajectory)))


def test_broken_promises_are_caught(monkeypatch):
    right = routing.best
    with monkeypatch.context() as patch, pytest.raises(AssertionError):
        patch.setattr(routing, "best", lambda score, kept, count: right(-score, kept, count))  # the worst ones
        test_what_routing_by_score_promises("uniform", None)
    with monkeypatch.context() as patch, pytest.raises(AssertionError):
        patch.setattr(routing, "best", lambda score, kept, count: right(score, kept, count - 1))  # one too few
        test_what_routing_by_score_promises("uniform", None)


def test_other_noise_is_caught(monkeypatch):
    right = Routed.tables

    def always_fresh(self, problem):
        tables = right(self, problem)
        tables.table[3] = 0.0
        return tables

    monkeypatch.setattr(Routed, "tables", always_fresh)
    with pytest.raises(AssertionError):
        test_the_noise_of_what_is_not_denoised()


def test_the_noise_of_what_is_not_denoised():
    """What was noisy keeps its state with probability alpha_{t|s}, what falls out is drawn from p."""
    p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    process = BUILD["given"]()
    sampler = Watched("score")
    sample(un.Denoiser(Table(SIZE, LENGTH), process), 3000, 4, sampler, seed=0)
    for i, (before, after, x_t, _, _, x_s) in enumerate(sampler.log[:3]):
        alpha_t, alpha_s = 1 - (4 - i) / 4, 1 - (3 - i) / 4
        stay = ~before & ~after
        same = (x_s == x_t)[stay].double()
        collide = p[x_t[stay]].mean()
        kept = float(alpha_t / alpha_s + (1 - alpha_t / alpha_s) * collide)
        assert float(same.mean()) == pytest.approx(kept, abs=4.5 * 0.5 / len(same) ** 0.5)
        fell = before & ~after
        if int(fell.sum()) > 200:
            found = x_s[fell].bincount(minlength=SIZE) / int(fell.sum())
            torch.testing.assert_close(found.double(), p, rtol=0, atol=4.5 * 0.5 / int(fell.sum()) ** 0.5)
    assert any(int((before & ~after).sum()) > 200 for before, after, *_ in sampler.log)


def test_equal_scores_keep_what_is_denoised():
    score = torch.tensor([[0.0, 0.0, 0.0, -1.0], [-2.0, -1.0, -1.0, -1.0]])
    kept = torch.tensor([[False, True, True, False], [True, False, False, True]])
    chosen = best(score, kept, torch.tensor([[2], [2]]))
    assert chosen.tolist() == [[False, True, True, False], [False, True, False, True]]


def test_what_is_given_stays():
    """Under masking, with more clean coordinates than the schedule has at the start."""
    denoiser = un.Denoiser(Table(SIZE, LENGTH), BUILD["masking"]())
    given = torch.tensor([[0, 1, 2, 4, 4, 3, 4]]).expand(20, -1).contiguous()
    x, info = sample(denoiser, None, 10, Routed(), x=given, trajectory=True, seed=0)
    for state in info.trajectory:
        assert torch.equal(state[given != 4], given[given != 4])
    assert int((x == 4).sum()) == 0


@pytest.mark.parametrize("by", ["score", "random"])
@pytest.mark.parametrize("name", BUILD)
def test_a_sample_does_not_depend_on_its_batch(name, by):
    denoiser = un.Denoiser(Table(SIZE, LENGTH), BUILD[name]())
    x, _ = sample(denoiser, 40, 6, Routed(by), seed=0)
    alone, _ = sample(denoiser, 4, 6, Routed(by), first=21, seed=0)
    assert torch.equal(alone, x[21:25])


def test_one_coordinate_without_a_shape():
    oracle = un.oracles.table(un.Uniform(3, ()), SKEW)
    for by in ("score", "random"):
        x, _ = sample(oracle, 3000, 1, Routed(by), seed=0)
        assert float((x.bincount(minlength=3) / 3000 - SKEW).abs().max()) < 4.5 * 0.5 / 3000**0.5


def test_coordinates_of_different_sizes():
    process = un.Uniform([2, 3, 2])
    oracle = un.oracles.table(process, torch.full((12,), 1 / 12, dtype=torch.float64))
    for by in ("score", "random"):
        for state in sample(oracle, 300, 5, Routed(by), trajectory=True, seed=0)[1].trajectory:
            assert state.max(0).values.tolist() == [1, 2, 1]


def test_refusals():
    for by in ("score", "random"):
        for process in (un.Mixture.uniform_and_mask(3, (2,)), un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (2,))):
            assert f"and {type(process).__name__} has none" in Routed(by).refuse(process)
        assert "draws categories" in Routed(by).refuse(un.Gaussian((2,)))
        assert Routed(by).refuse(un.Uniform(3, (2,))) is None
    assert "one schedule" in Routed().refuse(un.Masking(3, (2,), OWN))
    assert Routed("random").refuse(un.Masking(3, (2,), OWN)) is None
    with pytest.raises(ValueError, match="by = 'best'"):
        Routed("best")
