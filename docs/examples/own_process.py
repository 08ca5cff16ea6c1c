"""A process of one's own: a wheel of categories that first turns step by step, then jumps anywhere.

    R_t = 4 (1 - t) (S - I) + 4 t (U - I),     S the step x -> x + 1,  U = 1/K everywhere.

S and U commute, so Q_{t|s} is the product of two exponentials with the clocks a = int_s^t 4 (1 - u) du, b = int_s^t 4 u du:

    Q_{t|s} = [e^{-b} I + (1 - e^{-b}) U] sum_n e^{-a} a^n/n! S^n.
"""

import torch

import unnoise as un

TERMS = 40  # of the Poisson sum; with a <= 2 they leave out 1e-36


class Wheel(un.DenseProcess):
    def __init__(self, size, shape):
        super().__init__()
        self.space = self.state_space = un.Finite(size, shape)
        eye = torch.eye(size, dtype=torch.float64)
        self.anywhere = torch.full_like(eye, 1 / size)
        self.turns = torch.stack([eye.roll(n, 0) for n in range(TERMS)])  # S^n

    def kernel(self, s, t):
        s = torch.zeros_like(t) if s is None else s
        a, b = 2 * (t - s) * (2 - t - s), 2 * (t - s) * (t + s)
        n = torch.arange(TERMS, dtype=torch.float64)
        poisson = (torch.xlogy(n, a[:, None]) - a[:, None] - torch.lgamma(n + 1)).exp()
        turned = torch.einsum("bn,nyx->byx", poisson, self.turns)
        b = b[:, None, None]
        return torch.exp(-b) * turned - torch.expm1(-b) * self.anywhere

    def rates(self, t):
        t = t[:, None, None]
        return 4 * (1 - t) * self.turns[1] + 4 * t * self.anywhere


def process():
    return Wheel(3, (2,))
