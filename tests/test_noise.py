"""Noise is a pure function of (seed, row, key, coordinate), and the numbers are uniform, normal and unrelated.

Every statistical check raises a false alarm with probability 1e-6 for a perfect source; the seeds are fixed, so
it either always passes or always fails.  The same checks must fail on sources with one defect planted in each.
"""

import ast
from math import log, sqrt
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise import noise
from unnoise.noise import NoiseSource

FALSE_ALARM = 1e-6
Z = 4.892  # P(|normal| > Z) = 1e-6
KS = sqrt(log(2 / FALSE_ALARM) / 2)  # P(sqrt(n) sup|F_n - F| > KS) <= 1e-6 for every n (Dvoretzky-Kiefer-Wolfowitz-Massart)


def chi2_tail(statistic, freedom):
    """P(chi^2 > statistic)."""
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return torch.special.gammaincc(half[0], half[1]).item()


def check_uniform(u):
    n = u.numel()
    assert u.dtype == torch.float64
    assert bool((u > 0).all()) and bool((u < 1).all())
    assert abs(u.mean().item() - 1 / 2) < Z * sqrt(1 / 12 / n)
    assert abs(u.var().item() - 1 / 12) < Z * sqrt(1 / 180 / n)
    check_law(u)


def check_law(u):
    """Kolmogorov-Smirnov distance of the values from the uniform law."""
    u = u.flatten().sort().values
    n = len(u)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    assert sqrt(n) * max((steps[1:] - u).max().item(), (u - steps[:-1]).max().item()) < KS


def check_unrelated(a, b):
    """Two arrays of uniforms: neither correlated nor dependent in any way that a 16 x 16 table of cells shows."""
    a, b = a.flatten(), b.flatten()
    n = len(a)
    assert abs(12 * ((a - 0.5) * (b - 0.5)).sum().item() / sqrt(n)) < Z
    cells = torch.bincount((a * 16).long() * 16 + (b * 16).long(), minlength=256).double()
    assert chi2_tail(((cells - n / 256).square() / (n / 256)).sum().item(), 255) > FALSE_ALARM


def check_keys(source):
    noise = source(7, 40_000)
    check_unrelated(noise.at("whether").uniform(), noise.at("where").uniform())
    check_unrelated(noise.at("step", 1).uniform(), noise.at("step", 2).uniform())
    check_unrelated(noise.at(1, 2).uniform(), noise.at(2, 1).uniform())
    check_unrelated(noise.uniform(), noise.at(0).uniform())


def check_seeds(source):
    for labels in ((), (0,), ("leaf", 3)):
        check_unrelated(source(1, 40_000).at(*labels).uniform(), source(2, 40_000).at(*labels).uniform())
    check_unrelated(source(1, 40_000).at(2).uniform(), source(2, 40_000).at(1).uniform())  # seed and key do not commute
    check_unrelated(source(1, 40_000).at(1).uniform(), source(2, 40_000).at(2).uniform())


def check_rows(source):
    u = source(7, 40_001).at("x").uniform()
    check_unrelated(u[:-1], u[1:])
    check_unrelated(u[:20_000], u[20_000:40_000])


def check_coordinates(source):
    u = source(7, 2_000).at("x").uniform((21,))
    check_unrelated(u[:, :-1], u[:, 1:])
    check_unrelated(u[:, :10], u[:, 10:20])
    check_unrelated(u[:-1, 1:], u[1:, :-1])  # the next row is not the same stream shifted by one


def check_copies(source):
    rows, times = 300, 300
    u = source(7, rows).at("x").repeated(times).uniform().reshape(times, rows)
    assert len(u.unique()) == rows * times
    check_unrelated(u[:-1], u[1:])
    check_unrelated(u, u.T)
    check_uniform(u)


CHECKS = [check_keys, check_seeds, check_rows, check_coordinates, check_copies]


@pytest.mark.parametrize("check", CHECKS)
def test_numbers_under_different_names_are_unrelated(check):
    check(NoiseSource)


class KeyIgnored(NoiseSource):
    def at(self, *labels):
        return self


class SeedIgnored(NoiseSource):
    def __init__(self, seed, rows, device=None):
        super().__init__(0, rows, device)


class RowIgnored(NoiseSource):
    def __init__(self, seed, rows, device=None):
        super().__init__(seed, torch.zeros(rows, dtype=torch.int64), device)


class CoordinateIgnored(NoiseSource):
    def at(self, *labels):
        child = CoordinateIgnored.__new__(CoordinateIgnored)
        child._key, child._labels, child.rows = super().at(*labels).key, (), self.rows
        return child

    def uniform(self, shape=()):
        return super().uniform((1,) * len(shape)).expand(len(self.rows), *shape)


class CopyIgnored(NoiseSource):
    def at(self, *labels):
        child = CopyIgnored.__new__(CopyIgnored)
        child._key, child._labels, child.rows = super().at(*labels).key, (), self.rows
        return child

    def repeated(self, times):
        return self._with(self.key, self.rows.repeat(times))


@pytest.mark.parametrize(
    ("check", "mutant"),
    zip(CHECKS, [KeyIgnored, SeedIgnored, RowIgnored, CoordinateIgnored, CopyIgnored], strict=True),
)
def test_the_checks_fail_on_a_source_that_ignores_a_name(check, mutant):
    with pytest.raises(AssertionError):
        check(mutant)


def test_uniforms_are_uniform():
    check_uniform(NoiseSource(3, 50_000).at("u").uniform())
    check_uniform(NoiseSource(3, 500).at("u").uniform((10, 10)))


@pytest.mark.parametrize(
    "mutant",
    [
        lambda u: u**1.05,
        lambda u: 0.5 + 0.98 * (u - 0.5),
        lambda u: (u * 32).floor() / 32,
        lambda u: torch.where(u < 0.5, u, u.roll(1)),
    ],
    ids=["tilted", "narrowed", "coarse", "folded"],
)
def test_the_uniform_check_fails_on_a_changed_law(mutant):
    u = mutant(NoiseSource(3, 50_000).at("u").uniform())
    with pytest.raises(AssertionError):
        check_uniform(u)


@pytest.mark.parametrize("few", [True, False])
def test_uniforms_lie_strictly_inside_the_interval(monkeypatch, few):
    """At the extreme bit patterns, where a draw of 50,000 would never come; by numpy and by torch."""
    monkeypatch.setattr(NoiseSource, "_few", lambda self, count: few)
    for bits, expected in ((0, 2.0**-53), (-1, 1 - 2.0**-53)):
        monkeypatch.setattr(NoiseSource, "_bits", lambda self, shape, bits=bits: torch.full((1, *shape), bits))
        monkeypatch.setattr(
            NoiseSource, "_bits_few", lambda self, shape, bits=bits: np.full((1, *shape), bits % 2**64, dtype=np.uint64)
        )
        u = NoiseSource(0, 1).uniform((1,))
        assert u.item() == expected
        assert bool(NoiseSource(0, 1).normal((1,)).isfinite().all())


def test_normals_are_normal():
    x = NoiseSource(4, 50_000).at("x").normal()
    assert x.dtype == torch.float64
    check_law(torch.special.ndtr(x))
    assert abs(x.mean().item()) < Z / sqrt(len(x))
    assert abs(x.var().item() - 1) < Z * sqrt(2 / len(x))
    with pytest.raises(AssertionError):
        check_law(torch.special.ndtr(1.05 * x))


@pytest.mark.parametrize("method", ["uniform", "normal"])
def test_sample_i_is_the_same_in_any_batch(method):
    whole = getattr(NoiseSource(5, 100).at("step", 3), method)((4, 2))
    order = torch.randperm(100)
    assert torch.equal(getattr(NoiseSource(5, order).at("step", 3), method)((4, 2)), whole[order])
    assert torch.equal(getattr(NoiseSource(5, 10).at("step", 3), method)((4, 2)), whole[:10])
    for i in (0, 41, 99):
        assert torch.equal(getattr(NoiseSource(5, torch.tensor([i])).at("step", 3), method)((4, 2)), whole[i : i + 1])


def test_rows_may_lie_anyhow_in_memory():
    """Every second row, rows backwards, one row many times: the same numbers as of the same rows in a piece."""
    rows = torch.arange(40)
    for some in (rows[::2], rows.reshape(8, 5).T[0], rows[7].expand(6), rows.unsqueeze(1).expand(40, 3)[:, 1]):
        for method in ("uniform", "normal"):
            own = getattr(NoiseSource(5, some).at("a"), method)((3,))
            assert torch.equal(own, getattr(NoiseSource(5, some.clone()).at("a"), method)((3,)))


def test_names_with_the_same_short_hash_have_noise_of_their_own():
    """Pairs of names that 32 bits of a checksum take for one."""
    for one, other in (("plumless", "buckeroo"), ("codding", "gnu"), ("exhibiters", "schlager")):
        assert crc32(one.encode()) == crc32(other.encode())
        a, b = (NoiseSource(0, 50).at(name).normal((4,)) for name in (one, other))
        assert not bool((a == b).any())
    keys = {noise._mix_label(f"leaf {i}") for i in range(300_000)}
    assert len(keys) == 300_000  # of 32 bits some ten pairs would be equal


def test_the_same_names_give_the_same_numbers():
    for seed in (0, -3, 2**62):
        a, b = (NoiseSource(seed, 5).at("leaf", 7).uniform((3,)) for _ in range(2))
        assert torch.equal(a, b)
    assert torch.equal(NoiseSource(1, 5).at("a", "b").uniform(), NoiseSource(1, 5).at("a").at("b").uniform())
    assert torch.equal(NoiseSource(torch.tensor(1), 5).uniform(), NoiseSource(1, 5).uniform())


def test_copies_of_a_row_do_not_depend_on_the_batch():
    whole = NoiseSource(6, 20).repeated(3).uniform((2,)).reshape(3, 20, 2)
    few = NoiseSource(6, torch.tensor([17, 4])).repeated(3).uniform((2,)).reshape(3, 2, 2)
    assert torch.equal(few, whole[:, [17, 4]])
    more = NoiseSource(6, 20).repeated(5).uniform((2,)).reshape(5, 20, 2)
    assert torch.equal(more[:3], whole)


def test_one_number_is_shared_by_all_rows():
    shared = NoiseSource(8, 10).at("x").shared_uniform()
    assert shared.shape == () and 0 < shared.item() < 1
    assert torch.equal(NoiseSource(8, torch.tensor([99])).at("x").shared_uniform(), shared)
    check_uniform(torch.stack([NoiseSource(8, 1).at(i).shared_uniform() for i in range(2_000)]))


def test_a_fresh_source_follows_the_global_generator():
    torch.manual_seed(1)
    first, second = NoiseSource.fresh(5).uniform(), NoiseSource.fresh(5).uniform()
    torch.manual_seed(1)
    assert torch.equal(NoiseSource.fresh(5).uniform(), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5)])
def test_few_numbers_are_those_of_many(shape, monkeypatch):
    """By numpy on the host, or by torch: the same bits, from any rows and key."""
    rows = torch.tensor([0, 1, -7, 2**62, 12345], dtype=torch.int64)
    source = NoiseSource(-3, rows).at("a", 5, "b")
    few = source.uniform(shape), source.normal(shape, torch.float32)
    monkeypatch.setattr(NoiseSource, "_few", lambda self, count: False)
    assert torch.equal(few[0], source.uniform(shape)) and torch.equal(few[1], source.normal(shape, torch.float32))


FIXED = {
    "bench": "the same is measured whenever it is asked for",
    "hybrids": "tables that are held are parts of a model, the same whenever it is made",
    "evaluation": "a figure is the same whenever it is asked for",
    "model": "likewise, and an estimator's settings are a configuration",
    "verify": "laws of the library's own checks",
}


def seeded(folder):
    """Functions whose seed is a number unless one is given, by the package they stand in."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                names, defaults = [*node.args.posonlyargs, *node.args.args], node.args.defaults
                pairs = [*zip(names[len(names) - len(defaults) :], defaults, strict=True)]
                pairs += [*zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
                values = [getattr(default, "value", None) for name, default in pairs if name.arg == "seed"]
                if any(value is not None for value in values):
                    found.setdefault(file.relative_to(folder).parts[0], []).append(node.name)
    return found


def test_without_a_seed_functions_are_fresh(tmp_path):
    """Commands and configurations keep 0 (they are classes); functions that do not are listed with their reason."""
    assert set(seeded(Path(un.__file__).parent)) == set(FIXED)
    (tmp_path / "new.py").write_text("def f(x, seed=0): ...\ndef g(x, *, seed=3): ...\ndef h(x, seed=None): ...\n")
    assert seeded(tmp_path) == {"new.py": ["f", "g"]}
