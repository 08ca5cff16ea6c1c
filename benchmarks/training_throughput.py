"""How much of a bare loop's speed the training loop keeps.

Both train the same network with the same objective, batch and optimiser.  The bare loop takes rows in a random order, calls
the objective, steps AdamW, and does nothing else: no averaged copies, no clipping, no flag, no metrics.  They take turns,
and the ratio of each turn is taken by itself, so that a machine that slows down slows both.

    python benchmarks/training_throughput.py [--steps N] [--turns N] [--width N] [--json]
    python benchmarks/training_throughput.py --check     also exits with status 1 below the stated ratio (0.9)
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import nn

import unnoise as un
from unnoise.data.base import Format
from unnoise.networks.base import build, register
from unnoise.noise import Noise
from unnoise.objectives import Objective
from unnoise.training import Run, RunConfig, TrainConfig, train
from unnoise.training.metrics import read_metrics

SIZE, LENGTH, ROWS, BATCH = 27, 32, 4096, 128
LIMIT = 0.9


class Text(Format):
    kind, suffix = "benchmark-text", ".txt"

    def lines(self):
        return []

    def process(self):
        return un.Masking(size=SIZE, shape=(LENGTH,))

    def encode(self, path):
        raise NotImplementedError("the benchmark makes its own rows")

    def write(self, x, path):
        path.write_text("\n".join(map(str, x.tolist())))

    def to_json(self):
        return {}

    @classmethod
    def from_json(cls, data):
        return cls()


@dataclass(kw_only=True)
class Options:
    width: int = 128


@register(Options)
class BenchmarkNetwork(nn.Module):
    """Letters that see their neighbours and a mean over all: small, and still a network."""

    def __init__(self, config: Options):
        super().__init__()
        self.config, width = config, config.width
        self.letter = nn.Embedding(SIZE + 1, width)
        self.near = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(2))
        self.out = nn.Linear(width, SIZE)

    def forward(self, x, t):
        h = self.letter(x).transpose(1, 2)
        for layer in self.near:
            h = h + nn.functional.silu(layer(h)) + h.mean(-1, keepdim=True)
        return self.out(h.transpose(1, 2))


def bare(rows: torch.Tensor, width: int, steps: int) -> float:
    """Examples per second of the bare loop."""
    objective = Objective(un.Denoiser(build("BenchmarkNetwork", {"width": width}), Text().process()))
    optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-3, fused=True)
    order = torch.randperm(len(rows))
    began = 0.0
    for step in range(steps + 5):
        if step == 5:  # after a few to warm up
            began = perf_counter()
        start = step * BATCH % (len(rows) - BATCH)
        index = order[start : start + BATCH]
        objective(rows[index], Noise(0, index).at(step)).loss.mean().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return steps * BATCH / (perf_counter() - began)


def ours(rows: torch.Tensor, width: int, steps: int) -> float:
    """Examples per second of the training loop: all of its updates but the first few."""
    config = TrainConfig(steps=steps + 5, batch_size=BATCH, log_every=5, save_every=10**6, validation=0.0, device="cpu",
                         tensorboard=False)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        network = {"name": "BenchmarkNetwork", "options": {"width": width}}
        run = Run.create(Path(folder) / "run", RunConfig.of(config, Text(), network), {Text.kind: Text})
        train(run, rows)
        lines = read_metrics(run.metrics)
    return steps * BATCH / (lines[-1]["seconds"] - lines[0]["seconds"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("steps", 60), ("turns", 5), ("width", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = torch.randint(SIZE, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    bare(rows, options.width, 5)
    turns = [
        (ours(rows, options.width, options.steps), bare(rows, options.width, options.steps)) for _ in range(options.turns)
    ]
    result = {
        "bare_examples_per_second": statistics.median(turn[1] for turn in turns),
        "examples_per_second": statistics.median(turn[0] for turn in turns),
        "ratio": statistics.median(one / other for one, other in turns),
    }
    print(json.dumps(result) if options.json else "\n".join(f"{name:26} {value:10.2f}" for name, value in result.items()))
    return int(options.check and result["ratio"] < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
