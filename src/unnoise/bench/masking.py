"""Masked sequences, drawn as `un.sample(denoiser, n)` draws them unless told otherwise, per call of the network.

The floor is the body of the network on all rows: a step must ask it, and of the head only the rows that are revealed.
"""

from dataclasses import dataclass
from typing import Any

import torch

from unnoise.bench.bodies import PlainTransformer
from unnoise.bench.figures import Aim, Figure
from unnoise.bench.peers import flow_matching_run
from unnoise.bench.registry import register
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import taken
from unnoise.denoiser import Denoiser
from unnoise.processes import Masking
from unnoise.samplers.sample import sample


@dataclass(frozen=True)
class MaskedTexts:
    """How many sequences of which length, over which vocabulary, by which network; `steps` of the shorter run."""

    batch: int
    length: int
    size: int
    width: int
    layers: int
    steps: int

    def network(self, setting: BenchSetting) -> PlainTransformer:
        torch.manual_seed(0)
        return PlainTransformer(self.size, self.length, self.width, self.layers).to(setting.device)

    def half_masked(self, setting: BenchSetting) -> torch.Tensor:
        x = torch.randint(self.size, (self.batch, self.length), device=setting.device)
        return torch.where(torch.rand(x.shape, device=setting.device) < 0.5, self.size, x)

    def words(self) -> str:
        return f"{self.batch} × {self.length} of {self.size:,}"


TEXTS = {
    "tiny": MaskedTexts(2, 80, 101, 32, 1, 4),
    "small": MaskedTexts(2, 96, 50_257, 256, 4, 8),
    "large": MaskedTexts(16, 1024, 50_257, 768, 12, 32),
}
AIMS: dict[str, tuple[Aim | None, Aim | None]] = {  # of the default, and of the shorter run
    "tiny": (None, None),
    "small": (Aim(ratio=2.0), Aim(peers=5.0)),
    "large": (Aim(ratio=1.15, memory=0.5), Aim(ratio=1.15, memory=0.5)),
}


@register("masking", "un.sample(denoiser, n) on masked sequences")
@torch.no_grad()
def masking(setting: BenchSetting) -> list[Figure]:
    texts = setting.pick(TEXTS)
    network = texts.network(setting).eval()
    if setting.on_cuda:
        network = network.bfloat16()
    denoiser = Denoiser(network, Masking(texts.size, (texts.length,)))
    x, t = texts.half_masked(setting), torch.full((texts.batch,), 0.5, device=setting.device)
    start, name = torch.full_like(x, texts.size), f"un.sample(denoiser, {texts.batch}), {texts.words()}, a step"

    def body() -> None:
        for _ in range(texts.steps):
            network.features(x, t)

    def figure(what: str, steps: int | None, rounds: int, aim: Aim | None, others: dict[str, Any]) -> Figure:
        """A run of so many steps beside as many calls of the body as a short run makes."""
        calls = list[int]()  # of the network: known when it has run

        def ours() -> None:
            calls.append(sample(denoiser, texts.batch, steps, seed=0)[1].calls)

        found = taken({"floor": body, "ours": ours, **others}, setting.device, rounds)
        floor, timing = found.pop("floor").over(texts.steps), found.pop("ours").over(calls[-1])
        peers = {peer: timing.over(texts.steps) for peer, timing in found.items()}
        return Figure(what=what, ours=timing, floor=floor, floor_is="the network's body", peers=peers, aim=aim)

    theirs = flow_matching_run(network, start, texts.size, texts.steps)
    default, short = setting.pick(AIMS)
    return [
        figure(name, None, 2, default, {}),
        figure(f"{name}, steps={texts.steps}", texts.steps, 3, short, theirs),
    ]
