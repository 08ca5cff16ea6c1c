"""States at several times from one noise: pairs (z_s, z_t) for distillation by consistency.

Under uniform noise z_t is the argmax of mu_t e_x + eps, with the same eps at all times and mu_t the mean that the
schedule's alpha has (`argmax_law`).  No more than three numbers of eps count, the true entry, the largest M of the others,
and whose it is:

    z_t = x where mu_t + eps_x > M, else j,         j uniform over the other tokens.

So x is first at s < t wherever it is at t, and P(z_s = x, z_t = j) = (P_s - P_t)/(K - 1).  At every time z_t has the law of
uniform noise; two times together have not that of its Markov path, nor that of the argmax of a Gaussian path, whose noise
moves too.

Under masking z_t is x where mu_t + eps_x > M, else MASK.  Then alpha_t = P(mu_t), and the states at all times follow from
one number, the mean from which on x is first.  Masking itself has just this law: one number, the time of the mask, and the
same alpha.  So the pairs are those of its own path, at any alpha, also below the 1/K of mu = 0; a uniform number is all it
takes.

    z_s, z_t = common_noise(process, x0, (s, t), noise)

is open: a process of one's own registers its own.
"""

from collections.abc import Sequence
from functools import singledispatch

import torch
from torch import Tensor

from unnoise.hybrids.argmax_law import ArgmaxLaw
from unnoise.hybrids.softened import distinct_others, upper_normals
from unnoise.noise import NoiseSource
from unnoise.processes import Masking, Process, Uniform
from unnoise.shapes import Clock, Float


@singledispatch
def common_noise(process: Process, x0: Tensor, times: Sequence[Clock], noise: NoiseSource) -> list[Tensor]:
    """A state at each time, all from the same noise."""
    name = type(process).__name__
    raise TypeError(
        f"{name} has no pairs of one noise: use Uniform or Masking, or register your own, "
        f"@un.hybrids.common_noise.register({name})"
    )


def mean_of(process: Uniform, t: Clock, x: Tensor) -> Float[Tensor, "batch"]:
    """mu at a time, of a uniform process: where T(mu) is its alpha."""
    law, t = ArgmaxLaw(process.space.size), process.times(t, x)
    alpha, beta = process.schedule.alpha(t), process.schedule.beta(t)
    return law.mean_of_log_odds(alpha.log() - beta.log())


def plain_uniform(process: Process, what: str) -> Uniform:
    """A uniform process with one number of categories and one schedule, which the argmax speaks of."""
    if isinstance(process, Uniform) and process.space.sizes is None and not process.schedule.shape:
        return process
    raise ValueError(f"{what} needs Uniform noise with one number of categories and one schedule, not {process}")


@common_noise.register(Uniform)
def _(process: Uniform, x0: Tensor, times: Sequence[Clock], noise: NoiseSource) -> list[Tensor]:
    x0, size = process.space.check(x0, "x0"), plain_uniform(process, "the argmax of one noise").space.size
    shape = tuple(x0.shape[1:])
    gap = upper_normals(size - 1, 1, shape, noise.at("largest"))[..., 0] - noise.at("own").normal(shape)
    other = distinct_others(x0, size, 1, noise.at("ids"))[..., 0]
    means = [mean_of(process, t, x0).reshape(-1, *[1] * len(shape)) for t in times]
    return [torch.where(mean > gap, x0, other) for mean in means]


@common_noise.register(Masking)
def _(process: Masking, x0: Tensor, times: Sequence[Clock], noise: NoiseSource) -> list[Tensor]:
    x0 = process.space.check(x0, "x0")
    u = noise.at("when").uniform(tuple(x0.shape[1:]))
    shares = [process.coefficient(process.schedule.alpha(process.times(t, x0)), x0, torch.float64) for t in times]
    return [torch.where(u < alpha, x0, process.mask) for alpha in shares]
