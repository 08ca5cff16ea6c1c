"""The bound's own cost where the logits are there already, forward.

The floor is a plain cross-entropy, which reads every logit once.  The masked bound needs the rows that are masked, half of
them on average; the uniform bound needs one more transcendental function of every logit.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.bench.figures import Aim, Figure
from unnoise.bench.registry import register
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import taken
from unnoise.denoiser import Denoiser
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective
from unnoise.processes import Masking, Process, Uniform

SIZES = {"tiny": (2, 16, 101), "small": (4, 128, 50_257), "large": (16, 1024, 50_257)}  # batch, length, vocabulary


class ReadyLogits(nn.Module):
    """A network whose answer is there."""

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.logits


@register("bound", "the bound on ready logits")
@torch.inference_mode()
def bound(setting: BenchSetting) -> list[Figure]:
    batch, length, size = setting.pick(SIZES)
    torch.manual_seed(0)
    logits = torch.randn(batch, length, size, device=setting.device)
    x0 = torch.randint(size, (batch, length), device=setting.device)

    def plain() -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), x0.flatten(), reduction="none")

    def figure(process: Process, most: float) -> Figure:
        objective = Objective(Denoiser(ReadyLogits(logits), process)).to(setting.device)
        runs = {"floor": plain, "ours": lambda: objective(x0, NoiseSource(0, batch, setting.device)).total}
        found = taken(runs, setting.device, seconds=4.0)
        what = f"un.Objective, {type(process).__name__}, ready logits, {batch} × {length} of {size:,}, forward"
        aim = None if setting.size == "tiny" else Aim(ratio=most)
        return Figure(what=what, ours=found["ours"], floor=found["floor"], floor_is="a cross-entropy", aim=aim)

    return [figure(Masking(size, (length,)), 1.5), figure(Uniform(size, (length,)), 3.0)]
