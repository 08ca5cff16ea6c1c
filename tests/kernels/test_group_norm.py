"""Norm, scale, shift and SiLU in one kernel against torch: on an accelerator, or interpreted where Triton is installed."""

import os

import pytest
import torch

from unnoise.kernels import group_norm

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
SIZES = [(1, 16, 1, 1), (3, 16, 5, 7), (2, 48, 6, 3), (2, 128, 9, 9)]
kernel = pytest.mark.skipif(
    group_norm.triton is None or not (INTERPRETED or torch.cuda.is_available()),
    reason="needs an accelerator, or to interpret",
)


def inputs(size, of_rows, dtype=torch.float64, device="cpu"):
    torch.manual_seed(sum(size))
    h = (torch.randn(size, dtype=dtype, device=device) * 3 + 40).to(memory_format=torch.channels_last)
    gain, offset = torch.randn(2, *(size[:2] if of_rows else size[1:2]), dtype=dtype, device=device)
    return h, gain, offset, torch.randn(size[1], dtype=dtype, device=device)


@pytest.mark.parametrize("of_rows", [False, True])
def test_the_plain_way_is_the_formula(of_rows):
    h, gain, offset, before = inputs((3, 16, 5, 7), of_rows)
    by_group = (h + before[:, None, None]).reshape(3, 8, 2, 35)
    mean, variance = by_group.mean((2, 3), keepdim=True), by_group.var((2, 3), correction=0, keepdim=True)
    z = ((by_group - mean) / (variance + 1e-5).sqrt()).reshape(h.shape)
    y = gain.expand(3, 16)[..., None, None] * z + offset.expand(3, 16)[..., None, None]
    torch.testing.assert_close(group_norm.norm_silu(h, 8, gain, offset, before), y / (1 + (-y).exp()))
    torch.testing.assert_close(group_norm.halfway(h, z, before), (h + z + before[:, None, None]) / 2**0.5)


@kernel
@pytest.mark.parametrize("of_rows", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_kernel_is_the_plain_way(size, of_rows):
    """Numbers about 40 with a spread of 3: the square of the mean would take two digits of the variance."""
    h, gain, offset, before = inputs(size, of_rows, torch.float32, DEVICE)
    for bias in (None, before):
        out = group_norm._launch_norm(h, 8, gain, offset, bias, 1e-5, torch.full_like(h, float("nan")))
        wide = [None if value is None else value.double() for value in (gain, offset, bias)]
        torch.testing.assert_close(out, group_norm.plain_norm_silu(h.double(), 8, *wide).float(), rtol=2e-5, atol=2e-5)
    other = torch.randn_like(h)
    out = group_norm._launch_halfway(h, other, before, torch.full_like(h, float("nan")))
    torch.testing.assert_close(out, group_norm.plain_halfway(h, other, before))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_on_an_accelerator_it_is_taken_where_nothing_is_differentiated(dtype):
    h, gain, offset, before = inputs((4, 384, 14, 14), True, torch.float32, "cuda")
    wide = (gain.double(), offset.double(), before.double())
    plain = group_norm.plain_norm_silu(h.to(dtype).double(), 8, *wide)
    with torch.no_grad():
        found = group_norm.norm_silu(h.to(dtype), 8, gain, offset, before)
        with torch.autocast("cuda", torch.bfloat16):
            half = group_norm.norm_silu(h, 8, gain, offset, before)
    assert found.dtype == dtype and half.dtype == torch.bfloat16
    assert found.is_contiguous(memory_format=torch.channels_last)
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(found.double(), plain, rtol=tolerance, atol=tolerance)
    gain.requires_grad_()
    assert group_norm.norm_silu(h, 8, gain, offset).grad_fn is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_a_network_for_images_says_the_same_with_the_kernels_and_without(monkeypatch):
    from unnoise.networks import images

    torch.manual_seed(0)
    network = images.SmallUNet(images.SmallUNetConfig(shape=(12, 12), kind="category", size=9, width=32)).cuda()
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)  # biases and what begins with zero too
    x, t = torch.randint(9, (5, 12, 12), device="cuda"), torch.rand(5, device="cuda")
    with torch.no_grad():
        found = network(x, t)
        monkeypatch.setattr(group_norm, "fits", lambda h: False)
        monkeypatch.setattr(images, "fits", lambda h: False)
        torch.testing.assert_close(found, network(x, t), rtol=1e-2, atol=1e-2)  # convolutions round to 11 bits
