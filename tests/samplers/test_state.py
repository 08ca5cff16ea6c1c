"""What a run carries: rows of a state, callbacks that edit and stop, starts of one's own, gradients, seeds."""

from dataclasses import replace

import pytest
import torch
from test_control import ALL, MASKED, MIXED, NUMBERS, UNIFORM, leaves, same
from torch import nn

import unnoise as un
from unnoise import tree
from unnoise.noise import NoiseSource
from unnoise.samplers import (
    DDIM,
    DEIS,
    AdaptiveODE,
    Ancestral,
    DPMSolverPP,
    FirstHitting,
    Frozen,
    Heun,
    Leaves,
    Memory,
    Problem,
    Remasking,
    Routed,
    Stepping,
    StopSampling,
    ThetaRK2,
    UniPC,
    remasking,
    sample,
)
from unnoise.samplers.replacement import Replacement

ROWS = 96  # enough that states of few categories tell a wrong row's history
KNOWN = torch.tensor([[True, False]]).expand(ROWS, 2)
STEPPING = {
    **{name: case for name, case in ALL.items() if isinstance(case[1], Stepping)},
    "deis": (NUMBERS, DEIS()),
    "rk2": (UNIFORM, ThetaRK2()),
    "loop": (MASKED, Remasking(remasking.Loop(remasking.Cap(0.3)))),
    "held": (NUMBERS, Replacement((torch.arange(ROWS).double() / 16).unsqueeze(1).expand(ROWS, 2), KNOWN, 2)),
    "routed, uniform": (UNIFORM, Routed()),
    "leaves, 2m": (MIXED, Leaves(x=DPMSolverPP(2), c=Ancestral())),
    "leaves, held": (MIXED, Leaves(x=UniPC(), c=Frozen())),
}
SHUFFLED = (5 * torch.arange(ROWS) + 2) % ROWS  # no row stays


def problem_of(oracle, rows, steps=6):
    times = torch.linspace(0.95, 0.05, steps + 1, dtype=torch.float64)
    return Problem(oracle, times, NoiseSource(3, rows), {})


def run_permuted(oracle, sampler, at: int):
    """A run, and one whose rows are shuffled after step `at`, with the noise of each row going along."""
    whole = problem_of(oracle, torch.arange(ROWS))
    x = oracle.process.prior(ROWS, torch.float64).draw(whole.noise.at("prior"))
    out = []
    for order in (None, SHUFFLED):
        problem, setup = whole, sampler.setup(whole)
        state = sampler.init(whole, setup, x)
        for i in range(whole.steps):
            state = sampler.step(problem, setup, state, i)
            if i == at and order is not None:
                state, problem = state.rows(order), problem.rows(order)
        out.append(state)
    return out


@pytest.mark.parametrize("name", STEPPING)
def test_rows_take_their_history_along(name):
    """What a method remembers goes with the rows: a shuffled run ends in the shuffled samples, bit for bit."""
    plain, shuffled = run_permuted(*STEPPING[name], at=2)
    assert same(tree.rows(plain.x, SHUFFLED), shuffled.x)
    assert plain.jumps is None or torch.equal(plain.jumps[SHUFFLED], shuffled.jumps)


@pytest.mark.parametrize(
    "name",
    ["3m", "unipc", "deis", "remasking", "remasking by confidence", "routed, uniform", "held", "leaves, 2m", "one by one"],
)
def test_a_history_left_behind_is_seen(name, monkeypatch):
    def forgotten(self, index):
        return replace(self, x=tree.rows(self.x, index), jumps=None)

    monkeypatch.setattr(un.samplers.State, "rows", forgotten)
    try:
        plain, shuffled = run_permuted(*STEPPING[name], at=2)
    except IndexError:
        return
    assert not same(tree.rows(plain.x, SHUFFLED), shuffled.x)


@pytest.mark.parametrize("name", ["3m", "remasking", "routed", "trapezoidal", "held", "leaves", "one by one"])
def test_fewer_rows_go_on_alone(name):
    """Compaction: some rows of a state, with their share of the run, end as they would have."""
    oracle, sampler = STEPPING[name]
    plain, some = problem_of(oracle, torch.arange(ROWS)), torch.tensor([5, 1])
    x = oracle.process.prior(ROWS, torch.float64).draw(plain.noise.at("prior"))
    setup = sampler.setup(plain)
    state = sampler.init(plain, setup, x)
    few, part = None, plain.rows(some)
    for i in range(plain.steps):
        few = few if few is None else sampler.step(part, setup, few, i)
        state = sampler.step(plain, setup, state, i)
        few = state.rows(some) if i == 2 else few
    assert same(tree.rows(state.x, some), few.x)


def test_a_memory_of_something_else_is_refused():
    class Odd(Memory):
        pass

    with pytest.raises(TypeError, match="a memory holds a list"):
        un.samplers.State([1.0]).rows(torch.tensor([0]))


# --- callbacks


@pytest.mark.parametrize("name", ["ddim", "3m", "unipc", "heun", "remasking", "leaves", "langevin", "one by one, sde"])
def test_a_callback_may_exchange_rows(name):
    oracle, sampler = STEPPING[name]
    order = torch.tensor([3, 3, 0, 1])
    options = {"n": 4, "steps": 5, "sampler": sampler, "seed": 7, "start": 0.95, "end": 0.05, "trajectory": True}
    swapped, info = sample(oracle, callback=lambda i, t, state: state.rows(order) if i == 1 else None, **options)
    plain, told = sample(oracle, **options)
    assert same(info.trajectory[2], tree.rows(told.trajectory[2], order)) and not same(swapped, plain)
    kept, _ = sample(oracle, callback=lambda i, t, state: state.rows(torch.arange(4)), **options)
    assert same(kept, plain)


def test_a_callback_may_edit_the_states():
    def moved(i, t, state):
        return replace(state, x=torch.zeros_like(state.x)) if i == 2 else None

    x, info = sample(NUMBERS, n=3, steps=6, sampler=DDIM(), seed=0, callback=moved, trajectory=True)
    rest, _ = sample(NUMBERS, x=torch.zeros(3, 2).double(), grid=info.times[3:], sampler=DDIM(), seed=0)
    assert torch.equal(info.trajectory[3], torch.zeros(3, 2).double())
    torch.testing.assert_close(x, rest, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["ddim", "3m", "first hitting", "thinning", "adaptive", "reveal"])
def test_a_callback_may_stop_the_run(name):
    def stop(i, t, state):
        if i == 2:
            raise StopSampling

    oracle, sampler = ALL[name]
    whole, told = sample(oracle, n=3, steps=6, sampler=sampler, seed=0, trajectory=True)
    x, info = sample(oracle, n=3, steps=6, sampler=sampler, seed=0, trajectory=True, callback=stop)
    assert same(x, told.trajectory[3]) and len(info.trajectory) == 4 and info.stopped == float(info.times[3])
    assert told.stopped is None and (name in ("first hitting", "thinning") or info.calls < told.calls)


@pytest.mark.parametrize("name", ["first hitting", "reveal", "thinning", "uniformization", "adaptive"])
def test_methods_without_steps_refuse_other_states(name):
    oracle, sampler = ALL[name]
    for change in (lambda state: state.rows(torch.tensor([1, 0])), lambda state: replace(state, x=state.x.clone())):
        with pytest.raises(TypeError, match=f"{type(sampler).__name__} has no steps.*such as Ancestral"):
            sample(oracle, n=2, steps=3, sampler=sampler, seed=0, callback=lambda i, t, state, change=change: change(state))


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda state: state.x, "returned a Tensor"),
        (lambda state: state.rows(torch.tensor([0])), "returned 1 rows, but the run has 3"),
        (lambda state: replace(state, x=state.x[:, :1]), "shape"),
    ],
)
def test_what_a_callback_returns_is_checked(returned, words):
    with pytest.raises((TypeError, ValueError), match=words):
        sample(NUMBERS, n=3, steps=3, sampler=DDIM(), seed=0, callback=lambda i, t, state: returned(state))


# --- one start per row

STARTS = torch.tensor([0.5, 0.9, 0.73, 0.9, 0.05, 0.2]).double()  # on the grid, its first time, between two, its end


@pytest.mark.parametrize("name", [*ALL, "held"])
def test_rows_start_at_their_own_times(name):
    """Every row is drawn as by a run of its own, from its start over the times of the grid below it."""
    oracle, sampler = {**ALL, **STEPPING}[name]
    x0 = oracle.draw(NoiseSource(1, 6))
    x = tree.map_leaves(lambda a, b: a, oracle.process.marginal(x0, STARTS).draw(NoiseSource(2, 6)), x0)
    grid = torch.tensor([0.9, 0.7, 0.5, 0.3, 0.05]).double()
    out, info = sample(oracle, x=x, start=STARTS, grid=grid, sampler=sampler, seed=5, trajectory=True)
    calls = 0
    for row, start in enumerate(STARTS):
        part = torch.tensor([row])
        alone = tree.rows(x, part)
        if start > grid[-1]:
            times = torch.cat([start.reshape(1), grid[grid < start]])
            method = Replacement(sampler.x[part], sampler.fixed[part], 2) if name == "held" else sampler
            alone, told = sample(oracle, x=alone, grid=times, sampler=method, seed=5, rows=part)
            calls += told.calls
        for a, b in zip(leaves(alone), leaves(tree.rows(out, part)), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert 0 < info.calls <= calls
    for t, state in zip(grid, info.trajectory, strict=True):  # a row stays as it is until its time comes
        waiting = (t >= STARTS).nonzero().squeeze(1)
        assert same(tree.rows(state, waiting), tree.rows(x, waiting))


def test_starts_with_steps_share_the_highest_grid():
    x = torch.ones(3, 2).double()
    start = torch.tensor([0.5, 1.0, 0.25])
    out, info = sample(NUMBERS, x=x, start=start, steps=4, sampler=DDIM(), seed=0)
    assert torch.equal(info.times, torch.linspace(1, 0, 5).double()) and info.calls == 4 + 2 + 1
    alone, _ = sample(NUMBERS, x=x[:1], start=0.5, steps=2, sampler=DDIM(), seed=0)
    torch.testing.assert_close(out[:1], alone, rtol=0, atol=1e-13)
    same_start, told = sample(NUMBERS, x=x, start=torch.full((3,), 0.5), steps=2, sampler=DDIM(), seed=0)
    assert torch.equal(same_start, sample(NUMBERS, x=x, start=0.5, steps=2, sampler=DDIM(), seed=0)[0]) and told.calls == 2


def test_the_law_of_rows_with_other_starts():
    """Given x_t a sample has the law of x_0, so its covariance with x_t is alpha_t times its variance.

    Six sums of 1,334 products are each within 5 standard errors, which fails by chance in 4 of a million seeds.
    """
    n, variance = 4000, torch.tensor([0.5, 0.3]).double()
    x0 = NUMBERS.draw(NoiseSource(1, n))
    start = torch.tensor([0.3, 0.6, 0.9]).double()[torch.arange(n) % 3]
    x = NUMBERS.process.marginal(x0, start).draw(NoiseSource(2, n))
    mean = torch.tensor([0.7, -0.3]).double()

    def off(out, part) -> bool:
        rows = torch.arange(n) % 3 == part
        alpha, sigma = NUMBERS.process.schedule.alpha(start[rows]), NUMBERS.process.schedule.sigma(start[rows])
        alpha, sigma = alpha[:1], sigma[:1]
        product = (out[rows] - mean) * (x[rows] - alpha * mean)
        error = ((variance * (alpha**2 * variance + sigma**2) + (alpha * variance) ** 2) / int(rows.sum())).sqrt()
        return bool(((product.mean(0) - alpha * variance).abs() > 5 * error).any())

    out, _ = sample(NUMBERS, x=x, start=start, steps=60, sampler=Ancestral(), seed=3)
    assert not any(off(out, part) for part in range(3))
    wrong, _ = sample(NUMBERS, x=x, start=0.9, steps=60, sampler=Ancestral(), seed=3)  # planted: one start for all
    assert off(wrong, 0)


def test_starts_are_checked():
    x = torch.zeros(2, 2).double()
    for start, words in (
        ([0.5], "one per row"),
        ([0.5, 1.5], "0 <= end < start <= 1"),
        ([0.5, 0.01], "row 1 starts at 0.01"),
    ):
        with pytest.raises(ValueError, match=words):
            sample(NUMBERS, x=x, start=torch.tensor(start), steps=3, end=0.1, sampler=DDIM(), seed=0)
    with pytest.raises(TypeError, match="start at times of their own"):
        sample(
            NUMBERS, x=x, start=torch.tensor([0.5, 0.9]), steps=3, sampler=DPMSolverPP(2), seed=0,
            callback=lambda i, t, state: state.rows(torch.tensor([1, 0])),
        )  # fmt: skip
    edited, _ = sample(
        NUMBERS, x=x, start=torch.tensor([0.5, 0.9]), steps=3, sampler=DDIM(), seed=0,
        callback=lambda i, t, state: replace(state, x=torch.zeros_like(x)),
    )  # fmt: skip
    assert torch.equal(edited, x)


# --- gradients


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2).double()
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.linspace(-0.5, 0.5, p.numel()).reshape(p.shape))

    def forward(self, x, t):
        return torch.tanh(self.lin(torch.cat([x, t.unsqueeze(1)], 1)))


@pytest.mark.parametrize("sampler", [DDIM(), DDIM(0.5), DPMSolverPP(3), Heun(), UniPC(), DEIS(), Ancestral()])
def test_a_run_can_be_differentiated(sampler):
    network = Small()
    denoiser = un.Denoiser(network, un.Gaussian((2,)))
    x = torch.tensor([[0.3, -1.2], [0.8, 0.1]]).double().requires_grad_()
    weights = [p.detach().clone().requires_grad_() for p in network.parameters()]

    def drawn(x, *weights):
        for p, w in zip(("weight", "bias"), weights, strict=True):
            network.lin._parameters[p] = w
        return sample(denoiser, x=x, steps=4, start=0.95, end=0.05, sampler=sampler, seed=0, grad=True)[0]

    assert torch.autograd.gradcheck(drawn, (x, *weights))


def test_gradients_are_had_on_request_alone():
    denoiser = un.Denoiser(Small(), un.Gaussian((2,)))
    assert not sample(denoiser, n=2, steps=3, sampler=DDIM(), seed=0)[0].requires_grad
    out, _ = sample(denoiser, n=2, steps=3, sampler=DDIM(), seed=0, grad=True)
    assert len(torch.autograd.grad(out.sum(), list(denoiser.network.parameters()))) == 2
    with pytest.raises(ValueError, match="AdaptiveODE looks at values"):
        sample(NUMBERS, n=2, sampler=AdaptiveODE(), seed=0, grad=True)
    table = un.oracles.table(un.Masking(2, (2,)), torch.full((4,), 0.25).double())
    assert sample(table, n=2, sampler=FirstHitting(), seed=0, grad=True)[0].dtype is torch.int64


# --- seeds, calls, conditions


def test_without_a_seed_runs_are_fresh():
    torch.manual_seed(5)
    one, info = sample(NUMBERS, n=3, steps=3, sampler=DDIM())
    two, _ = sample(NUMBERS, n=3, steps=3, sampler=DDIM())
    assert not torch.equal(one, two)
    assert torch.equal(one, sample(NUMBERS, n=3, steps=3, sampler=DDIM(), seed=info.seed)[0])
    torch.manual_seed(5)
    assert torch.equal(one, sample(NUMBERS, n=3, steps=3, sampler=DDIM())[0])
    assert torch.equal(*(sample(NUMBERS, n=3, steps=3, sampler=DDIM(), seed=0)[0] for _ in range(2)))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x, t, previous=None):
        self.count += 1
        return torch.zeros_like(x)


@pytest.mark.parametrize("sampler", [DDIM(), DPMSolverPP(3), Heun(), AdaptiveODE(1e-2, 1e-2)])
def test_evaluations_are_counted_under_self_conditioning(sampler):
    for twice in (False, True):
        network = Counting()
        denoiser = un.Denoiser(network, un.Gaussian((2,)), self_condition=twice)
        _, info = sample(denoiser, n=2, sampler=sampler, seed=0, dtype=torch.float64)
        assert info.calls == network.count
        if not isinstance(sampler, AdaptiveODE):
            network.count = 0
            _, info = sample(denoiser, n=2, calls=20, sampler=sampler, seed=0, dtype=torch.float64)
            assert info.calls == network.count <= 20 < network.count + 2 * sampler.stages * (1 + twice)


class Told(un.denoiser.AnyDenoiser):
    """x_0 is what the condition says."""

    def __init__(self):
        super().__init__()
        self.process, self.seen = un.Gaussian((2,)), []

    def forward(self, x_t, t, /, **condition):
        assert t.shape == (len(x_t),)
        self.seen.append(condition)
        value = condition["deep"]["where"] * condition["scale"].value[0]
        return un.Clean(value, self.process, x_t, t.expand(len(x_t)))


@pytest.mark.parametrize("sampler", [DDIM(), DPMSolverPP(2), AdaptiveODE()])
def test_a_condition_has_an_entry_per_row(sampler):
    where = torch.arange(4.0).double().reshape(2, 2)
    shared = un.Shared(torch.tensor([2.0, 7.0]).double())  # as many entries as there are rows, and never cut
    condition = {"deep": {"where": where}, "scale": shared}
    starts = torch.tensor([1.0, 0.5]).double()
    for options in ({"n": 2}, {"x": torch.ones(2, 2).double(), "start": starts}):
        out, _ = sample(Told(), steps=2, sampler=sampler, seed=0, condition=condition, **options)
        torch.testing.assert_close(out, 2 * where, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=r"condition\['deep'\]\['where'\] has shape \(2, 2\), but there are 3 rows"):
        sample(Told(), n=3, steps=2, sampler=sampler, seed=0, condition=condition)
    draw = un.samplers.CapturedRun(Told(), 2, 2, DDIM(), seed=0, condition=condition)
    torch.testing.assert_close(draw()[0], 2 * where, rtol=0, atol=1e-9)
