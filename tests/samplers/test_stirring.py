"""Motion that leaves marginals alone: K* q = 0 by derivatives and by matrices, in every space, and mutants of it."""

import pytest
import torch

import unnoise as un
from unnoise.generators.kolmogorov import matrices, solve
from unnoise.noise import NoiseSource
from unnoise.samplers import Circulation, FromGenerator, Reversible, Rotation, stirred, stirring
from unnoise.spaces import Sphere

TIME = 0.35
DOUBLE = torch.float64
TURN = torch.tensor([[0.0, 0.7, -0.2], [-0.7, 0.0, 0.4], [0.2, -0.4, 0.0]], dtype=DOUBLE)
NOISE = torch.tensor([[1.0, 0.4], [0.4, 0.7]], dtype=DOUBLE)


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def mixture(d, **options):
    means, spread = 2 * rand(2, d) - 1, rand(2, d, d, seed=1)
    covariances = spread @ spread.mT + 0.1 * torch.eye(d, dtype=DOUBLE)
    return un.oracles.mixture(un.Gaussian((d,), **options), torch.tensor([0.3, 0.7]), means, covariances)


def smooth():
    """Spaces with derivatives: the exact denoiser, points, and the motions that they have."""
    both = [Reversible(), Reversible(-0.6), Reversible(2.0) + Rotation(0.8)]
    yield "number", mixture(1), rand(5, 1), [Reversible(1.5), Reversible(-1.0)]
    yield "plane", mixture(2), 2 * rand(5, 2) - 1, both
    yield "three", mixture(3), 2 * rand(5, 3) - 1, [Reversible(), Rotation(TURN)]
    yield "correlated", mixture(2, covariance=NOISE), 2 * rand(5, 2) - 1, both
    apart = un.schedules.PerCoordinate([un.schedules.Cosine(), un.schedules.Linear()])
    yield "schedules", mixture(2, schedule=apart), 2 * rand(5, 2) - 1, both
    angles = un.WrappedNormal((2,), un.schedules.VE(0.05, 4.0))
    exact = un.oracles.heat_mixture(angles, torch.tensor([0.4, 0.6]), 4 * rand(2, 2) - 2, torch.tensor([0.2, 0.5]))
    yield "torus", exact, 6 * rand(5, 2) - 3, both
    globe = un.SphereHeat(2)
    ends = Sphere(2).project(2 * rand(2, 3) - 1)
    exact = un.oracles.heat_mixture(globe, torch.tensor([0.4, 0.6]), ends, torch.tensor([0.2, 0.5]))
    yield "globe", exact, Sphere(2).project(2 * rand(5, 3, seed=2) - 1), both


SMOOTH = {name: rest for name, *rest in smooth()}


def residual(exact, x, stir) -> float:
    """The largest K* q; densities at these points are of order 0.1, and so is what has to cancel in it."""
    generator = un.Generator(exact.process.state_space, lambda y: stir.part(exact(y, TIME)))
    return float(generator.adjoint(lambda y: exact.log_marginal(y, TIME).exp(), x).abs().max())


@pytest.mark.parametrize("name", SMOOTH)
def test_nothing_changes_on_smooth_spaces(name):
    exact, x, motions = SMOOTH[name]
    for stir in motions:
        assert residual(exact, x, stir) < 1e-8
    stir = motions[0]
    assert float(stir.part(exact(x, TIME)).drift.abs().max()) > 0.05


def symmetric(self, v, x, turn):
    return v.flip(-1)


def without_its_diffusion(part):
    return lambda self, prediction: un.Local(part(self, prediction).drift, 0.9 * part(self, prediction).diffusion)


def test_mutants_of_smooth_motions(monkeypatch):
    exact, x, _ = SMOOTH["plane"]
    monkeypatch.setattr(un.Euclidean, "turned", symmetric)
    assert residual(exact, x, Rotation(1.0)) > 1e-3
    monkeypatch.setattr(Reversible, "part", without_its_diffusion(Reversible.part))
    assert residual(exact, x, Reversible(1.0)) > 1e-3
    exact, x, _ = SMOOTH["globe"]
    monkeypatch.setattr(Sphere, "turned", lambda self, v, x, turn: turn * v)
    assert residual(exact, x, Rotation(1.0)) > 1e-3


# --- finite spaces and counts


def chains():
    table = rand(9, seed=4) + 0.02
    pair = table / table.sum()
    yield "uniform", un.oracles.table(un.Uniform(3, (2,)), pair)
    yield "one law", un.oracles.table(un.Interpolation(3, (2,), torch.tensor([0.2, 0.5, 0.3])), pair)
    yield "masking", un.oracles.table(un.Masking(3, (2,)), pair)
    yield "sizes", un.oracles.table(un.Uniform([2, 4]), (own := rand(8, seed=5) + 0.02) / own.sum())


CHAINS = dict(chains())
MEANS = ["arithmetic", "least", "harmonic", "geometric"]
JUMPS = [Reversible(0.8, mean) for mean in MEANS] + [Circulation(1.5), Circulation(-0.5) + Reversible()]


def chain_rates(exact, local):
    return lambda times: matrices(exact.process.state_space, lambda x, t: local(exact(x, t)), times)


def chain_residual(exact, stir) -> tuple[float, float]:
    rates = chain_rates(exact, stir.part)(torch.tensor([TIME], dtype=DOUBLE))[0]
    q = exact.log_marginal(exact.process.state_space.states(), TIME).exp()
    return float((rates @ q).abs().max()), float(rates.abs().max())


@pytest.mark.parametrize("name", CHAINS)
def test_nothing_changes_on_categories(name):
    exact = CHAINS[name]
    for stir in JUMPS:
        if stir.refuse(exact.process) is None:
            left, whole = chain_residual(exact, stir)
            assert left < 1e-12 and whole > 0.05, (stir, left, whole)
    assert (Circulation().refuse(exact.process) is None) == (name != "masking")


def test_nothing_changes_on_counts():
    process = un.Thinning((2,), immigration=1.5)
    exact = un.oracles.poisson_mixture(process, torch.tensor([0.4, 0.6]), torch.tensor([[1.0, 4.0], [3.0, 0.5]]))
    x = torch.cartesian_prod(torch.arange(5), torch.arange(5))
    for mean in MEANS:
        generator = un.Generator(process.space, lambda y, m=mean: Reversible(1.3, m).part(exact(y, TIME)))
        assert float(generator.adjoint(lambda y: exact.log_marginal(y, TIME).exp(), x).abs().max()) < 1e-12
        assert float(generator.local(x).rates.max()) > 0.1


def test_means_are_the_named_rules():
    """Under symmetric rates: Metropolis's, Barker's twice, the root, each of r = q(y)/q(x)."""
    exact = CHAINS["uniform"]
    prediction = exact(exact.process.space.states(), torch.tensor(TIME, dtype=DOUBLE))
    r, base = prediction.log_ratio().exp(), exact.process.log_rates_from(prediction.x_t, TIME).exp()
    for mean, rule in (("least", r.clamp_max(1)), ("harmonic", 2 * r / (1 + r)), ("geometric", r.sqrt())):
        assert torch.allclose(Reversible(1.0, mean).part(prediction).rates, base * rule, atol=1e-14)


@pytest.mark.parametrize("broken", ["ratio inverted", "no normaliser"])
def test_mutants_of_jumps(broken, monkeypatch):
    exact = CHAINS["uniform"]
    if broken == "ratio inverted":
        mean_of = stirring.mean_of
        monkeypatch.setattr(stirring, "mean_of", lambda m, first, second: mean_of(m, first, 2 * first - second))
        assert all(chain_residual(exact, Reversible(1.0, mean))[0] > 1e-3 for mean in ("least", "harmonic", "geometric"))
    else:
        monkeypatch.setattr(torch.Tensor, "log_softmax", lambda self, dim: self)
        assert chain_residual(exact, Circulation())[0] > 1e-3


@pytest.mark.parametrize(
    "stir", [Reversible(0.7), Reversible(2.0, "least"), Circulation(2.0)], ids=["both", "least", "round"]
)
@pytest.mark.parametrize("name", ["uniform", "masking"])
def test_the_way_back_returns_the_data(name, stir):
    exact = CHAINS[name]
    if stir.refuse(exact.process) is not None:
        assert name == "masking"
        return
    states, data = exact.process.state_space.states(), exact.log_marginal(exact.process.state_space.states(), 1e-3).exp()
    start = exact.log_marginal(states, 0.95).exp()
    found = solve(chain_rates(exact, lambda prediction: stirred(prediction, stir)), start, 0.95, 1e-3, tolerance=1e-9)
    assert float((found - data).abs().max()) < 1e-8


# --- through samplers


def test_one_argument_changes_paths_and_no_law():
    """Gaussian data by 24 steps: as many calls, other paths, the mean to 4 standard errors and the steps' error."""
    mean = torch.tensor([0.5, -0.2], dtype=DOUBLE)
    exact = un.oracles.normal(un.Gaussian((2,)), mean, 0.3 * torch.eye(2))
    ends = []
    for stir in (None, Reversible(1.0), Reversible(-1.0), Rotation(1.0) + Reversible()):
        x, info = un.sample(exact, n=300, steps=24, sampler=FromGenerator(stir=stir), seed=0, dtype=DOUBLE)
        assert info.calls == 24 and float((x.mean(0) - mean).abs().max()) < 4 * (0.3 / 300) ** 0.5 + 0.05
        ends.append(x)
    assert all(float((a - b).abs().max()) > 0.01 for i, a in enumerate(ends) for b in ends[:i])


# --- the law of what is drawn


def features(x):
    """Smooth functions of a state, by which laws are told apart."""
    flat = x.reshape(len(x), -1)
    wide = torch.cat([flat, 2 * flat], 1)
    pairs = (flat[:, :1] * flat[:, 1:2]).cos()
    return torch.cat([wide.cos(), wide.sin(), pairs], 1)


DRAWN = {"plane": (0.5, 60, 50_000), "torus": (0.5, 30, 50_000), "globe": (None, 40, 10_000)}


def gap(exact, stir, theta, steps, count) -> float:
    """The largest difference of mean features between what is drawn and the data, in standard errors."""
    sampler = FromGenerator(theta, stir)
    found, _ = un.sample(exact, n=count, steps=steps, sampler=sampler, seed=1, dtype=DOUBLE)
    ours, data = features(found), features(exact.draw(NoiseSource(2, count)))
    return float(((ours.mean(0) - data.mean(0)) / ((ours.var(0) + data.var(0)) / count).sqrt()).abs().max())


@pytest.mark.conformance
@pytest.mark.parametrize("name", DRAWN)
def test_the_data_law_is_drawn(name, monkeypatch):
    """50,000 draws from the prior (10,000 on the globe): 13 features at most, all within 4.5 standard errors, a false alarm
    in 1 of 10,000 runs."""
    exact = mixture(2, schedule=un.schedules.LinearBeta()) if name == "plane" else SMOOTH[name][0]
    stir = Reversible(0.5) + Rotation(6.0)
    theta, steps, count = DRAWN[name]
    assert gap(exact, stir, theta, steps, count) < 4.5
    monkeypatch.setattr(type(exact.process.state_space), "turned", lambda self, v, x, turn: turn * v)
    assert gap(exact, stir, theta, steps, 5_000) > 8


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_products_by_leaf(dtype):
    process = un.Product(x=un.Gaussian((2,)), c=un.Uniform(3, (1,)))
    network = un.networks.default_network(process, "tiny", seed=0).to(dtype)
    denoiser = un.Denoiser(network, process)
    for stir in (Reversible(), {"x": Rotation(1.0), "c": Circulation(1.0)}, {"c": Reversible(1.0, "least")}):
        x, _ = un.sample(denoiser, n=5, steps=4, sampler=FromGenerator(0.5, stir), seed=0)
        assert x["x"].dtype == dtype and bool(x["x"].isfinite().all())
    with pytest.raises(TypeError, match="'d'"):
        un.sample(denoiser, n=5, steps=4, sampler=FromGenerator(stir={"d": Reversible()}))


def test_a_written_sampler_and_an_energy():
    sampler = un.samplers.written("FromGenerator(stir=Reversible(2, mean='least'))")
    assert sampler.stir.mean == "least"
    exact = CHAINS["uniform"].predicting(un.Energy)
    x = exact.process.space.states()
    assert torch.allclose(
        stirred(exact(x, TIME), sampler.stir).rates, stirred(CHAINS["uniform"](x, TIME), sampler.stir).rates, atol=1e-12
    )


def test_a_diffusion_that_changes_with_the_state_turns_nothing():
    process = un.Simulated(un.Euclidean((2,)), lambda x, t: un.Local(diffusion=1 + x.square()), lambda n: None)
    assert "even_diffusion" in Rotation().refuse(process)
    assert Reversible().refuse(process) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Reversible(-1.5), "probability flow"),
        (lambda: Reversible(1.0, "median"), "choose from arithmetic"),
        (lambda: Rotation(torch.eye(2)), "not antisymmetric"),
        (lambda: Circulation(0.0), "not 0"),
        (lambda: un.sample(mixture(1), n=2, steps=2, sampler=FromGenerator(stir=Rotation())), "nothing turns in one"),
        (lambda: un.sample(mixture(3), n=2, steps=2, sampler=FromGenerator(stir=Rotation())), "antisymmetric matrix of"),
        (lambda: un.sample(mixture(2), n=2, steps=2, sampler=FromGenerator(stir=Rotation(TURN))), "wants"),
        (lambda: un.sample(mixture(2), n=2, steps=2, sampler=FromGenerator(stir=Circulation())), "categories"),
        (lambda: un.sample(CHAINS["masking"], n=2, steps=2, sampler=FromGenerator(stir=Circulation())), "no cycle"),
        (lambda: un.sample(CHAINS["masking"], n=2, steps=2, sampler=FromGenerator(stir=JUMPS[1])), "one way"),
        (lambda: un.sample(CHAINS["uniform"], n=2, steps=2, sampler=FromGenerator(stir=Reversible(-0.5))), "fewest"),
    ],
)
def test_refusals(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()
