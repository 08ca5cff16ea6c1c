"""Entropy-bounded decoding, and `min_p`."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import EntropyBounded, Tokens

F64 = torch.float64


def oracle_of(law, size, shape):
    return un.oracles.table(un.Masking(size, shape), law / law.sum())


def independent(*columns):
    law = columns[0]
    for column in columns[1:]:
        law = (law.unsqueeze(-1) * column).flatten()
    return law


def test_sure_coordinates_come_together_and_others_one_by_one():
    sure = torch.tensor([1 - 2e-9, 1e-9, 1e-9], dtype=F64)
    even = torch.full((3,), 1 / 3, dtype=F64)
    x, info = un.sample(oracle_of(independent(sure, even, sure, even), 3, (4,)), 50, sampler=EntropyBounded(0.1), seed=0)
    assert info.calls == 2 and int(x.max()) < 3 and (x[:, [0, 2]] == 0).all()  # all but one of the even ones, then that one
    _, info = un.sample(oracle_of(independent(even, even, even, even), 3, (4,)), 50, sampler=EntropyBounded(0.1), seed=0)
    assert info.calls == 4
    _, info = un.sample(oracle_of(independent(even, even, even, even), 3, (4,)), 50, sampler=EntropyBounded(10.0), seed=0)
    assert info.calls == 1
    _, info = un.sample(oracle_of(independent(even, even, even, even), 3, (4,)), 50, sampler=EntropyBounded(2.3), seed=0)
    assert info.calls == 2  # three at once neglect 2 log 3 = 2.197 at most


def test_one_by_one_on_an_exchangeable_law_is_exact():
    """gamma = 0 and coordinates that are equally sure at every turn: the order is fixed, and each draw is from the exact
    conditional.  Chi-square with 8 degrees of freedom, above 42.7 once in a million; all at once it is far above."""
    law = torch.tensor([4.0, 1, 1, 1, 4, 1, 1, 1, 4], dtype=F64)
    law = law / law.sum()
    for gamma, right in ((0.0, True), (10.0, False)):
        x, _ = un.sample(oracle_of(law, 3, (2,)), 20000, sampler=EntropyBounded(gamma), seed=0)
        counts = torch.bincount(x[:, 0] * 3 + x[:, 1], minlength=9).double()
        chi = float(((counts - 20000 * law).square() / (20000 * law)).sum())
        assert (chi < 42.7) == right


def test_rows_do_not_depend_on_their_batch():
    torch.manual_seed(0)
    oracle = oracle_of(torch.rand(81, dtype=F64), 3, (4,))
    x, _ = un.sample(oracle, 20, sampler=EntropyBounded(0.5), seed=0)
    y, _ = un.sample(oracle, 5, sampler=EntropyBounded(0.5), seed=0, first=7)
    assert torch.equal(x[7:12], y)


def test_what_it_refuses():
    with pytest.raises(ValueError, match="gamma"):
        EntropyBounded(-1.0)
    with pytest.raises(ValueError, match="by = 'luck'"):
        EntropyBounded(by="luck")
    with pytest.raises(TypeError, match="masks none"):
        un.sample(un.oracles.table(un.Uniform(3, (1,)), torch.ones(3, dtype=F64) / 3), 2, sampler=EntropyBounded())


def test_min_p_keeps_what_is_near_the_likeliest():
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=F64)
    kept = Tokens(min_p=0.31).log_probs(p.log()).exp()
    torch.testing.assert_close(kept, torch.tensor([[0.625, 0.375, 0, 0]], dtype=F64))
    assert not Tokens(min_p=0.1).plain and Tokens(min_p=0.0).plain
    flat = Tokens(temperature=2.0, min_p=0.5).log_probs(p.log()).exp()  # after the temperature: shares of sqrt(p)
    root = p.sqrt()[:, :3]
    torch.testing.assert_close(flat[:, :3], root / root.sum())
    with pytest.raises(ValueError, match="min_p = 1.5"):
        Tokens(min_p=1.5)
