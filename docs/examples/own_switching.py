"""A swimmer that is driven along its heading and turns round now and then: a number and a category under one generator.

    dx = s_t (v - x) dt + sqrt(2 s_t) dW,     v = 2 mode - 1 flips at the rate s_t ((v x)_+ + 1/2),     s_t = 1/2 + 7 t

The farther out it swims, the sooner it turns.  N(0, 1) with even headings is at rest, so that is the prior.
"""

import torch

import unnoise as un
from unnoise.laws import LOG_ZERO, Categorical, Joint, Normal


def local(state, t):
    x, mode = state["x"], state["mode"]
    v, speed = 2.0 * mode - 1, 0.5 + 7 * t
    flip = (speed * ((v * x.squeeze(1)).clamp_min(0) + 0.5)).log()
    turn = torch.where(torch.arange(2) == mode.unsqueeze(1), LOG_ZERO, flip.unsqueeze(1))
    speed = speed.unsqueeze(1)
    swim = un.Local(drift=speed * (v.unsqueeze(1) - x), diffusion=2 * speed * torch.ones_like(x))
    return {"x": swim, "mode": un.Local(log_rates=turn)}


def prior(rows):
    even = torch.full((rows, 2), 0.5, dtype=torch.float64).log()
    number = Normal(torch.zeros(rows, 1, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    return Joint({"x": number, "mode": Categorical(even)})


def process():
    space = un.spaces.ProductSpace(x=un.Euclidean((1,)), mode=un.Finite(2, ()))
    return un.Simulated(space, local, prior, steps=80, visits=8, control=True)
