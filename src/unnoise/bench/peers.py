"""The same task by other libraries, on the same network, where they are installed.

Nothing here is imported before a row asks for it; a library that is not installed, or whose names are others, has no entry.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIFFUSERS: dict[str, tuple[str, dict[str, Any]]] = {
    "DDPMScheduler": ("scheduling_ddpm", {"clip_sample": False}),
    "DDIMScheduler": ("scheduling_ddim", {"clip_sample": False}),
    "DPMSolverMultistepScheduler": ("scheduling_dpmsolver_multistep", {"solver_order": 2}),
    "UniPCMultistepScheduler": ("scheduling_unipc_multistep", {"solver_order": 2}),
}


def diffusers_run(name: str, network: nn.Module, x: Tensor, steps: int) -> dict[str, Callable[[], Any]]:
    """A scheduler of diffusers from the noise x, as its pipelines loop."""
    module, options = DIFFUSERS[name]
    try:
        with catch_warnings():
            simplefilter("ignore")  # what others warn of while they are compiled is not ours to stop at
            scheduler = getattr(import_module(f"diffusers.schedulers.{module}"), name)(**options)
    except (ImportError, AttributeError):
        return {}

    def run() -> Tensor:
        scheduler.set_timesteps(steps, device=x.device)
        state = x
        for t in scheduler.timesteps:
            state = scheduler.step(network(state, (t / 1000).expand(len(x)).to(x.dtype)), t, state).prev_sample
        return state

    return {"diffusers": run}


def flow_matching_run(network: nn.Module, x: Tensor, size: int, steps: int) -> dict[str, Callable[[], Any]]:
    """The discrete Euler solver of flow_matching from x, all MASK."""
    try:
        with catch_warnings():
            simplefilter("ignore")
            from flow_matching.path import MixtureDiscreteProbPath
            from flow_matching.path.scheduler import PolynomialConvexScheduler
            from flow_matching.solver import MixtureDiscreteEulerSolver
            from flow_matching.utils import ModelWrapper
    except ImportError:
        return {}

    class Probabilities(ModelWrapper):
        def forward(self, x: Tensor, t: Tensor, **extras: Any) -> Tensor:
            return F.pad(self.model(x, t.expand(len(x))).float().softmax(-1), (0, 1))  # none on MASK

    path = MixtureDiscreteProbPath(PolynomialConvexScheduler(n=1.0))
    solver = MixtureDiscreteEulerSolver(Probabilities(network), path, vocabulary_size=size + 1)
    ends = torch.tensor([0.0, 1 - 1e-3], device=x.device)
    return {"flow_matching": lambda: solver.sample(x_init=x, step_size=1 / steps, time_grid=ends)}
