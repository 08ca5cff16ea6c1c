"""Cost grows as it must: the time of a step against the batch, the length, and the vocabulary rows that a step touches.

The network sees each token by itself, so that its cost is proportional to the number of tokens (attention is not, and would
hide what is the library's).  Under masking a step reveals B L / T coordinates of a batch of B sequences of length L in T
steps, and only for those rows the head over the vocabulary is asked: the third sweep keeps B and L and changes T.  Every
sweep spans two orders of magnitude.  On a processor one thread is measured, by the time that the processor gives to it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.bench.growth import Growth
from unnoise.bench.machine import Origin
from unnoise.bench.report import in_lines, in_markdown, seconds
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import Timing, forget_gradients, one_thread, taken, undisturbed
from unnoise.denoiser import Denoiser
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective
from unnoise.processes import Masking
from unnoise.samplers.sample import sample

HEAD = ["against", "what", "from", "to", "time", "exponent", "R² of a line", "offset"]
DRAWING, TRAINING = "a step of un.sample", "a training step"


class TokenWise(nn.Module):
    """A perceptron on each token by itself, and a head over the vocabulary."""

    def __init__(self, size: int, width: int):
        super().__init__()
        self.tokens, self.out = nn.Embedding(size + 1, width), nn.Linear(width, size)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def features(self, x: Tensor, t: Tensor) -> Tensor:
        return self.body(self.tokens(x))

    def head(self, h: Tensor) -> Tensor:
        return self.out(h)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.head(self.features(x, t))


@dataclass(frozen=True)
class Span:
    """The middle of the sweeps, and where each of them goes."""

    size: int
    width: int
    batch: int
    length: int
    steps: int
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    runs: tuple[int, ...]  # numbers of steps of the third sweep


SPANS = {
    "tiny": Span(11, 8, 2, 8, 2, (1, 2, 4), (4, 8, 16), (8, 4, 2)),
    "small": Span(2_000, 64, 16, 64, 8, (1, 3, 10, 30, 100), (8, 24, 80, 240, 800), (128, 40, 13, 4, 1)),
    "large": Span(50_257, 768, 32, 128, 16, (4, 12, 40, 120, 400), (16, 48, 160, 480, 1600), (256, 80, 26, 8, 2)),
}


@dataclass(frozen=True)
class Sweep:
    """The least time of one thing against one number, in seconds."""

    against: str
    what: str
    numbers: list[int | float]
    times: list[float]

    @property
    def growth(self) -> Growth:
        return Growth.of(self.numbers, self.times)

    def cells(self) -> list[str]:
        fit = self.growth
        ends = [f"{value:,.0f}" for value in (self.numbers[0], self.numbers[-1])]
        times = " to ".join(seconds(Timing(time)) for time in (self.times[0], self.times[-1]))
        return [self.against, self.what, *ends, times, f"{fit.exponent:.2f}", f"{fit.r2:.4f}", seconds(Timing(fit.offset))]

    def json(self) -> dict[str, Any]:
        told = {"against": self.against, "what": self.what, "numbers": self.numbers, "seconds": self.times}
        return {**told, **self.growth.json()}


@dataclass(frozen=True)
class GrowthReport:
    """The sweeps, and what they were measured with."""

    sweeps: list[Sweep]
    origin: Origin

    def json(self) -> dict[str, Any]:
        return {**self.origin.json(), "sweeps": [sweep.json() for sweep in self.sweeps]}

    def text(self) -> str:
        return in_lines(HEAD, [sweep.cells() for sweep in self.sweeps], [], self.origin)

    def markdown(self) -> str:
        return in_markdown(HEAD, [sweep.cells() for sweep in self.sweeps], [], self.origin)


class Point:
    """One place of a sweep: a network, and the steps on it."""

    def __init__(self, setting: BenchSetting, span: Span, batch: int, length: int, steps: int):
        torch.manual_seed(0)
        self.batch, self.steps, self.device = batch, steps, setting.device
        self.rounds = setting.pick({"tiny": 2, "small": 20, "large": 20})
        network = TokenWise(span.size, span.width).to(setting.device)
        if setting.on_cuda:
            network = network.bfloat16()
        self.denoiser = Denoiser(network, Masking(span.size, (length,)))
        self.objective = Objective(self.denoiser)
        self.x0 = torch.randint(span.size, (batch, length), device=setting.device)

    def drawing(self) -> None:
        with torch.no_grad():
            sample(self.denoiser, self.batch, self.steps, seed=0)

    def training(self) -> None:
        self.objective(self.x0, NoiseSource(0, self.batch, self.device)).loss.mean().backward()
        forget_gradients(self.denoiser)

    def timed(self) -> dict[str, float]:
        """The least seconds of a step of each."""
        found = taken(
            {DRAWING: self.drawing, TRAINING: self.training}, self.device, self.rounds, seconds=2.0, clock=undisturbed
        )
        least = {what: timing.least or timing.seconds for what, timing in found.items()}
        return {**least, DRAWING: least[DRAWING] / self.steps}


def _sweep(against: str, points: Iterator[tuple[int | float, Point]], kept: Iterable[str]) -> list[Sweep]:
    """Each point is made when its turn comes."""
    with one_thread():
        found = [(number, point.timed()) for number, point in points]
    numbers = [number for number, _ in found]
    return [Sweep(against, what, numbers, [times[what] for _, times in found]) for what in kept]


def scaling(setting: BenchSetting) -> list[Callable[[], list[Sweep]]]:
    """The three sweeps, each to be measured when it is called."""
    span = setting.pick(SPANS)

    def point(batch: int = span.batch, length: int = span.length, steps: int = span.steps) -> Point:
        return Point(setting, span, batch, length, steps)

    tokens = span.batch * span.length
    return [
        lambda: _sweep("batch", ((n, point(batch=n)) for n in span.batches), (DRAWING, TRAINING)),
        lambda: _sweep("length", ((n, point(length=n)) for n in span.lengths), (DRAWING, TRAINING)),
        lambda: _sweep("vocabulary rows touched", ((tokens / n, point(steps=n)) for n in span.runs), (DRAWING,)),
    ]
