"""All paths of a masked target, one reveal at a time: the law that particles with these weights have, computed."""

from itertools import permutations, product

import torch

import unnoise as un
from unnoise.samplers.problem import Info, Problem
from unnoise.samplers.proposals import RevealOrder, Reveals
from unnoise.samplers.weighed import target_of


class Fixed(un.NoiseSource):
    """Noise that says the numbers it was given."""

    def __init__(self, u):
        super().__init__(0, len(u))
        self.u = u

    def uniform(self, shape=()):
        return self.u


def weighted_law(target, weigh=True):
    """(law of the weighted paths up to a constant [states], the constant E[w]); with `weigh` off the law of the proposal.

    Every order and every sequence of tokens is one row: the proposal's own step is made to draw the token by a number in the
    middle of its interval, so that the weights are those that `Reveals.move` returns.
    """
    target = target_of(target)
    process = target.process
    length, size = process.space.shape[0], process.space.size
    orders = list(permutations(range(length)))
    tokens = torch.tensor(list(product(range(size), repeat=length)))
    order = torch.tensor(orders).repeat_interleave(len(tokens), 0)
    wanted = tokens.repeat(len(orders), 1)  # the token that the k-th reveal puts
    rows = len(order)
    noise = un.NoiseSource(0, rows)
    times = torch.tensor([1.0, 0.0], dtype=torch.float64)
    problem = Problem(target, times, noise, {}, info=Info(times=times))
    steps = Reveals(problem, target.exponents, length)
    level = torch.linspace(0.2, 0.9, length, dtype=torch.float64).expand(rows, -1)
    memory = RevealOrder(order, level)
    x = torch.full((rows, length), process.mask)
    log_k = torch.zeros(rows, dtype=torch.float64)
    log_w, twist = torch.zeros_like(log_k), torch.zeros_like(log_k)
    for k in range(length):
        said = target.said(x, steps.time(memory, k))
        if said.log_twist is not None:
            log_w, twist = log_w + said.log_twist - twist, said.log_twist
        own = said.prediction.to(un.Posterior).logits.double().log_softmax(-1)
        here = own.gather(1, order[:, k].reshape(-1, 1, 1).expand(-1, 1, size)).squeeze(1).exp()
        middle = (here.cumsum(1) - here / 2).gather(1, wanted[:, k : k + 1]).squeeze(1)
        possible = here.gather(1, wanted[:, k : k + 1]).squeeze(1) > 0
        move = steps.move(said, x, memory, k, Fixed(middle))
        assert (move.x.gather(1, order[:, k : k + 1]).squeeze(1) == wanted[:, k])[possible].all()
        x = x.scatter(1, order[:, k : k + 1], wanted[:, k : k + 1])
        log_k = log_k + here.gather(1, wanted[:, k : k + 1]).squeeze(1).log()
        log_w = log_w + torch.where(possible, move.log_weight, 0.0)
    end = target.log_factor(x, {})
    log_w = log_w + ((0 if end is None else end) - twist)
    mass = (log_k + log_w if weigh else log_k).exp().nan_to_num(0.0) / len(orders)
    code = (x * size ** torch.arange(length - 1, -1, -1)).sum(1)
    law = torch.zeros(size**length, dtype=torch.float64).index_add_(0, code, mass)
    return law, float(law.sum())
