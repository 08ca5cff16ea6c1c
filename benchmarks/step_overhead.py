"""What a training step costs beside one with a loss written by hand for the same network.

Both steps draw times and noise, ask the network, differentiate and step AdamW, in float32 on one thread.  The hand-written
losses are the few lines that a notebook has: the squared error of the velocity, the cross-entropy of masked letters over t.
The objective is the bound, with its prior and reconstruction, its graded times, its checks of the data and its noise that is
a function of (seed, row, key).  The two take turns; of each turn the processor time of `--steps` steps is taken, and the
ratio is that of the quickest turns, since what disturbs a turn only adds to it.

    numbers      the `tiny` network of 8 numbers, batch 256
    masking      the `tiny` transformer of 32 letters, batch 64
    perceptron   8 -> 64 -> 64 -> 8, batch 64

    python benchmarks/step_overhead.py [--steps N] [--turns N] [--only NAME] [--json]
    python benchmarks/step_overhead.py --check      also exits with status 1 above the stated ratios (1.3, 1.3, 2)
"""

import argparse
import json
import sys
from math import pi
from time import process_time

import torch
import torch.nn.functional as F
from torch import nn

import unnoise as un
from unnoise.networks.presets import default_network

LIMITS = {"numbers": 1.3, "masking": 1.3, "perceptron": 2.0}


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8))

    def forward(self, x, t):
        return self.body(x + t.unsqueeze(1))


def by_hand_numbers(network, x0):
    t = torch.rand(len(x0))
    angle = (pi / 2 * t).unsqueeze(1)
    alpha, sigma, eps = angle.cos(), angle.sin(), torch.randn_like(x0)
    v = network(alpha * x0 + sigma * eps, t)
    return (v - (alpha * eps - sigma * x0)).square().sum(1).mean()


def by_hand_masking(network, x0, size):
    t = torch.rand(len(x0)).clamp_min(1e-3)
    masked = torch.rand(x0.shape) < t.unsqueeze(1)
    logits = network(torch.where(masked, size, x0), t)
    loss = F.cross_entropy(logits.flatten(0, 1), x0.flatten(), reduction="none").reshape(x0.shape)
    return ((loss * masked).sum(1) / t).mean()


def cases():
    """(denoiser, loss by hand, data) by name."""
    numbers, letters = un.Gaussian((8,)), un.Masking(27, (32,))
    yield (
        "numbers",
        un.Denoiser(default_network(numbers, "tiny", seed=0), numbers, un.Velocity),
        by_hand_numbers,
        torch.randn(256, 8),
    )
    yield (
        "masking",
        un.Denoiser(default_network(letters, "tiny", seed=0), letters),
        lambda network, x0: by_hand_masking(network, x0, 27),
        torch.randint(27, (64, 32)),
    )
    yield "perceptron", un.Denoiser(Perceptron(), numbers, un.Velocity), by_hand_numbers, torch.randn(64, 8)


def timed(loss, parameters, steps):
    """Seconds of processor time per step."""
    optimiser = torch.optim.AdamW(parameters, lr=1e-4)
    start = 0.0
    for i in range(steps + 3):
        if i == 3:
            start = process_time()
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
    return (process_time() - start) / steps


def measured(denoiser, by_hand, x0, steps, turns):
    objective, network = un.Objective(denoiser), denoiser.network
    parameters = list(network.parameters())
    found = {"ours": [], "by hand": []}
    for _ in range(turns):
        found["ours"].append(timed(lambda: objective(x0).loss.mean(), parameters, steps))
        found["by hand"].append(timed(lambda: by_hand(network, x0), parameters, steps))
    ours, hand = (min(values) for values in found.values())
    return {"ms": 1000 * ours, "by_hand_ms": 1000 * hand, "ratio": ours / hand}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--only", choices=list(LIMITS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    figures = {
        name: measured(denoiser, by_hand, x0, given.steps, given.turns)
        for name, denoiser, by_hand, x0 in cases()
        if given.only in (None, name)
    }
    if given.json:
        print(json.dumps(figures))
    else:
        for name, found in figures.items():
            print(f"{name:12s} {found['ms']:.2f} ms, by hand {found['by_hand_ms']:.2f} ms: {found['ratio']:.2f}")
    slow = [name for name, found in figures.items() if found["ratio"] > LIMITS[name]]
    if given.check and slow:
        sys.exit(f"above the stated ratio: {', '.join(f'{name} ({LIMITS[name]})' for name in slow)}")


if __name__ == "__main__":
    main()
