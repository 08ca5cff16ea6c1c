"""A denoiser of one's own: two others, combined with weights on every leaf.

Its prediction is that of the law proportional to q_1^w q_2^v at each time: scores of numbers and logarithms of categories'
probabilities are summed with their weights.  Weights (1 + g, -g) lead away from the second towards the first: guidance.
"""

import torch
from torch import nn

import unnoise as un


class Combined(un.AnyDenoiser):
    def __init__(self, weights, *denoisers):
        super().__init__()
        self.process, self.weights, self.parts = denoisers[0].process, weights, nn.ModuleList(denoisers)

    def forward(self, x_t, t, /, **condition):
        return un.predictions.combine([part(x_t, t, **condition) for part in self.parts], self.weights)


def process():
    return un.Product(size=un.Gaussian((2,)), colour=un.Masking(3, (1,)))


def law(process, mean, probs):
    """Two numbers around a mean and a colour, independent of each other."""
    spread = torch.tensor([[[0.5, 0.2], [0.2, 0.8]]], dtype=torch.float64)
    mean, probs = (torch.as_tensor(v, dtype=torch.float64) for v in (mean, probs))
    leaves = {
        "size": un.oracles.GaussianLeaf(mean.reshape(1, 2), spread),
        "colour": un.oracles.CategoricalLeaf(probs.log().reshape(1, 1, 3)),
    }
    return un.oracles.Components(process, torch.ones(1), leaves)


def example(weights=(1.5, -0.5)):
    """Two laws, their combination, and the law that it is: normal laws of one covariance have the combined mean, and one
    colour the normalised product of powers."""
    on = process()
    means, probs = ([1.0, 0.0], [-1.0, 2.0]), ([0.5, 0.3, 0.2], [0.2, 0.2, 0.6])
    first, second = (law(on, mean, p) for mean, p in zip(means, probs, strict=True))
    w, v = weights
    (one, two), (p, q) = (torch.tensor(values, dtype=torch.float64) for values in (means, probs))
    powers = p**w * q**v
    return Combined(weights, first, second), law(on, w * one + v * two, powers / powers.sum())


def denoiser():
    """The combination alone, for `unnoise verify --denoiser combined_denoiser:denoiser`."""
    return example()[0]
