"""How much of a bare loop's speed the training loop keeps.

Both train the same network with the same objective, batch, precision and optimiser.  The bare loop takes rows in a random
order, calls the objective, steps AdamW, and does nothing else: no averaged copies, no clipping, no flag, no metrics.  They
take turns, and the ratio of each turn is taken by itself, so that a machine that slows down slows both.  On a processor the
network is a small one over 32 letters, on an accelerator the `small` transformer over 256, in bfloat16.

    python benchmarks/training_throughput.py [--device cpu] [--capture] [--compile] [--steps N] [--turns N] [--json]
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
from unnoise.networks.base import build, described, register
from unnoise.networks.presets import default_network
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective
from unnoise.training import Run, RunConfig, TrainConfig, train
from unnoise.training.metrics import read_metrics

SIZE, ROWS, BATCH = 27, 4096, 128
LENGTH = {"cpu": 32, "cuda": 256}
LIMIT = 0.9


class Text(Format):
    kind, suffix = "benchmark-text", ".txt"

    def __init__(self, length: int):
        self.length = length

    def lines(self):
        return []

    def process(self):
        return un.Masking(size=SIZE, shape=(self.length,))

    def encode(self, path):
        raise NotImplementedError("the benchmark makes its own rows")

    def write(self, x, path):
        path.write_text("\n".join(map(str, x.tolist())))

    def to_json(self):
        return {"length": self.length}

    @classmethod
    def from_json(cls, data):
        return cls(data["length"])


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


def network_of(device: str, width: int) -> dict:
    """The network by name and options."""
    if device == "cpu":
        return {"name": "BenchmarkNetwork", "options": {"width": width}}
    return described(default_network(Text(LENGTH[device]).process(), "small", windows=True))


def bare(rows: torch.Tensor, network: dict, steps: int) -> float:
    """Examples per second of the bare loop."""
    device, form = rows.device, Text(rows.shape[1])
    denoiser = un.Denoiser(build(network["name"], network["options"]), form.process()).to(device)
    objective = Objective(denoiser)
    optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-3, fused=True)
    order = torch.randperm(len(rows), device=device)
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    began = 0.0
    for step in range(steps + 5):
        if step == 5:  # after a few to warm up
            wait(device)
            began = perf_counter()
        start = step * BATCH % (len(rows) - BATCH)
        index = order[start : start + BATCH]
        with half:
            loss = objective(rows[index], NoiseSource(0, index).at(step)).loss.mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    wait(device)
    return steps * BATCH / (perf_counter() - began)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def ours(rows: torch.Tensor, network: dict, steps: int, capture: bool = False, compile: bool = False) -> float:
    """Examples per second of the training loop: all of its updates but the first few."""
    precision = "bf16" if rows.device.type == "cuda" else "no"
    config = TrainConfig(steps=steps + 5, batch_size=BATCH, log_every=5, save_every=10**6, validation=0.0, panels=0,
                         precision=precision, capture=capture, compile=compile, tensorboard=False,
                         device="cpu" if rows.device.type == "cpu" else "auto")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        form = Text(rows.shape[1])
        run = Run.create(Path(folder) / "run", RunConfig.of(config, form, network), {Text.kind: Text})
        train(run, rows)
        lines = read_metrics(run.metrics)
    return steps * BATCH / (lines[-1]["seconds"] - lines[0]["seconds"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("steps", 60), ("turns", 5), ("width", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", choices=list(LENGTH), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--capture", action="store_true", help="record the update as a CUDA graph")
    parser.add_argument("--compile", action="store_true", help="compile the network (the bare loop is left as it is)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    shape = (ROWS, LENGTH[options.device])
    rows = torch.randint(SIZE, shape, generator=torch.Generator().manual_seed(0)).to(options.device)
    network = network_of(options.device, options.width)
    bare(rows, network, 5)
    how = (options.capture, options.compile)
    turns = [(ours(rows, network, options.steps, *how), bare(rows, network, options.steps)) for _ in range(options.turns)]
    result = {
        "bare_examples_per_second": statistics.median(turn[1] for turn in turns),
        "examples_per_second": statistics.median(turn[0] for turn in turns),
        "ratio": statistics.median(one / other for one, other in turns),
    }
    print(json.dumps(result) if options.json else "\n".join(f"{name:26} {value:10.2f}" for name, value in result.items()))
    return int(options.check and result["ratio"] < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
