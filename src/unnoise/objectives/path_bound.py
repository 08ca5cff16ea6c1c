"""The bound of a path, for processes that are known by their generator alone.

    -log p(x_0) <= E[ sum_k log q(x_{k+1} | x_k)/p(x_k | x_{k+1})  -  log p(x_T) ]                    over forward paths

with p(x_k | x_{k+1}) the law of a small step of the model's reverse generator at (x_{k+1}, t_{k+1}).  It holds at every step
size, and needs no marginal: the prior's term is -log p(x_T) instead of a divergence, and there is no reconstruction, since a
path ends on the data.  The price is variance, that of a path: log q and log p of one step are of size log h each, so they
are taken at the same steps, where only their ratio remains.  Of T steps `visits` are looked at in each row, one in each of
as many equal parts, with weight T/visits.
"""

from functools import singledispatch

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators import Paths
from unnoise.generators.path_estimates import step_law
from unnoise.noise import NoiseSource
from unnoise.objectives.decoders import Decoder
from unnoise.objectives.terms import Terms
from unnoise.processes import Process, Simulated
from unnoise.shapes import AnyState, Float, Int, Tree
from unnoise.tree import batch_size, map_leaves


class PathsEnd(Decoder):
    """Nothing is left to decode: the last step of a reverse path leads to the data."""

    needs_network = needs_state = False

    def nll(self, process: Process, prediction, x0: AnyState, x_eps: AnyState, eps: float) -> Float[Tensor, "batch"]:
        return torch.zeros(batch_size(x0), dtype=torch.float64)


def path_terms(denoiser: AnyDenoiser, x0: Tree, noise: NoiseSource, condition: dict) -> Terms:
    """The terms of one forward path from each row."""
    return path_bound_of(denoiser.process, denoiser, x0, noise, condition)


@singledispatch
def path_bound_of(process: Process, denoiser: AnyDenoiser, x0: Tree, noise: NoiseSource, condition: dict) -> Terms:
    """The bound of a path, by the class of the process."""
    name = type(process).__name__
    raise TypeError(f"the bound of a path of {name} is not known: register it, path_bound_of.register({name})")


@path_bound_of.register
def _(process: Simulated, denoiser: AnyDenoiser, x0: Tree, noise: NoiseSource, condition: dict) -> Terms:
    """By small steps."""
    with torch.no_grad():
        paths = process.paths(x0, noise.at("path"))
        prior = -process.prior(batch_size(x0)).log_prob(paths.states[-1]).double()
    steps = visited(process, batch_size(x0), noise.at("steps"))
    total = torch.zeros_like(prior)
    for k in steps:
        total = total + log_ratio(denoiser, process, paths, k, condition)
    diffusion = total * (process.steps / len(steps))
    return Terms({"prior": prior, "diffusion": diffusion, "reconstruction": torch.zeros_like(prior)}, is_bound=True)


def visited(process: Simulated, rows: int, noise: NoiseSource) -> Int[Tensor, "visits batch"]:
    """Steps to look at: one in each of equal parts, drawn for every row; all of them where there are no more."""
    visits = min(process.visits, process.steps)
    if visits == process.steps:
        return torch.arange(visits, device=noise.rows.device).unsqueeze(1).expand(-1, rows)
    begin = torch.arange(visits, device=noise.rows.device).unsqueeze(1)
    return ((begin + noise.uniform((visits,)).T) * process.steps / visits).long().clamp_max(process.steps - 1)


def log_ratio(
    denoiser: AnyDenoiser, process: Simulated, paths: Paths, k: Int[Tensor, "batch"], condition: dict
) -> Float[Tensor, "batch"]:
    """log q(x_{k+1} | x_k)/p(x_k | x_{k+1}), k a step for each row."""
    rows, space = torch.arange(len(k), device=k.device), process.space
    here, there = (map_leaves(lambda *s, at=at: torch.stack(s)[at, rows], *paths.states) for at in (k, k + 1))
    times, h = process.times.to(k.device), torch.tensor(1 / process.steps, dtype=torch.float64, device=k.device)
    with torch.no_grad():
        forward = step_law(space, process.local(here, times[k]), here, h).log_prob(there)
    prediction = denoiser(there, times[k + 1], **condition)
    return forward.double() - step_law(space, prediction.local(), there, h).log_prob(here).double()
