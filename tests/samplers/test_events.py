"""Exact simulation of reverse jump processes: bounds that hold, laws that are right, ends that are stated.

Drawn laws are compared by chi-square tests with a false-alarm level of 1e-6 each; what is wrong fails them by far.
"""

import pytest
import torch
from torch import Tensor

import unnoise as un
from unnoise.generators.kolmogorov import code, states
from unnoise.laws import Categorical
from unnoise.samplers import FirstHitting, events, exit_bounds, sample
from unnoise.samplers.events import Gillespie, Uniformization
from unnoise.samplers.exit_bounds import ExitBoundTable, exit_bound
from unnoise.verify.finite_kernels import marginal_matrix, transition_matrix

LATE, EARLY, ROWS, LEVEL = 0.8, 0.3, 2400, 1e-6
LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)
HOST = torch.device("cpu")
BOTH = [Gillespie, Uniformization]

PROCESSES = {
    "masking": lambda: un.Masking(3, (2,)),
    "uniform": lambda: un.Uniform(3, (2,)),
    "rates": lambda: un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (2,)),
    "mixture": lambda: un.Mixture.uniform_and_mask(3, (2,)),
}
OTHERS = {
    "one": lambda: un.Uniform(3, ()),
    "cosine": lambda: un.Uniform(4, (2,), un.schedules.Cosine()),
    "sizes": lambda: un.Uniform([3, 5], (2,)),
    "laws": lambda: un.Interpolation(3, (2,), torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])),
    "with mask": lambda: un.RateMatrix(un.rate_matrices.with_mask(un.rate_matrices.nearest_neighbour(3)), (2,), size=3),
    "birth and death": lambda: un.BirthDeath(4, (2,), occupancy=0.3),
    "pure death": lambda: un.BirthDeath(4, (2,), occupancy=0.0),
    "longer than wide": lambda: un.RateMatrix(un.rate_matrices.discretised_gaussian(3, 1.0), (5,)),
}
ALL = {**PROCESSES, **OTHERS}


def oracle_of(name: str):
    return un.oracles.table(PROCESSES[name](), LAW)


def marginal(oracle, t: float) -> Tensor:
    process, data = oracle.process, oracle.process.space.states()
    return marginal_matrix(process, data, states(process.state_space), t) @ oracle.log_prob(data).exp()


def p_value(counts: Tensor, law: Tensor) -> float:
    """Of a chi-square test; cells that expect fewer than 5 are one, and what has no probability must not be seen."""
    assert float(counts[law == 0].sum()) == 0
    expected, few = counts.sum() * law, counts.sum() * law < 5
    counts, expected = (torch.cat([v[~few], v[few].sum().reshape(1)]) for v in (counts, expected))
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic = ((counts - expected).square() / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(expected) - 1) / 2).double(), statistic / 2))


def counted(space, x: Tensor) -> Tensor:
    return torch.bincount(code(space, x), minlength=space.count).double()


def noised(oracle, t: float, rows: int, seed: int) -> Tensor:
    noise = un.NoiseSource(seed, rows)
    return oracle.process.marginal(oracle.draw(noise.at("data")), t).draw(noise.at("noise"))


# --- bounds


def largest_quotient(process) -> float:
    """Exit rates over their bounds, for random laws of x_0 from mild to all but one-hot, under every kernel."""
    worst, source = 0.0, un.NoiseSource(3, 200)
    size, shape = process.state_space.size, process.space.shape
    for i, (t, peak) in enumerate((t, peak) for t in (1e-3, 0.2, 0.6, 0.999) for peak in (1.0, 8.0, 60.0)):
        noise = source.at(i)
        sizes = size if process.space.sizes is None else process.space.sizes
        x = (noise.at("x").uniform(shape) * sizes).long()
        logits = peak * noise.at("logits").normal((*shape, process.space.size))
        bound = exit_bound(process, torch.tensor([t], dtype=torch.float64))[0]  # [states, coordinates or 1]
        flat = x.reshape(len(x), -1)
        allowed = bound.expand(-1, flat.shape[1])[flat, torch.arange(flat.shape[1])]
        for prediction in (
            un.Posterior(logits, process, x, t),
            un.RawPosterior(logits, process, x, t),
            un.RawPosterior(logits, process, x, t, kernel="plug-in"),
        ):
            found = prediction.local().exit_rate.reshape(len(x), -1)
            assert bool((found[allowed == 0] == 0).all())
            worst = max(worst, float((found / allowed)[allowed > 0].max()))
    return worst


@pytest.mark.parametrize("name", ALL)
def test_no_exit_rate_exceeds_its_bound(name):
    """And some come up to it: the bound is attained by a one-hot law."""
    assert 0.99 < largest_quotient(ALL[name]()) < 1 + 1e-9


@pytest.mark.parametrize("name", ["uniform", "rates"])
def test_a_bound_that_is_none_is_found(name, monkeypatch):
    """The mutant takes the x_0 that is likeliest given x, in place of the worst."""
    monkeypatch.setattr(exit_bounds, "_rank_one", exit_bounds._general)
    amax = Tensor.amax
    monkeypatch.setattr(Tensor, "amax", lambda self, dim: self.amin(dim) if dim == -1 else amax(self, dim))
    assert largest_quotient(PROCESSES[name]()) > 2


@pytest.mark.parametrize("name", ["masking", "uniform", "mixture", "sizes", "laws"])
def test_rank_one_bounds_are_the_general_ones(name):
    process, t = ALL[name](), torch.tensor([0.01, 0.4, 0.97], dtype=torch.float64)
    every = exit_bounds.every_state(process, HOST)
    general = exit_bounds._general(process, every, t).reshape(3, len(every), -1)
    torch.testing.assert_close(exit_bound(process, t), general, rtol=1e-9, atol=0)


def test_the_bound_of_masking_is_its_rate():
    process = un.Masking(3, (2,), un.schedules.Cosine())
    t = torch.tensor([1e-6, 0.3, 1.0], dtype=torch.float64)
    bound = exit_bound(process, t)[..., 0]
    torch.testing.assert_close(bound[:, 3], -process.schedule.d_alpha(t) / process.schedule.beta(t), rtol=1e-12, atol=0)
    assert float(bound[:, :3].max()) == 0


@pytest.mark.parametrize("intervals", [1, 7, 64])
@pytest.mark.parametrize("name", ALL)
def test_a_table_bounds_all_times_of_its_intervals(name, intervals):
    process = ALL[name]()
    table = ExitBoundTable(process, 0.999, 1e-4, intervals, HOST)
    borders = table.borders
    assert len(borders) <= intervals + 1 and bool((borders.diff() < 0).all())
    assert (float(borders[0]), float(borders[-1])) == (0.999, 1e-4)
    t = borders[:-1] - un.NoiseSource(0, 20).uniform((len(borders) - 1,)) * (borders[:-1] - borders[1:])
    x = process.state_space.states()
    flat, each = x.reshape(len(x), -1), exit_bound(process, t.flatten())
    each = each.expand(-1, -1, flat.shape[1])[:, flat, torch.arange(flat.shape[1])].sum(-1).reshape(*t.shape, -1)
    bound = table.of(x).T
    assert bool((each.amax(0) <= bound).all())
    assert bool((bound.amax(1) <= table.largest() * (1 + 1e-12)).all())
    if intervals == 64:
        assert float((bound / each.amin(0).clamp_min(1e-300)).nan_to_num(posinf=0.0).median()) < 1.6  # nor is it far above


def test_classes_of_states_have_one_bound():
    for process, count in ((un.Masking(100, (2,)), 2), (un.Uniform(100, (2,)), 1)):
        few, of = exit_bounds.classes(process, HOST)
        t = torch.tensor([0.2, 0.7], dtype=torch.float64)
        assert len(few) == count
        assert torch.equal(exit_bound(process, t, few)[:, of], exit_bound(process, t))


# --- candidates


RATES = torch.tensor([[1.0, 0.0, 4.0, 2.0], [0.5, 3.0, 0.0, 0.0]], dtype=torch.float64)
BORDERS = torch.tensor([0.9, 0.6, 0.5, 0.4, 0.1], dtype=torch.float64)


def integral(row: int, high: float, low: float) -> float:
    """Of the rates, by a sum over many small pieces."""
    t = torch.linspace(low, high, 200001, dtype=torch.float64)
    middle = 0.5 * (t[1:] + t[:-1])
    which = 3 - torch.bucketize(middle, BORDERS[1:-1].flip(0).contiguous(), right=True)
    return float((RATES[row][which]).mean() * (high - low))


def test_a_candidate_comes_when_the_integral_of_the_rates_is_the_wait():
    for start in (0.9, 0.7, 0.55, 0.45):
        t = torch.full((2,), start, dtype=torch.float64)
        before = events.passed(RATES, BORDERS, t)
        for wait in (0.01, 0.2, 0.5):
            found, j = events.reach(RATES, BORDERS, before + wait)
            for row in range(2):
                left = integral(row, start, 0.1)
                assert (int(j[row]) < 4) == (wait < left)
                if wait < left:
                    assert integral(row, start, float(found[row])) == pytest.approx(wait, abs=1e-4)
                    assert BORDERS[j[row] + 1] <= found[row] <= BORDERS[j[row]]
                    assert RATES[row, j[row]] > 0


def test_pick_never_takes_what_has_no_weight():
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0]], dtype=torch.float64)
    for u, place in ((1e-17, 1), (0.2499, 1), (0.2501, 3), (1 - 1e-17, 3)):
        assert int(events.pick(weights, torch.tensor([u], dtype=torch.float64))) == place


# --- laws


def middle_p(sampler, name: str, rows: int = ROWS, kind=None, end: float = EARLY) -> float:
    """Of pairs (first state, last state), from LATE to the end: their law is q(x_s) q(x_t | x_s), with no end pieces."""
    oracle = oracle_of(name)
    view, space = oracle if kind is None else oracle.predicting(kind), oracle.process.state_space
    first = noised(oracle, LATE, rows, 0)
    last, info = sample(view, x=first, sampler=sampler, steps=1, start=LATE, end=end, seed=0)
    assert info.end_errors == (0.0, 0.0)
    law = transition_matrix(oracle.process, states(space), end, LATE) * marginal(oracle, end)
    pairs = torch.bincount(code(space, first) * space.count + code(space, last), minlength=space.count**2)
    return p_value(pairs.double(), law.flatten())


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("method", BOTH)
def test_law(method, name):
    assert method().exact
    assert middle_p(method(), name) > LEVEL
    assert middle_p(method(intervals=1), name, ROWS // 4) > LEVEL  # many are refused, and none too many


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("method", BOTH)
def test_accepting_all_candidates_fails(method, name, monkeypatch):
    monkeypatch.setattr(events, "accepted", lambda exit, bound, u: exit > 0)
    assert middle_p(method(intervals=1), name, ROWS // 2) < LEVEL


def first_rate(reach):
    """A mutant that waits at the first interval's rate all along."""
    return lambda rates, borders, level: reach(rates[:, :1].expand_as(rates).contiguous(), borders, level)


def from_the_border(passed):
    """A mutant that forgets how far into an interval it is."""
    return lambda rates, borders, t: passed(rates, borders, borders[(borders >= t.unsqueeze(-1)).sum(-1) - 1])


@pytest.mark.parametrize("part, mutant, name", [("reach", first_rate, "masking"), ("passed", from_the_border, "uniform")])
def test_forgetting_borders_fails(part, mutant, name, monkeypatch):
    assert middle_p(Gillespie(intervals=4), name, end=0.1) > LEVEL
    monkeypatch.setattr(events, part, mutant(getattr(events, part)))
    assert middle_p(Gillespie(intervals=4), name, end=0.1) < LEVEL


@pytest.mark.parametrize("method", BOTH)
def test_law_from_a_raw_posterior(method):
    assert middle_p(method(), "uniform", kind=un.RawPosterior) > LEVEL


@pytest.mark.parametrize("name, method", [(n, m) for n in PROCESSES for m in BOTH if (n, m) != ("rates", Uniformization)])
def test_whole_runs(name, method):
    """From the prior to the data, ends included, and the states at the grid's times on the way."""
    oracle, rows = oracle_of(name), ROWS // 4
    grid = [1.0, 0.995, 0.7, 0.3, 5e-5, 0.0]
    x, info = sample(oracle, rows, sampler=method(high=0.99), grid=grid, trajectory=True, seed=0)
    assert sum(info.end_errors) < 0.01
    assert torch.equal(info.trajectory[-1], x)
    for t, state in zip(grid[1:], info.trajectory[1:], strict=True):
        assert p_value(counted(oracle.process.state_space, state), marginal(oracle, t)) > LEVEL
    changes = sum((a != b).reshape(rows, -1).sum(1) for a, b in zip(info.trajectory[:-1], info.trajectory[1:], strict=True))
    assert bool((info.jumps >= changes).all())
    if name == "masking":
        assert torch.equal(info.jumps, torch.full((rows,), 2))


@pytest.mark.parametrize("method", BOTH)
def test_a_run_without_jumps(method):
    """Under masking nothing moves once all is revealed, and the network is not asked by thinning."""
    x = torch.tensor([[0, 2], [1, 1]])
    found, info = sample(oracle_of("masking"), x=x, sampler=method(), steps=3, start=0.5, end=0.1, trajectory=True, seed=0)
    assert torch.equal(found, x) and all(torch.equal(state, x) for state in info.trajectory)
    assert int(info.jumps.sum()) == 0 and (method is Uniformization or info.calls == 0)


def test_first_jump_of_one_coordinate():
    """Still masked at s with probability (1 - alpha_s)/(1 - alpha_t), whatever the token's law: within 5 deviations."""
    oracle = un.oracles.table(un.Masking(3, (), un.schedules.Cosine()), LAW[:3] / LAW[:3].sum())
    grid = torch.linspace(0.9, 0.1, 9, dtype=torch.float64)
    beta = oracle.process.schedule.beta(grid)
    survival = beta[1:] / beta[0]
    for method in BOTH:
        x = torch.full((ROWS,), 3)
        _, info = sample(oracle, x=x, sampler=method(intervals=5), grid=grid, trajectory=True, seed=0)
        found = torch.stack([(state == 3).double().mean() for state in info.trajectory[1:]])
        assert bool(((found - survival).abs() < 5 * (survival * (1 - survival) / ROWS).sqrt()).all())


def test_the_three_exact_methods_agree_under_masking():
    oracle = oracle_of("masking")
    counts = []
    for i, sampler in enumerate((Gillespie(), Uniformization(), FirstHitting())):
        x, _ = sample(oracle, ROWS, 1, sampler, seed=i)
        counts.append(counted(oracle.process.space, x))
    expected = torch.stack(counts).mean(0)
    statistic = sum(((c - expected).square() / expected).sum() for c in counts)
    assert float(torch.special.gammaincc(torch.tensor(8.0).double(), statistic / 2)) > LEVEL  # 16 degrees of freedom


class Random(torch.nn.Module):
    """Some smooth function of the state and time, in float32."""

    def __init__(self, process, seed: int = 0):
        super().__init__()
        d, k = process.space.dimension, process.space.size
        source = un.NoiseSource(seed, d * process.state_space.size + 1)
        self.weight = torch.nn.Parameter(2 * source.normal((d * k,)).float())
        self.states, self.shape = process.state_space.size, (*process.space.shape, k)

    def forward(self, x, t):
        hot = torch.nn.functional.one_hot(x, self.states).float().flatten(1)
        return (torch.cat([hot, t.unsqueeze(1)], 1).unsqueeze(1) @ self.weight).reshape(-1, *self.shape)


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("name", ["masking", "uniform"])
def test_sample_i_is_the_same_in_any_batch(name, method):
    process = ALL[name]()
    denoiser = un.Denoiser(Random(process), process)

    def run(n, first):
        x, info = sample(denoiser, n, 3, method(intervals=16, low=0.01, high=0.98), first=first, seed=5, trajectory=True)
        return torch.stack(info.trajectory), info.jumps

    states, jumps = run(9, 0)
    for n, first in ((1, 0), (1, 8), (4, 3)):
        some, few = run(n, first)
        assert torch.equal(some, states[:, first : first + n])
        assert torch.equal(few, jumps[first : first + n])


# --- cost


def test_proposals():
    """A Poisson number of them under uniformization, known beforehand; fewer by thinning; few are refused under masking."""
    oracle, rows = oracle_of("rates"), ROWS // 4
    table = ExitBoundTable(oracle.process, LATE, EARLY, 64, HOST)
    expected = float((table.largest() * (table.borders[:-1] - table.borders[1:])).sum())
    x = noised(oracle, LATE, rows, 0)
    infos = {m: sample(oracle, x=x, sampler=m(), steps=1, start=LATE, end=EARLY, seed=0)[1] for m in BOTH}
    assert abs(infos[Uniformization].rows / rows - expected) < 5 * (expected / rows) ** 0.5
    assert infos[Gillespie].rows < infos[Uniformization].rows
    assert infos[Gillespie].rows > int(infos[Gillespie].jumps.sum())
    _, masked = sample(oracle_of("masking"), rows, 1, Gillespie(), seed=0)
    assert 2 <= masked.rows / rows < 4


# --- ends


def probabilities(law: Categorical, points: Tensor) -> Tensor:
    """[rows, points]: of every point, under the law of each row."""
    probs = law.probs.reshape(len(law.probs), -1, law.probs.shape[-1])
    flat = points.reshape(len(points), -1)
    return torch.stack([probs[:, k, flat[:, k]] for k in range(flat.shape[1])]).prod(0)


@pytest.mark.parametrize("name", ["masking", "uniform", "rates", "mixture"])
def test_end_errors_bound_the_total_variation(name):
    """Both pieces by matrices: from the prior to `high`, and from the law at `low` to the data."""
    oracle, low, high = oracle_of(name), 0.02, 0.97
    process = oracle.process
    points = states(process.state_space)
    _, info = sample(oracle, 1, 1, Gillespie(low=low, high=high), seed=0)
    start, end = info.end_errors
    prior = probabilities(process.prior(1), points)[0]
    first = prior @ probabilities(oracle(points, 1.0).step(high), points)
    if name == "masking":
        assert start == 0.0
    else:
        found = 0.5 * float((first - marginal(oracle, high)).abs().sum())
        assert 0 < found <= start < 0.01
    last = marginal(oracle, low) @ probabilities(oracle(points, low).step(0.0), points)
    found = 0.5 * float((last - marginal(oracle, 0.0)).abs().sum())
    assert 0 < found <= end < 0.5
    _, closer = sample(oracle, 1, 1, Gillespie(low=low / 10, high=1 - (1 - high) / 10), seed=0)
    assert closer.end_errors[1] < end / 3 and closer.end_errors[0] <= start / 50


def test_ends_are_moved_only_where_rates_are_infinite():
    finite = un.oracles.table(un.Uniform(3, (2,), un.schedules.LinearBeta(2.0, 2.0)), LAW)
    _, info = sample(finite, 4, 1, Gillespie(), seed=0)
    assert info.end_errors[0] == 0.0 and info.end_errors[1] > 0
    _, info = sample(finite, 4, 1, Gillespie(), end=1e-6, seed=0)
    assert info.end_errors == (0.0, 0.0)
    _, info = sample(oracle_of("uniform"), 4, 1, Gillespie(), start=1 - 1e-6, end=0.5, seed=0)
    assert info.end_errors == (0.0, 0.0)


# --- what has no bound


def limit(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Twice the rate of the worst state: b = -alpha'/alpha (1 - beta/3)/beta falls up to t = 1/2 and rises from there."""
    edge = torch.maximum((1 / ((1 - low) * low)), (1 / ((1 - high) * high)))
    return 2 * edge


@pytest.mark.parametrize("kind", [un.Ratio, un.Rates, un.Energy], ids=lambda k: k.__name__)
def test_kinds_without_a_bound_ask_for_one(kind):
    view = oracle_of("uniform").predicting(kind)
    for method in BOTH:
        with pytest.raises(TypeError, match="bound="):
            sample(view, 4, 1, method(), start=LATE, end=EARLY, seed=0)
    assert middle_p(Gillespie(bound=limit), "uniform", ROWS // 4, kind) > LEVEL
    assert middle_p(Uniformization(bound=lambda low, high: limit(low, low, high)), "uniform", ROWS // 4, kind) > LEVEL


class Broken(torch.nn.Module):
    def forward(self, x, t):
        return torch.full((*x.shape, 3), torch.nan)


def test_a_bound_that_is_exceeded_is_an_error():
    oracle = oracle_of("uniform")
    for small in (
        Gillespie(bound=lambda x, low, high: 0.1 * limit(x, low, high)),
        Uniformization(bound=lambda low, high: 0.1 * limit(low, low, high)),
    ):
        with pytest.raises(ValueError, match="times its bound.*more `intervals`"):
            sample(oracle, 500, 1, small, start=LATE, end=EARLY, seed=0)
    with pytest.raises(ValueError, match="nan times its bound"):
        sample(un.Denoiser(Broken(), oracle.process), 4, 1, Gillespie(), start=LATE, end=EARLY, seed=0)
    with pytest.raises(ValueError, match="finite and not negative"):
        sample(oracle, 4, 1, Gillespie(bound=limit), seed=0)
    with pytest.raises(TypeError, match="one number per row"):
        sample(oracle, 4, 1, Gillespie(bound=lambda x, low, high: x), start=LATE, end=EARLY, seed=0)


def test_refusals():
    chain = un.MatrixChain(un.d3pm.uniform(3, torch.linspace(0.1, 0.9, 8).double()), (2,))
    for method in BOTH:
        assert method().refuse(un.Uniform(3, (2,))) is None
        assert "jumps between categories" in method().refuse(un.Gaussian((2,)))
        assert "no generator" in method().refuse(chain.process)
        assert "Product of ['a', 'b']" in method().refuse(un.Product(a=un.Uniform(3), b=un.Gaussian((2,))))
        for bad in ({"intervals": 0}, {"low": 0.0}, {"high": 1.0}, {"low": 0.6, "high": 0.5}):
            with pytest.raises(ValueError):
                method(**bad)
