"""Data with separated modes in the plane: which process samples them best at equal network calls.

    ring    eight normal laws on a circle, weights from 0.02 to 0.25
    pair    two far apart, weights 0.15 and 0.85

Every contender has the same perceptron (two layers of width 64; only the last layer differs, by what it has to say), the
same number of updates of the same batches, and is then asked for samples with 16, 32 and 64 evaluations of its network per
sample.  Printed are, over the trained copies and their samples,

    energy   1000 x the energy distance 2 E|X - Y| - E|X - X'| - E|Y - Y'| of samples from the data (unbiased: it may fall
             below 0), with its standard error; data against data in the last row
    modes    the total variation of the shares of the modes; what lies further than four standard deviations from all of
             them is a mode of its own, without any data
    between  that share
    seconds  of training, and for 1000 samples, on one thread

A contender is one function of MODELS: it returns what is trained (a loss of a batch) and the ways to draw from it.

    python benchmarks/separated_modes.py          the table of docs/jumps.md (some ten minutes)
      --updates N --copies N --samples N          updates, trained copies of each, samples of each copy
      --only NAME ...                             contenders or data sets whose name contains one of these
      --json                                      the figures as JSON
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import unnoise as un
from unnoise.networks import default_network
from unnoise.objectives import Objective

CALLS = (16, 32, 64)
BATCH, RATE, AVERAGE = 256, 2e-3, 0.995
FAR = 4.0  # standard deviations from every mode: between them
PART = 500  # samples drawn together
Draw = Callable[[un.AnyDenoiser, int, int, int], Tensor]  # (denoiser, samples, calls, seed)


@dataclass(frozen=True)
class Modes:
    """Normal laws of one standard deviation in the plane, scaled to unit variance in all."""

    weights: Tensor
    centres: Tensor
    deviation: float

    @classmethod
    def scaled(cls, weights: Tensor, centres: Tensor, deviation: float) -> "Modes":
        weights = weights / weights.sum()
        mean = weights @ centres
        size = float(((weights @ (centres - mean).square()).mean() + deviation**2).sqrt())
        return cls(weights, (centres - mean) / size, deviation / size)

    def draw(self, count: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        which = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        return self.centres[which] + self.deviation * torch.randn(count, 2, generator=generator)

    def shares(self, x: Tensor) -> Tensor:
        """Of each mode in x, and last of what is between."""
        distance, which = torch.cdist(x, self.centres).min(1)
        which = torch.where(distance > FAR * self.deviation, len(self.centres), which)
        return torch.bincount(which, minlength=len(self.centres) + 1) / len(x)


def ring() -> Modes:
    angle = torch.arange(8) * (2 * math.pi / 8)
    weights = torch.tensor([0.25, 0.02, 0.15, 0.04, 0.22, 0.08, 0.18, 0.06])
    return Modes.scaled(weights, 4 * torch.stack([angle.cos(), angle.sin()], 1), 0.3)


def pair() -> Modes:
    return Modes.scaled(torch.tensor([0.15, 0.85]), torch.tensor([[-6.0, 1.0], [6.0, -1.0]]), 0.4)


DATA = {"ring": ring, "pair": pair}


@dataclass
class Contender:
    """What is trained, and the ways to draw from it."""

    denoiser: un.AnyDenoiser
    loss: Callable[[Tensor, int], Tensor]  # of a batch and a seed
    draws: dict[str, Draw]


def by(sampler: Any) -> Draw:
    """Steps of a sampler that asks the network once in each."""

    def draw(denoiser: un.AnyDenoiser, samples: int, calls: int, seed: int) -> Tensor:
        parts = [
            un.sample(denoiser, n=min(PART, samples - i), calls=calls, sampler=sampler(), seed=seed, first=i)[0]
            for i in range(0, samples, PART)
        ]
        return torch.cat(parts).float()

    return draw


def trained_by(denoiser: un.AnyDenoiser, draws: dict[str, Draw], **options: Any) -> Contender:
    objective = Objective(denoiser, **options)
    return Contender(denoiser, lambda x, seed: objective(x, un.NoiseSource(seed, len(x))).loss.mean(), draws)


def of_process(process: un.Process, seed: int, draws: dict[str, Draw], **options: Any) -> Contender:
    return trained_by(un.Denoiser(default_network(process, "tiny", seed=seed), process), draws, **options)


GAUSSIAN = {"DPM-Solver++": by(un.samplers.DPMSolverPP), "ancestral": by(un.samplers.Ancestral)}
JUMPS = {"ancestral": by(un.samplers.Ancestral), "generator": by(un.samplers.FromGenerator)}


def gaussian(seed: int) -> Contender:
    """Gaussian diffusion, trained on its bound."""
    return of_process(un.Gaussian((2,)), seed, GAUSSIAN)


def gaussian_velocity(seed: int) -> Contender:
    """Gaussian diffusion, trained on the plain error of its velocity."""
    return of_process(un.Gaussian((2,)), seed, GAUSSIAN, weighting=un.weightings.V())


def jump_diffusion(seed: int) -> Contender:
    """Jump-diffusion with one throw on average, by clouds."""
    return of_process(un.JumpDiffusion((2,), jumps=1.0, scale=1.5), seed, JUMPS)


def clouds_alone(seed: int) -> Contender:
    """The control: the same network of clouds, with next to no throws."""
    return of_process(un.JumpDiffusion((2,), jumps=1e-9, scale=1.5), seed, {"ancestral": by(un.samplers.Ancestral)})


MODELS: dict[str, Callable[[int], Contender]] = {
    "Gaussian": gaussian,
    "Gaussian, velocity": gaussian_velocity,
    "jump-diffusion": jump_diffusion,
    "clouds alone": clouds_alone,
}


def train(contender: Contender, data: Modes, updates: int, seed: int) -> float:
    """Seconds; the weights are averaged in the end."""
    parameters = [p for p in contender.denoiser.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
    average = [p.detach().clone() for p in parameters]
    start = time.perf_counter()
    for update in range(updates):
        optimiser.zero_grad()
        contender.loss(data.draw(BATCH, seed * updates + update), seed * updates + update).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            keep = min(AVERAGE, (1 + update) / (10 + update))
            torch._foreach_lerp_(average, [p.detach() for p in parameters], 1 - keep)
    with torch.no_grad():
        for p, mean in zip(parameters, average, strict=True):
            p.copy_(mean)
    return time.perf_counter() - start


def energy_distance(x: Tensor, y: Tensor) -> float:
    n, m = len(x), len(y)
    within = torch.cdist(x, x).sum() / (n * (n - 1)) + torch.cdist(y, y).sum() / (m * (m - 1))
    return float(2 * torch.cdist(x, y).mean() - within)


def figures(data: Modes, x: Tensor, seed: int) -> dict[str, float]:
    truth, shares = torch.cat([data.weights, torch.zeros(1)]), data.shares(x)
    fresh = data.draw(len(x), 10_000_019 + seed)
    return {
        "energy": 1000 * energy_distance(x, fresh),
        "modes": 0.5 * float((shares - truth).abs().sum()),
        "between": float(shares[-1]),
    }


def mean_and_error(values: list[float]) -> tuple[float, float]:
    v = torch.tensor(values, dtype=torch.float64)
    return float(v.mean()), float(v.std() / len(v) ** 0.5) if len(v) > 1 else math.nan


def rows_of(name: str, data: Modes, label: str, copies: int, updates: int, samples: int) -> list[dict[str, Any]]:
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    seconds = []
    for copy in range(copies):
        contender = MODELS[name](copy)
        seconds.append(train(contender, data, updates, copy))
        for how, draw in contender.draws.items():
            for calls in CALLS:
                start = time.perf_counter()
                with torch.no_grad():
                    x = draw(deepcopy(contender.denoiser), samples, calls, 100 + copy)
                spent = 1000 * (time.perf_counter() - start) / samples
                found.setdefault((how, calls), []).append({**figures(data, x, copy), "drawing": spent})
    made = []
    for (how, calls), values in found.items():
        row: dict[str, Any] = {"data": label, "model": name, "sampler": how, "calls": calls}
        for key in values[0]:
            row[key], row[f"{key} error"] = mean_and_error([value[key] for value in values])
        made.append({**row, "training": sum(seconds) / copies})
    return made


def floor(data: Modes, label: str, copies: int, samples: int) -> dict[str, Any]:
    values = [figures(data, data.draw(samples, 20_000_003 + copy), copy) for copy in range(copies)]
    row: dict[str, Any] = {"data": label, "model": "data", "sampler": "", "calls": 0}
    for key in values[0]:
        row[key], row[f"{key} error"] = mean_and_error([value[key] for value in values])
    return {**row, "drawing": 0.0, "training": 0.0}


HEADER = "| data | model | sampler | calls | energy | modes | between | training s | 1000 samples s |\n" + "|---" * 9 + "|"


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        energy, modes = (f"{row[key]:.{d}f} ± {row[f'{key} error']:.{d}f}" for key, d in (("energy", 1), ("modes", 3)))
        cells = (row["data"], row["model"], row["sampler"], row["calls"] or "", energy, modes, f"{row['between']:.3f}")
        lines.append(f"| {' | '.join(map(str, cells))} | {row['training']:.0f} | {row['drawing']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=[], choices=[*MODELS, *DATA])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in MODELS if name in options.only] or list(MODELS)
    labels = [label for label in DATA if label in options.only] or list(DATA)
    rows: list[dict[str, Any]] = []

    def tell(new: list[dict[str, Any]]) -> None:
        rows.extend(new)
        if not options.json:
            print(table(new), flush=True)

    if not options.json:
        print(HEADER)
    for label in labels:
        data = DATA[label]()
        for name in names:
            tell(rows_of(name, data, label, options.copies, options.updates, options.samples))
        tell([floor(data, label, options.copies, options.samples)])
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
