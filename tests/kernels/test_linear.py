"""Sums and noise in one kernel against torch: on an accelerator, or with TRITON_INTERPRET=1 where Triton is installed."""

import os
from itertools import product

import numpy as np
import pytest
import torch

from unnoise.kernels import linear
from unnoise.kernels import noise as numbers
from unnoise.noise import NoiseSource

triton = pytest.importorskip("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = pytest.mark.skipif(
    not (INTERPRETED or torch.cuda.is_available()), reason="needs an accelerator, or to interpret"
)
SIZES = [(1, 1), (5, 3), (33, 1), (9, 65), (4, 700)]
KEYS = [0, 1, 16, -(2**62) + 5, 2**63 - 1]


@pytest.fixture(autouse=True)
def quantiles(monkeypatch):
    """What an interpreter lacks: the normal quantile of the device's library."""
    if not INTERPRETED:
        return
    from triton import language
    from triton.runtime.interpreter import TensorHandle

    class Library:
        @staticmethod
        def normcdfinv(u):
            z = torch.special.ndtri(torch.from_numpy(np.asarray(u.handle.data))).numpy()
            return language.core.tensor(TensorHandle(z, u.handle.dtype), u.type)

    monkeypatch.setattr(numbers, "libdevice", Library)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_numbers_are_those_of_torch(size):
    height, width = size
    rows = torch.arange(height) * 7 - 3
    for key in KEYS:
        here, there = NoiseSource.keyed(key, rows), rows.to(DEVICE)
        held = torch.tensor(key, device=DEVICE)
        for own in (key, held):
            u = numbers.numbers(there, own, (width,), torch.float64, normal=False).cpu()
            assert torch.equal(u, here.uniform((width,)))
            z = numbers.numbers(there, own, (width,), torch.float64, normal=True).cpu()
            torch.testing.assert_close(z, here.normal((width,)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "types", [("float32", "float32"), ("float64", "float64"), ("float32", "bfloat16"), ("bfloat16",) * 2]
)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sums_are_those_of_torch(size, types):
    height, width = size
    first, others = (getattr(torch, name) for name in types)
    rows, key = torch.arange(height, device=DEVICE) + 5, 2**61 + 5
    z = NoiseSource.keyed(key, rows.cpu()).normal((width,), first).double()
    tolerance = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2e-2}[first]
    for inputs, sums in product((1, 2, 5, 7), (1, 2, 3)):
        v = [torch.randn(height, width).to(kind) for kind in (first, *[others] * (inputs - 1))]
        matrix = torch.randn(sums, inputs, dtype=torch.float64).tolist()
        exact = [sum(c * value.double() for c, value in zip(row, v, strict=True)) for row in matrix]
        for scale in (None, 0.37):
            noise = () if scale is None else (scale, rows, key)
            out = linear.combine([value.to(DEVICE) for value in v], matrix, *noise)
            expected = exact if scale is None else [*exact[:-1], exact[-1] + scale * z]
            for a, b in zip(out, expected, strict=True):
                assert a.dtype == first
                torch.testing.assert_close(a.cpu().double(), b, rtol=tolerance, atol=10 * tolerance)


def test_arrays_may_lie_anyhow_in_memory():
    x, y = torch.randn(6, 4, device=DEVICE), torch.randn(4, 6, device=DEVICE).T
    (out,) = linear.combine([x[::2], y[::2]], [[2.0, 0.5]])
    torch.testing.assert_close(out, 2 * x[::2] + 0.5 * y[::2])
    (out,) = linear.combine([x[:0], y[:0]], [[2.0, 0.5]])
    assert out.shape == (0, 4)
