"""Images of ordinal levels, drawn in batches as `unnoise sample` draws them, by an untrained network.

The floor is the network called once per step on all images; on an accelerator in bfloat16, in which networks are trained
and drawn from there.
"""

import numpy as np
import torch

from unnoise.bench.figures import Figure
from unnoise.bench.registry import register
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import taken
from unnoise.data.arrays import Array
from unnoise.denoiser import Denoiser
from unnoise.networks.precision import in_precision
from unnoise.networks.presets import default_network
from unnoise.training.drawing import draw

SIZES = {  # images, side, levels, steps, preset
    "tiny": (4, 8, 5, 2, "tiny"),
    "small": (16, 28, 256, 8, "tiny"),
    "large": (1000, 28, 256, 128, "base"),
}


def ordinal_digits(side: int, levels: int, preset: str, seed: int = 0) -> tuple[Array, Denoiser]:
    """The format of such images, of any content, and an untrained denoiser."""
    values = np.random.default_rng(seed).integers(levels, size=(16, side, side), dtype=np.uint8)
    values.flat[:2] = 0, levels - 1
    form, _ = Array.of_array(values, categories=True)
    process = form.process()
    return form, Denoiser(default_network(process, preset, seed=seed), process).eval()


@register("digits", "ordinal images by a large network")
@torch.no_grad()
def digits(setting: BenchSetting) -> list[Figure]:
    count, side, levels, steps, preset = setting.pick(SIZES)
    form, denoiser = ordinal_digits(side, levels, preset)
    denoiser = in_precision(denoiser.to(setting.device).requires_grad_(False), "bf16" if setting.on_cuda else "no")
    x = torch.randint(levels, (count, side, side), device=setting.device)
    t = torch.full((count,), 0.5, device=setting.device)
    runs = {
        "floor": lambda: denoiser.network(x, t),
        "ours": lambda: draw(denoiser, form, count, steps=steps, seed=0, device=setting.device.type),
    }
    found = taken(runs, setting.device, rounds=3, seconds=8.0)
    return [
        Figure(
            what=f"{count} images of {side} × {side} × {levels} levels, {steps} steps, preset {preset}",
            ours=found["ours"],
            floor=found["floor"].over(1 / steps),
            floor_is="the network's calls",
            aim=setting.aim(seconds=3.0),
        )
    ]
