"""A schedule of one's own: the signal eases out, as slowly at its end as at its start, while the noise grows evenly.

    alpha = (1 - t)^2 (1 + 2 t),    sigma = t,    beta = 1 - alpha = t^2 (3 - 2 t),    alpha' = -6 t (1 - t).

Each is written as a product.  1 - alpha would lose all digits near t = 0, where alpha is 1.
"""

import torch

import unnoise as un


class Eased(un.schedules.Schedule):
    def exact_alpha(self, t):
        return (1 - t) ** 2 * (1 + 2 * t)

    def exact_beta(self, t):
        return t**2 * (3 - 2 * t)

    def exact_sigma(self, t):
        return t

    def exact_d_alpha(self, t):
        return -6 * t * (1 - t)

    def exact_d_sigma(self, t):
        return torch.ones_like(t)
