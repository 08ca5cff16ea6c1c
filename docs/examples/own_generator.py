"""A process of one's own, by its generator alone: a particle in a double well, noised until it has forgotten where it was.

    dx = -s_t U'(x) dt + sqrt(2 s_t) dW,     U = (x^2 - 1)^2 blended into x^2/2 with time,     s_t = 1 + 3 t

Nobody knows its marginals.  By t = 1 the force is that of N(0, 1), which is the prior.
"""

import torch

import unnoise as un


def local(x, t):
    """Drift and diffusion at the states x and times t, a batch of each."""
    t = t.unsqueeze(1)
    force = (1 - t) * 4 * x * (x.square() - 1).clamp(-2, 2) + t * x
    speed = 1 + 3 * t
    return un.Local(drift=-speed * force, diffusion=2 * speed * torch.ones_like(x))


def prior(rows):
    return un.laws.Normal(torch.zeros(rows, 1, dtype=torch.float64), torch.ones((), dtype=torch.float64))


def process():
    return un.Simulated(un.Euclidean((1,)), local, prior, steps=50, visits=4)
