"""Fresh draws of the prior, run backwards by the exact score, are the data again: on the torus, spheres and SO(3)."""

import pytest
import torch

import unnoise as un
from unnoise.noise import NoiseSource
from unnoise.oracles import Components
from unnoise.oracles.heat import HeatLeaf
from unnoise.samplers import FromGenerator
from unnoise.sphere_laws import SphereLaw, heat_slope, log_heat

N, DOUBLE = 50_000, torch.float64
WEIGHTS, VARIANCES = torch.tensor([0.7, 0.3]).double(), torch.tensor([0.15, 0.3]).double()
ORDERS, CELLS = (1, 2, 3), 1024


class TabulatedGlobe(SphereLaw):
    """The heat kernels of S2, linear between angles of a grid: the same numbers, at less cost."""

    def _at(self, x, function):
        w = torch.acos((x.double() * self.mean.double()).sum(-1).clamp(-1, 1))
        place = (w / torch.pi * CELLS).clamp(1e-6, CELLS - 1e-6)
        low, values = place.floor().long(), torch.empty_like(w)
        for v in self.variance.unique():
            rows = self.variance == v
            table = function(torch.linspace(1e-6, torch.pi - 1e-6, CELLS + 1, dtype=DOUBLE), v)
            values[rows] = torch.lerp(table[low[rows]], table[low[rows] + 1], (place - low)[rows])
        return w, values

    def log_prob(self, x):
        return self._at(x, lambda w, v: log_heat(w, v, 2))[1]

    def score(self, x):
        w, slope = self._at(x, lambda w, v: heat_slope(w, v, 2))
        away = torch.cos(w).unsqueeze(-1) * x.double() - self.mean.double()
        return ((slope / torch.sin(w).clamp_min(1e-9)).unsqueeze(-1) * away).to(x.dtype)


PROCESSES = {"torus": un.WrappedNormal((2,)), "SO3": un.RotationHeat(), **{f"S{d}": un.SphereHeat(d) for d in (1, 2, 3, 5)}}
LAWS = {"S2": TabulatedGlobe}
TRAPEZOID = (FromGenerator(0.5), 64)  # 128 calls, as Euler's steps below take
METHODS = {name: (FromGenerator(), 128) for name in PROCESSES} | {"torus": TRAPEZOID, "S5": (FromGenerator(), 64)}
BIAS = {
    "torus": 0.002,
    "S1": 0.01,
    "S2": 0.01,
    "S3": 0.006,
    "S5": 0.01,
    "SO3": 0.006,
}  # of a mean, by steps; Euler's 128 on
# the torus have 0.01


def peaks(name):
    return PROCESSES[name].prior(2, DOUBLE).draw(NoiseSource(7, 2))


def oracle(name, process=None):
    process = process or PROCESSES[name]
    return Components(process, WEIGHTS, HeatLeaf(LAWS.get(name, process.law), peaks(name), VARIANCES))


def waves(name, x, p):
    """(rate, values) of waves around p, |value| <= 1, which heat makes fade by e^{-rate v}: on the torus along a direction,
    on spheres of x . p, on SO(3) the characters of p^T x."""
    for k in ORDERS:
        if name == "torus":
            n = torch.tensor([[k, 0], [0, k], [k, -k]]).double()
            for direction in n:
                yield float(direction.square().sum()) / 2, torch.cos((x - p) @ direction)
        elif name == "SO3":
            w = torch.acos((((p.mT @ x).diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2).clamp(-1, 1))
            total = 1 + 2 * sum(torch.cos(j * w) for j in range(1, k + 1))
            yield k * (k + 1) / 2, total / (2 * k + 1)
        else:
            c = (x * p).sum(-1).clamp(-1, 1)
            if name == "S1":
                yield k * k / 2, torch.cos(k * torch.acos(c))
            elif name in ("S3", "S5"):
                d = int(name[1])
                yield k * (k + d - 1) / 2, [c, ((d + 1) * c**2 - 1) / d, ((d + 3) * c**3 - 3 * c) / d][k - 1]
            else:
                yield k * (k + 1) / 2, [c, (3 * c**2 - 1) / 2, (5 * c**3 - 3 * c) / 2][k - 1]


def gaps(name, x, least=0.0):
    """Mean less truth of waves around six points, and their standard errors.  Of a kernel of the variance v around m the
    mean of a wave is e^{-rate v} times its value at m, so that the truth has no error; `least` is the noise that is left."""
    found = []
    for p in PROCESSES[name].prior(6, DOUBLE).draw(NoiseSource(8, 6)):
        for (rate, values), (_, there) in zip(waves(name, x, p), waves(name, peaks(name), p), strict=True):
            truth = float((WEIGHTS * torch.exp(-rate * (VARIANCES + least)) * there).sum())
            found.append((float(values.mean()) - truth, float(values.std()) / len(x) ** 0.5))
    return torch.tensor(found, dtype=DOUBLE).T


def reversed_from_the_prior(name, n=N, share=1.0, process=None):
    sampler, steps = METHODS[name]
    return un.sample(oracle(name, process), n=n, steps=int(share * steps), seed=0, dtype=DOUBLE, sampler=sampler)[0]


def excess(x, name):
    """By how much the worst of the waves is off, in what is allowed: 4.5 standard errors and the bias of the steps."""
    gap, error = gaps(name, x)
    return float((gap.abs() / (4.5 * error + BIAS[name])).max())


def test_the_tables_are_the_kernels():
    process, x = PROCESSES["S2"], PROCESSES["S2"].prior(200, DOUBLE).draw(NoiseSource(1, 200))
    mean = peaks("S2")[:1].expand(200, 3)
    for v in (0.15, 2.0):
        ours, exact = (law(mean, torch.full((200, 1), v, dtype=DOUBLE)) for law in (TabulatedGlobe, process.law))
        torch.testing.assert_close(ours.log_prob(x), exact.log_prob(x), rtol=0, atol=1e-4)
        torch.testing.assert_close(ours.score(x), exact.score(x), rtol=1e-4, atol=1e-4)


@pytest.mark.conformance
@pytest.mark.parametrize("name", PROCESSES)
def test_the_exact_reverse_returns_the_data(name):
    """50,000 samples by 128 calls (64 on S5): a false alarm in one run of 2,700 on the torus (54 waves), of 8,000 elsewhere
    (18), were the bias all of what is allowed for it."""
    assert excess(reversed_from_the_prior(name), name) < 1


class Weakened:
    """A mutant: the score is scaled by 0.8."""

    def reverse_local(self, x_t, score, t):
        return super().reverse_local(x_t, 0.8 * score, t)


@pytest.mark.conformance
@pytest.mark.parametrize("name", PROCESSES)
def test_a_scaled_score_is_noticed(name):
    """Already by 5,000 samples in half the steps."""
    kind = type(PROCESSES[name])
    wrong = type("Weakened" + kind.__name__, (Weakened, kind), {})
    process = wrong(*{"torus": [(2,)], "S1": [1], "S2": [2], "S3": [3], "S5": [5], "SO3": []}[name])
    assert excess(reversed_from_the_prior(name, 5_000, 0.5, process), name) > 1
