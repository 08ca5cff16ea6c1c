"""Tiny networks learn: a few hundred steps bring the bound within a stated gap of the oracle's, on the same draws."""

import pytest
import torch

import unnoise as un
from unnoise.networks import default_network

F64 = torch.float64


def fitted(oracle, process, steps, rows, rate, **options):
    """A tiny network trained on 20,000 draws."""
    denoiser = un.Denoiser(
        default_network(process, "tiny", seed=0, **options), process, un.predictions.default_kind(process)
    )
    objective = un.Objective(denoiser)
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.1)
    data = data_of(oracle, 20_000, seed=0)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        index = torch.randint(20_000, (rows,), generator=generator)
        x0 = un.tree.map_leaves(lambda v: v[index], data)  # noqa: B023
        optimizer.zero_grad()
        objective(x0, un.NoiseSource(step, rows)).loss.mean().backward()
        optimizer.step()
        schedule.step()
    return denoiser


def data_of(oracle, rows, seed):
    x0 = oracle.draw(un.NoiseSource(seed, rows))
    return un.tree.map_leaves(lambda v: v.float() if v.is_floating_point() else v, x0)


@torch.no_grad()
def gap(denoiser, oracle, rows=4000, **options):
    """The mean of the bound over the oracle's, and its standard error: the same data, times and noise for both."""
    x0 = data_of(oracle, rows, seed=1)
    difference = un.bound(denoiser, x0, seed=2, **options).total - un.bound(oracle, x0, seed=2, **options).total
    return float(difference.mean()), float(difference.std()) / rows**0.5


def markov(process):
    transition = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.2, 0.1, 0.1, 0.6], [0.05, 0.7, 0.1, 0.2], [0.05, 0.1, 0.7, 0.1]])
    initial = torch.tensor([0.97, 0.01, 0.01, 0.01])
    return un.oracles.MarkovChain(process, initial, transition)


def moons(process):
    """Sixteen narrow Gaussians along two half circles that clasp each other."""
    angle = torch.linspace(0, torch.pi, 8, dtype=F64)
    upper = torch.stack([angle.cos() - 0.5, angle.sin() - 0.25], 1)
    means = 1.2 * torch.cat([upper, -upper])
    return un.oracles.mixture(
        process, torch.ones(16, dtype=F64) / 16, means, 0.03 * torch.eye(2, dtype=F64).expand(16, 2, 2)
    )


def mixed(process):
    """A category of three and one of two that lean on each other, and two numbers around a centre of each of their pairs."""
    probs = torch.tensor([0.3, 0.05, 0.05, 0.25, 0.3, 0.05], dtype=F64)
    means = torch.tensor([[-1.5, 0], [-1.0, 1], [0, -1.5], [0.5, 1.5], [1.5, 0], [1.0, -1]], dtype=F64)
    return un.oracles.conditional_gaussian(process, probs, means, 0.1 * torch.eye(2, dtype=F64).expand(6, 2, 2))


@pytest.mark.conformance
def test_sequence_transformer_learns_a_markov_chain():
    process = un.Masking(size=4, shape=(5,))
    oracle = markov(process)
    excess, error = gap(fitted(oracle, process, steps=300, rows=48, rate=5e-3), oracle)
    assert -3 * error < excess < 0.16
    letters = torch.nn.functional.one_hot(data_of(oracle, 4000, seed=1), 4).double().mean(0)
    alone = -(letters * letters.log()).sum()  # nats of the best model whose letters do not see each other
    assert float(alone + oracle.log_prob(data_of(oracle, 4000, seed=1)).mean()) > 5 * 0.16


def test_perceptron_learns_two_moons():
    process = un.Gaussian((2,))
    oracle = moons(process)
    excess, error = gap(fitted(oracle, process, steps=400, rows=256, rate=5e-3), oracle)
    assert -3 * error < excess < 0.22
    untrained = un.Denoiser(default_network(process, "tiny"), process, un.Velocity)
    assert gap(untrained, oracle)[0] > 3 * 0.22


@pytest.mark.conformance
def test_column_transformer_learns_a_mixed_table():
    process = un.Product(numbers=un.Gaussian((2,)), facts=un.Masking(size=[3, 2]))
    oracle = mixed(process)
    excess, error = gap(fitted(oracle, process, steps=150, rows=192, rate=1e-2), oracle)
    assert -3 * error < excess < 0.55
    untrained = un.Denoiser(default_network(process, "tiny"), process, un.predictions.default_kind(process))
    assert gap(untrained, oracle)[0] > 4 * 0.55
