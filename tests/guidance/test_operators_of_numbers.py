"""Measurements are what they say, and their transposes the transposes."""

import pytest
import torch

import unnoise as un
from unnoise.guidance.measurements import Measurement

F64 = torch.float64
guidance = un.guidance
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=F64)


OPERATORS = {
    "inpainting": (guidance.Inpainting(torch.rand(2, 4, 6, generator=GENERATOR) > 0.5), (2, 4, 6)),
    "downsampling": (guidance.Downsampling(2), (2, 4, 6)),
    "downsampling of series": (guidance.Downsampling(3), (6,)),
    "downsampling of channels of series": (guidance.Downsampling(3, axes=1), (2, 6)),
    "blur": (guidance.Blur(normal(3, 5)), (2, 4, 6)),
    "blur of series": (guidance.Blur(normal(5)), (2, 7)),
    "matrix": (guidance.Matrix(normal(3, 5)), (5,)),
    "matrix of images": (guidance.Matrix(normal(3, 4, 6)), (4, 6)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_transpose_and_spectrum(name):
    """<A x, y> = <x, A^T y>, and A A^T is what its eigenvalues and eigenvectors make."""
    operator, shape = OPERATORS[name]
    x, y = normal(3, *shape), normal(3, *operator.shape(shape))
    seen, back = operator(x), operator.transpose(y)
    assert seen.shape == y.shape and back.shape == x.shape
    torch.testing.assert_close((seen * y).flatten(1).sum(1), (x * back).flatten(1).sum(1), rtol=1e-12, atol=1e-12)
    values, axes = operator.spectrum(shape)
    gram = y.flatten(1) * values if axes is None else (y.flatten(1) @ axes * values) @ axes.T
    torch.testing.assert_close(operator(back).flatten(1), gram, rtol=1e-12, atol=1e-12)


def test_what_is_measured():
    x = torch.arange(16, dtype=F64).reshape(1, 4, 4)
    assert guidance.Downsampling(2)(x).tolist() == [[[2.5, 4.5], [10.5, 12.5]]]
    assert guidance.Inpainting(x[0] > 13)(x).tolist() == [[14.0, 15.0]]
    shifted = guidance.Blur([[0.0, 0, 0], [1, 0, 0], [0, 0, 0]])(x)  # (k * x)_i = sum_j k_j x_{i - j}
    assert shifted[0, 1].tolist() == [5.0, 6.0, 7.0, 0.0]
    assert guidance.Matrix(torch.eye(4).reshape(4, 2, 2))(x.reshape(4, 2, 2)).tolist() == x.reshape(4, 4).tolist()


@pytest.mark.parametrize("name", OPERATORS)
def test_normal_numbers_around_a_mean(name):
    """log N(y; A m, S) and A^T S^-1 (y - A m), rows with variances of their own, against matrices."""
    operator, shape = OPERATORS[name]
    size = torch.Size(shape).numel()
    a = operator(torch.eye(size, dtype=F64).reshape(size, *shape)).flatten(1).T
    y, mean, variance, noise = normal(*operator.shape(shape)), normal(2, *shape), torch.tensor([0.3, 2.0]).double(), 0.7
    log_density, pull = Measurement(operator, y, noise, shape).around(mean, variance)
    for i in range(2):
        s = noise**2 * torch.eye(len(a), dtype=F64) + variance[i] * a @ a.T
        at = a @ mean[i].flatten()
        law = torch.distributions.MultivariateNormal(at, s)
        assert float(log_density[i]) == pytest.approx(float(law.log_prob(y.flatten())), rel=1e-10)
        wanted = a.T @ torch.linalg.solve(s, y.flatten() - at)
        torch.testing.assert_close(pull[i].flatten(), wanted, rtol=1e-10, atol=1e-10)


def test_what_does_not_fit_is_named():
    def told(operator, y, shape=(4, 6), noise=0.1):
        return Measurement(operator, y, noise, shape)

    mask = torch.ones(4, 6) > 0
    with pytest.raises(ValueError, match=r"the mask has shape \(4, 6\), and the numbers have \(3,\)"):
        told(guidance.Inpainting(mask), torch.zeros(24), (3,))
    with pytest.raises(ValueError, match=r"\(4, 6\) are not made of blocks of 4"):
        told(guidance.Downsampling(4), torch.zeros(1))
    with pytest.raises(ValueError, match="2 axes, and the numbers have shape"):
        told(guidance.Blur(torch.ones(3, 3)), torch.zeros(4), (4,))
    with pytest.raises(ValueError, match=r"measures numbers of shape \(5,\), and these have \(4, 6\)"):
        told(guidance.Matrix(torch.ones(2, 5)), torch.zeros(2))
    with pytest.raises(ValueError, match=r"y has shape \(3,\), and Inpainting of numbers of shape \(4, 6\) has \(24,\)"):
        told(guidance.Inpainting(mask), torch.zeros(3))
    with pytest.raises(ValueError, match="one of each row pass its name"):
        told(guidance.Inpainting(mask), torch.zeros(7, 24))
    with pytest.raises(ValueError, match="1 entries that are no numbers"):
        told(guidance.Downsampling(2), torch.tensor([[1.0, 2, float("nan")], [0, 0, 0]]))
    with pytest.raises(ValueError, match="above 0"):
        told(guidance.Downsampling(2), torch.zeros(2, 3), noise=0.0)
    with pytest.raises(TypeError, match="operator is a Tensor, where a LinearOperator belongs"):
        told(torch.eye(3), torch.zeros(3))
    with pytest.raises(TypeError, match="dtype torch.float32"):
        guidance.Inpainting(torch.ones(3))
    with pytest.raises(ValueError, match="nothing is measured"):
        guidance.Inpainting(torch.ones(3) < 0)
    with pytest.raises(ValueError, match="odd lengths"):
        guidance.Blur(torch.ones(2, 3))
    with pytest.raises(ValueError, match="finite numbers"):
        guidance.Matrix(torch.full((2, 3), float("inf")))
    with pytest.raises(ValueError, match="axes = 3"):
        guidance.Downsampling(2, axes=3)
