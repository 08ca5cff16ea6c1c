"""A uniform number's category, found by blocks: the same as by the whole distribution function."""

import pytest
import torch

from unnoise.kernels import inversion


def whole(weights: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    cumulative = weights.double().cumsum(-1)
    return torch.searchsorted(cumulative, (u * cumulative[:, -1]).unsqueeze(-1), right=True).squeeze(-1)


def numbers(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 255, 256, 257, 1000])
def test_blocks_of_any_size(size):
    assert inversion.width(size) ** 2 >= size and inversion.width(size) <= max(4, 2 * size**0.5)
    weights = torch.rand(500, size, dtype=torch.float64) ** 8
    found, total = inversion.chosen(weights, numbers(500))
    assert torch.equal(found, whole(weights, numbers(500)))
    torch.testing.assert_close(total, weights.sum(-1), rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_of_0_and_1(dtype):
    """All of the weight on one category, whatever the number, the largest and the smallest included."""
    eye = torch.eye(37, dtype=dtype)
    for u in (2.0**-53, 0.5, 1 - 2.0**-53):
        found, _ = inversion.chosen(eye, torch.full((37,), u, dtype=torch.float64))
        assert torch.equal(found, torch.arange(37))
    gaps = torch.rand(2000, 100, dtype=dtype) * (torch.rand(2000, 100) < 0.1)
    gaps[:, 50] += 1e-6
    found, _ = inversion.chosen(gaps, numbers(2000))
    assert bool((gaps.gather(-1, found.unsqueeze(-1)) > 0).all())


def test_no_category_is_cut_off_beside_a_large_one():
    """1 and then 1e-9 in the same block: float32 sums lose the small ones, their shares do not."""
    weights = torch.zeros(1, 256)
    weights[0, 16], weights[0, 17:32] = 1.0, 1e-9
    exact = weights.double()[0] / weights.double().sum()
    ends = exact.cumsum(-1)
    u = (ends - exact / 2)[16:32]
    found, _ = inversion.chosen(weights.expand(16, -1), u)
    assert torch.equal(found, torch.arange(16, 32))


def test_single_precision_differs_at_the_edges_only():
    """Of 400,000 numbers some differ from float64 arithmetic on the same weights: those within 1e-6 of an edge."""
    weights, u = torch.rand(400_000, 256) ** 4, numbers(400_000)
    found, exact = inversion.chosen(weights, u)[0], whole(weights, u)
    other = (found != exact).nonzero().squeeze(-1)
    assert len(other) < 400_000 * 1e-5
    edges = weights[other].double().cumsum(-1)
    gap = (edges / edges[:, -1:] - u[other, None]).abs().amin(-1)
    assert bool((gap < 1e-6).all())
