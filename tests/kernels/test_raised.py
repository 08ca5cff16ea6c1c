"""A clean law mixed with noise, one entry raised, drawn from: against the law itself."""

from dataclasses import replace

import pytest
import torch

from unnoise.kernels import raised
from unnoise.kernels.raised import Raised


def case(rows: int, size: int, states: int, laws: int = 1, dtype: torch.dtype = torch.float32, strength: float = 5.0):
    source = torch.Generator().manual_seed(rows + size)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=source)

    logits = (3 * torch.randn(rows, size, generator=source)).to(dtype)
    fresh, which = uniform(laws, states), torch.randint(laws, (rows,), generator=source)
    fresh = fresh / fresh.sum(-1, keepdim=True)
    x, alpha = torch.randint(states, (rows,), generator=source), uniform(rows)
    gain, scale = strength * states * uniform(rows), 1 - alpha
    noised = scale * fresh[which, x]
    near = (1 - noised) / (1 + gain * noised)
    return logits, Raised(x, alpha, scale, gain, near, uniform(rows), which, fresh)


def law(logits: torch.Tensor, known: Raised) -> torch.Tensor:
    states = known.fresh.shape[-1]
    theta = torch.nn.functional.pad(logits.double().softmax(-1), (0, states - logits.shape[-1]))
    mixed = known.alpha[:, None] * theta + known.scale[:, None] * known.fresh[known.which]
    weights = mixed * (1 + known.gain[:, None] * torch.nn.functional.one_hot(known.x, states))
    return weights / weights.sum(-1, keepdim=True)


def of_law(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.searchsorted(probs.cumsum(-1), u.unsqueeze(-1), right=True).squeeze(-1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size, states, laws", [(2, 2, 1), (10, 10, 1), (11, 12, 5), (257, 257, 1), (1000, 1001, 3)])
def test_drawn_by_the_law(size, states, laws, dtype):
    logits, known = case(600, size, states, laws, dtype)
    exact = of_law(law(logits, known), known.u)
    assert torch.equal(raised.draw(logits, known), exact)
    moved = exact != known.x
    assert bool(known.may_move()[moved].all())  # none that moves was taken for one that cannot
    assert 0.1 < float(moved.double().mean()) < float(known.may_move().double().mean()) < 0.95


def test_a_coordinate_that_is_not_near_stays_whatever_the_logits():
    _, known = case(5000, 6, 6)
    for seed in range(5):
        logits = 30 * torch.randn(5000, 6, generator=torch.Generator().manual_seed(seed))
        found = of_law(law(logits, known), known.u)
        assert torch.equal(found[~known.may_move()], known.x[~known.may_move()])


def test_the_bound_is_reached():
    """Where the network gives x_t nothing and x_t stands first or last, a number at the bound does move."""
    _, known = case(4000, 6, 6)
    first, last = known.x == 0, known.x == 5
    chosen = ((first | last) & (known.near < 0.49)).nonzero().squeeze(-1)
    assert len(chosen) > 500
    u = torch.where(first, 1 - 0.999 * known.near, 0.999 * known.near)
    some = replace(known, u=u)[chosen]
    logits = torch.where(torch.nn.functional.one_hot(some.x, 6).bool(), -1e4, torch.zeros(1))
    assert bool(some.may_move().all()) and bool((raised.draw(logits, some) != some.x).all())
    over = replace(known, u=torch.where(first, 1 - 1.001 * known.near, 1.001 * known.near))[chosen]
    assert not bool(over.may_move().any()) and torch.equal(raised.draw(logits, over), over.x)


def test_some_rows_are_those_rows():
    logits, known = case(100, 30, 30, 4)
    rows = torch.tensor([3, 70, 71, 99])
    assert torch.equal(raised.draw(logits, known)[rows], raised.draw(logits[rows], known[rows]))
    assert torch.equal(raised.draw(logits, known)[10:20], raised.draw(logits[10:20], known[10:20]))


def test_the_tail_of_a_large_vocabulary():
    """50,257 Zipf tokens: a number in the middle of each interval finds its token, to the rarest."""
    size = 50_257
    logits = -torch.arange(1, size + 1, dtype=torch.float64).log()
    probs = logits.softmax(-1)
    index = torch.cat([torch.arange(40), torch.arange(size - 400, size)])
    u, rows = (probs.cumsum(-1) - probs / 2)[index], len(index)
    one, zero = torch.ones(rows, dtype=torch.float64), torch.zeros(rows, dtype=torch.int64)
    known = Raised(zero, one, 0 * one, 0 * one, one, u, zero, torch.full((1, size), 1 / size, dtype=torch.float64))
    assert torch.equal(raised.draw(logits.float().expand(rows, -1), known), index)
