"""States at several times from one noise: pairs (z_s, z_t) for distillation by consistency.

Under uniform noise z_t is the argmax of mu_t e_x + eps, with the same eps at all times and mu_t the mean that the
schedule's alpha has (`argmax_law`).  Of the other tokens the same j is largest at all times, so no more than three numbers
of eps count, the true entry, the largest M of the others, and whose it is:

    z_t = x where mu_t + eps_x > M, else j,         j uniform over the other tokens.

So x is first at s < t wherever it is at t, and P(z_s = x, z_t = j) = (P_s - P_t)/(K - 1), with P = alpha + (1 - alpha)/K.
These are the laws of all times together of

    z_t = x where u < alpha_t, else f,              u uniform on [0, 1], f one draw from the noise law,

too: f may be x, which takes 1/K of what is not kept, and a state that is not x is f at all times.  So one number and one
draw are all it takes, for any schedule of the process, and for any law of noise.  At every time z_t has the law of the
process.  Two times together have not that of its Markov path, on which a token is the latest of its draws and here it is
the first; nor that of the argmax of a Gaussian path, whose noise moves too.

Under masking z_t is x where mu_t + eps_x > M, else MASK: the same with f = MASK, at any alpha, also below the 1/K of mu = 0.
All draws are MASK there, so the pairs are those of the process's own path.

    z_s, z_t = common_noise(process, x0, (s, t), noise)

is open: a process of one's own registers its own.
"""

from collections.abc import Sequence
from functools import singledispatch

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.processes import FixedNoise, Process, Uniform
from unnoise.shapes import Clock


@singledispatch
def common_noise(process: Process, x0: Tensor, times: Sequence[Clock], noise: NoiseSource) -> list[Tensor]:
    """A state at each time, all from the same noise."""
    name = type(process).__name__
    raise TypeError(
        f"{name} has no pairs of one noise: use Uniform or Masking, or register your own, "
        f"@un.hybrids.common_noise.register({name})"
    )


@common_noise.register(FixedNoise)
def _(process: FixedNoise, x0: Tensor, times: Sequence[Clock], noise: NoiseSource) -> list[Tensor]:
    x0 = process.space.check(x0, "x0")
    u, fresh = noise.at("when").uniform(tuple(x0.shape[1:])), process.noise.draw(x0, noise.at("fresh"))
    shares = [process.coefficient(process.schedule.alpha(process.times(t, x0)), x0, torch.float64) for t in times]
    return [torch.where(u < alpha, x0, fresh) for alpha in shares]


def plain_uniform(process: Process, what: str) -> Uniform:
    """A uniform process with one number of categories and one schedule, which the argmax speaks of."""
    if isinstance(process, Uniform) and process.space.sizes is None and not process.schedule.shape:
        return process
    raise ValueError(f"{what} needs Uniform noise with one number of categories and one schedule, not {process}")
