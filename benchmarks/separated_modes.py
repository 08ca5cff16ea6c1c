"""Data with separated modes in the plane: which process samples them best at equal network calls.

    ring    eight normal laws on a circle, weights from 0.02 to 0.25
    pair    two far apart, weights 0.15 and 0.85

Every contender has the same perceptron (two layers of width 64; only the last layer differs, by what it has to say), the
same number of updates of the same batches, and is then asked for samples with 16, 32 and 64 evaluations of its network per
sample.  Processes of finite speed are thinned, and take as many as their paths need: the mean number of network rows of a
sample is printed, for several caps.  The cap of the model in training is 30; a lower one takes fewer calls and cuts ratios
off.  Printed are, over the trained copies and their samples,

    energy   1000 x the energy distance 2 E|X - Y| - E|X - X'| - E|Y - Y'| of samples from the data (unbiased: it may fall
             below 0), with its standard error; data against data in the last row
    modes    the total variation of the shares of the modes; what lies further than four standard deviations from all of
             them is a mode of its own, without any data
    between  that share
    seconds  of one core, of training, and for 1000 samples

A contender is one function of MODELS: it returns what is trained (a loss of a batch) and the ways to draw from it.

    python benchmarks/separated_modes.py          the table of docs/jumps.md (some twenty minutes)
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
CAPS = (2, 4, 9, 30)  # of thinned samples
VISITS = 2  # times of a path at which training asks the network
JUMPING = 4  # one update in so many is of the jumps of a superposition, whose bound costs 20 times that of the diffusion
Draw = Callable[[un.AnyDenoiser, int, int, int], tuple[Tensor, float]]  # (denoiser, samples, calls, seed): (x, calls taken)


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


@dataclass(frozen=True)
class Way:
    """A way to draw, and the calls to ask of it (0: as many as it takes)."""

    draw: Draw
    calls: tuple[int, ...] = CALLS


@dataclass
class Contender:
    """What is trained, and the ways to draw from it."""

    denoiser: un.AnyDenoiser
    loss: Callable[[Tensor, int], Tensor]  # of a batch and a seed
    draws: dict[str, Way]


def drawn(denoiser: un.AnyDenoiser, samples: int, seed: int, **options: Any) -> tuple[Tensor, float]:
    parts = [un.sample(denoiser, n=min(PART, samples - i), seed=seed, first=i, **options) for i in range(0, samples, PART)]
    return torch.cat([x for x, _ in parts]).float(), sum(info.rows for _, info in parts) / samples


def by(sampler: Any) -> Way:
    """Steps of a sampler that asks the network once in each."""
    return Way(lambda denoiser, samples, calls, seed: drawn(denoiser, samples, seed, calls=calls, sampler=sampler()))


def thinned(cap: float) -> Way:
    """Exactly, with ratios up to a cap."""

    def draw(denoiser: Any, samples: int, calls: int, seed: int) -> tuple[Tensor, float]:
        return drawn(un.Denoiser(denoiser.network, denoiser.process.with_cap(cap)), samples, seed)

    return Way(draw, (0,))


def mixed(weight: float, sampler: Any) -> Way:
    """A superposition in this proportion."""

    def draw(denoiser: Any, samples: int, calls: int, seed: int) -> tuple[Tensor, float]:
        in_proportion = un.Denoiser(denoiser.network, denoiser.process.mixed(weight))
        return drawn(in_proportion, samples, seed, calls=calls, sampler=sampler())

    return Way(draw)


def trained_by(denoiser: un.AnyDenoiser, draws: dict[str, Way], **options: Any) -> Contender:
    objective = Objective(denoiser, **options)
    return Contender(denoiser, lambda x, seed: objective(x, un.NoiseSource(seed, len(x))).loss.mean(), draws)


def of_process(process: un.Process, seed: int, draws: dict[str, Way], **options: Any) -> Contender:
    return trained_by(un.Denoiser(default_network(process, "tiny", seed=seed), process), draws, **options)


GAUSSIAN = {"DPM-Solver++": by(un.samplers.DPMSolverPP), "ancestral": by(un.samplers.Ancestral)}
JUMPS = {"ancestral": by(un.samplers.Ancestral), "generator": by(un.samplers.FromGenerator)}
THINNED = {f"thinned, cap {cap}": thinned(cap) for cap in CAPS}
MIXED = {f"generator, w = {weight:g}": mixed(weight, un.samplers.FromGenerator) for weight in (0.0, 0.5, 1.0)}


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


def zig_zag(seed: int) -> Contender:
    """The zig-zag process, by ratios of flips."""
    return of_process(un.ZigZag((2,), visits=VISITS), seed, THINNED)


def hamiltonian(seed: int) -> Contender:
    """Randomised Hamiltonian dynamics, by laws of velocities."""
    return of_process(un.RandomisedHamiltonian((2,), visits=VISITS), seed, THINNED)


def superposition(seed: int) -> Contender:
    """A diffusion and jumps on one path, learned together: an update is of the one or of the other, bound at w = 0 or 1."""
    process = un.Superposition((2,), un.schedules.LinearBeta(), weight=1.0)
    network = default_network(process, "tiny", seed=seed)
    parts = {weight: Objective(un.Denoiser(network, process.mixed(weight))) for weight in (0.0, 1.0)}

    def loss(x: Tensor, seed: int) -> Tensor:
        return parts[float(seed % JUMPING > 0)](x, un.NoiseSource(seed, len(x))).loss.mean()

    draws = {**MIXED, "ancestral, w = 1": mixed(1.0, un.samplers.Ancestral)}
    return Contender(un.Denoiser(network, process), loss, draws)


MODELS: dict[str, Callable[[int], Contender]] = {
    "Gaussian": gaussian,
    "Gaussian, velocity": gaussian_velocity,
    "jump-diffusion": jump_diffusion,
    "clouds alone": clouds_alone,
    "zig-zag": zig_zag,
    "Hamiltonian": hamiltonian,
    "superposition": superposition,
}


def train(contender: Contender, data: Modes, updates: int, seed: int) -> float:
    """Seconds; the weights are averaged in the end."""
    parameters = [p for p in contender.denoiser.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
    average = [p.detach().clone() for p in parameters]
    start = time.process_time()
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
    return time.process_time() - start


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
        for how, way in contender.draws.items():
            for calls in way.calls:
                start = time.process_time()
                with torch.no_grad():
                    x, taken = way.draw(deepcopy(contender.denoiser), samples, calls, 100 + copy)
                spent = 1000 * (time.process_time() - start) / samples
                told = {**figures(data, x, copy), "drawing": spent, "calls": taken}
                found.setdefault((how, calls), []).append(told)
    made = []
    for (how, _), values in found.items():
        row: dict[str, Any] = {"data": label, "model": name, "sampler": how}
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
        way = (row["data"], row["model"], row["sampler"], round(row["calls"]) or "")
        cells = (*way, energy, modes, f"{row['between']:.3f}")
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
