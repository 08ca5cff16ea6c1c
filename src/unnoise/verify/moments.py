"""Normal laws in several dimensions, by their moments: what is drawn, what the density says, and how they compose.

The covariance of the draws is read off the images of unit vectors, that of the density off its curvature, and neither is
told of the other.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.laws import Normal
from unnoise.processes import Gaussian
from unnoise.verify.guard import guarded
from unnoise.verify.law_matrices import TIGHT
from unnoise.verify.rows import Place, Row


@guarded("composition of moments")
def moment_composition(process: Gaussian, place: Place, x0, r, s, t, where) -> Iterator[Row]:
    """In several dimensions: means compose, covariances are carried and added; draws and density share their covariance."""
    gain, direct, middle = process.schedule.step_alpha(s, t), process.transition(x0, r, t), process.transition(x0, r, s)
    last = process.transition(middle.mean, s, t)
    scale = covariance_matrix(direct).abs().max()
    gain = gain.expand(process.space.shape).flatten()
    carried = gain[:, None] * covariance_matrix(middle) * gain + covariance_matrix(last)
    yield place.equal(f"composition of means, {where}", direct.mean, last.mean, TIGHT)
    yield place.equal(
        f"composition of covariances, {where}", covariance_matrix(direct) / scale, carried / scale, TIGHT, largest=True
    )
    density = torch.linalg.inv(-_curvature(direct))
    yield place.equal(
        f"covariance of draws = that of the density, {where}", density, covariance_matrix(direct), TIGHT, largest=True
    )
    yield place.equal(f"the density integrates to 1, {where}", 1.0, _mass(direct), TIGHT)
    if process.covariance is not None:
        eye = torch.eye(process.space.dimension, dtype=torch.float64)
        exact = process.schedule.step_variance(r, t) * process.covariance.apply(eye)
        yield place.equal(f"covariance of draws = sigma^2 C, {where}", exact, covariance_matrix(direct), TIGHT, largest=True)


def covariance_matrix(law: Normal) -> Tensor:
    """The covariance of what is drawn for the first row, from the columns of its root."""
    shape = law.mean.shape[1:]
    columns = torch.eye(shape.numel(), dtype=torch.float64).reshape(-1, 1, *shape)
    root = (law.at(columns) - law.at(0 * columns))[:, 0].reshape(len(columns), -1).T
    return root @ root.T


def _mass(law: Normal) -> Tensor:
    """The integral of the first row's density over its own coordinates (at most 2), by the trapezoidal rule."""
    shape, h = law.mean.shape[1:], 0.25
    z = torch.cartesian_prod(*[torch.arange(-12, 12 + h / 2, h, dtype=torch.float64)] * shape.numel())
    one = Normal(law.mean[:1], law.std[:1], law.covariance)
    density = one.log_prob(one.mean + one.std * z.reshape(-1, *shape)).exp()
    return density.sum() * (h * one.std.expand_as(one.mean)).prod()


def _curvature(law: Normal) -> Tensor:
    """The Hessian of the first row's log-density in standard units of the law, by autograd."""
    size = law.mean.shape[1:].numel()
    scale = law.std.expand_as(law.mean)[0].flatten()

    def log_density(z: Tensor) -> Tensor:
        return law.log_prob(law.mean + (scale * z).reshape(law.mean.shape[1:]))[0]

    hessian = torch.autograd.functional.hessian(log_density, torch.zeros(size, dtype=torch.float64))
    return hessian / scale[:, None] / scale
