"""The adaptive integrator against closed forms, and the probability flow of Gaussian data,

    x_a = alpha_a m + C_a^1/2 C_b^-1/2 (x_b - alpha_b m),    C_t = alpha^2 C + sigma^2 N,

with N the covariance of the noise, where C and N have their eigenvectors in common.
"""

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.oracles.leaves import GaussianLeaf
from unnoise.samplers import runge_kutta, sample
from unnoise.samplers.adaptive import AdaptiveODE
from unnoise.samplers.runge_kutta import RungeKutta, row_sum

M = torch.tensor([0.7, -0.3], dtype=torch.float64)
C = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)
EYE = torch.eye(2, dtype=torch.float64)
AXES = torch.linalg.eigh(C)[1]
SCHEDULES = {
    "Cosine": un.schedules.Cosine,
    "LinearBeta": un.schedules.LinearBeta,
    "VE": lambda: un.schedules.VE(0.01, 10.0),
    "Linear": un.schedules.Linear,
}


def setting(name: str = "Cosine", **options):
    return un.Gaussian((2,), SCHEDULES[name](), **options)


def flow(process, x: Tensor, high: float, low: float, noise: Tensor = EYE) -> Tensor:
    """The exact probability flow."""
    schedule = process.schedule
    values = [
        torch.diag(AXES.T @ (schedule.alpha(t) ** 2 * C + schedule.sigma(t) ** 2 * noise) @ AXES).sqrt() for t in (high, low)
    ]
    carry = AXES @ torch.diag(values[1] / values[0]) @ AXES.T
    return schedule.alpha(low) * M + (x - schedule.alpha(high) * M) @ carry


def states(process, t: float) -> Tensor:
    away = torch.tensor([[1.0, 0.3], [-0.4, 1.2], [0.8, -0.9]], dtype=torch.float64)
    return process.schedule.alpha(t) * M + away * (process.schedule.alpha(t) + process.schedule.sigma(t))


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


def test_bumps_are_the_oracle():
    x, t = torch.randn(5, 2, dtype=torch.float64), torch.linspace(0.1, 1, 5, dtype=torch.float64)
    torch.testing.assert_close(Bumps()(x, t).value, Bumps().oracle(x, t).to(un.Flow).value, rtol=0, atol=1e-10)


# --- the integrator


def logistic(y: Tensor, t: Tensor, rows: Tensor) -> Tensor:
    return y * (1 - y) * (1 + t.unsqueeze(1))


def logistic_at(y: Tensor, t: float) -> Tensor:
    odds = y / (1 - y) * math.exp(t + t * t / 2)
    return odds / (1 + odds)


def order_of_fixed_steps(monkeypatch) -> float:
    """Growth and shrinkage held at 1: the same method at constant steps."""
    monkeypatch.setattr(runge_kutta, "GROW", 1.0)
    monkeypatch.setattr(runge_kutta, "SHRINK", 1.0)
    y, errors = torch.tensor([[0.1], [0.4]], dtype=torch.float64), []
    for steps in (8, 16, 32):
        method = RungeKutta(logistic, 1e9, 1e9)
        state = method.start(y, 0.0, 2.0)
        state.step = torch.full_like(state.step, 2.0 / steps)
        errors.append(float((method.to(state, 0.0, 2.0).y - logistic_at(y, 2.0)).abs().max()))
        assert method.calls == 2 + 6 * steps
    return math.log(errors[0] / errors[2]) / math.log(4)


def test_order_five(monkeypatch):
    assert abs(order_of_fixed_steps(monkeypatch) - AdaptiveODE.order) < 0.2


def test_a_wrong_coefficient_loses_the_order(monkeypatch):
    wrong = (*runge_kutta.STAGES[:3], (19372 / 6561, -25360 / 2187, 64448 / 6561, -211 / 729), *runge_kutta.STAGES[4:])
    monkeypatch.setattr(runge_kutta, "STAGES", wrong)
    with pytest.raises(AssertionError):
        test_order_five(monkeypatch)


def test_the_embedded_difference_is_of_order_five():
    """sum e_i c_i^k = 0 for k < 4 and not for k = 4: the two solutions agree to fourth order."""
    nodes = [0.0, *runge_kutta.NODES]
    moments = [sum(e * c**k for e, c in zip(runge_kutta.DIFFERENCE, nodes, strict=True)) for k in range(5)]
    assert max(map(abs, moments[:4])) < 1e-15
    assert abs(moments[4]) > 1e-4


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("back", [False, True])
def test_the_error_follows_the_tolerance(tolerance, back):
    y = torch.linspace(0.05, 0.9, 7, dtype=torch.float64).unsqueeze(1)
    method = RungeKutta(logistic, tolerance, tolerance)
    ends = (2.0, 0.0) if back else (0.0, 2.0)
    given, told = (logistic_at(y, 2.0), y) if back else (y, logistic_at(y, 2.0))
    error = float((method.to(method.start(given, *ends), *ends).y - told).abs().max())
    assert 1e-3 * tolerance < error < 30 * tolerance


def test_rejected_steps_lose_no_row(monkeypatch):
    """y' = a peak in time, as sharp as the row says: y is a difference of arc tangents."""
    sharp = torch.tensor([3.0, 30.0, 300.0, 10.0], dtype=torch.float64)
    rejected = []
    attempt = RungeKutta._attempt

    def counted(self, s, rows, at, end):
        out = attempt(self, s, rows, at, end)
        rejected.extend(rows[out[0].held].tolist())
        return out

    monkeypatch.setattr(RungeKutta, "_attempt", counted)

    def peak(y, t, rows):
        return (sharp[rows] / (1 + (sharp[rows] * (t - 0.6)) ** 2)).unsqueeze(1)

    method = RungeKutta(peak, 1e-8, 1e-8)
    out = method.to(method.start(torch.zeros(4, 1, dtype=torch.float64), 0.0, 1.0), 0.0, 1.0).y[:, 0]
    told = torch.atan(sharp * 0.4) - torch.atan(-sharp * 0.6)
    torch.testing.assert_close(out, told, rtol=0, atol=1e-7)
    assert {1, 2, 3} <= set(rejected)


def test_sums_of_rows():
    x = torch.rand(5, 13, dtype=torch.float64)
    torch.testing.assert_close(row_sum(x), x.sum(1), rtol=0, atol=1e-14)
    assert torch.equal(row_sum(x)[2:3], row_sum(x[2:3]))


def test_single_precision_states_and_double_times():
    seen = []

    def slope(y, t, rows):
        seen.append((y.dtype, t.dtype))
        return logistic(y, t.to(y.dtype), rows)

    method, y = RungeKutta(slope, 1e-5, 1e-5), torch.tensor([[0.1], [0.4]])
    out = method.to(method.start(y, 0.0, 2.0), 0.0, 2.0).y
    assert out.dtype == torch.float32
    assert set(seen) == {(torch.float32, torch.float64)}
    torch.testing.assert_close(out.double(), logistic_at(y.double(), 2.0), rtol=0, atol=1e-4)


class Reads(TorchDispatchMode):
    """The operations after which the host knows a number that was on the device."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero", "masked_select", "equal"):
            self.seen.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_the_host_reads_counts_alone():
    """One look at the first slopes; in the loop the pair of counts (`tolist`, which is not dispatched) and nothing else."""
    y, reads = torch.linspace(0.05, 0.9, 7, dtype=torch.float64).unsqueeze(1), Reads()
    method = RungeKutta(logistic, 1e-8, 1e-8)
    with reads:
        method.to(method.start(y, 0.0, 2.0), 0.0, 2.0)
    assert method.calls > 50
    assert reads.seen == ["_local_scalar_dense"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_rows_apart_on_an_accelerator():
    y = torch.linspace(0.01, 0.99, 33, dtype=torch.float64, device="cuda").unsqueeze(1)

    def run(y: Tensor) -> Tensor:
        method = RungeKutta(logistic, 1e-8, 1e-8)
        return method.to(method.start(y, 0.0, 2.0), 0.0, 2.0).y

    together = run(y)
    assert torch.equal(together, torch.cat([run(y[i : i + 1]) for i in range(len(y))]))
    torch.testing.assert_close(together, logistic_at(y, 2.0), rtol=0, atol=1e-7)


def wall(y: Tensor, t: Tensor, rows: Tensor) -> Tensor:
    """Row 2 has no values beyond t = 0.5."""
    return torch.where((rows == 2) & (t > 0.5), torch.nan, 1.0).unsqueeze(1)


def test_failures_name_the_row():
    y = torch.zeros(4, 1, dtype=torch.float64)
    method = RungeKutta(wall, 1e-5, 1e-5)
    with pytest.raises(ArithmeticError, match="row 2: the step size fell to nothing at t = 0.5"):
        method.to(method.start(y, 0.0, 1.0), 0.0, 1.0)
    with pytest.raises(ArithmeticError, match="row 2: the function is not finite at t = 0.6"):
        RungeKutta(wall, 1e-5, 1e-5).start(y, 0.6, 1.0)
    short = RungeKutta(
        lambda y, t, rows: 1e3 * (rows == 1).unsqueeze(1) * torch.cos(1e3 * t).unsqueeze(1), 1e-8, 1e-8, maximum=50
    )
    with pytest.raises(ArithmeticError, match="row 1: 50 evaluations were not enough"):
        short.to(short.start(y, 0.0, 1.0), 0.0, 1.0)
    with pytest.raises(ValueError, match="atol = 0"):
        RungeKutta(wall, 1e-5, 0.0)


# --- the probability flow


KINDS = [un.Noise, un.Score, un.Velocity, un.Flow, un.Energy]


@pytest.mark.parametrize("name, kind", [(name, un.Clean) for name in SCHEDULES] + [("Cosine", kind) for kind in KINDS])
def test_the_flow_of_gaussian_data(name, kind):
    process = setting(name)
    oracle, x = un.oracles.normal(process, M, C, predicts=kind), states(process, 0.95)
    out, info = sample(oracle, x=x, sampler=AdaptiveODE(1e-6, 1e-6), steps=1, start=0.95, end=0.05, seed=0)
    assert float((out - flow(process, x, 0.95, 0.05)).abs().max()) < 1e-5
    assert info.rows <= info.calls * len(x)


LAST = {"Cosine": 2e-5, "LinearBeta": 3e-5, "VE": 1e-5, "Linear": 1e-5}  # sigma^2 at the cutoff, or the flow's own error


def check_whole_way(name: str) -> None:
    """Smooth data, and data on a point, where the step of DDIM is exact."""
    process = setting(name)
    x = states(process, 1.0)
    out = sample(un.oracles.normal(process, M, C), x=x, sampler=AdaptiveODE(1e-6, 1e-6), steps=1, seed=0)[0]
    assert float((out - flow(process, x, 1.0, 0.0)).abs().max()) < LAST[name]
    if process.cutoff:
        point = sample(un.oracles.normal(process, M, 0 * C), x=x, sampler=AdaptiveODE(), steps=1, seed=0)[0]
        assert float((point - M).abs().max()) < 1e-5


@pytest.mark.parametrize("name", SCHEDULES)
def test_from_noise_to_data(name):
    check_whole_way(name)


def test_stopping_at_the_cutoff_is_seen(monkeypatch):
    monkeypatch.setattr(AdaptiveODE, "_finish", lambda self, field, x, t, s: x)
    with pytest.raises(AssertionError):
        check_whole_way("Cosine")


def test_correlated_noise_and_schedules_of_coordinates():
    noise = AXES @ torch.diag(torch.tensor([2.0, 0.5], dtype=torch.float64)) @ AXES.T
    process = setting(covariance=noise)
    x = states(process, 0.95)
    out = sample(
        un.oracles.normal(process, M, C), x=x, sampler=AdaptiveODE(1e-6, 1e-6), steps=1, start=0.95, end=0.05, seed=0
    )[0]
    assert float((out - flow(process, x, 0.95, 0.05, noise)).abs().max()) < 1e-5

    per = un.Gaussian((2,), un.schedules.PerCoordinate([un.schedules.Cosine(), un.schedules.Linear()]))
    own = torch.diag(torch.tensor([0.5, 0.3], dtype=torch.float64))
    out = sample(
        un.oracles.normal(per, M, own), x=x, sampler=AdaptiveODE(1e-6, 1e-6), steps=1, start=0.95, end=0.05, seed=0
    )[0]
    for k, schedule in enumerate((un.schedules.Cosine(), un.schedules.Linear())):
        high, low = ((schedule.alpha(t) ** 2 * own[k, k] + schedule.sigma(t) ** 2).sqrt() for t in (0.95, 0.05))
        told = schedule.alpha(0.05) * M[k] + (x[:, k] - schedule.alpha(0.95) * M[k]) * low / high
        assert float((out[:, k] - told).abs().max()) < 1e-5


def test_a_product_of_numbers():
    first, second = setting("Cosine"), un.Gaussian((), SCHEDULES["Linear"]())
    process = un.Product(a=first, b=un.Product(c=second))
    one = torch.ones(1, dtype=torch.float64)
    leaves = {"a": GaussianLeaf(M[None], C[None]), "b": {"c": GaussianLeaf(0.2 * one, 0.3 * one.reshape(1, 1, 1))}}
    oracle = un.oracles.Components(process, one, leaves)
    x = {"a": states(first, 0.95), "b": {"c": torch.tensor([1.0, -0.5, 0.1], dtype=torch.float64)}}
    out = sample(oracle, x=x, sampler=AdaptiveODE(1e-6, 1e-6), steps=1, start=0.95, end=0.05, seed=0)[0]
    assert float((out["a"] - flow(first, x["a"], 0.95, 0.05)).abs().max()) < 1e-5
    schedule = second.schedule
    high, low = ((schedule.alpha(t) ** 2 * 0.3 + schedule.sigma(t) ** 2).sqrt() for t in (0.95, 0.05))
    told = schedule.alpha(0.05) * 0.2 + (x["b"]["c"] - schedule.alpha(0.95) * 0.2) * low / high
    assert float((out["b"]["c"] - told).abs().max()) < 1e-5
    ends = sample(oracle, x=x, sampler=AdaptiveODE(1e-6, 1e-6), steps=1, start=0.95, seed=0)[0]
    assert float((ends["a"] - flow(first, x["a"], 0.95, 0.0)).abs().max()) < 1e-5


def test_the_trajectory_is_on_the_flow():
    process, called = setting(), []
    oracle, x = un.oracles.normal(process, M, C), states(process, 1.0)
    out, info = sample(
        oracle,
        x=x,
        sampler=AdaptiveODE(1e-6, 1e-6),
        steps=5,
        trajectory=True,
        callback=lambda i, t, state: called.append(t),
        seed=0,
    )
    assert called == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.0])
    for t, here in zip(info.times.tolist(), info.trajectory, strict=True):
        assert float((here - flow(process, x, 1.0, t)).abs().max()) < 1e-5
    straight = sample(oracle, x=x, sampler=AdaptiveODE(1e-6, 1e-6), steps=1, seed=0)[1]
    assert straight.calls < info.calls < 1.5 * straight.calls  # steps are kept from segment to segment


# --- rows do not know of each other


def check_rows_apart() -> None:
    oracle, sampler = Bumps(), AdaptiveODE()
    together, info = sample(oracle, n=12, sampler=sampler, steps=1, seed=0)
    alone = [sample(oracle, n=1, first=i, sampler=sampler, steps=1, seed=0) for i in range(12)]
    assert torch.equal(together, torch.cat([x for x, _ in alone]))
    assert info.rows == sum(record.rows for _, record in alone)  # and no row is asked for once it has arrived
    assert info.calls == max(record.calls for _, record in alone)
    assert info.rows < 12 * info.calls  # some row arrives before another
    order = torch.arange(12).roll(5)
    start = oracle.process.prior(12, torch.float64).draw(NoiseSource(0, 12).at("prior"))
    there, back = (sample(oracle, x=x, sampler=sampler, steps=1, seed=0)[0] for x in (start, start[order]))
    assert torch.equal(there[order], back)


def test_batch_composition_changes_nothing():
    check_rows_apart()


def test_a_shared_step_size_is_seen(monkeypatch):
    norm = RungeKutta._norm
    monkeypatch.setattr(RungeKutta, "_norm", lambda self, *given: norm(self, *given).amax().expand(len(given[0])))
    with pytest.raises(AssertionError):
        check_rows_apart()


def test_conditions_follow_their_rows():
    class Shifted(torch.nn.Module):
        def forward(self, x, t, where, scale):
            return where * scale * torch.ones_like(x)  # x_0 is known: the flow ends there

    process, where = setting(), torch.arange(6, dtype=torch.float64).reshape(3, 2)
    denoiser = un.Denoiser(Shifted(), process, un.Clean)
    out = sample(
        denoiser, x=states(process, 1.0), sampler=AdaptiveODE(), steps=1, condition={"where": where, "scale": 2.0}, seed=0
    )[0]
    torch.testing.assert_close(out, 2 * where, rtol=0, atol=1e-9)


# --- what is refused


@pytest.mark.parametrize("kind", [un.Noise, un.Score, un.Energy])
def test_no_signal_at_the_start(kind):
    oracle = un.oracles.normal(setting("Cosine"), M, C, predicts=kind)
    with pytest.raises(ValueError, match="says nothing of x_0 at t = 1, where alpha = 0: .*start=0.999"):
        sample(oracle, n=3, sampler=AdaptiveODE(), steps=1, seed=0, start=1.0)
    out = sample(oracle, x=states(oracle.process, 0.999), sampler=AdaptiveODE(), steps=1, start=0.999, seed=0)[0]
    assert out.isfinite().all()


def test_other_spaces():
    with pytest.raises(TypeError, match="Gaussian noise, which Masking has not"):
        sample(un.oracles.table(un.Masking(3, (1,)), torch.ones(3) / 3), n=2, sampler=AdaptiveODE(), steps=1, seed=0)
    mixed = un.Product(age=un.Gaussian(()), job=un.Uniform(size=3))
    assert AdaptiveODE().refuse(mixed) is not None
    assert "leaf 'job', a Uniform," in AdaptiveODE().refuse(mixed)


def test_kinds_of_a_grid_pair():
    chain = un.Chain(setting(), 10)
    oracle = un.oracles.normal(setting(), M, C).predicting(un.Mean, chain)
    with pytest.raises(TypeError, match="a Mean prediction belongs to the steps of its chain"):
        sample(oracle, n=2, steps=10, sampler=AdaptiveODE(), seed=0)
