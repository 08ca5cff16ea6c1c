"""How long a training step takes, forward, backward and update, for comparing two trees of this library.

    python benchmarks/step_times.py [--device cuda] [--steps 50]          this tree
    PYTHONPATH=OTHER/src python benchmarks/step_times.py                  another one, in turns with it

Prints medians in ms as JSON: a perceptron 8 -> 64 -> 64 -> 8 at batch 64, and the presets `tiny` (batch 256) and `small`
(batch 1024) on 8 numbers and on 32 letters of 27, masked and uniform.  It asks for names alone that every tree has had.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import unnoise as un
from unnoise.networks.presets import default_network

SIZES = {"tiny": 256, "small": 1024}


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.body(x + t.unsqueeze(1))


def cases(sizes: list[str]) -> Iterator[tuple[str, nn.Module, Tensor]]:
    """(name, denoiser, data)."""
    numbers = un.Gaussian((8,))
    yield "perceptron", un.Denoiser(Perceptron(), numbers, un.Velocity), torch.randn(64, 8)
    for size in sizes:
        network = default_network(numbers, size, seed=0)
        yield f"numbers {size}", un.Denoiser(network, numbers, un.Velocity), torch.randn(SIZES[size], 8)
        for name, letters in (("masking", un.Masking(27, (32,))), ("uniform", un.Uniform(27, (32,)))):
            denoiser = un.Denoiser(default_network(letters, size, seed=0), letters)
            yield f"{name} {size}", denoiser, torch.randint(27, (SIZES[size], 32))


def step_of(denoiser: nn.Module, x0: Tensor) -> Callable[[], None]:
    objective, optimiser = un.Objective(denoiser), torch.optim.AdamW(denoiser.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        objective(x0).loss.mean().backward()
        optimiser.step()

    return step


def median_ms(step: Callable[[], None], device: str, steps: int) -> float:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(steps + 10):
        wait()
        begin = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times[10:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--sizes", nargs="*", default=list(SIZES))
    given = parser.parse_args()
    torch.manual_seed(0)
    found = {}
    for name, denoiser, x0 in cases(given.sizes):
        step = step_of(denoiser.to(given.device), x0.to(given.device))
        found[name] = round(median_ms(step, given.device, given.steps), 3)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
