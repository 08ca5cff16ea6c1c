"""Runs of diffusers' schedulers on a given grid of rho = sigma/alpha, with a given function for the clean prediction.

Their tables are set in float64 after `set_timesteps`.  DPM-Solver++ and Euler still round states to float32 in every step.
"""

from collections.abc import Callable

import numpy as np
import torch
from diffusers import (
    DDIMScheduler,
    DEISMultistepScheduler,
    DPMSolverMultistepScheduler,
    DPMSolverSinglestepScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    LMSDiscreteScheduler,
    UniPCMultistepScheduler,
)
from torch import Tensor

Clean = Callable[[Tensor, Tensor], Tensor]  # (y, rho) -> E[x_0 | x_0 + rho z = y]
Run = Callable[
    [Clean, Tensor, Tensor, bool], Tensor
]  # (clean, y, rho of the grid, whether alpha = 1 - sigma) -> y at the end


def scaled(make: Callable[..., object], **options: object) -> Run:
    """Schedulers whose state is x = alpha y: with alpha = 1 - sigma, or 1/sqrt(1 + rho^2)."""

    def run(clean: Clean, y: Tensor, rho: Tensor, flow: bool) -> Tensor:
        given = dict(options, prediction_type="sample", **({"use_flow_sigmas": True} if flow else {}))
        scheduler = prepared(make(**given), rho / (1 + rho) if flow else rho)
        alpha = 1 / (1 + rho) if flow else (1 + rho.square()).rsqrt()
        x = alpha[0] * y
        for i, t in enumerate(scheduler.timesteps):
            x = scheduler.step(clean(x / alpha[i], rho[i]), t, x).prev_sample
        return x / alpha[-1]

    return run


def prepared(scheduler, sigmas: Tensor):
    scheduler.set_timesteps(len(sigmas) - 1)
    scheduler.sigmas, scheduler.timesteps = sigmas, torch.arange(len(sigmas) - 1, 0, -1).double()
    scheduler.set_begin_index(0)
    return scheduler


def unscaled(make: Callable[..., object]) -> Run:
    """Schedulers whose state is y."""

    def run(clean: Clean, y: Tensor, rho: Tensor, flow: bool) -> Tensor:
        scheduler = prepared(make(), rho)
        scheduler.is_scale_input_called = True
        for i, t in enumerate(scheduler.timesteps):
            y = scheduler.step((y - clean(y, rho[i])) / rho[i], t, y).prev_sample
        return y

    return run


def heun(clean: Clean, y: Tensor, rho: Tensor, flow: bool) -> Tensor:
    scheduler = HeunDiscreteScheduler()
    scheduler.set_timesteps(len(rho) - 1)
    scheduler.sigmas = torch.cat([rho[:1], rho[1:-1].repeat_interleave(2), rho[-1:]])
    scheduler.timesteps = torch.arange(len(scheduler.sigmas) - 1, 0, -1).double()
    scheduler.set_begin_index(0)
    asked = torch.cat([rho[:1], rho[1:-1].repeat_interleave(2)])
    for r, t in zip(asked, scheduler.timesteps, strict=True):
        y = scheduler.step((y - clean(y, r)) / r, t, y).prev_sample
    return y


def ddim(clean: Clean, y: Tensor, rho: Tensor, flow: bool) -> Tensor:
    steps = len(rho) - 1
    scheduler = DDIMScheduler(num_train_timesteps=steps, prediction_type="sample", clip_sample=False)
    scheduler.set_timesteps(steps)
    alpha = (1 + rho.square()).rsqrt()
    scheduler.alphas_cumprod, scheduler.final_alpha_cumprod = alpha[:-1].square().flip(0), alpha[-1].square()
    x = alpha[0] * y
    for i, t in enumerate(scheduler.timesteps):
        x = scheduler.step(clean(x / alpha[i], rho[i]), t, x).prev_sample
    return x / alpha[-1]


def lms(clean: Clean, y: Tensor, rho: Tensor, flow: bool) -> Tensor:
    scheduler = prepared(LMSDiscreteScheduler(), rho)
    scheduler.is_scale_input_called = True
    scheduler.sigmas = scheduler.sigmas.numpy()  # read by quadrature
    with np.errstate(all="ignore"):
        for i, t in enumerate(scheduler.timesteps):
            y = scheduler.step((y - clean(y, rho[i])) / rho[i], t, y).prev_sample
    return y


def multistep(**options: object) -> Run:
    return scaled(DPMSolverMultistepScheduler, **options)


def single(**options: object) -> Run:
    return scaled(DPMSolverSinglestepScheduler, **options)


def unipc(**options: object) -> Run:
    return scaled(UniPCMultistepScheduler, **options)


RUNS: dict[str, Run] = {
    "DDIM": ddim,
    "Euler": unscaled(EulerDiscreteScheduler),
    "Heun": heun,
    "DPM-Solver++ 2M": multistep(solver_order=2),
    "DPM-Solver++ 2M, heun": multistep(solver_order=2, solver_type="heun"),
    "DPM-Solver++ 3M": multistep(solver_order=3),
    "DPM-Solver++ 3M, our default": multistep(solver_order=3),
    "DPM-Solver++ 2S": single(solver_order=2),
    "DPM-Solver++ 2S, heun": single(solver_order=2, solver_type="heun"),
    "DPM-Solver++ 3S": single(solver_order=3),
    "UniPC-2, bh2": unipc(solver_order=2, solver_type="bh2"),
    "UniPC-2, bh1": unipc(solver_order=2, solver_type="bh1"),
    "UniPC-2, our default": unipc(solver_order=2, solver_type="bh2"),
    "UniPC-3, bh2": unipc(solver_order=3, solver_type="bh2"),
    "UniPC-3, bh1": unipc(solver_order=3, solver_type="bh1"),
    "UniPC-3, our default": unipc(solver_order=3, solver_type="bh2"),
    "DEIS 2": scaled(DEISMultistepScheduler, solver_order=2),
    "DEIS 3": scaled(DEISMultistepScheduler, solver_order=3),
    "LMS": lms,
}


def sde(clean: Clean, y: Tensor, rho: Tensor, z: Tensor, order: int) -> Tensor:
    """SDE-DPM-Solver++ driven by given standard normal numbers z."""
    options = {"algorithm_type": "sde-dpmsolver++", "prediction_type": "sample"}
    scheduler = prepared(DPMSolverMultistepScheduler(solver_order=order, **options), rho)
    alpha = (1 + rho.square()).rsqrt()
    x = alpha[0] * y
    for i, t in enumerate(scheduler.timesteps):
        x = scheduler.step(clean(x / alpha[i], rho[i]), t, x, variance_noise=z[i]).prev_sample
    return x / alpha[-1]


def spacings(counts: tuple[int, ...]) -> dict[tuple[str, int], list[int]]:
    """The timesteps that DDIM takes of 1000, counted from 0."""
    out = {}
    for spacing in ("leading", "trailing", "linspace"):
        for count in counts:
            scheduler = DDIMScheduler(timestep_spacing=spacing)
            scheduler.set_timesteps(count)
            out[spacing, count] = scheduler.timesteps.tolist()
    return out
