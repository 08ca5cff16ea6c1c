"""What a sampler costs over its network: time per step of a whole run, divided by that of the network's calls alone.

    python benchmarks/sampling_overhead.py [--device cuda] [--json]

Numbers: batch 4096 x 64, a small network, 50 steps.  Categories: masked sequences, a transformer body with a head over the
vocabulary; the floor is the body alone, as each step needs it, and the whole head on every position for comparison.
"""

import argparse
import json
import time

import torch
from torch import Tensor, nn

import unnoise as un
from unnoise import samplers


class Small(nn.Module):
    """A multilayer perceptron with the time beside the state."""

    def __init__(self, width: int = 64, hidden: int = 256):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(width + 1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, width)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.body(torch.cat([x, t.expand(len(x)).unsqueeze(1)], 1))


class Sequence(nn.Module):
    """A transformer with a head over the vocabulary, as features and head."""

    def __init__(self, size: int, length: int, width: int, layers: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(size + 1, width), nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, size)

    def features(self, x: Tensor, t: Tensor) -> Tensor:
        return self.body(self.tokens(x) + self.places)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.head(self.features(x, t))


def clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def fastest(function, device: torch.device, repeats: int = 5) -> float:
    """The least of several times, after one run to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = clock(device)
        function()
        times.append(clock(device) - start)
    return min(times)


@torch.no_grad()
def numbers(device: torch.device, steps: int = 50, batch: int = 4096) -> list[dict]:
    network = Small().to(device).eval()
    x, t = torch.randn(batch, 64, device=device), torch.full((batch,), 0.5, device=device)
    rows = []
    methods: list[tuple[str, samplers.Sampler, int]] = [
        ("DDIM", samplers.DDIM(), steps),
        ("DPMSolverPP 2M", samplers.DPMSolverPP(2), steps),
        ("DPMSolverPP 3M", samplers.DPMSolverPP(3), steps + 1),
        ("UniPC", samplers.UniPC(3), steps),
        ("DEIS", samplers.DEIS(2), steps),
        ("Heun", samplers.Heun(), 2 * steps),
        ("DDIM eta 1", samplers.DDIM(1.0), steps),
    ]
    for kind in (un.Clean, un.Noise):
        denoiser = un.Denoiser(network, un.Gaussian((64,), un.schedules.LinearBeta()), predicts=kind)
        for name, sampler, calls in methods:

            def alone(calls=calls) -> None:
                for _ in range(calls):
                    network(x, t)

            def whole(sampler=sampler, denoiser=denoiser) -> None:
                un.sample(denoiser, x=x, sampler=sampler, steps=steps, end=1e-3)

            floor, ours = fastest(alone, device), fastest(whole, device)
            rows.append({"run": f"{name}, {kind.__name__}", "network": floor, "ours": ours, "ratio": ours / floor})
    return rows


@torch.no_grad()
def categories(device: torch.device, steps: int = 32) -> list[dict]:
    large = device.type == "cuda"
    size, length, width, layers, batch = (50_257, 1024, 768, 12, 16) if large else (5_000, 128, 128, 2, 8)
    network = Sequence(size, length, width, layers).to(device).eval()
    denoiser = un.Denoiser(network, un.Masking(size, (length,)))
    x, t = torch.full((batch, length), size, device=device), torch.full((batch,), 0.5, device=device)

    def body() -> None:
        for _ in range(steps):
            network.features(x, t)

    def everything() -> None:
        for _ in range(steps):
            network(x, t)

    def whole() -> None:
        un.sample(denoiser, n=batch, sampler=samplers.Reveal(), steps=steps, device=device)

    with torch.autocast(device.type, torch.bfloat16, enabled=large):
        floor, full, ours = (fastest(f, device, 3) for f in (body, everything, whole))
    return [
        {"run": "Reveal, over the body", "network": floor, "ours": ours, "ratio": ours / floor},
        {"run": "Reveal, over body and whole head", "network": full, "ours": ours, "ratio": ours / full},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    rows = numbers(device) + categories(device)
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'run':36}{'network, ms':>14}{'ours, ms':>12}{'ratio':>8}")
    for row in rows:
        print(f"{row['run']:36}{1e3 * row['network']:14.2f}{1e3 * row['ours']:12.2f}{row['ratio']:8.2f}")


if __name__ == "__main__":
    main()
