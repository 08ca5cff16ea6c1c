"""Remasking: laws by matrices, one step by running every case of it, and what is asked of the network."""

from itertools import pairwise
from math import log, log2

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.noise import NoiseSource
from unnoise.samplers import Tokens, sample
from unnoise.samplers.categorical_ddim import CategoricalDDIM
from unnoise.samplers.problem import Problem
from unnoise.samplers.products import Leaves
from unnoise.samplers.psi import Psi
from unnoise.samplers.remasking import Cap, Confidence, Loop, Rate, Remasking, Rescale, Sureness
from unnoise.samplers.routing import Routed
from unnoise.verify.finite_kernels import marginal_matrix

LATE, EARLY = 0.8, 0.3
LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)
OWN = un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Polynomial(3.0)])
RULES = {
    "cap": (lambda: Cap(0.2), None),
    "rescale": (lambda: Rescale(0.3), None),
    "rate": (lambda: Rate(2.0), 1),
    "loop-cap": (lambda: Loop(Cap(0.2), 0.7, 0.4, 0.5), None),
    "loop-rate": (lambda: Loop(Rate(3.0), 0.7, 0.4, 0.5), 1),
}


def oracle_of(shape: tuple[int, ...] = (2,), schedule=None):
    return un.oracles.table(un.Masking(3, shape, schedule), LAW if shape else LAW[:3] / LAW[:3].sum())


def marginal(oracle, t: float) -> torch.Tensor:
    process = oracle.process
    data = process.space.states()
    return marginal_matrix(process, data, states(process.state_space), t) @ oracle.log_prob(data).exp()


def kernel(oracle, t: float, sigma: torch.Tensor, reveal: torch.Tensor) -> torch.Tensor:
    """P[x, y] of one step, by the kernel as it is printed."""
    points, mask = states(oracle.process.state_space), oracle.process.mask
    masked = (points == mask).unsqueeze(-1)
    stay = torch.eye(mask + 1, dtype=torch.float64)
    theta = torch.nn.functional.pad(oracle(points, t).log_theta().exp(), (0, 1))
    sigma, reveal = (v.expand(points.shape).unsqueeze(-1) for v in (sigma, reveal))
    clean = (1 - sigma) * stay[points] + sigma * stay[mask]
    probs = torch.where(masked, reveal * theta + (1 - reveal) * stay[mask], clean).reshape(len(points), -1, mask + 1)
    flat = points.reshape(len(points), -1)
    return torch.stack([probs[:, k, flat[:, k]] for k in range(flat.shape[1])]).prod(0)


def error(sampler: Remasking, oracle, steps: int) -> float:
    times = torch.linspace(LATE, EARLY, steps + 1, dtype=torch.float64)
    clock = sampler.rule.clock(times)
    law = marginal(oracle, float(clock[0]))
    for i, chances in enumerate(zip(*sampler.chances(oracle.process, times), strict=True)):
        law = law @ kernel(oracle, float(clock[i]), *chances)
    return float((law - marginal(oracle, float(clock[-1]))).abs().sum())


@pytest.mark.parametrize("rule", RULES)
def test_one_coordinate_is_exact_at_any_number_of_steps(rule):
    for steps in (1, 6, 11):
        assert error(Remasking(RULES[rule][0]()), oracle_of(()), steps) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_a_schedule_for_each_coordinate(rule):
    """Independent coordinates: then the whole law is exact if each has the marginals of its own schedule."""
    column = LAW[:3] / LAW[:3].sum()
    oracle = un.oracles.table(un.Masking(3, (2,), OWN), torch.outer(column, column.flip(0)).flatten())
    assert error(Remasking(RULES[rule][0]()), oracle, 6) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_order_in_law(rule):
    build, order = RULES[rule]
    sampler = Remasking(build())
    assert sampler.order is order
    coarse, fine = (error(sampler, oracle_of(), steps) for steps in (60, 120))
    if order == 1:
        assert log2(coarse / fine) == pytest.approx(1, abs=0.15)
    else:
        assert log2(coarse / fine) < 0.5 and fine > 0.003  # more steps do not help


def test_revealing_as_if_nothing_were_remasked_is_caught(monkeypatch):
    right = Remasking.chances

    def plain(self, process, times):
        sigma, _ = right(self, process, times)
        return sigma, right(Remasking(Cap(0.0)), process, times)[1]

    monkeypatch.setattr(Remasking, "chances", plain)
    assert error(Remasking(Cap(0.2)), oracle_of(()), 5) > 0.1


def test_chances_are_those_of_the_paper():
    process = un.Masking(3, (2,), un.schedules.Cosine())
    times = torch.tensor([1.0, 0.7, 0.55, 0.2, 0.0], dtype=torch.float64)
    alpha = process.schedule.alpha(times).tolist()
    rules = {
        Cap(0.25): lambda most, h: min(most, 0.25),
        Rescale(0.4): lambda most, h: 0.4 * most,
        Rate(1.5): lambda most, h: min(most, 1.5 * h),
    }
    for rule, formula in rules.items():
        sigma, reveal = Remasking(rule).chances(process, times)
        for i, (a_t, a_s) in enumerate(pairwise(alpha)):
            most = min(1.0, (1 - a_s) / a_t) if a_t > 1e-12 else 1.0
            expected = formula(most, float(times[i] - times[i + 1]))
            assert float(sigma[i]) == pytest.approx(expected, abs=1e-12)
            assert float(reveal[i]) == pytest.approx((a_s - (1 - expected) * a_t) / (1 - a_t), abs=1e-12)
        assert float(reveal[-1]) == 1 and float(sigma[-1]) == 0  # the last step reveals everything and masks nothing


class Prescribed(NoiseSource):
    """Numbers as given: whether coordinates change; in place of the token's number its position."""

    def __init__(self, whether: torch.Tensor):
        super().__init__(0, len(whether))
        self.whether, self.label = whether, ""

    def at(self, *labels):
        child = Prescribed(self.whether)
        child.label = labels[0]
        return child

    def uniform(self, shape=()):
        if self.label == "whether":
            return self.whether
        return torch.arange(self.whether.numel(), dtype=torch.float64).reshape(self.whether.shape)


class Scripted(Tokens):
    """Puts down the tokens of the script, and notes how likely each was."""

    def __init__(self, script: torch.Tensor):
        super().__init__()
        self.script = script.flatten()
        self.log_p = torch.full((len(self.script),), -log(3), dtype=torch.float64)

    def draw(self, logits, u):
        place = u.long()
        tokens = self.script[place]
        self.log_p[place] = self.log_probs(logits).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return tokens


def one_step(oracle) -> torch.Tensor:
    """P[x, y] from 0.8 to 0.6 with sigma = 0.4: by every change (chances are multiples of 1/20) with every token, run."""
    points, scripts = states(oracle.process.state_space), oracle.process.space.states()
    lattice = (torch.arange(20, dtype=torch.float64) + 0.5) / 20
    whether = torch.cartesian_prod(lattice, lattice)
    n, m, c = len(points), len(whether), len(scripts)
    x = points.repeat_interleave(m * c, 0)
    tokens = Scripted(scripts.repeat(n * m, 1))
    noise = Prescribed(whether.repeat_interleave(c, 0).repeat(n, 1))
    problem = Problem(oracle, torch.tensor([0.8, 0.6], dtype=torch.float64), noise, {})
    y = Remasking(Cap(0.4), tokens).run(problem, x, lambda i, x: None)
    weight = tokens.log_p.reshape(-1, 2).sum(1).exp().reshape(n, -1) / m  # a token that was not asked for: 1/3 each
    assert int((problem.info.jumps - (x != y).sum(1)).abs().max()) == 0
    hit = (y.reshape(n, m * c, 1, 2) == points).all(-1).double()
    return torch.einsum("nr,nry->ny", weight, hit)


def test_one_step_is_the_kernel(monkeypatch):
    oracle = oracle_of()
    sigma, reveal = Remasking(Cap(0.4)).chances(oracle.process, torch.tensor([0.8, 0.6], dtype=torch.float64))
    assert float(sigma) == 0.4 and float(reveal) == pytest.approx(0.35)
    expected = kernel(oracle, 0.8, sigma[0], reveal[0])
    torch.testing.assert_close(one_step(oracle), expected, rtol=0, atol=1e-12)
    right = Remasking.changes
    monkeypatch.setattr(Remasking, "changes", lambda self, noise, masked, *both: right(self, noise, ~masked, *both))
    assert float((one_step(oracle) - expected).abs().max()) > 0.01


class Counting(nn.Module):
    """A head that notes how many coordinates it was asked for, and features that note the times."""

    def __init__(self, size: int, length: int):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(length, size, generator=torch.Generator().manual_seed(1)))
        self.asked, self.times = 0, []

    def features(self, x, t):
        self.times.append(float(t[0]))
        return torch.eye(len(self.logits)).expand(len(x), -1, -1)

    def head(self, h):
        self.asked += len(h)
        return h @ self.logits


@pytest.mark.parametrize("tokens", [None, Tokens(0.0), Tokens(0.7, top_p=0.8)], ids=["plain", "argmax", "top-p"])
@pytest.mark.parametrize("rule", [Cap(0.1), Rescale(0.2), Rate(2.0)], ids=["cap", "rescale", "rate"])
def test_a_run(rule, tokens):
    """The clean share is alpha whatever the tokens; the head is asked for reveals only; every change is counted."""
    network = Counting(5, 6)
    denoiser = un.Denoiser(network, un.Masking(5, (6,)))
    sampler = Remasking(rule, tokens)
    assert sampler.order == (rule.order if tokens is None else None)
    x, info = sample(denoiser, 500, 12, sampler, trajectory=True, seed=0)
    for t, state in zip(info.times.tolist(), info.trajectory, strict=True):
        assert float((state != 5).double().mean()) == pytest.approx(1 - t, abs=4.5 * 0.5 / 3000**0.5)
    assert int((x == 5).sum()) == 0 and info.calls == 12
    reveals = sum(int(((a == 5) & (b != 5)).sum()) for a, b in pairwise(info.trajectory))
    remasks = sum(int(((a != 5) & (b == 5)).sum()) for a, b in pairwise(info.trajectory))
    assert remasks > 100 and network.asked == reveals == remasks + 3000
    assert int(info.jumps.sum()) == reveals + remasks
    assert torch.equal(info.jumps, sum((a != b).sum(1) for a, b in pairwise(info.trajectory)))


def test_tokens_are_the_networks():
    network = Counting(5, 6)
    x, _ = sample(un.Denoiser(network, un.Masking(5, (6,))), 2000, 8, Remasking(Rescale(0.5)), seed=0)
    probs = network.logits.detach().double().softmax(-1)
    found = torch.stack([column.bincount(minlength=5) for column in x.T]) / 2000
    assert float(((found - probs) / (probs * (1 - probs) / 2000).sqrt()).abs().max()) < 4.5
    best, _ = sample(un.Denoiser(network, un.Masking(5, (6,))), 20, 8, Remasking(Rescale(0.5), Tokens(0.0)), seed=0)
    assert torch.equal(best, probs.argmax(-1).expand(20, -1))


class Watched(Remasking):
    """Notes the chances of every step, and what came of them."""

    def __init__(self, *args):
        super().__init__(*args)
        self.log: list = []

    def changes(self, noise, masked, sigma, reveal):
        change = super().changes(noise, masked, sigma, reveal)
        self.log.append((masked, sigma, reveal, change))
        return change


class Forgetful(Watched):
    """A mutant: takes every token for certain."""

    def _by_confidence(self, *args):
        moved, memory = super()._by_confidence(*args)
        return moved, Sureness(torch.ones_like(memory.sureness))


@pytest.mark.parametrize("build, right", [(Watched, True), (Forgetful, False)])
def test_confidence_deals_sigma_out_over_the_row(build, right):
    """By softmax of minus the probability that each token had when it was last revealed, as read off the trajectory."""
    network, process, sampler = Counting(5, 6), un.Masking(5, (6,)), build(Confidence(Cap(0.5)))
    assert sampler.order is None
    probs = network.logits.detach().double().softmax(-1)
    x, info = sample(un.Denoiser(network, process), 400, 12, sampler, trajectory=True, seed=0)
    sigma, _ = Remasking(Cap(0.5)).chances(process, info.times)
    assert float(sigma[6]) == 0.5
    remasked, off = 0, 0.0
    for i, (masked, dealt, reveal, change) in enumerate(sampler.log):
        weight = torch.where(masked, 0.0, torch.exp(-probs[torch.arange(6), info.trajectory[i].clamp_max(4)]))
        share = weight / weight.sum(1, keepdim=True).clamp_min(1e-300)
        off = max(off, float((dealt - share * sigma[i]).abs().max()))
        t, s = info.times[i : i + 2].tolist()
        assert float(reveal) == pytest.approx((t - s) / t)
        remasked += int((change & ~masked).sum())
    assert (off < 1e-6) == right and (off > 0.02) != right
    assert remasked > 500 and int((x == 5).sum()) == 0
    assert torch.equal(info.jumps, sum((a != b).sum(1) for a, b in pairwise(info.trajectory)))


def test_confidence_of_what_was_given_is_that_of_certainty():
    network = Counting(5, 6)
    given = torch.tensor([[0, 1, 5, 5, 5, 5]]).expand(10, -1).contiguous()
    sampler = Watched(Confidence(Cap(0.5)))
    sample(un.Denoiser(network, un.Masking(5, (6,))), None, sampler=sampler, grid=[0.7, 0.5], x=given, seed=0)
    torch.testing.assert_close(sampler.log[0][1][:, :2], torch.full((10, 2), 0.25, dtype=torch.float64))


def test_confidence_on_one_coordinate():
    """Its law by hand: all of sigma falls on the one coordinate, which is revealed as if there were none."""
    sampler = Remasking(Confidence(Cap(0.3)))
    sigma, reveal = sampler.chances(un.Masking(3, (1,)), torch.linspace(1, 0, 5, dtype=torch.float64))
    clean = 0.0
    for out, back in zip(sigma.flatten().tolist(), reveal.flatten().tolist(), strict=True):
        expected, clean = clean, clean * (1 - out) + (1 - clean) * back
    oracle = un.oracles.table(un.Masking(3, (1,)), LAW[:3] / LAW[:3].sum())
    x, info = sample(oracle, 4000, 4, sampler, trajectory=True, seed=0)
    assert float((info.trajectory[3] != 3).double().mean()) == pytest.approx(expected, abs=4.5 * 0.5 / 4000**0.5)
    assert expected < 0.75 - 0.05 and clean == 1  # it falls behind alpha, and makes up for it at the end
    found = x.flatten().bincount(minlength=3) / 4000
    assert float((found - LAW[:3] / LAW[:3].sum()).abs().max()) < 4.5 * 0.5 / 4000**0.5


def test_the_loop_holds_the_clock():
    loop = Loop(Cap(0.1))
    times = torch.tensor([1.0, 0.775, 0.55, 0.3, 0.05, 0.025, 0.0], dtype=torch.float64)
    expected = torch.tensor([1.0, 0.55, 0.1, 0.1, 0.1, 0.05, 0.0], dtype=torch.float64)
    torch.testing.assert_close(loop.clock(times), expected, rtol=0, atol=1e-15)
    sigma, reveal = Remasking(loop).chances(un.Masking(3, (2,)), times)
    torch.testing.assert_close(sigma.flatten(), torch.tensor([0, 0, 0.1, 0.1, 0, 0], dtype=torch.float64))
    assert reveal.flatten()[2:4].tolist() == pytest.approx([0.1 * 0.9 / 0.1] * 2)
    network = Counting(5, 6)
    x, info = sample(un.Denoiser(network, un.Masking(5, (6,))), 500, 20, Remasking(loop), trajectory=True, seed=0)
    assert network.times == pytest.approx(loop.clock(info.times)[:-1].tolist(), abs=1e-6)
    for t, state in zip(loop.clock(info.times).tolist(), info.trajectory, strict=True):
        assert float((state != 5).double().mean()) == pytest.approx(1 - t, abs=4.5 * 0.5 / 3000**0.5)
    assert int((x == 5).sum()) == 0
    held = Remasking(Confidence(loop))
    assert held.order is None and held.rule.clock(times).tolist() == loop.clock(times).tolist()


@pytest.mark.parametrize("rule", [Cap(0.2), Confidence(Rescale(0.5)), Loop(Rate(3.0))], ids=["cap", "confidence", "loop"])
def test_a_sample_does_not_depend_on_its_batch(rule):
    oracle = oracle_of()
    x, _ = sample(oracle, 60, 8, Remasking(rule), seed=0)
    alone, _ = sample(oracle, 5, 8, Remasking(rule), first=33, seed=0)
    assert torch.equal(alone, x[33:38])


@pytest.mark.parametrize("kind", [un.RawPosterior, un.Ratio, un.Rates, un.Energy], ids=lambda k: k.__name__)
@pytest.mark.parametrize("rule", [Cap(0.2), Confidence(Cap(0.5))], ids=["cap", "confidence"])
def test_any_kind_of_prediction_will_do(kind, rule):
    oracle = oracle_of()
    expected, _ = sample(oracle, 100, 6, Remasking(rule), seed=0)
    found, _ = sample(oracle.predicting(kind), 100, 6, Remasking(rule), seed=0)
    assert torch.equal(found, expected)


class Two(nn.Module):
    """Fixed logits for two leaves; notes the times that each is told."""

    def __init__(self):
        super().__init__()
        self.logits, self.times = nn.Parameter(torch.tensor([0.5, 0.0, -0.5])), []

    def forward(self, x, t):
        self.times.append({name: float(t[name][0] if isinstance(t, dict) else t[0]) for name in x})
        return {name: self.logits.expand(*leaf.shape, 3) for name, leaf in x.items()}


def test_leaves_of_a_product():
    """Each by its own plan and its own clock."""
    denoiser = un.Denoiser(Two(), un.Product(a=un.Masking(3, (5,)), b=un.Masking(3, (5,))))
    for rule in (Cap(0.2), Loop(Cap(0.2))):
        denoiser.network.times = []
        sampler = Leaves(a=Remasking(rule), b=Remasking(Cap(0.2)))
        x, info = sample(denoiser, 600, 20, sampler, trajectory=True, seed=0)
        clocks = {"a": rule.clock(info.times), "b": info.times}
        for name, clock in clocks.items():
            assert int((x[name] == 3).sum()) == 0
            assert [told[name] for told in denoiser.network.times] == pytest.approx(clock[:-1].tolist(), abs=1e-6)
            for t, state in zip(clock.tolist(), info.trajectory, strict=True):
                assert float((state[name] != 3).double().mean()) == pytest.approx(1 - t, abs=4.5 * 0.5 / 3000**0.5)
        a, b = ((info.trajectory[15][name] == 3).flatten().double() for name in "ab")
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 4.5 / 3000**0.5


def test_coordinates_of_different_sizes():
    process = un.Masking([2, 3, 2])
    oracle = un.oracles.table(process, torch.full((12,), 1 / 12, dtype=torch.float64))
    for rule in (Cap(0.3), Confidence(Cap(0.5))):
        x, _ = sample(oracle, 300, 6, Remasking(rule), seed=0)
        assert x.max(0).values.tolist() == [1, 2, 1]


def test_refusals():
    assert "masks none" in Remasking(Cap(0.1)).refuse(un.Uniform(3, (2,)))
    assert Remasking(Cap(0.1)).refuse(un.Masking(3, (2,), OWN)) is None
    for rule in (Cap, Rescale):
        for eta in (-0.1, 1.1, float("nan")):
            with pytest.raises(ValueError, match="eta"):
                rule(eta)
    for rate in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="rate"):
            Rate(rate)
    with pytest.raises(ValueError, match="0 < off < on < 1"):
        Loop(Cap(0.1), on=0.2, off=0.4)
    with pytest.raises(ValueError, match="hold"):
        Loop(Cap(0.1), hold=1.0)
    with pytest.raises(TypeError, match="Confidence"):
        Loop(Confidence(Cap(0.1)))
    with pytest.raises(TypeError, match="same for all tokens"):
        Confidence(Confidence(Cap(0.1)))


class NothingIsRead(TorchDispatchMode):
    """Fails where a value, or a size that depends on values, would be read from the device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__
        by_mask = name.startswith("index.") and any(i is not None and i.dtype == torch.bool for i in args[1])
        if by_mask or any(part in name for part in ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal.d")):
            raise AssertionError(f"{name} waits for the device")
        return function(*args, **(kwargs or {}))


SAMPLERS = {
    "ddim": (lambda: CategoricalDDIM(0.3, 1.0), "uniform"),
    "ddim-tokens": (lambda: CategoricalDDIM(0.3, tokens=Tokens(0.5, top_k=3, top_p=0.9)), "masking"),
    "psi": (lambda: Psi(0.7), "uniform"),
    "psi-beyond": (lambda: Psi(lambda s, t: 1 - 1.2 * (s > 0) * (t < 1)), "masking"),
    "cap": (lambda: Remasking(Cap(0.2)), "masking"),
    "confidence": (lambda: Remasking(Confidence(Loop(Cap(0.2)))), "masking"),
    "score": (lambda: Routed("score"), "uniform"),
    "score-mask": (lambda: Routed("score", Tokens(0.0)), "masking"),
    "random": (lambda: Routed("random"), "uniform"),
}


def steps_under_watch(sampler, name: str, monkeypatch) -> None:
    for module in (un.checks, un.predictions.finite, un.processes.rank_one, un.processes.lazy_steps):
        monkeypatch.setattr(module, "may_read", lambda x: False)  # as on an accelerator
    process = un.Masking(5, (6,)) if name == "masking" else un.Uniform(5, (6,))
    network = nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, 5))
    network.forward = lambda x, t: network[1](network[0](x))  # type: ignore[method-assign]
    problem = Problem(un.Denoiser(network, process), torch.linspace(1, 0, 5).double(), NoiseSource(0, 3), {})
    x = process.prior(3).draw(problem.noise)
    setup = sampler.setup(problem)
    state = sampler.init(problem, setup, x)
    with NothingIsRead(), torch.no_grad():
        for i in range(4):
            state = sampler.step(problem, setup, state, i)
    assert int(state.x.max()) < 5


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_loop_never_waits_for_the_device(name, monkeypatch):
    build, process = SAMPLERS[name]
    steps_under_watch(build(), process, monkeypatch)


def test_a_loop_that_waits_is_caught(monkeypatch):
    sampler, right = Routed("random"), Routed.stage
    for wait in (lambda x: bool((x > 1).any()), lambda x: x[x > 1], lambda x: x.nonzero()):
        monkeypatch.setattr(Routed, "stage", lambda *args, wait=wait: (wait(args[4].x), right(*args))[1])
        with pytest.raises(AssertionError, match="waits"):
            steps_under_watch(sampler, "uniform", monkeypatch)
