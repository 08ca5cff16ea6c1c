"""What closed spaces cost: exact draws a second, and a training step over that of Gaussian noise with the same network.

    python benchmarks/closed_spaces.py [--rows 100000] [--steps 60] [--threads 1] [--json]

Draws of a heat kernel from as many points at the variances 0.05, 0.2 and 1, in float64: by the clock, and by the time that
the processor was at it (which other work on the machine hardly changes).  At least 100,000 a second are wanted on two
cores; one thread is what other work on the machine disturbs least.

A training step (noise, network, loss, backward, update) on eight angles and on eight numbers, with one perceptron of the
same size that is shown sines and cosines, or the numbers twice: medians of the processor's time, in turns, and the ratio,
which is wanted to be at most 1.3.  The default networks are beside them.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import unnoise as un
from unnoise.networks.presets import default_network

VARIANCES = (0.05, 0.2, 1.0)
BATCH, ANGLES = 256, 8
DRAWS: list[tuple[str, Callable[[], un.HeatProcess]]] = [  # a name, and what makes the process
    ("globe S^2", lambda: un.SphereHeat(2)),
    ("rotations SO(3)", un.RotationHeat),
]


class Perceptron(nn.Module):
    """The same layers whatever it is shown: x itself twice, or its sine and cosine."""

    def __init__(self, angles: bool) -> None:
        super().__init__()
        self.angles = angles
        self.body = nn.Sequential(
            nn.Linear(2 * ANGLES + 1, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, ANGLES)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        shown = [x.sin(), x.cos()] if self.angles else [x, x]
        return self.body(torch.cat([*shown, t.unsqueeze(1)], 1))


def draws_a_second(process: un.HeatProcess, variance: float, rows: int) -> tuple[float, float]:
    """By the clock, and by the time of one core at it."""
    start = process.prior(rows, torch.float64).draw(un.NoiseSource(0, rows))
    law = process.law(start, torch.full((rows, *[1] * (start.ndim - 1)), variance, dtype=torch.float64))
    law.draw(un.NoiseSource(1, rows))
    found = []
    for i in range(3):
        clock, work = time.perf_counter(), time.process_time()
        law.draw(un.NoiseSource(i, rows))
        found.append((rows / (time.perf_counter() - clock), rows / (time.process_time() - work)))
    return max(pair[0] for pair in found), max(pair[1] for pair in found)


def step_of(denoiser: nn.Module, x0: Tensor) -> Callable[[], None]:
    objective, optimiser = un.Objective(denoiser), torch.optim.AdamW(denoiser.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        objective(x0).loss.mean().backward()
        optimiser.step()

    return step


def steps_ms(steps: dict[str, Callable[[], None]], count: int) -> dict[str, float]:
    """Medians of the work of each, in turns, after ten that do not count."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(count + 10):
        for name, step in steps.items():
            begin = time.process_time()
            step()
            found[name].append(time.process_time() - begin)
    return {name: 1000 * statistics.median(values[10:]) for name, values in found.items()}


def training(count: int) -> list[dict]:
    torus, line = un.WrappedNormal((ANGLES,)), un.Gaussian((ANGLES,))
    x0 = torch.rand(BATCH, ANGLES) * 6 - 3
    rows = []
    for network in ("the same perceptron", "default network"):
        same = network == "the same perceptron"
        models = {
            "torus": Perceptron(True) if same else default_network(torus, "tiny", seed=0),
            "numbers": Perceptron(False) if same else default_network(line, "tiny", seed=0),
        }
        ms = steps_ms(
            {
                "torus": step_of(un.Denoiser(models["torus"], torus), x0),
                "numbers": step_of(un.Denoiser(models["numbers"], line, un.Velocity), x0),
            },
            count,
        )
        rows.append({"network": network, **{f"{k}, ms": v for k, v in ms.items()}, "ratio": ms["torus"] / ms["numbers"]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    draws = []
    for name, make in DRAWS:
        for variance in VARIANCES:
            clock, core = draws_a_second(make(), variance, given.rows)
            draws.append({"space": name, "variance": variance, "draws a second": clock, "a second of one core": core})
    steps = training(given.steps)
    if given.json:
        print(json.dumps({"draws": draws, "steps": steps}))
        return
    for row in draws:
        print(f"{row['space']:16} v = {row['variance']:<5} {row['draws a second']:12,.0f} draws/s", end="")
        print(f"  {row['a second of one core']:12,.0f} per second of one core")
    for row in steps:
        print(f"step, {row['network']:20} torus {row['torus, ms']:6.2f} ms  numbers {row['numbers, ms']:6.2f} ms", end="")
        print(f"  ratio {row['ratio']:.2f}")


if __name__ == "__main__":
    main()
