"""A training step of a tiny network beside one with a loss written by hand, which is its floor.

Both draw times and noise, ask the network, differentiate and step AdamW.  The hand-written losses are the few lines that a
notebook has: the squared error of the velocity, the cross-entropy of masked letters over t.  The objective is the bound,
with its prior and reconstruction, its graded times, its checks of the data and its noise that is a function of (seed, row,
key).  Networks so small that what surrounds them shows: it is measured on one thread of the processor, whatever the device.

    numbers      the `tiny` network of 8 numbers, batch 256
    letters      the `tiny` transformer of 32 letters, batch 64
    perceptron   8 -> 64 -> 64 -> 8, batch 64
"""

from collections.abc import Callable, Iterator
from math import pi
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.bench.bodies import PlainPerceptron
from unnoise.bench.figures import Aim, Figure
from unnoise.bench.registry import register
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import one_thread, taken
from unnoise.denoiser import Denoiser
from unnoise.networks.presets import default_network
from unnoise.objectives import Objective
from unnoise.predictions import Velocity
from unnoise.processes import Gaussian, Masking

LETTERS = 27
Loss = Callable[[nn.Module, Tensor], Tensor]


def squared_error(network: nn.Module, x0: Tensor) -> Tensor:
    t = torch.rand(len(x0))
    angle = (pi / 2 * t).unsqueeze(1)
    alpha, sigma, eps = angle.cos(), angle.sin(), torch.randn_like(x0)
    v = network(alpha * x0 + sigma * eps, t)
    return (v - (alpha * eps - sigma * x0)).square().sum(1).mean()


def masked_cross_entropy(network: nn.Module, x0: Tensor) -> Tensor:
    t = torch.rand(len(x0)).clamp_min(1e-3)
    masked = torch.rand(x0.shape) < t.unsqueeze(1)
    logits = network(torch.where(masked, LETTERS, x0), t)
    loss = F.cross_entropy(logits.flatten(0, 1), x0.flatten(), reduction="none").reshape(x0.shape)
    return ((loss * masked).sum(1) / t).mean()


def cases() -> Iterator[tuple[str, Denoiser, Loss, Tensor, float]]:
    """(name, denoiser, loss by hand, data, the ratio aimed at)."""
    numbers, letters = Gaussian((8,)), Masking(LETTERS, (32,))
    tiny = Denoiser(default_network(numbers, "tiny", seed=0), numbers, Velocity)
    yield "numbers", tiny, squared_error, torch.randn(256, 8), 1.3
    tiny = Denoiser(default_network(letters, "tiny", seed=0), letters)
    yield "letters", tiny, masked_cross_entropy, torch.randint(LETTERS, (64, 32)), 1.3
    yield "perceptron", Denoiser(PlainPerceptron(8, 64), numbers, Velocity), squared_error, torch.randn(64, 8), 2.0


def step(loss: Callable[[], Tensor], parameters: list[nn.Parameter]) -> Callable[[], Any]:
    optimiser = torch.optim.AdamW(parameters, lr=1e-4)

    def update() -> None:
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()

    return update


def measured(name: str, denoiser: Denoiser, by_hand: Loss, x0: Tensor, most: float, setting: BenchSetting) -> Figure:
    objective, network = Objective(denoiser), denoiser.network
    parameters = list(network.parameters())
    runs = {
        "floor": step(lambda: by_hand(network, x0), parameters),
        "ours": step(lambda: objective(x0).loss.mean(), parameters),
    }
    found = taken(runs, torch.device("cpu"), rounds=setting.pick({"tiny": 2, "small": 60, "large": 60}), seconds=3.0)
    aim = None if setting.size == "tiny" else Aim(ratio=most)
    what = f"un.Objective, a step on {name}, one thread"
    return Figure(what=what, ours=found["ours"], floor=found["floor"], floor_is="by hand", aim=aim)


@register("small-steps", "a training step of a tiny network beside one by hand")
def small_steps(setting: BenchSetting) -> list[Figure]:
    torch.manual_seed(0)
    with one_thread():
        return [measured(*case, setting) for case in cases()]
