"""The bound of a path, for processes that are known by their generator alone.

    -log p(x_0) <= E[ sum_k log q(x_{k+1} | x_k)/p(x_k | x_{k+1})  -  log p(x_T) ]                    over forward paths

with p(x_k | x_{k+1}) the law of a small step of the model's reverse generator at (x_{k+1}, t_{k+1}).  It holds at every step
size, and needs no marginal: the prior's term is -log p(x_T) instead of a divergence, and there is no reconstruction, since a
path ends on the data.  The price is variance, that of a path: log q and log p of one step are of size log h each, so they
are taken at the same steps, where only their ratio remains.  Of T steps `visits` are looked at in each row, one in each of
as many equal parts, with weight T/visits.  With `control` the part of the ratio that is linear in the step is taken off,

    log q(x_{k+1} | x_k)/p(x_k | x_{k+1})  -  [s(x_k, x_{k+1}) - E s(x_k, x_{k+1})],     s = slope . (x_{k+1} - x_k)

(on categories and counts the slope's difference to where the step led; `Space.along`), which has the mean 0 given x_k
whatever the slope is, and is of size sqrt(h) where the whole ratio is: with the model's slope what is left is of size h.
"""

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators import Paths
from unnoise.generators.path_estimates import step_law
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.objectives.decoders import Decoder
from unnoise.objectives.terms import Terms
from unnoise.predictions import Prediction, Slopes
from unnoise.processes import Process, Simulated
from unnoise.processes.simulated_checks import checked_surprise, refuse_still
from unnoise.shapes import AnyState, Float, Int, Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size, first_leaf, map_leaves, pick


class PathsEnd(Decoder):
    """Nothing is left to decode: the last step of a reverse path leads to the data."""

    needs_network = needs_state = False

    def nll(self, process: Process, prediction, x0: AnyState, x_eps: AnyState, eps: float) -> Float[Tensor, "batch"]:
        return torch.zeros(batch_size(x0), dtype=torch.float64)


class LastStep(Decoder):
    """The small step of the model's reverse generator from the cut-off to 0, as it is sampled (marginals are known)."""

    def nll(self, process: Process, prediction, x0: AnyState, x_eps: AnyState, eps: float) -> Float[Tensor, "batch"]:
        h = torch.tensor(eps, dtype=torch.float64, device=first_leaf(x0).device)
        return -step_law(process.state_space, prediction.local(), x_eps, h).log_prob(x0).double()


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
    """By small steps: of a forward path, or the mean of two whose noises mirror each other."""
    found = [
        _of_path(denoiser, process, x0, own.at("path"), visited(process, batch_size(x0), own.at("steps")), condition)
        for own in ([noise, noise.mirrored()] if process.antithetic else [noise])
    ]
    prior, diffusion = (torch.stack(part).mean(0) for part in zip(*found, strict=True))
    return Terms({"prior": prior, "diffusion": diffusion, "reconstruction": torch.zeros_like(prior)}, is_bound=True)


def _of_path(
    denoiser: AnyDenoiser, process: Simulated, x0: Tree, noise: NoiseSource, steps: Tensor, condition: dict
) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        paths = process.paths(x0, noise)
        refuse_still(process.space, process.local(x0, 0.0), 0.0)
        prior = checked_surprise(process.prior(batch_size(x0)), paths.states[-1], batch_size(x0))
    total = torch.zeros_like(prior)
    for k in steps:
        total = total + log_ratio(denoiser, process, paths, k, condition)
    return prior, total * (process.steps / len(steps))


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
        forward = step_law(space, process.local(here, times[k]), here, h)
        own = forward.log_prob(there).double()
    prediction = denoiser(there, times[k + 1], **condition)
    ratio = own - step_law(space, prediction.local(), there, h).log_prob(here).double()
    return ratio - _told(denoiser(here, times[k + 1], **condition), forward, here, there) if process.control else ratio


def _told(prediction: Prediction, forward: Law, here: Tree, there: Tree) -> Float[Tensor, "batch"]:
    """What the model's slope says of the step, less its mean."""
    if not isinstance(prediction, Slopes):
        raise TypeError(
            f"control is by the slopes of log q_t, and the denoiser predicts {type(prediction).__name__}: predict "
            f"un.Slopes, or leave control out"
        )
    return _along(prediction.space, prediction.value, forward, here, there)


def _along(space: Space, slope: Tree, law: Any, x: AnyState, y: AnyState) -> Float[Tensor, "batch"]:
    if not space.leaves:
        return space.along(slope, law, x, y).double()  # type: ignore[arg-type]
    return torch.stack([_along(s, pick(slope, (k,)), law.leaves[k], x[k], y[k]) for k, s in space.leaves.items()]).sum(0)
