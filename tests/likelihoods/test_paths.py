"""Weighted paths: their expectation, their limit and their independence of the batch."""

from math import log, pi

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import states
from unnoise.likelihoods import paths as module
from unnoise.likelihoods.enumerate import Enumeration
from unnoise.likelihoods.paths import Graded, PathWeighted, weighted
from unnoise.noise import NoiseSource
from unnoise.tree import batch_size, map_leaves
from unnoise.verify.wrong import Perturbed

GRID = torch.tensor([0.0, 0.2, 0.5, 1.0], dtype=torch.float64)
SIGMAS = 5.0  # a normal number strays so far with probability 6e-7: the false-alarm rate of each comparison


def law_on(count: int) -> torch.Tensor:
    law = torch.rand(count, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.05
    return law / law.sum()


def table(process, scale=0.0):
    """The oracle of a law on a process or chain; with a scale, a wrong network."""
    chain = process if isinstance(process, un.Chain) else None
    base = process.process if chain is not None else process
    oracle = un.oracles.table(base, law_on(base.space.count)).predicting(None, chain)
    return Perturbed(oracle, scale, 5) if scale else oracle


def pair(process=None):
    process = process or un.Product(a=un.Masking(2, (1,)), b=un.Uniform(3, (1,)))
    base = process.process if isinstance(process, un.Chain) else process
    leaves = {
        name: un.oracles.CategoricalLeaf(NoiseSource(i, 3).normal((*leaf.space.shape, leaf.space.size)).log_softmax(-1))
        for i, (name, leaf) in enumerate(base.leaves.items())
    }
    return un.oracles.Components(process, torch.tensor([0.2, 0.5, 0.3]), leaves)


def run(denoiser, x0, seed=0, rows=None, **options):
    rows = torch.arange(batch_size(x0)) if rows is None else rows
    return PathWeighted(**options).log_prob(denoiser, x0, NoiseSource(seed, rows), {})


def tiled(x, n):
    return map_leaves(lambda v: v.repeat(n, *[1] * (v.ndim - 1)), x)


def gaussian_chain(variance=None, steps=(0.1, 0.3, 0.6, 1.0)):
    """Gaussian data of one coordinate, mean 0.4 and variance 0.5, on a chain."""
    chain = un.Chain(un.Gaussian((1,), un.schedules.Cosine()), torch.tensor(steps, dtype=torch.float64))
    oracle = un.oracles.normal(chain.process, torch.tensor([0.4]).double(), torch.tensor([[0.5]]).double(), un.Clean)
    oracle = oracle.predicting(un.Clean, chain)
    return oracle if variance is None else WithVariance(oracle, variance)


class WithVariance(AnyDenoiser):
    """An oracle whose kernels of numbers have another variance."""

    def __init__(self, oracle, variance):
        super().__init__()
        self.oracle, self.process, self.variance = oracle, oracle.process, variance

    def forward(self, x_t, t, **condition):
        prediction = self.oracle(x_t, t)
        numbers = prediction.leaves["n"] if isinstance(x_t, dict) else prediction
        numbers.variance = self.variance
        return prediction


def counts_chain(immigration=0.0):
    chain = un.Chain(un.Thinning((1,), immigration=immigration), GRID)
    rates = torch.tensor([[1.0], [5.0]], dtype=torch.float64)
    return un.oracles.poisson_mixture(chain.process, torch.tensor([0.4, 0.6]), rates).predicting(None, chain)


def mixed_chain():
    process = un.Product(n=un.Gaussian((1,)), c=un.Uniform(2, ()))
    chain = un.Chain(process, torch.tensor([0.05, 0.2, 0.6, 1.0], dtype=torch.float64))
    means, covariances = torch.tensor([[-0.8], [0.6]]).double(), torch.tensor([[[0.3]], [[0.6]]]).double()
    return un.oracles.conditional_gaussian(process, torch.tensor([0.3, 0.7]), means, covariances).predicting(None, chain)


CHAINS = {
    "masking": lambda: table(un.Chain(un.Masking(2, (2,)), GRID), 0.7),
    "uniform": lambda: table(un.Chain(un.Uniform(2, (2,)), GRID), 0.7),
    "product": lambda: Perturbed(pair(un.Chain(un.Product(a=un.Masking(2, (1,)), b=un.Uniform(3, (1,))), GRID)), 0.7, 5),
    "gaussian": lambda: gaussian_chain(),
    "counts": lambda: counts_chain(),
    "arriving counts": lambda: counts_chain(2.0),
    "mixed": mixed_chain,
}
POINTS = {
    "gaussian": torch.tensor([[0.9]]).double(),
    "counts": torch.tensor([[3]]),
    "arriving counts": torch.tensor([[3]]),
    "mixed": {"n": torch.tensor([[0.3]]).double(), "c": torch.tensor([1])},
}


def point(name, model):
    return POINTS[name] if name in POINTS else map_leaves(lambda v: v[1:2], states(model.process.space))


@pytest.mark.parametrize("name", CHAINS)
def test_one_path_is_the_bound_and_more_are_tighter(name):
    model = CHAINS[name]()
    x = point(name, model)
    bound = un.bound(model, x, exact=True).total.item()
    means = []
    for count in (1, 4, 16):
        log_p, info = run(model, tiled(x, 1500), paths=count)
        means.append((log_p.mean().item(), (log_p.std() / 1500**0.5).item()))
        assert info.bound and "ancestral chain of 3 steps" in info.density
    assert abs(means[0][0] + bound) < SIGMAS * means[0][1] + 1e-9
    (first, first_error), (second, second_error), (last, last_error) = means
    assert last > first + 3 * (first_error + last_error)
    assert first - 2 * first_error < second < last + 2 * second_error


@pytest.mark.parametrize("name", ["masking", "uniform", "product"])
def test_many_paths_are_the_chains_law(name):
    model = CHAINS[name]()
    x = states(model.process.space)
    exact, _ = Enumeration().log_prob(model, x, NoiseSource(0, batch_size(x)), {})
    log_p, info = run(model, x, paths=4000)
    assert bool((info.effective > 400).all()) and float(info.error.max()) < 0.05
    assert bool(((log_p - exact).abs() < SIGMAS * info.error).all())


@pytest.mark.parametrize("variance", [None, un.variances.ForwardVariance()], ids=["posterior", "forward"])
def test_gaussian_chains_have_a_gaussian_law(variance):
    """Its mean and variance go down the chain by x_s = k x_t + c + noise, and through the decoder."""
    model = gaussian_chain(variance)
    schedule, grid = model.process.process.schedule, model.process.grid
    mean, var = 0.0, float(schedule.sigma(1.0)) ** 2
    for s, t in zip(grid[:-1].flip(0).tolist(), grid[1:].flip(0).tolist(), strict=True):
        a_s, a_t, v_s, v_t = (
            float(v) for v in (schedule.alpha(s), schedule.alpha(t), schedule.sigma(s) ** 2, schedule.sigma(t) ** 2)
        )
        gain = 0.5 * a_t / (a_t**2 * 0.5 + v_t)  # E[x_0 | x_t] = 0.4 + gain (x_t - a_t 0.4)
        step = v_t - (a_t / a_s) ** 2 * v_s
        on_x_t, on_x0 = a_t / a_s * v_s / v_t, a_s * step / v_t
        factor = on_x_t + on_x0 * gain
        mean, var = (
            factor * mean + on_x0 * (0.4 - gain * a_t * 0.4),
            factor**2 * var + (step * v_s / v_t if variance is None else step),
        )
    low = float(grid[0])
    mean, var = mean / float(schedule.alpha(low)), (var + float(schedule.sigma(low)) ** 2) / float(schedule.alpha(low)) ** 2
    x = torch.tensor([[-0.6], [0.2], [1.1]]).double()
    exact = -0.5 * ((x[:, 0] - mean) ** 2 / var + log(2 * pi * var))
    log_p, info = run(model, x, paths=20000)
    assert bool((info.effective > 500).all())
    assert bool(((log_p - exact).abs() < SIGMAS * info.error).all()) and float(info.error.max()) < 0.05


def test_counts_against_truncated_matrices():
    """Kernels of a Poisson mixture over 0 ... 40, multiplied; what lies beyond has mass 1e-10."""
    for immigration in (0.0, 2.0):
        model = counts_chain(immigration)
        line = torch.arange(41).unsqueeze(1)
        p = model.process.prior(41).log_prob(line).exp()
        for t, s in zip([1.0, 0.5, 0.2], [0.5, 0.2, 0.0], strict=True):
            law = model(line, t).step(s)
            p = torch.stack([law.log_prob(y.expand(41, 1)).exp() for y in line]) @ p
        x = torch.tensor([[0], [2], [7]])
        log_p, info = run(model, x, paths=4000)
        assert bool((info.effective > 300).all()) and float(info.error.max()) < 0.06
        assert bool(((log_p - p[x[:, 0]].log()).abs() < SIGMAS * info.error + 1e-9).all())  # no error at all at x_0 = 0


def exact_kernels():
    """Models whose joint law of path and data is the true one: every weight is then q(x_0) itself."""
    for name, process in (("masking", un.Masking(3, ())), ("uniform", un.Uniform(3, (1,)))):
        yield pytest.param(table(process), process.space.states(), {"steps": 5}, id=name)
    poisson = un.oracles.poisson_mixture(un.Thinning((2,)), torch.ones(1), torch.tensor([[1.5, 4.0]]).double())
    yield pytest.param(poisson, torch.tensor([[0, 3], [2, 6]]), {"steps": 5}, id="counts")
    arriving = un.oracles.poisson_mixture(un.Thinning((1,), immigration=2.0), torch.ones(1), torch.tensor([[4.0]]).double())
    yield pytest.param(arriving, torch.tensor([[0], [3]]), {"steps": 5}, id="arriving counts")
    normal = gaussian_chain()
    normal = WithVariance(normal, un.variances.OptimalVariance(normal.clean_variance))
    yield pytest.param(normal, torch.tensor([[0.9], [-0.2]]).double(), {"decoder": normal.oracle.decoder}, id="gaussian")


@pytest.mark.parametrize("model, x, options", exact_kernels())
def test_exact_kernels_have_constant_weights(model, x, options):
    oracle = getattr(model, "oracle", model)
    log_p, info = run(model, x, paths=3, **options)
    assert torch.allclose(log_p, oracle.log_prob(x), rtol=0, atol=1e-10)
    assert float(info.error.max()) < 1e-5 and torch.allclose(info.effective, torch.full_like(log_p, 3.0))


@pytest.mark.conformance
def test_numbers_and_categories_approach_the_oracle():
    """The exact denoiser on a finer and finer grid, from the cut-off 1e-4 of the process.

    The forward variance is the right one at low noise; the posterior's makes weights that few paths carry.
    """
    oracle = mixed_chain()
    oracle = oracle.predicting(None, oracle.process.process)
    model, narrow = (
        WithVariance(oracle, un.variances.ForwardVariance()),
        WithVariance(oracle, un.variances.PosteriorVariance()),
    )
    x = {"n": torch.tensor([[-1.0], [0.3], [0.9]]).double(), "c": torch.tensor([0, 1, 0])}
    gaps, errors = [], []
    for steps in (16, 128):
        log_p, info = run(model, x, paths=300, steps=steps)
        gaps.append((log_p - oracle.log_prob(x)).abs())
        errors.append(SIGMAS * info.error)
    assert bool((gaps[1] < errors[1] + 0.03).all()) and float(errors[1].max()) < 0.15
    assert float(gaps[1].max()) < 0.5 * float(gaps[0].max())
    few = run(narrow, x, paths=300, steps=128)[1].effective
    assert bool((info.effective > 290).all()) and bool((few < 100).all())


def test_decoder_without_a_network_at_a_state():
    """N(x_0; x_eps/alpha, (sigma/alpha)^2), whose entropy is the decoder's own answer; also with correlated noise."""
    covariance = torch.tensor([[1.0, 0.4], [0.4, 0.8]]).double()
    for process in (un.Gaussian((2,)), un.Gaussian((2,), covariance=covariance)):
        x0, x_eps = torch.tensor([[0.3, -0.5]]).double(), torch.tensor([[0.35, -0.4]]).double()
        alpha, sigma = float(process.schedule.alpha(0.1)), float(process.schedule.sigma(0.1))
        cov = (covariance if process.covariance is not None else torch.eye(2).double()) * (sigma / alpha) ** 2
        expected = torch.distributions.MultivariateNormal(x_eps / alpha, cov).log_prob(x0)
        decoder = un.objectives.default_decoder(process)
        assert torch.allclose(decoder.log_prob(process, None, x0, x_eps, 0.1), expected, atol=1e-12)
        entropy = torch.distributions.MultivariateNormal(x_eps / alpha, cov).entropy()
        assert torch.allclose(decoder.nll(process, None, x0, None, 0.1), entropy, atol=1e-12)


@pytest.mark.parametrize("name", ["masking", "uniform", "product", "gaussian", "counts", "mixed"])
def test_a_row_does_not_depend_on_its_batch(name, monkeypatch):
    model = CHAINS[name]()
    x = tiled(point(name, model), 7)
    whole, info = run(model, x, paths=5)
    one, own = run(model, map_leaves(lambda v: v[3:4], x), rows=torch.tensor([3]), paths=5)
    assert torch.equal(whole[3:4], one) and torch.equal(info.error[3:4], own.error)
    assert len(whole.unique()) > 1
    monkeypatch.setattr(module, "ENTRIES", 20)
    small, pieces = run(model, x, paths=5)
    assert torch.equal(whole, small) and pieces.calls > info.calls and pieces.rows == info.rows


def test_single_precision_data():
    """The network sees float32, the path is float64: the answer is that of float64 to what float32 holds."""
    model = gaussian_chain()
    x = torch.tensor([[0.9], [-0.4]]).double()
    wide, _ = run(model, x, paths=8)
    narrow, _ = run(model, x.float(), paths=8)
    assert narrow.dtype == torch.float64
    assert torch.allclose(wide, narrow, atol=1e-4) and not torch.equal(wide, narrow)


class One(nn.Module):
    def forward(self, x, t):
        return torch.ones_like(x)


def test_single_precision_data_has_double_precision_paths():
    """Noise of 1e-9 at x_0 = 1, next to which float32 has no number within 6e-8, and a network that says 1.

    The last step shrinks what came before it by 1e-11, so x_0 is normal with mean 1 and the variance 2e-18 of this step and
    the decoder.  A path in float32 stays at 1, and says the density of half the variance: 0.35 nats more.
    """
    process = un.Gaussian((1,), un.schedules.VE(1e-9, 100.0))
    log_p, info = run(un.Denoiser(One(), process, un.Clean), torch.ones(1, 1), paths=2000, grid=[1.0, 0.5, 0.0])
    exact = -0.5 * log(2 * pi * 2e-18)
    assert abs(float(log_p) - exact) < SIGMAS * float(info.error) < 0.05


class Conditioned(nn.Module):
    def forward(self, x, t, logits=None):
        return logits.unsqueeze(1).expand(-1, x.shape[1], -1)


def test_conditions_go_with_their_rows(monkeypatch):
    denoiser = un.Denoiser(Conditioned(), un.Masking(2, (3,)))
    x, logits = torch.tensor([[0, 1, 1], [1, 1, 0]]), torch.tensor([[0.3, -0.2], [1.0, 0.0]])
    monkeypatch.setattr(module, "ENTRIES", 30)
    log_p, _ = PathWeighted(3, steps=4).log_prob(denoiser, x, NoiseSource(0, 2), {"logits": logits})
    expected = logits.double().log_softmax(-1).gather(1, x).sum(1)  # constant weights: the coordinates are independent
    assert torch.allclose(log_p, expected, atol=1e-5)


def test_error_of_the_logarithm_of_a_mean():
    """(K/S - 1)/(K - 1) is the delta method's estimate, and over many rows the spread of the answers."""
    log_w = 0.5 * NoiseSource(0, 4000).normal((64,)).T
    value, error, effective = weighted(log_w)
    w = log_w.exp()
    assert torch.allclose(value, w.mean(0).log(), atol=1e-12)
    assert torch.allclose(error, w.std(0) / (64**0.5 * w.mean(0)), atol=1e-12)
    assert torch.allclose(effective, w.sum(0) ** 2 / w.square().sum(0), atol=1e-9)
    assert float(error.square().mean().sqrt()) == pytest.approx(float(value.std()), rel=0.1)
    gap = 0.125 - value.mean()  # log E w = 0.125
    assert float(gap) == pytest.approx(float(error.square().mean() / 2), abs=5 * float(value.std() / 4000**0.5))
    impossible = torch.full((3, 1), -torch.inf, dtype=torch.float64)
    value, error, effective = weighted(impossible)
    assert value.item() == -torch.inf and error.item() == torch.inf and effective.item() == 0
    assert weighted(log_w[:1])[1] is None


def test_grids():
    model = table(un.Uniform(3, (1,)))
    assert PathWeighted(steps=4).times(model) == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert len(PathWeighted().times(model)) == 129
    assert PathWeighted(grid=[1.0, 0.3, 0.0]).times(model) == [1.0, 0.3, 0.0]
    numbers = un.oracles.normal(un.Gaussian((1,)), torch.zeros(1).double(), torch.eye(1).double())
    times = PathWeighted(steps=8).times(numbers)
    assert times[0] == 1.0 and times[-1] == 1e-4
    quarter = torch.tensor(times, dtype=torch.float64) ** 0.25
    assert torch.allclose(quarter.diff(), quarter.diff()[0].expand(8), atol=1e-12)
    assert Graded().times(numbers.process, 8, 1.0, 1e-4).tolist() == times
    assert PathWeighted().times(gaussian_chain()) == pytest.approx([1.0, 0.6, 0.3, 0.1])


def test_refusals():
    numbers = un.oracles.normal(un.Gaussian((1,)), torch.zeros(1).double(), torch.eye(1).double())
    with pytest.raises(ValueError, match="the noise is 0 at the last time t = 0.*end the grid before"):
        run(numbers, torch.zeros(1, 1).double(), grid=[1.0, 0.5, 0.0])
    with pytest.raises(ValueError, match="paths = 0"):
        PathWeighted(0)


def _no_prior(kept):
    class Flat(module._Model):
        def log_weight(self, x0, noise, condition):
            prior = self.process.prior
            self.process.prior = lambda rows, dtype=None, device=None: self.process.marginal(x0, self.times[0])
            try:
                return super().log_weight(x0, noise, condition)
            finally:
                self.process.prior = prior

    return Flat


def _late(kept):
    class Late(module._Model):
        def predict(self, x, t, like, condition):
            later = self.times[max(0, self.times.index(t) - 1)]
            return super().predict(x, later, like, condition)

    return Late


def _mean_of_logs(kept):
    return lambda log_w: (log_w.mean(0), *kept(log_w)[1:])


def _undecoded(kept):
    class Undecoded(un.decoders.CategoricalDecoder):
        def log_prob(self, process, prediction, x0, x_eps, eps):
            return torch.zeros(batch_size(x0), dtype=torch.float64)

    return lambda process: Undecoded()


@pytest.mark.parametrize(
    "target, wrong",
    [("_Model", _no_prior), ("_Model", _late), ("weighted", _mean_of_logs), ("default_decoder", _undecoded)],
    ids=["no prior", "later times", "mean of logs", "no decoder"],
)
def test_mutants_are_caught(monkeypatch, target, wrong):
    """Each fails the comparison with an exact law: of a chain that ends before t = 1 and has a decoder, or many paths."""
    grid = torch.tensor([0.1, 0.4, 0.8], dtype=torch.float64)
    model = table(un.Chain(un.Uniform(2, (2,)), grid), 0.7)
    x = states(model.process.space)
    exact, _ = Enumeration().log_prob(model, x, NoiseSource(0, 4), {})

    def agrees():
        log_p, info = run(model, x, paths=1000)
        return bool(((log_p - exact).abs() < SIGMAS * info.error).all())

    assert agrees()
    monkeypatch.setattr(module, target, wrong(getattr(module, target)))
    assert not agrees()
