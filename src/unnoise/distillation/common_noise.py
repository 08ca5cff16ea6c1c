"""Categories at several times under one and the same Gaussian noise.

In the duality between uniform and Gaussian noise a category x is the corner e_x, noised to w_t = a_t e_x + s_t eps, and its
state is z_t = argmax w_t.  Let one eps serve all times.  Of the others, w_t(j) = s_t eps_j is largest at the same j* at all
times, so z_t is x or j*, and with mu_t = a_t/s_t

    z_t = x   if  mu_t > max_{j != x} eps_j - eps_x,     else j*.

The right side is a number that does not move with t, and given it j* is any of the K - 1 others alike.  With the share
T(mu) = (K P(z = x) - 1)/(K - 1) = alpha of uniform noise, and u uniform on [0, 1], that is the law of all times together of

    z_t = x   if  u < alpha_t,     else f,      f one draw from the noise law,                                            (*)

for in both P(z_s != x, z_t != x) = (1 - alpha_s)(K - 1)/K for s < t, P(z_s = x, z_t != x) = (alpha_s - alpha_t)(K - 1)/K, and
a state that is not x is the same one at both times.  So K normal numbers are one uniform number and one draw, any schedule
of the process has its pairs, and so has any law of noise.  (The masked duality, z_t = x if w_t(x) is the largest, else MASK,
is (*) with f = MASK.)

Each z_t has the law of the process, Cat(alpha_t e_x + (1 - alpha_t) p).  Two times do not: along the process the state is
redrawn again and again, and is the *latest* draw, where (*) is the *first*.  Only under masking, where all draws are MASK,
are the two couplings the same.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.processes import FixedNoise
from unnoise.shapes import Float, Int


def common_noise(
    process: FixedNoise, x0: Int[Tensor, "batch *shape"], times: Sequence[Float[Tensor, "batch"]], noise: NoiseSource
) -> list[Int[Tensor, "batch *shape"]]:
    """The states of x_0 at each of the times, under the same noise."""
    u = noise.at("threshold").uniform(tuple(x0.shape[1:]))
    fresh = process.noise.draw(x0, noise.at("fresh"))
    kept = (process.coefficient(process.schedule.alpha(t), x0, torch.float64) for t in times)
    return [torch.where(u < alpha, x0, fresh) for alpha in kept]
