"""Revealing masked coordinates: exact laws by running every plan with every token, and what is asked of the network."""

from itertools import permutations, product
from math import factorial, sqrt

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.laws import LOG_ZERO
from unnoise.noise import NoiseSource
from unnoise.samplers import Ancestral, FirstHitting, Problem, Reveal, Tokens, sample
from unnoise.samplers import reveal as module
from unnoise.samplers.reveal import RevealPlan


def law_on(count: int) -> torch.Tensor:
    law = torch.rand(count, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.05
    return law / law.sum()


def oracle_of(size=2, length=2, schedule=None):
    process = un.Masking(size, (length,), schedule)
    return un.oracles.table(process, law_on(size**length))


class Prescribed(NoiseSource):
    """Levels as given; in place of the token's uniform number its position."""

    def __init__(self, reveal: torch.Tensor):
        super().__init__(0, len(reveal))
        self.reveal = reveal

    def at(self, *labels):
        child = Prescribed(self.reveal)
        child.label = labels[0]
        return child

    def uniform(self, shape=()):
        if self.label == "reveal":
            return self.reveal
        return torch.arange(self.reveal.numel(), dtype=torch.float64).reshape(self.reveal.shape)


class Scripted(Tokens):
    """Puts down the tokens of the script, and notes how likely each was."""

    def __init__(self, script: torch.Tensor):
        super().__init__()
        self.script = script.flatten()
        self.log_p = torch.zeros(len(self.script), dtype=torch.float64)

    def draw(self, logits, u):
        place = u.long()
        tokens = self.script[place]
        self.log_p[place] = self.log_probs(logits).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return tokens


def enumerate_runs(build, oracle, times, reveal, weights):
    """The law of the last state: every plan with every script, each run once by the sampler itself."""
    process = oracle.process
    scripts = process.space.states()
    plans = reveal.repeat_interleave(len(scripts), 0)
    script = scripts.repeat(len(reveal), 1)
    tokens = Scripted(script)
    problem = Problem(oracle, torch.as_tensor(times, dtype=torch.float64), Prescribed(plans), {})
    x = torch.full_like(script, process.mask)
    x = build(tokens).run(problem, x, lambda i, x: None)
    weight = weights.repeat_interleave(len(scripts)) * tokens.log_p.reshape(script.shape).sum(1).exp()
    # a coordinate that was never revealed has had no say: its scripts are all the same run
    weight = weight / process.space.size ** (x == process.mask).sum(1)
    points = states(process.state_space)
    hit = (x.unsqueeze(1) == points).all(-1).double()
    return weight @ hit


def all_plans(alphas: torch.Tensor, length: int):
    """Every assignment of steps (or never) to coordinates, as uniform numbers, with its probability."""
    edges = torch.cat([alphas, torch.ones(1, dtype=torch.float64)])  # alpha_start = 0
    middle, width = (edges[1:] + edges[:-1]) / 2, edges.diff()
    cells = [i for i in range(len(width)) if width[i] > 0]
    plans = list(product(cells, repeat=length))
    reveal = torch.stack([torch.stack([middle[i] for i in plan]) for plan in plans])
    weights = torch.stack([torch.stack([width[i] for i in plan]).prod() for plan in plans])
    return reveal, weights


def ancestral_law(oracle, times):
    process = oracle.process
    points = states(process.state_space)
    law = (points == process.mask).all(1).double()
    for t, s in zip(times[:-1], times[1:], strict=True):
        probs = oracle(points, t).step(s).probs
        kernel = torch.stack([probs[:, k, points[:, k]] for k in range(points.shape[1])]).prod(0)
        law = law @ kernel
    return law


GRIDS = {"three steps": [1.0, 0.7, 0.2, 0.0], "two steps": [1.0, 0.4, 0.0], "stops early": [1.0, 0.6, 0.3]}


@pytest.mark.parametrize("size, length", [(2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize("times", GRIDS.values(), ids=GRIDS)
def test_reveal_has_the_law_of_the_factorised_kernel(times, size, length):
    oracle = oracle_of(size, length)
    alphas = oracle.process.schedule.alpha(torch.tensor(times, dtype=torch.float64))
    found = enumerate_runs(Reveal, oracle, times, *all_plans(alphas, length))
    torch.testing.assert_close(found, ancestral_law(oracle, times), rtol=0, atol=1e-12)


def test_a_skipped_last_step_is_caught(monkeypatch):
    oracle, times = oracle_of(), GRIDS["two steps"]
    alphas = oracle.process.schedule.alpha(torch.tensor(times, dtype=torch.float64))
    monkeypatch.setattr(Problem, "steps", property(lambda self: len(self.times) - 2))
    found = enumerate_runs(Reveal, oracle, times, *all_plans(alphas, 2))
    assert float((found - ancestral_law(oracle, times)).abs().sum()) > 0.1


@pytest.mark.parametrize("size, length", [(2, 2), (3, 2), (2, 3)])
def test_first_hitting_has_the_law_of_the_data(size, length):
    oracle = oracle_of(size, length)
    orders = torch.tensor(list(permutations(range(length))), dtype=torch.float64)
    weights = torch.full((len(orders),), 1 / factorial(length), dtype=torch.float64)
    found = enumerate_runs(FirstHitting, oracle, [1.0, 0.0], (orders + 0.5) / length, weights)
    points = states(oracle.process.state_space)
    clean = (points != oracle.process.mask).all(1)
    torch.testing.assert_close(found[clean], law_on(size**length), rtol=0, atol=1e-12)
    assert float(found[~clean].sum()) == 0


def test_exactness_is_claimed_for_the_networks_own_law_only():
    assert FirstHitting().exact and FirstHitting(Tokens()).exact and not FirstHitting(Tokens(top_k=2)).exact
    assert Reveal().order == 1 and Reveal(Tokens(0.5)).order is None and Reveal(by="margin").order is None


def test_first_hitting_calls_and_trajectory():
    x, info = sample(oracle_of(2, 3), 50, 4, FirstHitting(), end=0.0, trajectory=True, seed=0)
    assert info.calls == 3 and info.rows == 150 and int((x == 2).sum()) == 0
    masked = [int((state == 2).sum()) for state in info.trajectory]
    assert masked[0] == 150 and masked[-1] == 0 and sorted(masked, reverse=True) == masked and len(set(masked)) > 2
    x, info = sample(oracle_of(2, 3), 400, 4, FirstHitting(), end=0.5, seed=0)
    assert info.calls <= 3 and info.rows == int(info.jumps.sum()) == int((x != 2).sum())
    assert int((x == 2).sum()) == pytest.approx(600, abs=4 * sqrt(300))


def test_reveal_trajectory_keeps_the_states_on_the_way():
    x, info = sample(oracle_of(2, 3), 100, 5, Reveal(), trajectory=True, seed=0)
    masked = [int((state == 2).sum()) for state in info.trajectory]
    assert masked[0] == 300 and masked[-1] == 0 and len(set(masked)) > 3
    for before, after in zip(info.trajectory, info.trajectory[1:], strict=False):
        assert bool(((before == 2) | (before == after)).all())


LOGITS = torch.tensor([[2.0, 0.3, -1.0, 1.1, 0.0], [0.0, 0.1, 0.2, 0.3, 0.4]])


def brute(logits, temperature=1.0, top_k=None, top_p=None):
    rows = []
    for row in logits.double().tolist():
        weights = torch.tensor([row]).double().div(temperature).softmax(-1)[0].tolist()
        ranked = sorted(range(len(row)), key=lambda a: -weights[a])[:top_k]
        total = sum(weights[a] for a in ranked)
        kept, mass = [], 0.0
        for a in ranked:
            if top_p is not None and mass >= top_p:
                break
            kept.append(a)
            mass += weights[a] / total
        total = sum(weights[a] for a in kept)
        rows.append([weights[a] / total if a in kept else 0.0 for a in range(len(row))])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("top_p", [None, 0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("top_k", [None, 1, 3, 9])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_token_laws_by_brute_force(temperature, top_k, top_p):
    found = Tokens(temperature, top_k, top_p).log_probs(LOGITS).exp()
    torch.testing.assert_close(found, brute(LOGITS, temperature, top_k, top_p), rtol=0, atol=1e-12)


def test_token_laws_at_the_edges():
    assert torch.equal(Tokens(0.0).log_probs(LOGITS).exp().argmax(-1), LOGITS.argmax(-1))
    assert float(Tokens(0.0).log_probs(LOGITS).exp().max(-1).values.min()) == 1
    torch.testing.assert_close(Tokens(1e-300).log_probs(LOGITS).exp(), Tokens(0.0).log_probs(LOGITS).exp())
    assert int((Tokens(top_k=2).log_probs(torch.zeros(1, 5)).exp() > 0).sum()) == 2  # ties do not add to k
    barred = torch.tensor([[0.0, 1.0, LOG_ZERO]], dtype=torch.float64)
    assert float(Tokens(1e35).log_probs(barred).exp()[0, 2]) == 0
    for bad in ({"temperature": -1.0}, {"temperature": float("inf")}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Tokens(**bad)


def test_draw_inverts_the_distribution_function():
    probs = LOGITS[:1].double().softmax(-1)
    u = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    drawn = Tokens().draw(LOGITS[:1].expand(10_000, -1), u)
    torch.testing.assert_close(drawn.bincount(minlength=5) / 10_000.0, probs[0].float(), rtol=0, atol=2e-4)


def tail_is_hit(draw) -> bool:
    """A thousand tokens of probability 1e-12 each behind one that has all the rest: every number finds its own token."""
    probs = torch.cat([torch.tensor([1 - 1e-9]).double(), torch.full((1000,), 1e-12).double()])
    wanted = torch.arange(0, 1000, 50)
    u = (1 - 1e-9) + (wanted.double() + 0.5) * 1e-12
    return torch.equal(draw(Tokens(), probs.log().expand(len(u), -1), u), wanted + 1)


def test_the_tail_is_not_cut_as_float32_noise_cuts_it():
    """A float32 Gumbel number is below 17 and above -3: what is 1e-12 as likely as another never wins."""

    def gumbel(self, logits, u):
        noise = torch.rand(logits.shape, dtype=torch.float32).clamp(2**-24, 1 - 2**-24)
        return (logits.float() - (-noise.log()).log()).argmax(-1)

    def single(self, logits, u):
        return torch.searchsorted(logits.float().exp().cumsum(-1), u.float().unsqueeze(-1)).squeeze(-1)

    assert tail_is_hit(Tokens.draw)
    assert not tail_is_hit(gumbel) and not tail_is_hit(single)


def test_tokens_leave_the_reveal_rate_alone():
    oracle = oracle_of(3, 4)
    runs = [
        sample(oracle, 60, 6, Reveal(tokens), trajectory=True, seed=0)[1].trajectory
        for tokens in (None, Tokens(0.0), Tokens(3.0), Tokens(top_k=1), Tokens(top_p=0.5))
    ]
    for run in runs[1:]:
        assert all(torch.equal(a == 3, b == 3) for a, b in zip(runs[0], run, strict=True))


class Counting(nn.Module):
    """Logits that depend on the row's other tokens, and a record of what was asked."""

    def __init__(self, size: int, length: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, size + 1, 4))
        self.out = nn.Linear(4, size)
        self.batches: list[int] = []
        self.heads: list[int] = []

    def features(self, x, t):
        self.batches.append(len(x))
        place = torch.arange(x.shape[1])
        mixed = self.table[place, x].sum(1, keepdim=True)
        return (mixed + self.table[place, x]).tanh()

    def head(self, h):
        self.heads.append(len(h))
        return self.out(h)

    def forward(self, x, t):
        return self.head(self.features(x, t))


def counting(size=5, length=3):
    return un.Denoiser(Counting(size, length), un.Masking(size, (length,)))


def test_only_what_is_revealed_is_asked_for(monkeypatch):
    denoiser = counting()
    x, info = sample(denoiser, 40, 20, Reveal(), seed=0)
    network = denoiser.network
    assert sum(network.heads) == 120 == int(info.jumps.sum())  # the head sees every coordinate once
    assert sum(network.batches) == info.rows < 40 * 20
    assert len(network.batches) == info.calls <= 20
    every = RevealPlan.at

    def all_rows(self, i):
        index, _, _ = every(self, i)
        return index, None, index

    monkeypatch.setattr(RevealPlan, "at", all_rows)
    again, more = sample(denoiser, 40, 20, Reveal(), seed=0)
    assert more.rows > info.rows and torch.equal(again, x)


@pytest.mark.parametrize("sampler", [Reveal(), Reveal(by="confidence"), FirstHitting()], ids=["plan", "order", "hitting"])
def test_sample_i_is_the_same_in_any_batch(sampler):
    oracle = oracle_of(3, 3)
    whole, _ = sample(oracle, 30, 7, sampler, seed=5)
    parts = [sample(oracle, n, 7, sampler, seed=5, first=first)[0] for first, n in ((0, 4), (4, 1), (5, 25))]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("sampler", [Reveal(), Reveal(by="entropy"), FirstHitting()], ids=["plan", "order", "hitting"])
def test_given_states_keep_what_is_unmasked(sampler):
    oracle = oracle_of(3, 4)
    x = torch.tensor([[0, 3, 1, 3], [3, 3, 3, 3], [2, 1, 0, 0]]).repeat(300, 1)
    done, info = sample(oracle, None, 5, sampler, x=x, start=0.8, trajectory=True, seed=0)
    assert bool(((x == 3) | (done == x)).all()) and int((done == 3).sum()) == 0
    assert torch.equal(info.jumps, (x == 3).sum(1))
    half, _ = sample(oracle, None, 5, sampler, x=x, start=0.8, end=0.4, seed=0)  # stays masked with probability 0.4/0.8
    assert int((half == 3).sum()) == pytest.approx(900, abs=4 * sqrt(450))


def test_levels_that_do_not_start_at_alpha_start_are_caught(monkeypatch):
    """Then the first step takes what belongs before it: more is revealed by s than (alpha_s - alpha_t)/(1 - alpha_t)."""
    right = module.levels

    def from_zero(problem, x):
        level = right(problem, x)
        return torch.where(level < 2, (level - 0.2) / 0.8, level)

    x = torch.full((600, 3), 2)
    expected = 1800 * 0.25
    monkeypatch.setattr(module, "levels", from_zero)
    wrong, _ = sample(oracle_of(2, 3), None, 5, Reveal(), x=x, start=0.8, end=0.6, seed=0)
    assert abs(int((wrong != 2).sum()) - expected) > 5 * sqrt(1800 * 0.25 * 0.75)
    monkeypatch.setattr(module, "levels", right)
    fine, _ = sample(oracle_of(2, 3), None, 5, Reveal(), x=x, start=0.8, end=0.6, seed=0)
    assert abs(int((fine != 2).sum()) - expected) < 4 * sqrt(1800 * 0.25 * 0.75)


def test_schedules_of_their_own():
    schedule = un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Polynomial(3.0)])
    oracle = oracle_of(2, 2, schedule)
    x, _ = sample(oracle, 4000, 8, Reveal(), end=0.5, seed=0)
    left = (x == 2).double().mean(0)
    expected = 1 - schedule.alpha(torch.tensor(0.5, dtype=torch.float64)).flatten()
    torch.testing.assert_close(left, expected, rtol=0, atol=4 * 0.5 / sqrt(4000))
    for sampler in (FirstHitting(), Reveal(by="margin")):
        with pytest.raises(TypeError, match="one schedule"):
            sample(oracle, 2, 4, sampler, seed=0)
    with pytest.raises(TypeError, match="masks none"):
        sample(un.oracles.table(un.Uniform(2, (2,)), law_on(4)), 2, 4, Reveal(), seed=0)
    with pytest.raises(ValueError, match="by = 'best'"):
        Reveal(by="best")


class Fixed(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x, t):
        return self.logits.expand(len(x), -1, -1)


@pytest.mark.parametrize("by", ["confidence", "margin", "entropy"])
def test_the_surest_come_first_and_the_plan_keeps_its_numbers(by):
    sharp = torch.tensor([1.0, 4.0, 2.0, 3.0, 0.5])
    logits = sharp.unsqueeze(1) * torch.tensor([1.0, 0.0, -0.5])
    denoiser = un.Denoiser(Fixed(logits), un.Masking(3, (5,)))
    ours = sample(denoiser, 80, 4, Reveal(by=by), trajectory=True, seed=0)[1]
    planned = sample(denoiser, 80, 4, Reveal(), trajectory=True, seed=0)[1]
    surest = sharp.argsort(descending=True)
    for state, plan in zip(ours.trajectory, planned.trajectory, strict=True):
        done = state != 3
        assert torch.equal(done.sum(1), (plan != 3).sum(1))
        assert bool((done[:, surest].long().diff(dim=1) <= 0).all())  # a prefix of the order
    assert torch.equal(ours.jumps, planned.jumps)


def test_the_plan_is_ready_before_the_loop():
    step = torch.tensor([[0, 2, 3], [2, 2, 0], [3, 3, 3]])  # 3: never, in three steps
    plan = RevealPlan(step, 3)
    assert [part.tolist() for part in plan.index] == [[0, 5], [], [1, 3, 4]]
    assert [None if part is None else part.tolist() for part in plan.rows] == [[0, 1], [], [0, 1]]
    assert plan.jumps.tolist() == [2, 3, 0]
    assert RevealPlan(step[:2], 3).rows[0] is None


@pytest.mark.parametrize("kind", [un.RawPosterior, un.Ratio, un.Rates, un.Energy], ids=lambda k: k.__name__)
@pytest.mark.parametrize("sampler", [Reveal(), FirstHitting()], ids=["plan", "hitting"])
def test_any_kind_of_prediction_will_do(kind, sampler):
    oracle = oracle_of(3, 2)
    expected, _ = sample(oracle, 100, 6, sampler, seed=0)
    found, _ = sample(oracle.predicting(kind), 100, 6, sampler, seed=0)
    assert torch.equal(found, expected)


class Zipf(nn.Module):
    """The same float32 logits everywhere, by a head."""

    def __init__(self, size: int):
        super().__init__()
        self.logits = nn.Parameter(-torch.arange(1, size + 1, dtype=torch.float32).log())

    def features(self, x, t):
        return x.unsqueeze(-1).float()

    def head(self, h):
        return self.logits.expand(len(h), -1)


def plug_in_entropy(n: int, probs: torch.Tensor) -> float:
    """What the entropy of the shares k/n is on average over n draws: the sum over the binomial laws of all counts k.

    Where n p > 400 the first two terms in 1/n, -p log p - (1 - p)/(2 n), which leave less than 1e-6 of the whole.
    """
    often = n * probs > 400
    head = -(probs * probs.log() + (1 - probs) / (2 * n))[often].sum()
    k = torch.arange(1, 801, dtype=torch.float64)
    value, rare = -(k / n) * (k / n).log(), probs[~often].unsqueeze(1)
    log_choices = torch.lgamma(torch.tensor(n + 1.0).double()) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    tail = sum(
        ((log_choices + k * part.log() + (n - k) * torch.log1p(-part)).exp() @ value).sum() for part in rare.split(4000)
    )
    return float(head + tail)


def zipf_faults(size: int, steps: int, rows: int, length: int) -> list[str]:
    """What is wrong with the reveal rate, the entropy of the tokens, or the counts in the tail.

    With H(p) the entropy, -sum_a k_a/n log p_a has mean H(p) and the variance of log p over n.  The entropy of the shares
    differs from it by their divergence from p, which hardly fluctuates: its mean is that of the plug-in entropy less H(p).
    """
    denoiser = un.Denoiser(Zipf(size), un.Masking(size, (length,)))
    rates: list[float] = []
    x, _ = sample(
        denoiser,
        rows,
        steps,
        Reveal(),
        callback=lambda i, t, state: rates.append(float((state.x == size).double().mean())),
        seed=0,
    )
    n, probs = rows * length, denoiser.network.logits.double().softmax(-1).detach()
    expected = torch.linspace(1, 0, steps + 1)[1:]
    faults = []
    if float((torch.tensor(rates) - expected).abs().max()) > 0.02:
        faults.append("reveal rate")
    if rates[-1] > 0:
        return [*faults, "masks are left"]
    counts = x.flatten().bincount(minlength=size).double()
    cross = float(-(counts / n * probs.log()).sum())
    plug_in = float(torch.special.entr(counts / n).sum())
    entropy = float(torch.special.entr(probs).sum())
    spread = sqrt(float((probs * (probs.log() + entropy).square()).sum()) / n)
    if abs(cross - entropy) > 4 * spread or abs((plug_in - plug_in_entropy(n, probs)) - (cross - entropy)) > 0.02:
        faults.append("entropy")
    for share in (0.5, 0.9):
        tail = slice(int(share * size), None)
        mass = float(probs[tail].sum())
        if abs(float(counts[tail].sum()) - n * mass) > 4 * sqrt(n * mass * (1 - mass)):
            faults.append(f"tail from {share}")
    return faults


def test_zipf():
    assert zipf_faults(2000, 64, 100, 128) == []


@pytest.mark.conformance
@pytest.mark.parametrize("steps", [128, 1024])
def test_zipf_over_a_whole_vocabulary(steps):
    assert zipf_faults(50_257, steps, 100, 128) == []


def test_zipf_notices_coarse_noise_and_a_skipped_step(monkeypatch):
    def coarse(self, logits, u):
        noise = torch.rand(logits.shape).half().clamp(2**-11, 1 - 2**-11).float()
        return (logits - (-noise.log()).log()).argmax(-1)

    with monkeypatch.context() as patch:
        patch.setattr(Tokens, "draw", coarse)
        assert {"entropy", "tail from 0.9"} <= set(zipf_faults(2000, 64, 100, 128))

    whole = RevealPlan.at
    nothing = torch.zeros(0, dtype=torch.int64)
    monkeypatch.setattr(RevealPlan, "at", lambda self, i: whole(self, i) if i < 63 else (nothing, None, nothing))
    assert "masks are left" in zipf_faults(2000, 64, 100, 128)


def test_ancestral_and_reveal_agree_on_networks():
    """Means over many draws: the same kernel by another way."""
    oracle = oracle_of(2, 2)
    law = [sample(oracle, 4000, 3, sampler, seed=seed)[0] for seed, sampler in ((1, Ancestral()), (2, Reveal()))]
    counts = torch.stack([(2 * x[:, 0] + x[:, 1]).bincount(minlength=4) for x in law]).double() / 4000
    assert float((counts[0] - counts[1]).abs().max()) < 4 * sqrt(2 * 0.25 / 4000)
