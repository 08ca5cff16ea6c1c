"""Numbers, drawn in 50 steps by a small network: ancestral steps call by call, and whole runs recorded.

The floor is the network called as often, in the same way: from Python one call after the other, or as one CUDA graph.  Where
nothing can be recorded, on a processor, `CapturedRun` is the plain way and stands beside the plain calls.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.bench.bodies import PlainPerceptron
from unnoise.bench.figures import Aim, Figure
from unnoise.bench.peers import diffusers_run
from unnoise.bench.registry import register
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import recorded, taken
from unnoise.denoiser import Denoiser
from unnoise.predictions import Noise
from unnoise.processes import Gaussian
from unnoise.samplers import DDIM, Ancestral, CapturedRun, DPMSolverPP, UniPC
from unnoise.samplers.base import Sampler
from unnoise.samplers.sample import sample
from unnoise.schedules import LinearBeta

WIDTH = 64


@dataclass(frozen=True)
class Vectors:
    """So many vectors in so many steps, and the network's calls alone."""

    setting: BenchSetting
    batch: int
    steps: int

    def made(self) -> tuple[Denoiser, Tensor, Callable[[], Any]]:
        torch.manual_seed(0)
        device = self.setting.device
        network = PlainPerceptron(WIDTH).to(device).eval()
        denoiser = Denoiser(network, Gaussian((WIDTH,), LinearBeta()), predicts=Noise)
        x, t = torch.randn(self.batch, WIDTH, device=device), torch.full((self.batch,), 0.5, device=device)

        def alone() -> None:
            for _ in range(self.steps):
                network(x, t)

        return denoiser, x, alone

    def captured(self, sampler: Sampler, peer: str | None, aim: Aim | None) -> Figure:
        """A recorded run beside the recorded calls."""
        denoiser, x, alone = self.made()
        draw = CapturedRun(denoiser, self.batch, self.steps, sampler, seed=0)
        runs: dict[str, Callable[[], Any]] = {"floor": recorded(alone, self.setting.device), "ours": draw}
        runs |= {} if peer is None else diffusers_run(peer, denoiser.network, x, self.steps)
        found = taken(runs, self.setting.device)
        floor, ours = found.pop("floor"), found.pop("ours")
        what = f"CapturedRun, {type(sampler).__name__}, {self.batch} × {WIDTH}, {self.steps} steps"
        floor_is = "a graph of the calls" if self.setting.on_cuda else "the calls"
        return Figure(what=what, ours=ours, floor=floor, floor_is=floor_is, peers=found, aim=aim)


def vectors(setting: BenchSetting) -> Vectors:
    batch, steps = setting.pick({"tiny": (8, 4), "small": (1024, 50), "large": (4096, 50)})
    return Vectors(setting, batch, steps)


@register("numbers", "Ancestral on numbers, call by call and recorded")
@torch.no_grad()
def numbers(setting: BenchSetting) -> list[Figure]:
    given = vectors(setting)
    denoiser, x, alone = given.made()
    runs = {
        "floor": alone,
        "ours": lambda: sample(denoiser, given.batch, given.steps, Ancestral(), seed=0),
        **diffusers_run("DDPMScheduler", denoiser.network, x, given.steps),
    }
    found = taken(runs, setting.device)
    floor, ours = found.pop("floor"), found.pop("ours")
    what = f"un.sample, Ancestral, {given.batch} × {WIDTH}, {given.steps} steps"
    plain = Figure(what=what, ours=ours, floor=floor, floor_is="the calls", peers=found, aim=setting.aim(ratio=2.0))
    return [plain, given.captured(Ancestral(), None, setting.aim(ratio=1.3))] if setting.on_cuda else [plain]


@register("multistep", "DPM-Solver++ 2M, UniPC and DDIM, recorded")
@torch.no_grad()
def multistep(setting: BenchSetting) -> list[Figure]:
    given, aim = vectors(setting), setting.aim(ratio=1.2)
    return [
        given.captured(DPMSolverPP(2), "DPMSolverMultistepScheduler", aim),
        given.captured(UniPC(2), "UniPCMultistepScheduler", aim),
        given.captured(DDIM(), "DDIMScheduler", aim),
    ]
