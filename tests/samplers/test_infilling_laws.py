"""Chains of length 64 with a few known sites: what is drawn has the marginals that forward-backward, or normal laws, say.

Shares of one site and of two neighbours, compared in standard errors; of C comparisons the largest is beyond 5.3 by chance
in C x 1.2e-7 of all runs, one in ten thousand here (Bonferroni).  Events of which fewer than 10 are expected are left out.
"""

import pytest
import torch

import unnoise as un
from unnoise.samplers import Particles
from unnoise.training.drawing import fill

F64 = torch.float64
LENGTH, SIZE, LIMIT = 64, 3, 5.3
INITIAL = torch.tensor([0.5, 0.3, 0.2], dtype=F64)
MOVES = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]], dtype=F64)  # row = destination
KNOWN = {3: 0, 4: 2, 20: 1, 40: 2, 63: 0}


def forward_backward():
    """Laws of every site [length, size] and of neighbours [length - 1, size, size], given what is known."""
    evidence = torch.ones(LENGTH, SIZE, dtype=F64)
    for place, value in KNOWN.items():
        evidence[place] = torch.nn.functional.one_hot(torch.tensor(value), SIZE)
    left, right = [INITIAL], [torch.ones(SIZE, dtype=F64)]
    for k in range(LENGTH - 1):
        left.append(MOVES @ (left[-1] * evidence[k]))
        right.insert(0, MOVES.T @ (right[0] * evidence[LENGTH - 1 - k]))
    one = torch.stack(left) * evidence * torch.stack(right)
    two = torch.stack(
        [
            (left[k] * evidence[k]).unsqueeze(1) * MOVES.T * (evidence[k + 1] * right[k + 1]).unsqueeze(0)
            for k in range(LENGTH - 1)
        ]
    )
    return one / one.sum(1, keepdim=True), two / two.sum((1, 2), keepdim=True)


def known(n, dtype=torch.int64):
    x, fixed = torch.zeros(LENGTH, dtype=dtype), torch.zeros(LENGTH, dtype=torch.bool)
    x[list(KNOWN)], fixed[list(KNOWN)] = torch.tensor(list(KNOWN.values()), dtype=dtype), True
    return x.repeat(n, 1), fixed.repeat(n, 1)


def shares(x):
    each = torch.nn.functional.one_hot(x, SIZE).double()
    return each.mean(0), torch.einsum("nka,nkb->kab", each[:, :-1], each[:, 1:]) / len(x)


def furthest(x):
    """The largest difference of a share, in standard errors."""
    n, worst, count = len(x), 0.0, 0
    for found, law in zip(shares(x), forward_backward(), strict=True):
        spread = (law * (1 - law) * n).sqrt()
        seen = (law * n > 10) & ((1 - law) * n > 10)
        worst, count = max(worst, float(((found - law) * n / spread)[seen].abs().max())), count + int(seen.sum())
    assert count > 400
    return worst


def test_masked_chains_are_filled_exactly():
    chain = un.oracles.MarkovChain(un.Masking(SIZE, (LENGTH,)), INITIAL, MOVES)
    x, fixed = known(800)
    found, _ = fill(chain, x, fixed, seed=0, device="cpu", sampler=un.samplers.FirstHitting())
    assert bool((found == x)[fixed].all()) and furthest(found) < LIMIT


def test_a_chain_that_forgets_is_noticed():
    """Planted: neighbours that are a little less alike."""
    looser = 0.85 * MOVES + 0.15 * INITIAL.unsqueeze(1)
    chain = un.oracles.MarkovChain(un.Masking(SIZE, (LENGTH,)), INITIAL, looser)
    found, _ = fill(chain, *known(800), seed=0, device="cpu", sampler=un.samplers.FirstHitting())
    assert furthest(found) > LIMIT


@pytest.mark.conformance
def test_uniform_noise_comes_there_as_particles_grow():
    """One particle is far off; of 16 in 32 steps 300 draws see no difference any more."""
    chain = un.oracles.MarkovChain(un.Uniform(SIZE, (LENGTH,)), INITIAL, MOVES)
    gaps = [
        furthest(un.sample(chain, 300, steps=32, sampler=Particles(count, known=known(300)), seed=0)[0])
        for count in (1, 4, 16)
    ]
    assert gaps[0] > 1.3 * LIMIT and gaps[2] < LIMIT and gaps[0] > gaps[1] > gaps[2], gaps


def normal_chain():
    """Numbers of correlation 0.8 with their neighbours, and the law of the others given some: (mean, covariance, which)."""
    place = torch.arange(LENGTH, dtype=F64)
    covariance = 0.8 ** (place[:, None] - place).abs()
    values, fixed = known(1, F64)
    values, fixed = values[0] - 1, fixed[0]
    gain = covariance[~fixed][:, fixed] @ torch.linalg.inv(covariance[fixed][:, fixed])
    mean = gain @ values[fixed]
    rest = covariance[~fixed][:, ~fixed] - gain @ covariance[fixed][:, ~fixed]
    return covariance, values, fixed, mean, rest


def furthest_of_numbers(count, steps, n=200):
    """In standard errors: of means, and of second moments of neighbours."""
    covariance, values, fixed, mean, rest = normal_chain()
    oracle = un.oracles.normal(un.Gaussian((LENGTH,), un.schedules.Cosine()), torch.zeros(LENGTH, dtype=F64), covariance)
    told = (values.expand(n, -1), fixed.expand(n, -1))
    x, _ = un.sample(oracle, n, steps=steps, sampler=Particles(count, known=told), seed=0, dtype=F64)
    assert torch.equal(x[:, fixed], told[0][:, fixed])
    off = (x[:, ~fixed] - mean) / rest.diag().sqrt()
    alike = rest / (rest.diag().unsqueeze(1) * rest.diag()).sqrt()
    first = off.mean(0) * n**0.5
    found = off.T @ off / n
    spread = ((1 + alike.square()) / n).sqrt()
    band = (torch.arange(len(mean))[:, None] - torch.arange(len(mean))).abs() <= 1
    return float(first.abs().max()), float(((found - alike) / spread)[band].abs().max())


@pytest.mark.conformance
def test_numbers_come_there_as_particles_grow_and_steps_shrink():
    gaps = [furthest_of_numbers(count, steps) for count, steps in ((1, 24), (8, 24), (24, 48))]
    assert gaps[0][0] > LIMIT > gaps[2][0] and gaps[2][1] < LIMIT and gaps[1][0] < gaps[0][0], gaps


@pytest.mark.parametrize("noise", [un.Masking, un.Uniform])
def test_a_number_tells_another_and_a_category(noise):
    """Conditional Gaussian x categorical, one number known: the category's share, and the other number's mean given it."""
    process = un.Product(x=un.Gaussian((2,)), c=noise(2, ()))
    means = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=F64)
    oracle = un.oracles.conditional_gaussian(
        process, torch.tensor([0.5, 0.5], dtype=F64), means, torch.eye(2, dtype=F64).expand(2, 2, 2) * 0.3
    )
    n, at = 1000, 0.2
    x = {"x": torch.tensor([[at, 0.0]], dtype=F64).expand(n, -1), "c": torch.zeros(n, dtype=torch.int64)}
    fixed = {"x": torch.tensor([[True, False]]).expand(n, -1), "c": torch.zeros(n, dtype=torch.bool)}
    share = float(torch.sigmoid(torch.tensor(2 * at / 0.3, dtype=F64)))
    gaps = []
    for count in (1, 16):
        found, _ = un.sample(oracle, n, steps=32, sampler=Particles(count, known=(x, fixed)), seed=0, dtype=F64)
        gaps.append(abs(float(found["c"].double().mean()) - share) / (share * (1 - share) / n) ** 0.5)
    assert gaps[1] < 4 < gaps[0], gaps
    for value, mean in ((0, -1.0), (1, 1.0)):
        other = found["x"][found["c"] == value, 1]
        assert abs(float(other.mean()) - mean) < 4 * (0.3 / len(other)) ** 0.5 + 0.03  # for particles and steps
