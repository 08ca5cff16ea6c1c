"""A training step on sequences, forward and backward: the bound under masking and under uniform noise.

The floor is the body of the network alone, forward and backward from a given gradient.  Masking needs the head where a token
is masked, half of the rows on average; uniform noise needs it everywhere.  As a reference for masking, the loss as it is
written by hand: log-probabilities at every position, of which the masked ones are kept.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unnoise.bench.bodies import PlainTransformer
from unnoise.bench.figures import Aim, Figure
from unnoise.bench.masking import MaskedTexts
from unnoise.bench.registry import register
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import forget_gradients, half, taken
from unnoise.denoiser import Denoiser
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective
from unnoise.processes import Masking, Process, Uniform

TEXTS = {
    "tiny": MaskedTexts(2, 16, 101, 32, 1, 4),
    "small": MaskedTexts(2, 64, 50_257, 256, 4, 8),
    "large": MaskedTexts(16, 1024, 50_257, 768, 12, 32),
}


class TextSteps:
    """Steps on one batch: by the objective, by the body alone, by a loss written by hand."""

    def __init__(self, setting: BenchSetting, process: type[Masking] | type[Uniform]):
        self.texts, self.device = setting.pick(TEXTS), setting.device
        self.network: PlainTransformer = self.texts.network(setting)
        self.x0 = torch.randint(self.texts.size, (self.texts.batch, self.texts.length), device=self.device)
        self.x_t = self.texts.half_masked(setting)
        self.t = torch.full((self.texts.batch,), 0.5, device=self.device)
        noised: Process = process(self.texts.size, (self.texts.length,))
        self.objective = Objective(Denoiser(self.network, noised)).to(self.device)
        self.gradient = torch.ones(self.texts.batch, self.texts.length, self.texts.width, device=self.device)
        self.turn: Iterator[int] = count()

    def body(self) -> None:
        with half(self.device):
            h = self.network.features(self.x_t, self.t)
        h.backward(self.gradient.to(h.dtype))
        forget_gradients(self.network)

    def ours(self) -> None:
        with half(self.device):
            loss = self.objective(self.x0, NoiseSource(next(self.turn), self.texts.batch, self.device)).loss.mean()
        loss.backward()
        forget_gradients(self.network)

    def hand_loss(self) -> Tensor:
        """Log-probabilities everywhere, those of masked tokens over t."""
        t = torch.rand(self.texts.batch, 1, device=self.device).clamp_min(1e-3)
        masked = torch.rand(self.x0.shape, device=self.device) < t
        with half(self.device):
            logits = self.network(torch.where(masked, self.texts.size, self.x0), t.squeeze(1))
            log_probs: Tensor = F.log_softmax(logits.float(), -1).gather(-1, self.x0.unsqueeze(-1)).squeeze(-1)
            return -(masked * log_probs / t).sum(1).mean()

    def by_hand(self) -> None:
        self.hand_loss().backward()
        forget_gradients(self.network)

    def figure(self, what: str, aim: Aim | None, others: dict[str, Callable[[], Any]]) -> Figure:
        found = taken({"floor": self.body, "ours": self.ours, **others}, self.device, seconds=15.0)
        floor, ours = found.pop("floor"), found.pop("ours")
        about = f"{what}, {self.texts.words()}, forward and backward"
        return Figure(what=about, ours=ours, floor=floor, floor_is="the network's body", peers=found, aim=aim)


@register("masked-training", "a training step under masking")
def masked_training(setting: BenchSetting) -> list[Figure]:
    steps = TextSteps(setting, Masking)
    aim = setting.aim(ratio=1.3, memory=8.0)
    return [steps.figure("un.Objective, Masking", aim, {"all log-probabilities": steps.by_hand})]


@register("uniform-training", "a training step under uniform noise")
def uniform_training(setting: BenchSetting) -> list[Figure]:
    return [TextSteps(setting, Uniform).figure("un.Objective, Uniform", setting.aim(ratio=2.0), {})]
