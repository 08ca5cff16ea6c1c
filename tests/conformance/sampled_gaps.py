"""The law that a method with steps draws from, computed without drawing.

    finite, counts    every draw of a step is forced in turn: rows hold all (x, first draw, second draw, ...), each with the
                      probability that the sampler's own laws give it, so that a step is a matrix over the states
    numbers           where the data is normal the last state is A x + sum_i B_i z_i + c, and rows with a single entry of x
                      and z show A, B_i and c
    flows in 1-D      a method without noise is a rising map T, and F_start(x) = P(T(x_start) <= T(x))
    a number and      given all that came before its last draw of a step the number is normal, with a mean and a deviation
    a category        shown by z = 0 and z = 1; the draws before it go over Gauss-Hermite nodes and all categories

Everything is read off the sampler's own steps; nothing of a method is written a second time, but for the kernel of
remasking, whose draws are planned before the loop.
"""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from unnoise.count_laws import Thinned
from unnoise.denoiser import AnyDenoiser
from unnoise.laws import Categorical, log_of
from unnoise.noise import NoiseSource
from unnoise.predictions import RawPosterior
from unnoise.samplers import Problem, Remasking, Sampler
from unnoise.samplers.categorical_ddim import Mixed
from unnoise.samplers.psi import PsiLaw


def forced_law(sampler: Sampler, denoiser: AnyDenoiser, times: Tensor, law: Tensor, points: Tensor, draws: int) -> Tensor:
    """Of the last state, over the points; `draws` is the most that a step makes."""
    mesh = torch.tensor(list(product(range(len(points)), repeat=draws + 1)))
    chosen, spent = [points[mesh[:, k]] for k in range(draws + 1)], []

    def draw(self, noise):
        spent.append(self.log_prob(chosen[len(spent) + 1]).exp())
        return chosen[len(spent)]

    problem = Problem(denoiser, times, NoiseSource(0, len(mesh)), {})
    setup = sampler.setup(problem)
    with pytest.MonkeyPatch.context() as patch:
        for kind in (Categorical, Mixed, PsiLaw, Thinned):
            patch.setattr(kind, "draw", draw)
        for i in range(problem.steps):
            spent.clear()
            out = sampler.step(problem, setup, sampler.init(problem, setup, chosen[0]), i).x
            assert torch.equal(out, chosen[len(spent)])
            weight = law[mesh[:, 0]] * torch.stack(spent).prod(0) / len(points) ** (draws - len(spent))  # the rest: copies
            law = torch.zeros_like(law).index_add(0, mesh[:, len(spent)], weight)
    return law


def remasked_law(sampler: Remasking, denoiser: AnyDenoiser, times: Tensor, law: Tensor, points: Tensor) -> Tensor:
    """MASK is revealed and tokens are masked with the probabilities of the sampler's table."""
    chances = sampler.tables(Problem(denoiser, times, NoiseSource(0, len(points)), {}))
    mask = denoiser.process.mask
    for i, t in enumerate(times[:-1]):
        sigma, reveal = chances[:, i]
        theta = denoiser(points, t).to(RawPosterior).log_probs().exp()
        masked = (points == mask).unsqueeze(-1)
        here = torch.nn.functional.one_hot(points, mask + 1)
        gone = torch.nn.functional.one_hot(torch.tensor(mask), mask + 1)
        shown = torch.cat([theta, torch.zeros_like(theta[..., :1])], -1)
        probs = torch.where(masked, reveal * shown + (1 - reveal) * gone, (1 - sigma) * here + sigma * gone)
        step = Categorical(log_of(probs).repeat_interleave(len(points), 0))
        law = law @ step.log_prob(points.repeat(len(points), 1)).exp().reshape(len(points), -1)
    return law


class Units(NoiseSource):
    """Noise that is 0 but for a single 1: rows 0 ... d have none, then d rows for each key in the order of its first use."""

    def __init__(self, rows: int, keys: dict, labels: tuple = ()):
        self.rows, self.keys, self.labels = torch.arange(rows), keys, labels

    def at(self, *labels):
        return Units(len(self.rows), self.keys, self.labels + labels)

    def normal(self, shape=(), dtype=torch.float64):
        d = int(np.prod(shape))
        first = 1 + d + d * self.keys.setdefault(self.labels, len(self.keys))
        out = torch.zeros(len(self.rows), d, dtype=torch.float64)
        if first < len(out):
            out[first : first + d] = torch.eye(d, dtype=torch.float64)
        return out.reshape(-1, *shape)


def affine_law(sampler: Sampler, denoiser: AnyDenoiser, times: Tensor, mean: Tensor, covariance: Tensor):
    """Mean and covariance of the last state, from those of the first."""
    d, keys, rows = len(mean), {}, 1 + len(mean)
    for _ in range(2):  # once to see how often noise is asked for
        x = torch.zeros(rows, d, dtype=torch.float64)
        x[1 : 1 + d] = torch.eye(d, dtype=torch.float64)
        out = sampler.run(Problem(denoiser, times, Units(rows, keys), {}), x, lambda i, x: None)
        rows = 1 + d + d * len(keys)
    shift, move, noise = out[0], (out[1 : 1 + d] - out[0]).T, (out[1 + d :] - out[0]).T
    return move @ mean + shift, move @ covariance @ move.T + noise @ noise.T


def flow_gap(sampler: Sampler, denoiser: AnyDenoiser, times: Tensor, first, last) -> float:
    """sup |F - F*| of the last state, F* being the distribution function `last`; the first state has `first`."""
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64).unsqueeze(1)
    x = x[(first(x) > 1e-7).squeeze(1) & (first(x) < 1 - 1e-7).squeeze(1)]
    out = sampler.run(Problem(denoiser, times, NoiseSource(0, len(x)), {}), x, lambda i, x: None)
    assert bool((out.diff(dim=0) > 0).all())
    return float((first(x) - last(out)).abs().max())


class Laid(NoiseSource):
    """Normal numbers laid out beforehand, one column for each stage of a step."""

    def __init__(self, normals: list[Tensor], labels: tuple = ()):
        self.normals, self.labels, self.rows = normals, labels, torch.arange(len(normals[0]))

    def at(self, *labels):
        return Laid(self.normals, self.labels + labels)

    def normal(self, shape=(), dtype=torch.float64):
        return self.normals[self.labels[2]].reshape(-1, *shape)  # ("step", i, stage, ...)


def line_law(sampler: Sampler, denoiser: AnyDenoiser, times: Tensor, law: Tensor, nodes: Tensor, product_state: bool):
    """Masses [nodes, categories] of the last (x, c), by those of the first; without categories there is one."""
    count, stages = law.shape[1], sampler.stages
    z, w = (torch.as_tensor(v) for v in np.polynomial.hermite_e.hermegauss(12))
    inner, kinds = torch.arange(len(z)).double(), torch.arange(count).double()
    axes = [torch.arange(len(nodes)).double(), kinds, *[inner, kinds] * (stages - 1), kinds]
    mesh = [axis.flatten().long() for axis in torch.meshgrid(*axes, indexing="ij")]
    normals, forced = [z[k] for k in mesh[2:-1:2]], [c.unsqueeze(1) for c in [*mesh[3:-1:2], mesh[-1]]]
    fixed = torch.stack([w[k] / w.sum() for k in mesh[2:-1:2]]).prod(0) if stages > 1 else torch.ones(len(mesh[0])).double()
    spent: list[Tensor] = []

    def draw(self, noise):
        spent.append(self.probs.gather(-1, forced[noise.labels[2]].unsqueeze(-1)).flatten())
        return forced[noise.labels[2]]

    x = nodes[mesh[0]].unsqueeze(1)
    state = {"x": x, "c": mesh[1].unsqueeze(1)} if product_state else x
    problems = [Problem(denoiser, times, Laid([*normals, torch.full((len(x),), v).double()]), {}) for v in (0.0, 1.0)]
    setups = [sampler.setup(problem) for problem in problems]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Categorical, "draw", draw)
        for i in range(len(times) - 1):
            both = []
            for problem, setup in zip(problems, setups, strict=True):
                spent.clear()
                out = sampler.step(problem, setup, sampler.init(problem, setup, state), i).x
                both.append((out["x"] if product_state else out).flatten())
            weight = law[mesh[0], mesh[1]] * fixed
            for probs in spent:
                weight = weight * probs
            mean, spread = both[0].unsqueeze(1), (both[1] - both[0]).unsqueeze(1)
            dense = torch.exp(-0.5 * ((nodes - mean) / spread).square()) / (spread * (2 * np.pi) ** 0.5)
            dense = dense * (nodes[1] - nodes[0])
            law = torch.stack([weight[mesh[-1] == c] @ dense[mesh[-1] == c] for c in range(count)], 1)
    return law
