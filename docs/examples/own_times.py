"""A time rule of one's own: half of the times evenly, half of them late.

    g(t) = 1/2 1/(1 - low)  +  1/2 3 (t - low)^2/(1 - low)^3        on [low, 1],

drawn by composition: a fair coin says which half, and (t - low)/(1 - low) is u, or the cube root of u.
"""

import torch

import unnoise as un


class HalfLate(un.objectives.Times):
    def __init__(self, draws=1):
        self.draws = draws  # times per row

    def draw(self, noise, low):
        u = noise.at("where").uniform()  # one number per row
        late = noise.at("which").uniform() < 0.5
        return low + (1 - low) * torch.where(late, u ** (1 / 3), u)

    def density(self, t, low):
        return 0.5 / (1 - low) + 1.5 * (t - low) ** 2 / (1 - low) ** 3
