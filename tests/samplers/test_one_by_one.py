"""Mixed products one by one: the law is right where it must be exactly right, and wrong where the code is made wrong.

Shares of n samples are compared with exact probabilities by chi-square.  `LIMIT` is passed by a right law once in a million
runs; what is planted is to be far above it.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import unnoise as un
from unnoise.noise import NoiseSource
from unnoise.predictions import ProductPrediction
from unnoise.samplers import (
    DDIM,
    DEIS,
    Ancestral,
    DPMSolverPP,
    EulerMaruyama,
    Exponential,
    FirstHitting,
    Frozen,
    Heun,
    Leaves,
    OneByOne,
    Tokens,
    UniPC,
    default_sampler,
    masked_leaves,
    multistep,
    row_grids,
    sample,
)

RARE = 1e-6
S = un.schedules


def far(found: torch.Tensor, exact: torch.Tensor) -> float:
    """chi-square of the codes of samples, divided by its limit: above 1 is wrong."""
    n = len(found)
    counts = torch.bincount(found, minlength=len(exact)).double()
    value = float(((counts - n * exact).square() / (n * exact)).sum())
    return value / float(chi2.ppf(1 - RARE, len(exact) - 1))


# --- where nothing but masked leaves moves: first hitting, for any network


class Moody(un.denoiser.AnyDenoiser):
    """Two masked leaves of one column each, of two categories; what is predicted depends on time and on the other leaf."""

    def __init__(self, late=None):
        super().__init__()
        self.process = un.Product(a=un.Masking(2, (1,)), b=un.Masking(2, (1,), late or S.Polynomial(3.0)))

    @staticmethod
    def chance(which: int, other: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Of category 1; `other` is 0, 1, or 2 for MASK."""
        logit = [(-2.0, 2.5, 0.0), (2.0, -1.5, 1.0)][which]
        wave = torch.cos(4 * t) if which else 2 * t - 1
        return torch.sigmoid(torch.tensor(logit, dtype=torch.float64)[other] + 2 * wave)

    def forward(self, x_t, t, **condition):
        leaves = {}
        for which, (name, other) in enumerate((("a", "b"), ("b", "a"))):
            p = self.chance(which, x_t[other][:, 0], t)
            logits = torch.stack([(1 - p).log(), p.log()], -1).unsqueeze(1)
            leaves[name] = un.Posterior(logits, self.process.leaves[name], x_t[name], t)
        return ProductPrediction(leaves, self.process, x_t, t)

    def law(self) -> torch.Tensor:
        """Of (a, b): an integral over the times of both, alpha = 1 - t and 1 - t^3."""
        nodes, weights = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(60))
        u, w = (nodes + 1) / 2, weights / 2
        t_a = u.unsqueeze(1)  # when a is revealed
        total = torch.zeros(2, 2, dtype=torch.float64)
        mask, mine = torch.tensor(2), [torch.tensor(0), torch.tensor(1)]
        for earlier in (True, False):  # a before b, so t_a > t_b; or after
            t_b = t_a * u if earlier else t_a + (1 - t_a) * u
            mass = w.unsqueeze(1) * w * (t_a if earlier else 1 - t_a) * 3 * t_b.square()
            for i in (0, 1):
                for j in (0, 1):
                    one, two = (0, i, j) if earlier else (1, j, i), (1, j, i) if earlier else (0, i, j)
                    first, second = (t_a.expand_as(t_b), t_b) if earlier else (t_b, t_a.expand_as(t_b))
                    p = self.chance(one[0], mask, first)
                    q = self.chance(two[0], mine[one[1]], second)
                    p, q = (p if one[1] else 1 - p), (q if two[1] else 1 - q)
                    total[i, j] += (mass * p * q).sum()
        return total.flatten()


def codes(x, *names) -> torch.Tensor:
    return x[names[0]].flatten() * 2 + x[names[1]].flatten()


def test_masked_leaves_alone_are_first_hitting():
    denoiser, n = Moody(), 20_000
    exact = denoiser.law()
    assert float(exact.sum()) == pytest.approx(1, abs=1e-9)
    x, info = sample(denoiser, n, seed=0)
    assert info.calls == 2 and info.rows == 2 * n
    assert far(codes(x, "a", "b"), exact) < 1
    assert far(codes(sample(denoiser, n, 1, OneByOne(), seed=0)[0], "a", "b"), exact) > 5  # both in one call


def test_a_wrong_time_is_seen(monkeypatch):
    denoiser, n = Moody(), 20_000
    right = row_grids.row_grid

    def wrong(tau, times, reveals, moves):
        grid = right(tau, times, reveals, moves)
        return replace(grid, times=grid.times.square())

    monkeypatch.setattr(un.samplers.one_by_one, "row_grid", wrong)
    assert far(codes(sample(denoiser, n, seed=0)[0], "a", "b"), denoiser.law()) > 5


def test_a_wrong_order_is_seen(monkeypatch):
    """Times of leaves with unlike schedules are compared, not levels of alpha."""
    denoiser, n = Moody(), 20_000
    monkeypatch.setattr(S.Polynomial, "time_of_alpha", lambda self, level: 1 - level)
    assert far(codes(sample(denoiser, n, seed=0)[0], "a", "b"), denoiser.law()) > 5


def test_schedules_of_single_coordinates():
    """Without an inverse a line between the common times stands for it: right in many of them."""
    both = S.PerCoordinate([S.Linear(), S.Polynomial(3.0)])

    class Pair(Moody):
        def __init__(self):
            super().__init__()
            self.parts = Moody()
            self.process = un.Product(c=un.Masking(2, (2,), both), d=un.Masking(2, (1,)))

        def forward(self, x_t, t, **condition):
            leaves = self.parts({"a": x_t["c"][:, :1], "b": x_t["c"][:, 1:]}, t).leaves
            logits = torch.cat([leaves["a"].logits, leaves["b"].logits], 1)
            own = {"c": un.Posterior(logits, self.process.leaves["c"], x_t["c"], t)}
            own["d"] = un.Posterior(torch.zeros(len(t), 1, 2).double(), self.process.leaves["d"], x_t["d"], t)
            return ProductPrediction(own, self.process, x_t, t)

    x, info = sample(Pair(), 20_000, seed=0)
    assert info.calls == 3 and far(x["c"][:, 0] * 2 + x["c"][:, 1], Moody().law()) < 1


# --- numbers beside columns


def mixed(size: int = 3, width: int = 2, kinds=None, **schedules):
    """Numbers whose law depends on columns that depend on each other."""
    process = un.Product(
        x=un.Gaussian((2,), schedules.get("x", S.Cosine())), c=un.Masking(size, (width,), schedules.get("c", S.Linear()))
    )
    generator = torch.Generator().manual_seed(3)
    count = size**width
    probs = (2.5 * torch.randn(count, generator=generator)).softmax(0).double() * 0.9 + 0.1 / count
    means = torch.randn(count, 2, generator=generator).double()
    covariances = torch.tensor([[0.2, 0.05], [0.05, 0.1]]).double().expand(count, 2, 2)
    return un.oracles.conditional_gaussian(process, probs, means, covariances, kinds), probs, means


def code_of(c: torch.Tensor, size: int = 3) -> torch.Tensor:
    return (c * size ** torch.arange(c.shape[1] - 1, -1, -1)).sum(1)


def test_columns_of_a_mixed_table_have_their_joint_law():
    oracle, probs, means = mixed()
    n = 20_000
    x, info = sample(oracle, n, 32, OneByOne(x=DPMSolverPP(2)), seed=0)
    found = code_of(x["c"])
    assert info.calls == 34 and far(found, probs) < 1
    together, _ = sample(oracle, n, 6, Leaves(x=DPMSolverPP(2), c=Ancestral()), seed=0)
    assert far(code_of(together["c"]), probs) > 5
    left = x["x"] - means[found]  # means 0, variances 0.2 and 0.1: five errors and a hundredth
    for k in range(9):
        some = left[found == k]
        if len(some) > 200:
            error = (torch.tensor([0.2, 0.1]) / len(some)).sqrt()
            assert bool((some.mean(0).abs() < 5 * error + 0.01).all())
    assert torch.allclose(left.var(0), torch.tensor([0.2, 0.1]).double(), rtol=0.08)


def test_a_row_that_moves_while_it_reveals_is_seen(monkeypatch):
    oracle, _, means = mixed()
    n, method = 8000, OneByOne(x=DPMSolverPP(2))

    def spread() -> float:
        x, _ = sample(oracle, n, 12, method, seed=0)
        return float((x["x"] - means[code_of(x["c"])]).square().mean())  # 0.15 in the law

    right, place = spread(), row_grids.RowGrid.place

    def moving(self, call, steps):
        step, stays = place(self, call, steps)
        return step, stays & ~self.reveals[:, call]

    monkeypatch.setattr(row_grids.RowGrid, "place", moving)
    assert right == pytest.approx(0.15, abs=0.02) and abs(spread() - 0.15) > 0.04


# --- a row is what a plain loop over its own grid gives


def token(logits: torch.Tensor, u: torch.Tensor) -> int:
    return int((logits.softmax(-1).cumsum(-1) < u).sum().clamp_max(len(logits) - 1))


def by_hand(oracle, row: int, steps: int, seed: int, order: int):
    """One row, by formulas: DDIM, or DPM-Solver++ 2M whose past moves along with what a reveal changes."""
    noise, process = NoiseSource(seed, torch.tensor([row])), oracle.process
    schedule, width = process.leaves["x"].schedule, process.leaves["c"].space.dimension
    x = process.prior(1, torch.float64).draw(noise.at("prior"))
    times = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    level = noise.at("c", "reveal").uniform((width,))[0]
    u = noise.at("c", "token").uniform((width,))[0]
    tau = process.leaves["c"].schedule.time_of_alpha(level)
    at = [min(int((times - value).abs().argmin()), steps - 1) for value in tau]
    waiting = sorted(range(width), key=lambda k: -tau[k])
    past = None  # lambda, and D
    for i in range(steps):
        t, s = times[i : i + 1], times[i + 1 : i + 2]
        while True:
            said = oracle(x, t).leaves
            clean = said["x"].to(un.Clean).value
            if not (waiting and at[waiting[0]] == i):
                break
            k = waiting.pop(0)
            x = {**x, "c": x["c"].clone()}
            x["c"][0, k] = token(said["c"].logits[0, k], u[k])
            again = oracle(x, t).leaves["x"].to(un.Clean).value
            past = past and (past[0], past[1] + again - clean)
        keep = schedule.sigma(s) / schedule.sigma(t)
        lam, ahead = (float(schedule.log_snr(v)) / 2 for v in (t, s))
        value = clean
        if order == 2 and past is not None and abs(past[0]) < 100 and abs(ahead) < 100:
            value = clean + (clean - past[1]) * (ahead - lam) / (lam - past[0]) / 2
        x = {**x, "x": keep * x["x"] + (schedule.alpha(s) - keep * schedule.alpha(t)) * value}
        past = (lam, clean)
    return x


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", [un.Velocity, un.Clean, un.Flow])
def test_rows_follow_their_own_grids(order, kind):
    oracle, *_ = mixed(width=3, kinds={"x": kind, "c": un.Posterior}, c=S.Polynomial(2.0))
    method = OneByOne(x=DDIM() if order == 1 else DPMSolverPP(2))
    x, info = sample(oracle, 6, 16, method, seed=5, first=3)
    assert info.calls == 19
    for r in range(6):
        alone = by_hand(oracle, 3 + r, 16, 5, order)
        assert torch.equal(x["c"][r], alone["c"][0])
        torch.testing.assert_close(x["x"][r], alone["x"][0], rtol=1e-9, atol=1e-9)


def test_the_past_moves_along(monkeypatch):
    """The test above would notice a past that does not."""
    oracle, *_ = mixed(width=3)
    method = OneByOne(x=DPMSolverPP(2))
    right, _ = sample(oracle, 50, 16, method, seed=5)
    along = multistep.Past.along

    def left(self, value, count):
        return along(self if self.stayed is None else replace(self, values=(value, *self.values[1:])), value, count)

    monkeypatch.setattr(multistep.Past, "along", left)
    assert float((sample(oracle, 50, 16, method, seed=5)[0]["x"] - right["x"]).abs().max()) > 1e-2


LINEAR = {
    "ddim": DDIM(),
    "ddim eta 1": DDIM(1.0),
    "ddim by times": DDIM(lambda t: (t > 0.5).double()),
    "euler-maruyama": EulerMaruyama(),
    "2m": DPMSolverPP(2),
    "2m sde": DPMSolverPP(2, sde=True),
    "exponential": Exponential(2, eta=0.5),
    "3m": DPMSolverPP(3, start_again=False),
    "clipped": DPMSolverPP(2, clean=un.samplers.Clip(1.0)),
    "ancestral": Ancestral(),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("schedule", [S.Cosine(), S.PerCoordinate([S.Cosine(), S.Linear()])], ids=["one", "two"])
def test_rows_that_share_a_grid_have_the_steps_of_all(name, schedule):
    """Nothing is masked, so that all rows go along the common times: the same numbers as by common steps."""
    oracle, *_ = mixed(x=schedule)
    x = {"x": NoiseSource(1, 8).normal((2,)), "c": torch.arange(16).reshape(8, 2) % 3}
    method = LINEAR[name]
    ours, info = sample(oracle, x=x, steps=9, sampler=OneByOne(x=method).with_gaps(0), seed=2)
    common, _ = sample(oracle, x=x, steps=9, sampler=Leaves(x=method, c=Ancestral()), seed=2)
    assert info.calls == 10 and torch.equal(ours["c"], common["c"])
    torch.testing.assert_close(ours["x"], common["x"], rtol=1e-12, atol=1e-12)


def test_tables_by_rows_are_the_tables():
    problem = un.samplers.Problem(mixed()[0], torch.linspace(1, 0, 8, dtype=torch.float64), NoiseSource(0, 3), {})
    part, method = problem.part("x"), DPMSolverPP(2, sde=True)
    tables = method.tables(part)
    rows = method.row_tables(part, tables, un.Velocity)
    steps = torch.tensor([4, 0, 6])
    found = rows.table[steps]
    for r, i in enumerate(steps.tolist()):
        own = tables.table[i]
        assert found.keep[r].item() == own.keep and found.noise[r].item() == own.noise
        assert [weight[r].item() for weight in found.weights[: len(own.weights)]] == list(own.weights)
        assert all(weight[r].item() == 0 for weight in found.weights[len(own.weights) :])


# --- samples, batches, times


def test_sample_i_is_the_same_in_any_batch():
    oracle, *_ = mixed(width=3)
    method = OneByOne(x=DPMSolverPP(2, sde=True))
    whole, _ = sample(oracle, 12, 7, method, seed=4)
    part, _ = sample(oracle, 3, 7, method, seed=4, first=6)
    picked, _ = sample(oracle, 2, 7, method, seed=4, rows=torch.tensor([9, 2]))
    few, info = sample(oracle, 12, 7, method.with_gaps(3), seed=4)
    for name in ("x", "c"):
        assert torch.equal(whole[name][6:9], part[name]) and torch.equal(whole[name][[9, 2]], picked[name])
        assert torch.equal(whole[name], few[name])


def test_columns_that_are_known_stay_and_their_calls_are_left_out():
    oracle, *_ = mixed(width=3)
    start = oracle.process.prior(6, torch.float64).draw(NoiseSource(0, 6))
    start["c"][:, 1] = torch.arange(6) % 3
    start["c"][:3, 2] = 1
    idle, info = sample(oracle, x=start, steps=8, sampler=OneByOne(x=DPMSolverPP(2)), seed=0)
    assert info.calls == 11 and torch.equal(idle["c"][:, 1], start["c"][:, 1]) and bool((idle["c"] < 3).all())
    assert torch.equal(idle["c"][:3, 2], start["c"][:3, 2])
    found, info = sample(oracle, x=start, steps=8, sampler=OneByOne(x=DPMSolverPP(2)).with_gaps(2), seed=0)
    assert info.calls == 10 and all(torch.equal(found[name], idle[name]) for name in found)


def test_columns_given_numbers_are_first_hitting():
    """P(c | x) = p_c N(x; mu_c, C) / sum, with one call for each column."""
    oracle, probs, means = mixed()
    n, value = 20_000, torch.tensor([0.3, -0.2]).double()
    start = {"x": value.expand(n, 2), "c": torch.full((n, 2), 3)}
    method = OneByOne(x=DPMSolverPP(2)).holding(["x"])
    x, info = sample(oracle, x=start, steps=8, sampler=method, seed=0)
    covariance = torch.tensor([[0.2, 0.05], [0.05, 0.1]]).double()
    gap = value - means
    weight = probs.log() - 0.5 * (gap @ covariance.inverse() * gap).sum(1)
    assert info.calls == 2 and torch.equal(x["x"], start["x"]) and far(code_of(x["c"]), weight.softmax(0)) < 1
    together, _ = sample(oracle, x=start, steps=1, sampler=Leaves(x=Frozen(), c=Ancestral()), seed=0)
    assert far(code_of(together["c"]), weight.softmax(0)) > 5


def test_a_run_may_end_early_and_start_late():
    oracle, *_ = mixed()
    n, method = 4000, OneByOne(x=DPMSolverPP(2))
    x, info = sample(oracle, n, 12, method, seed=0, end=0.25)
    share = float((x["c"] == 3).double().mean())
    assert info.calls == 14 and abs(share - 0.25) < 5 * (0.25 * 0.75 / (2 * n)) ** 0.5
    rest, _ = sample(oracle, x=x, steps=6, sampler=method, seed=1, start=0.25)
    assert bool((rest["c"] < 3).all()) and torch.equal(rest["c"][x["c"] < 3], x["c"][x["c"] < 3])
    assert far(code_of(rest["c"]), mixed()[1]) < 1
    starts = torch.where(torch.arange(20) < 10, 0.25, 0.5)
    some, few = ({name: part[:count] for name, part in x.items()} for count in (20, 10))
    both, _ = sample(oracle, x=some, steps=6, sampler=method, seed=1, start=starts)
    alone, _ = sample(oracle, x=few, grid=[0.25, 1 / 6, 1 / 12, 0.0], sampler=method, seed=1)
    torch.testing.assert_close(both["x"][:10], alone["x"], rtol=1e-9, atol=1e-9)


def test_budgets_and_shared_calls():
    oracle, *_ = mixed(size=2, width=6)
    method = OneByOne(x=DPMSolverPP(2))
    for calls, steps in ((14, 8), (10, 4), (3, 1), (2, 1)):
        if calls == 2:
            assert method.calls(1, oracle.process) == 2
        _, info = sample(oracle, 3, calls=calls, sampler=method, seed=0)
        assert info.calls <= calls and info.calls == method.calls(len(info.times) - 1, oracle.process)
        assert len(info.times) - 1 >= min(steps, calls - 1)
    x, info = sample(oracle, 2000, 2, method, seed=0)  # two calls for six columns
    assert info.calls == 4 and bool((x["c"] < 2).all())


# --- callbacks


def test_callbacks_see_rows_near_the_times_they_are_told():
    oracle, *_ = mixed(width=3)
    seen, process = [], oracle.process.leaves["c"]

    def look(i, t, state):
        grid = state.memory.grid
        seen.append((i, t, float((state.x["c"] == process.mask).double().mean())))
        assert grid.times.shape == (2000, 33)

    x, info = sample(oracle, 2000, 30, OneByOne(x=DDIM()), seed=0, callback=look, trajectory=True)
    assert [i for i, *_ in seen] == list(range(30)) and len(info.trajectory) == 31
    assert [t for _, t, _ in seen] == pytest.approx(info.times[1:].tolist())
    for _, t, masked in seen:  # of which t is the share, up to half a step and three times half a call
        assert abs(masked - t) < 0.06
    assert torch.equal(info.trajectory[-1]["x"], x["x"])


def test_what_a_callback_masks_or_reveals():
    oracle, *_ = mixed(width=3)

    def edited(i, t, state):
        c = state.x["c"].clone()
        if i == 1:
            c[:, 0] = 2  # before its time or after
        if i == 6:
            c[:2, 1], c[2:, 2] = 3, 3
        return replace(state, x={**state.x, "c": c}) if i in (1, 6) else None

    for method in (OneByOne(x=DDIM()), OneByOne(x=Frozen())):
        plain, _ = sample(oracle, 200, 8, method, seed=0)
        x, info = sample(oracle, 200, 8, method, seed=0, callback=edited, trajectory=True)
        assert bool((x["c"] < 3).all()) and bool((x["c"][:, 0] == 2).all())
        assert not torch.equal(x["c"][:, 2], plain["c"][:, 2])
        same, _ = sample(oracle, 200, 8, method, seed=0, callback=lambda i, t, state: replace(state, x=dict(state.x)))
        assert all(torch.equal(same[name], plain[name]) for name in plain)


# --- other leaves, other kinds, other trees


def test_a_nested_product_and_several_masked_leaves():
    """Two leaves at different depths with schedules of their own: the pair has its law."""
    inner = un.Product(c=un.Masking(2, (1,), S.Polynomial(3.0)), x=un.Gaussian((1,), S.Cosine()))
    process = un.Product(inside=inner, d=un.Masking(2, (1,)))
    leaf = un.oracles.CategoricalLeaf
    sure = torch.tensor([[0.95, 0.05], [0.05, 0.95], [0.5, 0.5]]).double().log().unsqueeze(1)
    means = torch.tensor([[-1.0], [1.0], [0.0]]).double()
    leaves = {
        "inside": {"c": leaf(sure), "x": un.oracles.GaussianLeaf(means, 0.1 * torch.ones(3, 1, 1).double())},
        "d": leaf(sure),
    }
    oracle = un.oracles.Components(process, torch.tensor([0.4, 0.4, 0.2]).double(), leaves)
    plan = default_sampler(process)
    assert type(plan.sampler) is OneByOne and plan.sampler.method("inside").by_rows
    x, info = sample(oracle, 8000, seed=0)
    p = torch.tensor([[0.95, 0.05], [0.05, 0.95], [0.5, 0.5]]).double()
    exact = torch.einsum("k,ka,kb->ab", torch.tensor([0.4, 0.4, 0.2]).double(), p, p).flatten()
    assert info.calls == 66 and far(x["inside"]["c"].flatten() * 2 + x["d"].flatten(), exact) < 1


OTHERS = {
    "uniform": lambda: (un.Uniform(3, (1,)), un.oracles.CategoricalLeaf),
    "ordinal": lambda: (un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (1,), S.Cosine()), un.oracles.CategoricalLeaf),
}


@pytest.mark.parametrize("name", OTHERS)
def test_leaves_that_jump_go_by_their_kernels(name):
    leaf, kind = OTHERS[name]()
    process = un.Product(u=leaf, c=un.Masking(3, (1,)))
    sure = (4 * torch.eye(3)).softmax(-1).double()
    parts = {"u": kind(sure.log().unsqueeze(1)), "c": kind(sure.log().unsqueeze(1))}
    weights = torch.tensor([0.5, 0.3, 0.2]).double()
    oracle = un.oracles.Components(process, weights, parts)
    x, info = sample(oracle, 6000, seed=0)
    assert info.calls == 65
    exact = torch.einsum("k,ka,kb->ab", weights, sure, sure).flatten()
    found = torch.bincount(x["u"].flatten() * 3 + x["c"].flatten(), minlength=9) / 6000
    assert float((found - exact).abs().max()) < 0.03


def test_counts_go_by_their_kernels():
    process = un.Product(n=un.Thinning((1,)), c=un.Masking(2, (1,)))
    leaves = {
        "n": un.oracles.PoissonLeaf(torch.tensor([[2.0], [9.0]]).double()),
        "c": un.oracles.CategoricalLeaf(torch.tensor([[0.9, 0.1], [0.1, 0.9]]).double().log().unsqueeze(1)),
    }
    oracle = un.oracles.Components(process, torch.tensor([0.5, 0.5]).double(), leaves)
    x, _ = sample(oracle, 3000, seed=0)
    low, high = (float(x["n"][x["c"] == k].double().mean()) for k in (0, 1))
    assert abs(low - 2.7) < 0.3 and abs(high - 8.3) < 0.4


@pytest.mark.parametrize("kind", [un.RawPosterior, un.Ratio, un.Rates])
def test_other_predictions_of_categories_reveal_the_same(kind):
    told = [mixed(kinds={"x": un.Clean, "c": one})[0] for one in (un.Posterior, kind)]
    method = OneByOne(x=DPMSolverPP(2))
    ours, theirs = (sample(oracle, 60, 6, method, seed=0, start=0.999)[0] for oracle in told)
    assert torch.equal(ours["c"], theirs["c"])
    torch.testing.assert_close(ours["x"], theirs["x"], rtol=1e-7, atol=1e-7)


def test_temperature_zero_takes_the_likeliest():
    oracle, *_ = mixed()
    start = {"x": torch.zeros(4, 2).double(), "c": torch.full((4, 2), 3)}
    method = OneByOne(None, Tokens(temperature=0.0), x=Frozen())
    x, _ = sample(oracle, x=start, steps=1, sampler=method, seed=0)
    likeliest = oracle(start, {"x": torch.zeros(4).double(), "c": torch.ones(4).double()}).leaves["c"].logits.argmax(-1)
    assert method.order is None and torch.equal(x["c"], likeliest)  # both in one call


# --- what it states and refuses


def test_what_it_states():
    assert OneByOne(x=DPMSolverPP(2)).order == 2 and OneByOne(x=DDIM()).order == 1
    assert OneByOne(x=DPMSolverPP(3, start_again=False)).order == 2 and OneByOne().order is None
    process = mixed(size=2, width=6)[0].process
    assert OneByOne(x=DDIM()).calls(9, process) == 15 and OneByOne(x=Frozen()).calls(9, process) == 6
    assert OneByOne(x=DDIM()).with_gaps(2).calls(9, process) == 11


@pytest.mark.parametrize(
    "method, words",
    [
        (lambda: OneByOne(x=Heun()), "leaf 'x': Heun takes all rows through the same steps"),
        (lambda: OneByOne(x=UniPC()), "UniPC takes all rows"),
        (lambda: OneByOne(x=DEIS(2)), "DEIS takes all rows"),
        (lambda: OneByOne(x=DPMSolverPP(3)), "DPMSolverPP takes all rows"),
        (lambda: OneByOne(x=DPMSolverPP(2, single=True)), "DPMSolverPP takes all rows"),
        (lambda: OneByOne(x=Ancestral(2)), "Ancestral takes all rows"),
        (lambda: OneByOne(), "no method for ['x']"),
        (lambda: OneByOne(Ancestral(), c=Ancestral()), "names ['c']; the leaves that are not masked are ['x']"),
        (lambda: OneByOne(x=FirstHitting()), "does not go by the common steps"),
    ],
)
def test_what_does_not_go_by_rows_is_refused(method, words):
    with pytest.raises(TypeError) as error:
        sample(mixed()[0], 2, 4, method(), seed=0)
    assert words in str(error.value)


def test_products_without_masks_are_no_matter_of_it():
    process = un.Product(x=un.Gaussian((1,)), u=un.Uniform(2, (1,)))
    assert "has none: use Leaves" in OneByOne(Ancestral()).refuse(process)
    assert "has none: use Leaves" in OneByOne(Ancestral()).refuse(un.Masking(2, (2,)))
    assert type(default_sampler(process).sampler) is Leaves


def test_a_silent_prediction_is_refused_before_the_run():
    oracle, *_ = mixed(kinds={"x": un.Noise, "c": un.Posterior})
    with pytest.raises(ValueError, match="Noise prediction says nothing of x_0 at t = 1"):
        sample(oracle, 2, 4, OneByOne(x=DDIM()), seed=0, start=1.0)
    assert bool(sample(oracle, 2, 4, OneByOne(x=DDIM()), seed=0)[0]["x"].isfinite().all())


def test_expected_shares_follow_the_schedules():
    process = un.Product(a=un.Masking(2, (1,)), b=un.Masking(2, (3,), S.Polynomial(2.0)))
    times = torch.linspace(1, 0, 5, dtype=torch.float64)
    problem = un.samplers.Problem(Moody(), times, NoiseSource(0, 1), {}, process)
    share = masked_leaves.expected_share(masked_leaves.masked_leaves(problem), times)
    t = times[1:]
    assert share == pytest.approx(((1 - t) / 4 + 3 * (1 - t.square()) / 4).tolist())
