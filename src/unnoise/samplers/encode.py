"""`un.encode`: from data to noise along the probability flow.

A deterministic method with a table of coefficients runs either way: on rising times its steps go up the flow.  Sampling from
where it ends brings the data back, up to the errors of both ways.

At t = 0 the flow starts without noise, and a network says nothing there of where to go.  So the run begins a little later,
at `start`, from alpha x_0, which is on the flow up to O(sigma^2): dy/drho = (y - D)/rho = O(rho) for y = x/alpha and rho =
sigma/alpha.
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from unnoise.conditions import Condition, checked
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.samplers import grids
from unnoise.samplers.base import Sampler
from unnoise.samplers.coefficients import gaussian_of
from unnoise.samplers.defaults import default_steps
from unnoise.samplers.heun import Heun
from unnoise.samplers.linear import DDIM, LinearMethod
from unnoise.samplers.problem import Info, Problem
from unnoise.samplers.run_grid import Grid
from unnoise.samplers.sample import refused
from unnoise.shapes import Float
from unnoise.tree import batch_size


def encode(
    denoiser: AnyDenoiser,
    x0: Float[Tensor, "batch *shape"],
    steps: int | None = None,
    sampler: Sampler | None = None,
    grid: Grid = None,
    *,
    start: float = 1e-3,
    end: float = 1.0,
    condition: Condition | None = None,
    trajectory: bool = False,
    grad: bool = False,
) -> tuple[Float[Tensor, "batch *shape"], Info]:
    """The noise that the probability flow leads each x_0 to, and a record of the run.

    `sampler` is a deterministic method on numbers (`DDIM()`); `steps` of its grid lie between `start` and `end`, or `grid`
    is a rule of `samplers.grids` or rising times.  `un.sample(denoiser, x=noise, ...)` with the same method leads back.
    """
    sampler = sampler or DDIM()
    refused(sampler, denoiser.process.base)
    if sampler.draws or not isinstance(sampler, LinearMethod | Heun):
        raise TypeError(f"{type(sampler).__name__} has no way back: encode by a method without noise, such as DDIM()")
    x0 = denoiser.process.state_space.check(x0, "x0")
    times = rising(denoiser, steps, grid, start, end)
    info = Info(times=times)
    problem = Problem(
        denoiser, times, NoiseSource(0, batch_size(x0), x0.device), checked(condition, batch_size(x0)), info=info
    )
    with nullcontext() if grad else torch.no_grad():
        schedule = gaussian_of(problem.process, type(sampler).__name__).schedule
        x = x0 * schedule.alpha(problem.clock[0]).to(x0.dtype)
        states = [x]
        x = sampler.run(problem, x, lambda i, state: states.append(state.x) if trajectory else None)
    info.trajectory = states if trajectory else None
    return x, info


def rising(denoiser: AnyDenoiser, steps: int | None, grid: Grid, start: float, end: float) -> Float[Tensor, "times"]:
    """The rising times of a run."""
    if not 0 < start < end <= 1:
        raise ValueError(f"start = {start:g}, end = {end:g}: encoding runs from data to noise, 0 < start < end <= 1")
    if grid is None or isinstance(grid, grids.TimeGrid):
        count = default_steps(denoiser.process) if steps is None else steps
        falling = (grid or grids.Even()).times(denoiser.process.base, count, end, start)
    else:
        falling = torch.as_tensor(grid, dtype=torch.float64).flip(0)
    times = grids.checked(falling).flip(0)
    if float(times[0]) <= 0:
        raise ValueError("the grid begins at t = 0, where there is no noise to go by: begin a little later, such as at 1e-3")
    return times
