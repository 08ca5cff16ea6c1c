"""Masked sequences, drawn as `un.sample(denoiser, n)` draws them unless told otherwise, per call of the network.

The floor is the body of the network on all rows: a step must ask it, and of the head only the rows that are revealed.
"""

from dataclasses import dataclass, replace

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
AIMS: dict[str, Aim | None] = {"tiny": None, "small": Aim(ratio=2.0, peers=5.0), "large": Aim(ratio=1.15, memory=0.5)}


@register("masking", "un.sample(denoiser, n) on masked sequences")
@torch.no_grad()
def masking(setting: BenchSetting) -> list[Figure]:
    texts = setting.pick(TEXTS)
    network = texts.network(setting).eval()
    if setting.on_cuda:
        network = network.bfloat16()
    denoiser = Denoiser(network, Masking(texts.size, (texts.length,)))
    x, t = texts.half_masked(setting), torch.full((texts.batch,), 0.5, device=setting.device)
    start = torch.full_like(x, texts.size)
    _, info = sample(denoiser, texts.batch, texts.steps, seed=0)  # how often it calls is known before it is timed
    short = {
        "floor": lambda: network.features(x, t),
        "ours": lambda: sample(denoiser, texts.batch, texts.steps, seed=0),
        **flow_matching_run(network, start, texts.size, texts.steps),
    }
    found = taken(short, setting.device, rounds=3)
    floor, ours = found.pop("floor"), found.pop("ours")
    peers = {name: timing.over(texts.steps) for name, timing in found.items()}
    calls: list[int] = []
    whole = taken({"ours": lambda: calls.append(sample(denoiser, texts.batch, seed=0)[1].calls)}, setting.device, 2)["ours"]
    what = f"un.sample(denoiser, {texts.batch}), {texts.words()}, a step"
    default = Figure(
        what=what, ours=whole.over(calls[-1]), floor=floor, floor_is="the network's body", aim=setting.pick(AIMS)
    )
    return [default, replace(default, what=f"{what}, steps={texts.steps}", ours=ours.over(info.calls), peers=peers)]
