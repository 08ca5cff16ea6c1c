"""A noised corner by its largest entries: the laws of its parts, and the token that is first."""

from itertools import permutations
from math import erfc, sqrt

import pytest
import torch

from unnoise.hybrids import ArgmaxLaw, dense, sparse
from unnoise.hybrids import softened as module
from unnoise.hybrids.softened import distinct_others, upper_normals
from unnoise.noise import NoiseSource

ROWS = 40_000
HOT, COLD = (torch.tensor(v, dtype=torch.float64) for v in (0.3, 0.0))


def off(found: torch.Tensor, share: float) -> float:
    """How many standard deviations the share of true entries is from a probability."""
    n = found.numel()
    return abs(float(found.double().mean()) - share) / sqrt(share * (1 - share) / n)


def drawn(size: int, mu: float, top: int | None, rows: int = ROWS, seed: int = 0, tau=HOT):
    x = torch.arange(rows) % size
    means = torch.full((rows,), mu, dtype=torch.float64)
    noise = NoiseSource(seed, rows)
    return x, dense(x, means, tau, size, noise) if top is None else sparse(x, means, tau, size, top, noise)


CASES = [(27, 2.0, 2), (27, 2.0, 26), (27, 2.0, None), (3, 0.0, 1), (50257, 3.5, 2), (50257, 3.5, 15)]


@pytest.mark.parametrize("size, mu, top", CASES)
def test_the_token_is_kept_with_the_exact_probability(size, mu, top):
    """4.5 standard deviations of 40,000 draws: a false alarm in 150,000."""
    x, found = drawn(size, mu, top)
    assert off(found.z == x, float(ArgmaxLaw(size).first(mu))) < 4.5


@pytest.mark.parametrize("size, mu, first, among", [(27, 2.0, 0.510, 0.666), (50257, 3.5, 0.241, 0.310)])
def test_a_token_that_is_kept_wherever_it_is_among_the_largest_is_caught(size, mu, first, among):
    """The mistake of published code, at k = 2: among the two largest, itself one of them."""
    law = ArgmaxLaw(size)
    assert float(law.first(mu)) == pytest.approx(first, abs=6e-4)
    others = upper_normals(size - 1, 2, (), NoiseSource(0, ROWS).at("largest"))
    kept = mu + NoiseSource(0, ROWS).at("own").normal() > others[:, 1]
    assert off(kept, float(law.first(mu))) > 25 and off(kept, among) < 4.5
    x, right = drawn(size, mu, 2)
    assert off(right.z == x, float(law.first(mu))) < 4.5


def chi_squared(counts: torch.Tensor) -> float:
    """In standard deviations of its law above its mean, for outcomes that are all as likely."""
    expected, free = float(counts.sum()) / len(counts), len(counts) - 1
    return (float(((counts - expected) ** 2).sum()) / expected - free) / sqrt(2 * free)


def sequences(chosen: torch.Tensor, x: torch.Tensor, size: int) -> torch.Tensor:
    """How often each sequence of distinct others is drawn."""
    steps = (chosen - x.unsqueeze(-1) - 1) % size  # 0 ... size - 2
    number = {p: i for i, p in enumerate(permutations(range(size - 1), chosen.shape[-1]))}
    return torch.tensor([number[tuple(p)] for p in steps.tolist()]).bincount(minlength=len(number))


def test_every_sequence_of_other_ids_is_as_likely():
    """24 sequences, 20,000 draws: six standard deviations of chi-squared, a false alarm in a million."""
    size, rows = 5, 20_000
    x = torch.zeros(rows, dtype=torch.int64)
    for y in (x, x + 4, x + 2):
        assert chi_squared(sequences(distinct_others(y, size, 3, NoiseSource(1, rows)), y, size)) < 6


def test_floyds_own_order_is_caught(monkeypatch):
    size, rows = 5, 20_000
    x, place = torch.zeros(rows, dtype=torch.int64), torch.arange(3).expand(rows, 3)
    monkeypatch.setattr(torch.Tensor, "argsort", lambda self, dim: place)
    assert chi_squared(sequences(distinct_others(x, size, 3, NoiseSource(1, rows)), x, size)) > 100


def test_the_largest_are_order_statistics():
    """Phi(v_1)^n and (Phi(v_2)/Phi(v_1))^(n-1) are uniform and independent: 10 x 10 cells."""
    for count in (26, 50256):
        v = upper_normals(count, 2, (), NoiseSource(2, ROWS))
        log_u = torch.tensor([[0.5 * erfc(float(z) / sqrt(2)) for z in row] for row in v[:20_000]], dtype=torch.float64)
        log_u = torch.log1p(-log_u)
        first, second = (count * log_u[:, 0]).exp(), ((count - 1) * (log_u[:, 1] - log_u[:, 0])).exp()
        cells = (first * 10).long() * 10 + (second * 10).long()
        assert chi_squared(cells.bincount(minlength=100)) < 6
        assert chi_squared((second.pow(1.1) * 10).long().bincount(minlength=10)) > 6  # another power is seen
    every = upper_normals(4, 4, (), NoiseSource(2, ROWS))
    assert bool((every.diff(dim=-1) <= 0).all())
    assert abs(float(every.mean())) < 4.5 / sqrt(4 * ROWS) and float(every.square().mean()) == pytest.approx(1, abs=0.02)


def test_weights_are_the_softmax_with_the_tail_in_expectation():
    size, top, mu, rows = 27, 3, 2.0, 50
    x, found = drawn(size, mu, top, rows)
    few, noise = found.mixture, NoiseSource(0, rows)
    total = few["weights"].sum(-1) + (size - 1 - top) * few["rest"]
    torch.testing.assert_close(total, torch.ones(rows, dtype=torch.float64))
    v = upper_normals(size - 1, top, (), noise.at("largest"))
    scale = 1 / (sqrt(1 + mu**2) * float(HOT))
    expected = (scale * (v[:, :1] - v)).exp()
    torch.testing.assert_close(few["weights"][:, 1:2] / few["weights"][:, 1:], expected)
    own = mu + noise.at("own").normal()
    torch.testing.assert_close(few["weights"][:, 0] / few["weights"][:, 1], (scale * (own - v[:, 0])).exp())
    z = torch.linspace(-12, 0, 24_001, dtype=torch.float64) + v[:, -1:]  # below the least of those drawn
    weight = torch.exp(-0.5 * z.square())
    mean = torch.trapezoid(weight * (scale * z).exp(), z) / torch.trapezoid(weight, z)
    torch.testing.assert_close(few["rest"] / few["weights"][:, 1], mean / (scale * v[:, 0]).exp(), rtol=1e-6, atol=0)


def test_all_entries_are_the_dense_softmax():
    """In law: the mean weight of the true token and of its square, over 40,000 draws; and what is first has most."""
    size, mu = 6, 1.5
    x, few = drawn(size, mu, size - 1)
    _, all_of = drawn(size, mu, None, seed=9)
    assert float(few.mixture["rest"].abs().max()) == 0
    own = few.mixture["weights"][:, 0], all_of.mixture.gather(1, x.unsqueeze(1)).squeeze(1)
    for power in (1, 2):
        a, b = (w**power for w in own)
        error = sqrt(float(a.var() + b.var()) / ROWS)
        assert abs(float(a.mean() - b.mean())) < 4.5 * error
    assert torch.equal(all_of.mixture.argmax(1), all_of.z)
    place = few.mixture["weights"].argmax(1, keepdim=True)
    assert torch.equal(few.mixture["ids"].gather(1, place).squeeze(1), few.z)


@pytest.mark.parametrize("top", [None, 4])
def test_without_temperature_it_is_the_token(top):
    x, found = drawn(9, 1.0, top, 200, tau=COLD)
    mixture = found.mixture
    if top is not None:
        assert float(mixture["rest"].abs().max()) == 0
        mixture = torch.zeros(200, 9, dtype=torch.float64).scatter(1, mixture["ids"], mixture["weights"])
    assert torch.equal(mixture, torch.nn.functional.one_hot(found.z, 9).double())
    assert bool((found.z != x).any()) and bool((found.z == x).any())


def test_rows_have_their_own_noise():
    x, whole = drawn(27, 2.0, 3, 20)
    some = torch.tensor([3, 11])
    part = sparse(x[some], torch.full((2,), 2.0), HOT, 27, 3, NoiseSource(0, 20).of(some))
    assert torch.equal(part.z, whole.z[some]) and torch.equal(part.mixture["ids"], whole.mixture["ids"][some])


def test_refusals():
    for top in (0, 27):
        with pytest.raises(ValueError, match=f"top = {top}"):
            drawn(27, 2.0, top, 3)
    assert module.COLDEST < 1e-3
