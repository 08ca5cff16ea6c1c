"""A clean law pushed through one matrix and multiplied by a row of another, drawn from: against the law itself."""

import pytest
import torch

from unnoise.kernels import pushed
from unnoise.kernels.pushed import PushedTables


def matrices(groups: int, states: int, size: int, seed: int = 0) -> PushedTables:
    """Columns that sum to 1, many of their entries small or 0."""
    source = torch.Generator().manual_seed(seed)
    push, evidence = (
        torch.rand(groups, states, n, dtype=torch.float64, generator=source).pow(8) + torch.eye(states, n) / 4
        for n in (size, states)
    )
    evidence = torch.where(evidence < 0.01, 0.0, evidence)
    return PushedTables(push / push.sum(1, keepdim=True), evidence / evidence.sum(1, keepdim=True))


def inputs(groups: int, rows: int, states: int, size: int, dtype: torch.dtype = torch.float32, spread: float = 3.0):
    source = torch.Generator().manual_seed(1)
    logits = (spread * torch.randn(groups, rows, size, generator=source)).to(dtype)
    x = torch.randint(states, (groups, rows), generator=source)
    return logits, x, torch.rand(groups, rows, dtype=torch.float64, generator=source)


def law(tables: PushedTables, logits: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Entry by entry, in float64."""
    out = torch.empty(*x.shape, tables.push.shape[1], dtype=torch.float64)
    for g in range(len(x)):
        push, evidence = (m[g if len(m) > 1 else 0] for m in (tables.push, tables.evidence))
        for i, state in enumerate(x[g].tolist()):
            out[g, i] = evidence[state] * (push @ logits[g, i].double().softmax(-1))
    return out / out.sum(-1, keepdim=True)


def of_law(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    cumulative = probs.cumsum(-1)
    return torch.searchsorted(cumulative, (u * cumulative[..., -1]).unsqueeze(-1), right=True).squeeze(-1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "groups, rows, states, size", [(1, 300, 2, 2), (1, 300, 17, 17), (4, 60, 33, 33), (1, 200, 11, 10), (3, 50, 9, 7)]
)
def test_drawn_by_the_law(groups, rows, states, size, dtype):
    tables, (logits, x, u) = matrices(groups, states, size), inputs(groups, rows, states, size, dtype)
    found = pushed.draw(tables, logits, x, u)
    assert found.shape == x.shape and torch.equal(found, of_law(law(tables, logits, x), u))
    assert torch.equal(found, pushed.draw(tables, logits, x, u, readable=False))


def test_the_distribution_function_of_one_row():
    """200,000 numbers evenly laid over (0, 1): shares are the probabilities, to the width between numbers."""
    tables, (logits, x, _) = matrices(1, 12, 12), inputs(1, 1, 12, 12)
    count = 200_000
    u = ((torch.arange(count, dtype=torch.float64) + 0.5) / count).unsqueeze(0)
    found = pushed.draw(tables, logits.expand(1, count, -1), x.expand(1, count), u)
    shares = found.flatten().bincount(minlength=12) / count
    assert float((shares - law(tables, logits, x)[0, 0]).abs().max()) < 1.5 / count


@pytest.mark.parametrize("far", [60.0, 200.0, 600.0])
def test_what_single_precision_cannot_hold_is_drawn_in_double(far):
    """The network is sure of category 0, and x_t could only come from others."""
    tables, (logits, x, u) = matrices(1, 8, 8), inputs(1, 400, 8, 8)
    logits[..., 0] = far
    tables.push[0, 1:, 0] = 0.0
    tables.evidence[0, :, 0] = 0.0
    total = (tables.weights(logits.double(), x)).sum(-1)
    assert float(total.max()) < pushed.LOW
    assert torch.equal(pushed.draw(tables, logits, x, u), of_law(law(tables, logits, x), u))


def test_rows_of_several_matrices_are_drawn_again_by_their_own():
    tables, (logits, x, u) = matrices(3, 8, 8), inputs(3, 50, 8, 8)
    logits[1, ::7, 0] = 90.0
    tables.push[1, 1:, 0] = 0.0
    tables.evidence[1, :, 0] = 0.0
    assert torch.equal(pushed.draw(tables, logits, x, u), of_law(law(tables, logits, x), u))


def test_where_nothing_is_left_the_evidence_decides():
    tables, (logits, x, u) = matrices(1, 4, 4), inputs(1, 20, 4, 4)
    tables.push[:] = torch.eye(4)
    tables.evidence[:] = torch.eye(4)
    logits[:] = torch.tensor([0.0, -2000.0, -2000.0, -2000.0])
    assert torch.equal(pushed.draw(tables, logits, x, u), x)
    assert torch.equal(pushed.draw(tables, logits.double(), x, u), x)


def test_autocast_around_it_rounds_nothing():
    tables, (logits, x, u) = matrices(1, 40, 40), inputs(1, 4000, 40, 40)
    plain = pushed.draw(tables, logits, x, u)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(plain, pushed.draw(tables, logits, x, u))


def test_draws_in_single_precision_differ_at_the_edges_only():
    """Of 200,000 draws at 256 states at most 1 in 10^5 is another than float64 would draw, each within 3e-6 of an edge."""
    tables = matrices(1, 256, 256)
    logits, x, u = inputs(1, 200_000, 256, 256)
    found = pushed.draw(tables, logits, x, u).flatten()
    weights = tables.weights(logits.double(), x)
    edges = (weights / weights.sum(-1, keepdim=True)).cumsum(-1)
    exact = torch.searchsorted(edges, u.T, right=True).squeeze(-1)
    other = (found != exact).nonzero().squeeze(-1)
    assert len(other) <= 2
    assert bool(((edges[other] - u.T[other]).abs().amin(-1) < 3e-6).all())
