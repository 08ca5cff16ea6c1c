"""Laws by enumeration: against oracles, against matrices multiplied here, and against the bound."""

from itertools import product

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.generators.kolmogorov import matrices, solve, states
from unnoise.likelihoods import enumerate as module
from unnoise.likelihoods import forward
from unnoise.likelihoods.enumerate import Enumeration, clean_law, coordinate_laws
from unnoise.noise import NoiseSource
from unnoise.tree import batch_size, map_leaves
from unnoise.verify.wrong import Perturbed


def law_on(count: int) -> torch.Tensor:
    law = torch.rand(count, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.05
    return law / law.sum()


def ring(size: int) -> torch.Tensor:
    """Rates between neighbours, row = destination; not symmetric."""
    rates = torch.zeros(size, size, dtype=torch.float64)
    for x in range(size):
        rates[(x + 1) % size, x], rates[(x - 1) % size, x] = 1.0 + x, 0.5
    return rates - torch.diag(rates.sum(0))


NOISE = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
PROCESSES = {
    "masking": lambda shape: un.Masking(3, shape),
    "uniform": lambda shape: un.Uniform(3, shape),
    "interpolation": lambda shape: un.Interpolation(3, shape, noise=NOISE),
    "rates": lambda shape: un.RateMatrix(ring(3), shape),
}


def pair(shape=(1,)) -> un.Product:
    return un.Product(a=un.Masking(2, shape), b=un.Uniform(3, shape))


def pair_oracle(process=None):
    """A law on two leaves that depend on each other."""
    process = process or pair()
    base = process.process if isinstance(process, un.Chain) else process
    leaves = {
        name: un.oracles.CategoricalLeaf(_conditional(leaf.space, i)) for i, (name, leaf) in enumerate(base.leaves.items())
    }
    return un.oracles.Components(process, torch.tensor([0.2, 0.5, 0.3]), leaves)


def _conditional(space, seed: int) -> torch.Tensor:
    return NoiseSource(seed, 3).normal((*space.shape, space.size)).log_softmax(-1)


def every(denoiser):
    return states(denoiser.process.space)


def table_of(denoiser, **options):
    x = every(denoiser)
    log_p, info = Enumeration(**options).log_prob(denoiser, x, NoiseSource(0, batch_size(x)), {})
    return x, log_p, info


def mismatch(oracle) -> float:
    """How far q_1 is from p_1: the largest difference of logarithms over the states."""
    points = states(oracle.process.state_space)
    prior = oracle.process.prior(batch_size(points), torch.float64).log_prob(points)
    gap = oracle.log_marginal(points, 1.0) - prior
    return float(gap[prior > -100].abs().max())


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("shape", [(), (2,)], ids=["one", "two"])
def test_the_exact_reverse_process_has_the_data_law(name, shape):
    process = PROCESSES[name](shape)
    oracle = un.oracles.table(process, law_on(process.space.count))
    x, log_p, info = table_of(oracle)
    gap = (log_p - oracle.log_prob(x)).abs()
    assert float((gap - info.error).max()) < mismatch(oracle) + 1e-12
    assert mismatch(oracle) < 1e-3 and float(info.error.max()) < 2e-6
    assert float(log_p.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    assert "reverse jump process" in info.density and not info.bound


@pytest.mark.parametrize("name", PROCESSES)
def test_wrong_networks_against_dense_matrices(name):
    """The same equation, by matrix exponentials."""
    model = Perturbed(un.oracles.table(PROCESSES[name](()), law_on(3)), 1.0, 3)
    space = model.process.state_space
    points = states(space)
    prior = model.process.prior(len(points), torch.float64).log_prob(points).exp()
    law = solve(lambda times: matrices(space, lambda x, t: model(x, t).local(), times), prior, 1.0, 0.0, 1e-10)
    x, log_p, info = table_of(model)
    assert float((log_p.exp() - law[:3]).abs().max()) < 2e-8
    assert float((log_p - model.oracle.log_prob(x)).abs().max()) > 0.05


def test_a_product_has_its_data_law():
    oracle = pair_oracle()
    x, log_p, info = table_of(oracle)
    assert bool(((log_p - oracle.log_prob(x)).abs() <= info.error + 1e-12).all())
    assert float(info.error.max()) < 2e-6 and info.dimension == 2


def test_sizes_that_differ():
    process = un.Uniform([2, 3])
    oracle = un.oracles.table(process, law_on(6))
    x, log_p, info = table_of(oracle)
    assert bool(((log_p - oracle.log_prob(x)).abs() <= info.error + 1e-12).all())
    x, log_p, info = table_of(oracle, steps=3)
    assert torch.allclose(log_p.exp(), by_matrices(oracle, [1.0, 2 / 3, 1 / 3, 0.0]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [un.RawPosterior, un.Ratio, un.Rates, un.Energy], ids=lambda kind: kind.__name__)
def test_kinds_with_a_cutoff_are_decoded(kind):
    """These stop at t = 1e-4, and one coordinate at a time is decoded exactly; two leave an error of the order of 1e-8."""
    process = un.Uniform(3, (2,))
    oracle = un.oracles.table(process, law_on(9)).predicting(kind)
    x, log_p, info = table_of(oracle)
    assert "t = 0.0001" in info.density
    assert float((log_p - oracle.log_prob(x)).abs().max()) < 1e-6
    assert float(log_p.exp().sum()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", PROCESSES)
def test_one_coordinate_is_exact_at_any_step(name):
    process = PROCESSES[name]((1,))
    oracle = un.oracles.table(process, law_on(3))
    x, log_p, info = table_of(oracle, steps=3)
    assert float((log_p - oracle.log_prob(x)).abs().max()) < mismatch(oracle) + 1e-12
    assert info.density == "the ancestral chain of 3 steps" and info.calls == 3


def matrix_chain(shape):
    eye, spread = torch.eye(3, dtype=torch.float64), torch.full((3, 3), 1 / 3, dtype=torch.float64)
    cycle = torch.roll(eye, 1, 0)
    return un.MatrixChain(torch.stack([0.8 * eye + 0.2 * cycle, 0.5 * eye + 0.5 * spread, spread]), shape)


def on_chain(chain):
    """The oracle of a law on its states."""
    return un.oracles.table(chain.process, law_on(chain.space.count)).predicting(None, chain)


def test_a_chain_by_matrices():
    oracle = on_chain(matrix_chain((1,)))
    x, log_p, info = table_of(oracle)
    assert float((log_p - oracle.log_prob(x)).abs().max()) < 1e-13 and info.density == "the ancestral chain of 3 steps"


def by_matrices(model, times) -> torch.Tensor:
    """The law of a chain whose kernels are written out entry by entry and multiplied."""
    points = states(model.process.state_space)
    count = batch_size(points)
    p = model.process.prior(count, torch.float64).log_prob(points).exp()
    for t, s in zip(times[:-1], times[1:], strict=True):
        dense = torch.zeros(count, count, dtype=torch.float64)
        for y in range(count):  # into y, from every x
            target = map_leaves(lambda v, y=y: v[y : y + 1].expand(count, *v.shape[1:]), points)
            dense[y] = model(points, t).step(s).log_prob(target).exp()
        assert torch.allclose(dense.sum(0), torch.ones(count, dtype=torch.float64))
        p = dense @ p
    return p[data_rows(model)]


def data_rows(model) -> torch.Tensor:
    """Where the data's points are among the states, found by comparing them."""
    points, data = states(model.process.state_space), every(model)
    flat = [torch.cat([v.reshape(batch_size(x), -1) for v in leaves_of(x)], 1) for x in (points, data)]
    return (flat[0].unsqueeze(0) == flat[1].unsqueeze(1)).all(-1).long().argmax(1)


def leaves_of(x):
    return list(x.values()) if isinstance(x, dict) else [x]


def chains():
    grid = torch.tensor([0.0, 0.3, 0.55, 1.0], dtype=torch.float64)
    for name, make in PROCESSES.items():
        yield pytest.param(on_chain(un.Chain(make((2,)), grid)), id=name)
    yield pytest.param(on_chain(matrix_chain((2,))), id="matrices")
    yield pytest.param(pair_oracle(un.Chain(pair(), grid)), id="product")


@pytest.mark.parametrize("oracle", chains())
def test_chains_equal_their_matrices(oracle):
    for model in (oracle, Perturbed(oracle, 0.7, 5)):
        _, log_p, info = table_of(model)
        expected = by_matrices(model, oracle.process.grid.flip(0).tolist())
        assert torch.allclose(log_p.exp(), expected, rtol=0, atol=1e-13)
        assert float(log_p.exp().sum()) == pytest.approx(1.0, abs=1e-12)
        assert float(info.error.max()) < 1e-12


def test_steps_are_the_ancestral_samplers():
    """The law of T steps of a continuous process is that of the chain on the same grid, and tends to the data's like 1/T."""
    oracle = un.oracles.table(un.Masking(3, (2,)), law_on(9))
    x, even, _ = table_of(oracle, steps=3)
    _, given, _ = table_of(oracle, grid=[1.0, 2 / 3, 1 / 3, 0.0])
    assert torch.allclose(even, given, rtol=0, atol=1e-14)
    assert torch.allclose(even.exp(), by_matrices(oracle, [1.0, 2 / 3, 1 / 3, 0.0]), rtol=0, atol=1e-13)
    gaps = [float((table_of(oracle, steps=n)[1] - oracle.log_prob(x)).abs().max()) for n in (32, 64)]
    assert gaps[0] / gaps[1] == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("name", [*PROCESSES, "product"])
def test_the_bound_lies_above(name):
    """For wrong networks -log p <= bound at every x, and they are not equal."""
    oracle = pair_oracle() if name == "product" else un.oracles.table(PROCESSES[name]((2,)), law_on(9))
    chain = un.Chain(oracle.process, torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64))
    for model in (Perturbed(oracle, 0.7, 5), Perturbed(oracle.predicting(None, chain), 0.7, 5)):
        x, log_p, info = table_of(model)
        bound = un.bound(model, x, exact=True).total
        assert float((-log_p - bound - info.error).max()) < 1e-7
        assert float((bound + log_p).mean()) > 1e-3
        assert float(log_p.exp().sum()) == pytest.approx(1.0, abs=1e-6)


def test_the_last_law_is_the_decoders():
    """What follows the cut-off is the decoder that the bound uses by default."""
    process = un.Product(a=un.Uniform(3, (2,)), b=un.Masking(2))
    leaves = {"a": un.oracles.CategoricalLeaf(_conditional(process.leaves["a"].space, 1))}
    leaves["b"] = un.oracles.CategoricalLeaf(_conditional(process.leaves["b"].space, 2))
    oracle = un.oracles.Components(process, torch.tensor([0.2, 0.5, 0.3]), leaves)
    for kinds in ({"a": un.Ratio, "b": un.Posterior}, {"a": un.RawPosterior, "b": un.Rates}):
        model = Perturbed(oracle.predicting(kinds), 0.5, 1)
        data, x = every(model), states(process.state_space)
        for i, j in product(range(0, batch_size(x), 5), range(0, batch_size(data), 4)):
            x_eps, x0 = (map_leaves(lambda v, k=k: v[k : k + 1], tree) for tree, k in ((x, i), (data, j)))
            prediction = model(x_eps, 0.1)
            nll = un.objectives.default_decoder(process).nll(process, prediction, x0, x_eps, 0.1)
            assert torch.allclose(clean_law(prediction, process).log_prob(x0), -nll, atol=1e-12)


def test_coordinates_come_in_the_order_of_states():
    process = pair((2,))
    law = process.marginal(map_leaves(lambda v: v[:1], states(process.space)), 0.5)
    joint = module.outer(coordinate_laws(law, process.state_space)).squeeze(0)
    points = states(process.state_space)
    spread = process.marginal(map_leaves(lambda v: v[:1].expand(batch_size(points), 2), states(process.space)), 0.5)
    assert torch.allclose(joint.log(), spread.log_prob(points), atol=1e-12)


class Conditioned(nn.Module):
    """Logits that are the condition."""

    def forward(self, x, t, logits=None, scale=1.0):
        return (scale * logits).unsqueeze(1).expand(-1, x.shape[1], -1)


def test_conditions():
    denoiser = un.Denoiser(Conditioned(), un.Masking(2, (2,)))
    x, noise = torch.tensor([[0, 1], [1, 1], [0, 0]]), NoiseSource(0, 3)
    logits = torch.tensor([[0.3, -0.2]]).expand(3, 2)
    log_p, _ = Enumeration().log_prob(denoiser, x, noise, {"logits": logits, "scale": 2.0})
    expected = (2 * logits[0]).double().log_softmax(-1)[x].sum(1)
    assert torch.allclose(log_p, expected, atol=1e-6)
    with pytest.raises(ValueError, match="'logits' differs between rows 0 and 2.*one condition at a time"):
        different = torch.tensor([[0.3, -0.2], [0.3, -0.2], [0.1, 0.0]])
        Enumeration().log_prob(denoiser, x, noise, {"logits": different})


def test_refusals():
    with pytest.raises(TypeError, match="not finite.*PathWeighted"):
        oracle = un.oracles.normal(un.Gaussian((1,)), torch.zeros(1).double(), torch.eye(1).double())
        Enumeration().log_prob(oracle, torch.zeros(1, 1).double(), NoiseSource(0, 1), {})
    big = un.Denoiser(nn.Identity(), un.Masking(3, (10,)))
    with pytest.raises(ValueError, match="1048576 states, too many to enumerate.*100000.*PathWeighted"):
        Enumeration().log_prob(big, torch.zeros(1, 10, dtype=torch.int64), NoiseSource(0, 1), {})
    with pytest.raises(ValueError, match="tolerance = 0"):
        Enumeration(tolerance=0.0)


def test_chunks_change_nothing(monkeypatch):
    oracle = un.oracles.table(un.Masking(3, (2,)), law_on(9))
    whole = [table_of(oracle, **options)[1] for options in ({}, {"steps": 4})]
    monkeypatch.setattr(module, "ENTRIES", 100)
    for options, expected in zip(({}, {"steps": 4}), whole, strict=True):
        _, log_p, info = table_of(oracle, **options)
        assert torch.allclose(log_p, expected, rtol=0, atol=1e-12) and 16 > info.rows / info.calls > 4


def test_uniformization_is_the_exponential():
    """On one random sparse matrix, also where the series is cut into parts."""
    process = un.Uniform(3, (2,))
    jumps = forward.Jumps(process.state_space)
    for size in (1e-3, 1.0, 300.0):
        rates = size * NoiseSource(0, 1).uniform((len(jumps.target),))[0]
        dense = torch.zeros(9, 9, dtype=torch.float64).index_put((jumps.target, jumps.source), rates, accumulate=True)
        dense = dense - torch.diag(dense.sum(0))
        p = law_on(9)
        assert torch.allclose(jumps.act(rates, p), torch.linalg.matrix_exp(dense) @ p, rtol=1e-11, atol=0)


def _late(self, p, t, s):
    return _late.kept(self, p, min(1.0, t + 0.05), s)


def _no_half(weight, columns):
    return _no_half.kept(weight, columns[::-1])


def _frozen(self, times):
    return _frozen.kept(self, torch.full_like(times, 0.5))


@pytest.mark.parametrize(
    "where, name, wrong",
    [(module._Table, "step", _late), (module, "push", _no_half), (module._Table, "rates", _frozen)],
    ids=["later times", "coordinates reversed", "frozen rates"],
)
def test_mutants_are_caught(monkeypatch, where, name, wrong):
    """A kernel at a wrong time, coordinates in a wrong order, rates of a wrong time: each is seen by a test above."""
    oracle = un.oracles.table(un.Uniform(3, (2,)), law_on(9))
    wrong.kept = getattr(where, name)
    monkeypatch.setattr(where, name, wrong)
    x, log_p, _ = table_of(oracle, steps=3)
    chain_gap = float((log_p.exp() - by_matrices(oracle, [1.0, 2 / 3, 1 / 3, 0.0])).abs().max())
    flow_gap = float((table_of(oracle)[1] - oracle.log_prob(x)).abs().max())
    assert max(chain_gap, flow_gap) > 1e-3
