"""Ancestral steps on numbers by a table of coefficients, and as each kernel says it itself: the same, up to rounding."""

from itertools import product

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import variances
from unnoise.predictions import ContinuousPrediction, InexactConversion
from unnoise.samplers import Ancestral, CapturedRun, Leaves, PredictorCorrector, Replacement, ancestral, sample
from unnoise.samplers.correctors import Langevin

F32, F64 = torch.float32, torch.float64
ROWS, SHAPE = 6, (2, 2)
COVARIANCE = torch.eye(4, dtype=F64) + 0.4 * torch.ones(4, 4, dtype=F64)
PER_COORDINATE = un.schedules.PerCoordinate(
    [un.schedules.Cosine(), un.schedules.LinearBeta(), un.schedules.Linear(), un.schedules.VE(0.1, 5.0)], SHAPE
)
PROCESSES = {
    "cosine": lambda: un.Gaussian(SHAPE, un.schedules.Cosine()),
    "edm": lambda: un.Gaussian(SHAPE, un.schedules.EDM()),
    "correlated": lambda: un.Gaussian(SHAPE, un.schedules.LinearBeta(), covariance=COVARIANCE),
    "stationary": lambda: un.Gaussian(
        SHAPE, un.schedules.Cosine(), covariance=un.covariance.Stationary(SHAPE, lambda f: (f + 0.5) ** -2)
    ),
    "per coordinate": lambda: un.Gaussian(SHAPE, PER_COORDINATE),
    "learned": lambda: un.Gaussian(SHAPE, un.schedules.Learned()),
}
KINDS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow]
MEASURED = variances.fitted(torch.tensor([0.0, 0.4, 1.0]), torch.tensor([0.1, 0.5, 0.9]))
VARIANCES = {
    "posterior": variances.PosteriorVariance(),
    "forward": variances.ForwardVariance(),
    "learned": variances.LearnedVariance(),
    "measured": variances.OptimalVariance(MEASURED),
    "of the state": variances.OptimalVariance(lambda x_t, t: 0.3 + 0.1 * x_t.square()),
}


class Network(nn.Module):
    """Any function of both; with `both` also the share of the forward variance."""

    def __init__(self, both: bool = False, dtype: torch.dtype = F64):
        super().__init__()
        self.line, self.both = nn.Linear(5, 8, dtype=dtype), both

    def forward(self, x, t):
        a, b = self.line(torch.cat([x.flatten(1), t.unsqueeze(1)], 1)).tanh().chunk(2, 1)
        a, b = a.reshape(x.shape), (0.5 + 0.4 * b).reshape(x.shape)
        return (a, b) if self.both else a


def denoiser_of(process, kind=un.Velocity, variance=None, dtype=F64):
    torch.manual_seed(1)
    network = Network(isinstance(variance, variances.LearnedVariance), dtype)
    return un.Denoiser(network, process, kind, variance=variance)


def both_ways(denoiser, sampler=Ancestral, rounds=1, **options):
    """The samples by tables, and as kernels say them."""
    given = {"n": ROWS, "steps": 7, "start": 0.97, "end": 0.02, "seed": 3, **options}
    return (sample(denoiser, sampler=sampler(rounds, fast=fast), **given)[0] for fast in (True, False))


def close(fast, plain, dtype=F64):
    for a, b in zip(un.tree.leaves(fast), un.tree.leaves(plain), strict=True):
        assert a.dtype == b.dtype
        tolerance = 1e-12 if dtype is F64 else 2e-5
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def asked(monkeypatch) -> list[str]:
    """Notes every kernel that a prediction of numbers says itself."""
    seen, step = [], ContinuousPrediction.step

    def noted(self, s):
        seen.append(type(self).__name__)
        return step(self, s)

    monkeypatch.setattr(ContinuousPrediction, "step", noted)
    return seen


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", PROCESSES)
def test_every_kind_and_variance(name, dtype):
    for kind, variance in product(KINDS, VARIANCES.values()):
        denoiser = denoiser_of(PROCESSES[name](), kind, variance, dtype)
        fast, plain = both_ways(denoiser)
        scale = float(plain.abs().max())  # a network that was not trained may lead far out
        close(fast / scale, plain / scale, dtype)


@pytest.mark.parametrize("name", PROCESSES)
def test_the_table_is_what_is_used(name, monkeypatch):
    """No kernel is asked for its law but where its variance looks at the state."""
    seen = asked(monkeypatch)
    for kind, (choice, variance) in product(KINDS, VARIANCES.items()):
        seen.clear()
        next(both_ways(denoiser_of(PROCESSES[name](), kind, variance)))
        assert len(seen) == (7 if choice == "of the state" else 0)


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("rounds", [2, 3])
def test_rounds(name, rounds):
    close(*both_ways(denoiser_of(PROCESSES[name]()), rounds=rounds))


def test_to_data_without_noise():
    """At s = 0 the posterior's deviation is 0 and nothing is drawn; the forward one's is not."""
    for kind, choice in product(KINDS, ("posterior", "forward", "measured")):
        close(*both_ways(denoiser_of(PROCESSES["cosine"](), kind, VARIANCES[choice]), end=0.0))


def test_chains_and_their_own_kind():
    chain = un.Chain(PROCESSES["cosine"](), torch.linspace(0.05, 0.95, 8, dtype=F64))
    for kind, variance in product([*KINDS, un.Mean], VARIANCES.values()):
        denoiser = denoiser_of(chain, kind, variance)
        options = {"start": None, "end": None, "steps": 7}
        close(*both_ways(denoiser, **options))
        if kind is not un.Mean:
            close(*both_ways(denoiser, **{**options, "steps": 4}))


class Parts(nn.Module):
    """A product of numbers and categories, each seeing the other."""

    def __init__(self):
        super().__init__()
        self.a, self.b = Network(), nn.Linear(5, 3 * 2, dtype=F64)

    def forward(self, x, t):
        c = x["c"].double().mean(1).reshape(-1, 1, 1)
        logits = self.b(torch.cat([x["deep"]["a"].flatten(1), t.unsqueeze(1)], 1)).reshape(-1, 2, 3)
        return {"deep": {"a": self.a(x["deep"]["a"] + c, t), "b": 0.5 * x["deep"]["b"]}, "c": logits}


def mixed():
    torch.manual_seed(2)
    inner = un.Product(a=PROCESSES["correlated"](), b=un.Gaussian((3,), un.schedules.Linear()))
    return un.Denoiser(Parts(), un.Product(deep=inner, c=un.Uniform(3, (2,))), {"deep": {"a": un.Noise, "b": un.Clean}})


@pytest.mark.parametrize("rounds", [1, 2])
def test_products(rounds, monkeypatch):
    """Also of products, as a whole and leaf by leaf; categories are drawn as before, with the same noise."""
    fast, plain = both_ways(mixed(), rounds=rounds)
    close(fast, plain)
    close(*both_ways(mixed(), lambda rounds, fast: Leaves(Ancestral(rounds, fast=fast)), rounds))
    seen = asked(monkeypatch)
    next(both_ways(mixed(), rounds=rounds))
    assert not seen


def test_an_energy_says_its_score(monkeypatch):
    class Hill(nn.Module):
        def forward(self, x, t):
            return -0.5 * (1 + t) * x.square().flatten(1).sum(1)

    for name in ("cosine", "correlated"):
        denoiser = un.Denoiser(Hill(), PROCESSES[name](), un.Energy)
        close(*both_ways(denoiser, dtype=F64))
    seen = asked(monkeypatch)
    next(both_ways(denoiser, dtype=F64))
    assert not seen


def test_rows_with_starts_of_their_own():
    x = torch.randn(ROWS, *SHAPE, dtype=F64)
    starts = torch.tensor([0.97, 0.5, 0.97, 0.33, 0.5, 0.02])
    close(*both_ways(denoiser_of(PROCESSES["per coordinate"]()), rounds=2, n=None, x=x, start=starts))


def test_a_part_of_other_methods():
    denoiser = denoiser_of(PROCESSES["correlated"]())
    close(*both_ways(denoiser, lambda rounds, fast: PredictorCorrector(Ancestral(rounds, fast=fast), Langevin())))
    x, fixed = torch.randn(ROWS, *SHAPE, dtype=F64), torch.tensor([[True, False], [False, True]]).expand(ROWS, 2, 2)

    def replacement(rounds, fast):
        method = Replacement(x, fixed, rounds)
        method.fast = fast
        return method

    close(*both_ways(denoiser, replacement, rounds=2))


def test_a_recorded_run_is_that_of_sample():
    draw = CapturedRun(denoiser_of(PROCESSES["per coordinate"]()), 4, 5, Ancestral(2), seed=1, start=0.9)
    plain, _ = sample(draw.denoiser, 8, 5, Ancestral(2), seed=1, start=0.9)
    assert torch.equal(torch.cat([draw(0)[0], draw(4)[0]]), plain)


def test_sample_i_is_the_same_in_any_batch():
    denoiser = denoiser_of(PROCESSES["cosine"](), un.Noise, VARIANCES["learned"])
    whole, _ = sample(denoiser, 6, 5, Ancestral(2), seed=1, start=0.9)
    part, _ = sample(denoiser, 3, 5, Ancestral(2), seed=1, start=0.9, first=2)
    torch.testing.assert_close(part, whole[2:5], rtol=1e-13, atol=1e-13)


def gradients(denoiser, fast, x):
    x = x.clone().requires_grad_()
    weights = [p for p in denoiser.parameters() if p.requires_grad]
    sampler = Ancestral(2, fast=fast)
    out, _ = sample(denoiser, x=x, steps=4, sampler=sampler, start=0.9, end=0.1, seed=0, grad=True)
    return torch.autograd.grad((out * torch.arange(4.0, dtype=F64).reshape(2, 2)).sum(), [x, *weights])


@pytest.mark.parametrize("name", ["cosine", "correlated", "per coordinate", "learned"])
def test_gradients(name):
    """By the state, the weights, and a schedule that is learned, through which no table would pass them."""
    denoiser = denoiser_of(PROCESSES[name](), variance=VARIANCES["learned"])
    x = torch.randn(3, *SHAPE, dtype=F64)
    fast, plain = (gradients(denoiser, fast, x) for fast in (True, False))
    assert len(fast) == 3 if name != "learned" else len(fast) > 3
    for a, b in zip(fast, plain, strict=True):
        assert float(b.abs().max()) > 0
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_where_a_kind_says_nothing():
    """At alpha = 0 the noise says nothing of x_0: the error is that of the kernel itself."""
    for fast in (True, False):
        with pytest.raises(InexactConversion, match="alpha_t = 0 here"):
            sample(denoiser_of(PROCESSES["cosine"](), un.Noise), 3, 4, Ancestral(fast=fast), start=1.0, seed=0)


# --- what people write themselves


class Wider(variances.PosteriorVariance):
    """A variance of one's own, without a table."""

    def of(self, process, x_t, s, t, extra):
        return 2 * super().of(process, x_t, s, t, extra)


class Steady(un.Gaussian):
    """A process with a transition of its own."""

    def transition(self, x_s, s, t):
        law = super().transition(x_s, s, t)
        return un.laws.Normal(law.mean, 2 * law.std, law.covariance)


class Still(un.Velocity):
    """A kind with a kernel of its own."""

    def step(self, s):
        return un.laws.Normal(self.x_t, torch.ones_like(self.x_t))


def test_what_has_no_table_is_drawn_as_it_says():
    own, posterior = (denoiser_of(PROCESSES["cosine"](), un.Clean, v) for v in (Wider(), VARIANCES["posterior"]))
    (fast, plain), (other, _) = both_ways(own), both_ways(posterior)
    close(fast, plain)
    assert float((fast - other).abs().max()) > 0.01
    process = Steady(SHAPE, un.schedules.Cosine())
    (fast, plain), (other, _) = (
        both_ways(denoiser_of(process), rounds=2),
        both_ways(denoiser_of(PROCESSES["cosine"]()), rounds=2),
    )
    close(fast, plain)
    assert float((fast - other).abs().max()) > 0.01
    close(*both_ways(denoiser_of(PROCESSES["cosine"](), Still)))


# --- mutants


def differ(**how) -> bool:
    try:
        close(*both_ways(**how))
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("choice", ["posterior", "forward", "learned", "measured"])
def test_a_wrong_variance_is_found(choice, monkeypatch):
    kind, how = type(VARIANCES[choice]), {"denoiser": denoiser_of(PROCESSES["cosine"](), un.Clean, VARIANCES[choice])}
    right = kind.table
    assert not differ(**how)
    monkeypatch.setattr(kind, "table", lambda *given: tuple(1.0001 * c for c in right(*given)))
    assert differ(**how)


def test_wrong_coefficients_are_found(monkeypatch):
    how = {"denoiser": denoiser_of(PROCESSES["cosine"]()), "rounds": 2}
    for name, wrong in {
        "kernel": lambda row: (row[0], 1.0001 * row[1], row[2]),
        "rise": lambda row: (row[0], 1.0001 * row[1]),
    }.items():
        right = getattr(ancestral.AncestralTables, name)
        with monkeypatch.context() as patch:
            patch.setattr(ancestral.AncestralTables, name, lambda *given, f=right, change=wrong: change(f(*given)))
            assert differ(**how)
        assert not differ(**how)


def test_noise_under_another_key_is_found(monkeypatch):
    right = ancestral.Ancestral.drawn
    monkeypatch.setattr(
        Ancestral, "drawn", lambda self, p, tables, y, i, n: right(self, p, tables, y, i, n.at("other") if tables else n)
    )
    assert differ(denoiser=denoiser_of(PROCESSES["cosine"]()))
