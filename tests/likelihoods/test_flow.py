"""The flow's likelihood against exact densities.

Mixtures: with q_1 as the prior the answer is log q_t(x) at the cutoff, which the oracle knows.

Gaussian data with covariance C and noise of covariance N, C_t = alpha^2 C + sigma^2 N: the flow is linear.  Where C and N
commute its Jacobian is J = C_t' C_t^-1/2, symmetric, with the integral

    B = int_eps^1 J dt = (log C_1 - log C_eps)/2,

so that log p_eps(x) = log p_1(x_1) + tr B for any prior p_1, and a probe z gives z^T B z in place of tr B: of d signs all
2^d can be laid out, and the law of the estimate is known without drawing.
"""

import math
from math import comb, log, pi

import pytest
import torch
from torch import Tensor, nn

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.likelihoods import flow
from unnoise.likelihoods.flow import ProbabilityFlow
from unnoise.noise import NoiseSource
from unnoise.oracles.leaves import GaussianLeaf
from unnoise.samplers.runge_kutta import RungeKutta

EYE = torch.eye(2, dtype=torch.float64)
M = torch.tensor([0.7, -0.3], dtype=torch.float64)
C = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)
SCHEDULES = {
    "Cosine": un.schedules.Cosine,
    "LinearBeta": un.schedules.LinearBeta,
    "VE": lambda: un.schedules.VE(0.01, 10.0),
    "Linear": un.schedules.Linear,
}


def bumps(name: str, dimension: int, **options):
    """Two components, one of them narrow."""
    process = un.Gaussian((dimension,) if dimension > 1 else (), SCHEDULES[name](), **options)
    means = torch.tensor([[1.0, 0.5], [-1.0, 0.2]], dtype=torch.float64)[:, :dimension]
    wide = torch.tensor([[0.3, 0.1], [0.1, 0.2]], dtype=torch.float64)[:dimension, :dimension]
    covariances = torch.stack([wide, 4e-3 * EYE[:dimension, :dimension]])
    means = means if dimension > 1 else means.squeeze(1)
    return un.oracles.mixture(process, torch.tensor([0.4, 0.6]), means, covariances)


def points(oracle, rows: int = 5) -> Tensor:
    """Draws, and one point far out."""
    x = oracle.draw(NoiseSource(5, rows))
    return torch.cat([x, x[:1] + 2])


def ask(method: ProbabilityFlow, oracle, x, rows=None, **condition):
    rows = torch.arange(len(x)) if rows is None else rows
    return method.log_prob(oracle, x, NoiseSource(7, rows), condition)


def from_truth(oracle, **options) -> ProbabilityFlow:
    """The law of x_1 itself as the prior."""
    return ProbabilityFlow(prior=lambda x: oracle.log_marginal(x, 1.0), **options)


# --- exact traces


def check_mixture(name: str, dimension: int) -> None:
    oracle = bumps(name, dimension)
    x = points(oracle)
    value, info = ask(from_truth(oracle), oracle, x)
    gap = (value - oracle.log_marginal(x, oracle.process.cutoff)).abs()
    assert float(gap.max()) < 1e-5
    assert bool((gap < info.error).all()) and float(info.error.max()) < 1e-3  # the solver's own estimate covers it
    assert info.dimension == dimension and not info.bound


@pytest.mark.parametrize("name, dimension", [*[(name, 2) for name in SCHEDULES], ("LinearBeta", 1), ("Linear", 1)])
def test_mixtures(name, dimension):
    check_mixture(name, dimension)


def test_the_sign_of_the_trace_is_seen(monkeypatch):
    product = flow._product
    monkeypatch.setattr(flow, "_product", lambda u, x, z: -product(u, x, z))
    with pytest.raises(AssertionError):
        check_mixture("Cosine", 2)


def test_the_error_estimate_follows_the_tolerance():
    """Of 440 points 98 in 100 or more have a true error within these factors of the estimate.  That 20 of 200 have not is
    off by 8 sigma.  A step's error is held to the tolerance and steps grow as its power -1/5, so that the sum of a hundredth
    of the tolerance is 40 times less: measured as 17 and 24 in the median, where the first steps are still long."""
    oracle = bumps("Linear", 2)
    x, errors = points(oracle, 200), []
    for tolerance, factor in ((1e-3, 10), (1e-5, 1), (1e-7, 0.25)):
        value, info = ask(from_truth(oracle, rtol=tolerance, atol=tolerance), oracle, x)
        within = (value - oracle.log_marginal(x, 1e-4)).abs() < factor * info.error
        assert float(within.double().mean()) > 0.9
        errors.append(float(info.error.median()))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


def log_root(matrix: Tensor) -> Tensor:
    """log(matrix)/2."""
    values, axes = torch.linalg.eigh(matrix)
    return axes @ torch.diag(values.log() / 2) @ axes.T


def gaussian_truth(process, x: Tensor, cutoff: float, mean: Tensor, cov: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """log p_eps under the process's own prior, and B."""
    schedule, d = process.schedule, len(mean)
    c_0, c_1 = (schedule.alpha(t) ** 2 * cov + schedule.sigma(t) ** 2 * noise for t in (cutoff, 1.0))
    b = log_root(c_1) - log_root(c_0)
    x_1 = schedule.alpha(1.0) * mean + (x - schedule.alpha(cutoff) * mean) @ torch.matrix_exp(b)
    prior = schedule.sigma(1.0) ** 2 * noise
    square = (x_1 * torch.linalg.solve(prior, x_1.T).T).sum(1)
    return -0.5 * (square + torch.logdet(prior) + d * log(2 * pi)) + b.trace(), b


@pytest.mark.parametrize("name, correlated", [*[(name, False) for name in SCHEDULES], ("Cosine", True), ("VE", True)])
def test_gaussian_data_under_the_process_s_own_prior(name, correlated):
    """Where alpha_1 > 0 this prior is not the law of x_1, and the flow's density is not that of the data."""
    axes = torch.linalg.eigh(C)[1]
    noise = axes @ torch.diag(torch.tensor([2.0, 0.5], dtype=torch.float64)) @ axes.T if correlated else EYE
    process = un.Gaussian((2,), SCHEDULES[name](), covariance=noise if correlated else None)
    oracle = un.oracles.normal(process, M, C)
    x = points(oracle)
    value, _ = ask(ProbabilityFlow(rtol=1e-5, atol=1e-5), oracle, x)
    told, _ = gaussian_truth(process, x, process.cutoff, M, C, noise)
    torch.testing.assert_close(value, told, rtol=0, atol=1e-4)
    mismatch = float((told - oracle.log_marginal(x, process.cutoff)).abs().max())
    assert (mismatch > 1e-3) == (name in ("LinearBeta", "VE"))


@pytest.mark.parametrize("kind", [un.Clean, un.Score, un.Energy])
def test_every_kind_of_prediction(kind):
    """An energy is differentiated twice."""
    oracle = bumps("LinearBeta", 2)
    x = points(oracle, 2)
    told = oracle.log_marginal(x, 1e-4)
    method = from_truth(oracle, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ask(method, oracle.predicting(kind), x)[0], told, rtol=0, atol=1e-4)


def test_no_signal_at_the_end():
    oracle = bumps("Cosine", 2)
    x = points(oracle, 2)
    with pytest.raises(ValueError, match="says nothing of x_0 at t = 1, where alpha = 0: .*end=0.999"):
        ask(from_truth(oracle), oracle.predicting(un.Noise), x)
    method = ProbabilityFlow(end=0.999, prior=lambda x: oracle.log_marginal(x, 0.999))
    told = oracle.log_marginal(x, 1e-4)
    torch.testing.assert_close(ask(method, oracle.predicting(un.Noise), x)[0], told, rtol=0, atol=1e-5)


def test_a_product_of_numbers():
    process = un.Product(a=un.Gaussian((2,), un.schedules.Cosine()), b=un.Gaussian((), un.schedules.Linear()))
    means = torch.tensor([[1.0, 0.5], [-1.0, 0.2]], dtype=torch.float64)
    leaves = {
        "a": GaussianLeaf(means, torch.stack([C, 0.1 * EYE])),
        "b": GaussianLeaf(means[:, 0], torch.full((2, 1, 1), 0.2, dtype=torch.float64)),
    }
    oracle = un.oracles.Components(process, torch.tensor([0.4, 0.6]), leaves)
    x = oracle.draw(NoiseSource(5, 4))
    value, info = from_truth(oracle, rtol=1e-5, atol=1e-5).log_prob(oracle, x, NoiseSource(7, 4), {})
    torch.testing.assert_close(value, oracle.log_marginal(x, process.cutoff), rtol=0, atol=1e-4)
    assert info.dimension == 3


# --- rows do not know of each other


class Bumps(AnyDenoiser):
    """The velocity of a mixture of two round normals under the cosine schedule: the oracle's, at less cost."""

    means = torch.tensor([[1.5, 0.0], [-1.5, 0.5]], dtype=torch.float64)
    variances = torch.tensor([1e-4, 0.5], dtype=torch.float64)

    def __init__(self):
        super().__init__()
        self.process = un.Gaussian((2,), un.schedules.Cosine())

    @property
    def oracle(self):
        covariances = self.variances.reshape(2, 1, 1) * EYE
        return un.oracles.mixture(self.process, torch.tensor([0.5, 0.5]), self.means, covariances)

    def forward(self, x_t, t, **condition):
        alpha, sigma = (f(math.pi / 2 * t).reshape(-1, 1, 1) for f in (torch.cos, torch.sin))
        noised = alpha**2 * self.variances.unsqueeze(-1) + sigma**2
        gap = x_t.unsqueeze(1) - alpha * self.means
        weight = (-gap.square().sum(2, keepdim=True) / (2 * noised) - noised.log()).softmax(1)
        clean = self.means + alpha * self.variances.unsqueeze(-1) * gap / noised
        u = math.pi / 2 * (weight * (alpha * sigma * gap / noised - sigma * clean)).sum(1)
        return un.Flow(u, self.process, x_t, t)


def check_rows_apart(**options) -> None:
    denoiser = Bumps()
    x, oracle = torch.tensor([[1.501, 0.005], [-1.0, 0.2], [-1.5, 2.0]], dtype=torch.float64), denoiser.oracle
    method = from_truth(oracle, rtol=1e-4, atol=1e-4, **options)
    value, info = ask(method, denoiser, x)
    if method.trace == "exact":
        assert float((value - oracle.log_marginal(x, denoiser.process.cutoff)).abs().max()) < 1e-2
    alone = [ask(method, denoiser, x[i : i + 1], torch.tensor([i])) for i in range(len(x))]
    assert torch.equal(value, torch.cat([one for one, _ in alone]))
    assert info.rows == sum(one.rows for _, one in alone) < 0.9 * len(x) * info.calls
    order = torch.tensor([2, 0, 1])
    assert torch.equal(ask(method, denoiser, x[order], order)[0], value[order])


def test_batch_composition_changes_no_value():
    check_rows_apart()
    check_rows_apart(trace="hutchinson", probes=2)


def test_a_shared_step_size_is_seen(monkeypatch):
    norm = RungeKutta._norm
    monkeypatch.setattr(RungeKutta, "_norm", lambda self, *given: norm(self, *given).amax().expand(len(given[0])))
    with pytest.raises(AssertionError):
        check_rows_apart()


# --- Hutchinson's trace

D = 3
COV = torch.tensor([[0.6, 0.3, -0.2], [0.3, 0.5, 0.1], [-0.2, 0.1, 0.4]], dtype=torch.float64)
SIGNS = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * D)


def linear_flow(d: int = D):
    process = un.Gaussian((d,), un.schedules.Cosine())
    return process, un.oracles.normal(process, torch.zeros(d, dtype=torch.float64), COV[:d, :d])


class Laid(ProbabilityFlow):
    """One probe, and every sign once."""

    def _probes(self, noise, d):
        return [SIGNS]


def check_law_of_one_probe(method: type[ProbabilityFlow]) -> None:
    """Over all signs: the mean is the truth, and the variance 2 sum_{i != j} B_ij^2."""
    process, oracle = linear_flow()
    x = torch.tensor([[0.3, -0.2, 0.5]], dtype=torch.float64).expand(len(SIGNS), -1)
    eye = torch.eye(D, dtype=torch.float64)
    told, b = gaussian_truth(process, x, process.cutoff, torch.zeros(D, dtype=torch.float64), COV, eye)
    value, info = ask(method(trace="hutchinson"), oracle, x)
    assert info.error is None  # one probe does not tell its error
    assert float((value.mean() - told[0]).abs()) < 1e-5
    variance = 2 * (b.square().sum() - b.diagonal().square().sum())
    assert float((value.var(correction=0) / variance - 1).abs()) < 1e-4


def test_unbiased_with_the_variance_of_the_formula():
    check_law_of_one_probe(Laid)


def test_probes_of_half_the_variance_are_seen():
    class Halved(Laid):
        def _probes(self, noise, d):
            return [SIGNS / 2**0.5]

    with pytest.raises(AssertionError):
        check_law_of_one_probe(Halved)


def test_the_law_of_the_probes():
    """40,000 numbers; 5 standard errors are passed by chance with probability 6e-7 each."""
    for probe, fourth in (("rademacher", 1.0), ("gaussian", 3.0)):
        first, second = ProbabilityFlow("hutchinson", 2, probe)._probes(NoiseSource(1, 10_000), 4)
        for moment, mean, variance in (
            (first, 0.0, 1.0),
            (first.square(), 1.0, fourth - 1),
            (first * second, 0.0, 1.0),
            (first[:, :2] * first[:, 2:], 0.0, 1.0),
            (first[1:] * first[:-1], 0.0, 1.0),
        ):
            assert abs(float(moment.mean()) - mean) <= 5 * (variance / moment.numel()) ** 0.5
    assert set(ProbabilityFlow("hutchinson")._probes(NoiseSource(1, 100), 3)[0].flatten().tolist()) == {-1.0, 1.0}


PROBES, QUANTILE = 16, 1.753  # Student's t with 15 degrees of freedom, 95 %: a nominal coverage of 90 %


def check_coverage() -> None:
    """In two dimensions a probe gives tr B + c or tr B - c, c = 2 B_12, so with k of m signs positive and r = 2k/m - 1 the
    mean is off by r c and its standard error is c sqrt((1 - r^2)/(m - 1)): the coverage is a binomial sum, 92.3 %.  Of 400
    rows 5 standard deviations are passed by chance with probability below 1e-5."""
    covered = [k for k in range(PROBES + 1) if (r := 2 * k / PROBES - 1) ** 2 <= QUANTILE**2 * (1 - r * r) / (PROBES - 1)]
    rate, rows = sum(comb(PROBES, k) for k in covered) / 2**PROBES, 400
    assert abs(rate - 0.923) < 1e-3
    process, oracle = linear_flow(2)
    x = oracle.draw(NoiseSource(2, rows))
    told, _ = gaussian_truth(process, x, 0.01, torch.zeros(2, dtype=torch.float64), COV[:2, :2], EYE)
    method = ProbabilityFlow("hutchinson", PROBES, rtol=1e-5, atol=1e-5, cutoff=0.01)
    value, info = ask(method, oracle, x)
    share = float(((value - told).abs() <= QUANTILE * info.error).double().mean())
    assert abs(share - rate) < 5 * (rate * (1 - rate) / rows) ** 0.5


def test_the_error_bar_covers_at_its_rate():
    check_coverage()


def test_a_small_error_bar_is_seen(monkeypatch):
    """The spread of m probes taken for that of 2 m."""
    honest = ProbabilityFlow.log_prob

    def narrow(self, *given):
        value, info = honest(self, *given)
        info.error = info.error / 2**0.5
        return value, info

    monkeypatch.setattr(ProbabilityFlow, "log_prob", narrow)
    with pytest.raises(AssertionError):
        check_coverage()


class Counted(nn.Module):
    """A network that counts its evaluations, forwards and backwards."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 2)).to(dtype)
        self.forwards, self.backwards, self.rows = 0, 0, 0

    def forward(self, x, t):
        self.forwards += 1
        self.rows += len(x)
        out = self.body(torch.cat([x, t.unsqueeze(1)], 1))
        if out.requires_grad:
            out.register_hook(self._count)
        return out

    def _count(self, gradient):
        self.backwards += 1


@pytest.mark.parametrize("probes", [1, 3])
def test_one_probe_costs_one_product(probes):
    torch.manual_seed(1)
    network = Counted()
    denoiser = un.Denoiser(network, un.Gaussian((2,), un.schedules.Linear()), predicts=un.Flow)
    x = torch.randn(4, 2, dtype=torch.float64)
    _, info = ask(ProbabilityFlow("hutchinson", probes), denoiser, x)
    assert network.forwards == info.calls
    assert network.backwards == probes * info.calls
    assert network.rows == info.rows
    exact, second = Counted(), ProbabilityFlow()
    _, info = ask(second, un.Denoiser(exact, denoiser.process, predicts=un.Flow), x)
    assert exact.backwards == 2 * info.calls == 2 * exact.forwards


def test_single_precision_networks():
    torch.manual_seed(1)
    single, double = Counted(torch.float32), Counted()
    double.load_state_dict(single.state_dict())
    process, x = un.Gaussian((2,), un.schedules.Linear()), torch.randn(4, 2)
    values = [
        ask(ProbabilityFlow(rtol=1e-5, atol=1e-5), un.Denoiser(net, process, predicts=un.Flow), x.to(dtype))[0]
        for net, dtype in ((single, torch.float32), (double, torch.float64))
    ]
    assert values[0].dtype == torch.float64
    torch.testing.assert_close(*values, rtol=0, atol=1e-4)


def test_a_network_that_ignores_the_state_keeps_volumes():
    class Drift(nn.Module):
        def forward(self, x, t, by):
            return by * torch.ones_like(x)

    process, x = un.Gaussian((2,), un.schedules.Linear()), torch.randn(3, 2, dtype=torch.float64)
    by = torch.arange(3, dtype=torch.float64).unsqueeze(1)
    value, _ = ask(ProbabilityFlow(cutoff=0.5), un.Denoiser(Drift(), process, predicts=un.Flow), x, by=by)
    torch.testing.assert_close(value, process.prior(3, torch.float64).log_prob(x + 0.5 * by), rtol=0, atol=1e-12)


# --- what is refused


def test_refusals():
    oracle = bumps("Cosine", 2)
    x = points(oracle, 1)
    for options, match in (
        ({"trace": "skilling"}, "choose 'exact' or 'hutchinson'"),
        ({"trace": "hutchinson", "probe": "uniform"}, "choose 'rademacher' or 'gaussian'"),
        ({"trace": "hutchinson", "probes": 0}, "at least one"),
        ({"probes": 4}, "an exact trace, which has none"),
    ):
        with pytest.raises(ValueError, match=match):
            ProbabilityFlow(**options)
    with pytest.raises(ValueError, match="sigma = 0 at the cutoff 0"):
        ask(ProbabilityFlow(cutoff=0.0), oracle, x)
    with pytest.raises(ValueError, match="0 <= cutoff < end"):
        ask(ProbabilityFlow(cutoff=0.7, end=0.6), oracle, x)
    mixed = un.Product(age=un.Gaussian(()), job=un.Uniform(size=3))
    assert "leaf 'job', a Uniform," in ProbabilityFlow().refuse(mixed)
    with pytest.raises(TypeError, match="which Masking has not"):
        ask(ProbabilityFlow(), un.oracles.table(un.Masking(3, (1,)), torch.ones(3) / 3), torch.zeros(2, 1).long())
