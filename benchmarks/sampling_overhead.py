"""What a sampler costs over its network: time per step of a whole run, divided by that of the network's calls alone.

    python benchmarks/sampling_overhead.py [--device cuda] [--json]

Numbers: batch 4096 x 64, a small network, 50 steps; the floor is the network called as often as the method calls it.
Categories: masked sequences, a transformer body with a head over the vocabulary; the floor is the body alone, as each step
needs it.  diffusers (DDIM, DPM-Solver++, UniPC) and flow_matching (discrete Euler) run the same networks, where installed.

The floor in numbers: a step of a linear method reads the state and each prediction and writes the state, 1 MB each at this
size, which the memory of an H200 moves in less than a microsecond.  What is measured is launches, not bytes: a captured run
shows what is left without them.
"""

import argparse
import json
import time
from collections.abc import Callable

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


def fastest(function, device: torch.device, repeats: int = 15) -> float:
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
    methods: list[tuple[str, samplers.Sampler, int]] = [
        ("DDIM", samplers.DDIM(), steps),
        ("DPMSolverPP 2M", samplers.DPMSolverPP(2), steps),
        ("DPMSolverPP 3M", samplers.DPMSolverPP(3), steps + 1),
        ("UniPC", samplers.UniPC(3), steps),
        ("DEIS", samplers.DEIS(2), steps),
        ("Heun", samplers.Heun(), 2 * steps),
        ("DDIM eta 1", samplers.DDIM(1.0), steps),
    ]
    denoiser = un.Denoiser(network, un.Gaussian((64,), un.schedules.LinearBeta()), predicts=un.Noise)
    recorded = samplers.captured(denoiser)
    options = {"start": 0.999, "end": 1e-3, "steps": steps}
    rows = []
    for name, sampler, calls in methods:

        def alone(calls=calls) -> None:
            for _ in range(calls):
                network(x, t)

        runs: dict[str, Callable] = {
            "unnoise": lambda sampler=sampler: un.sample(denoiser, x=x, sampler=sampler, **options, seed=0),
        }
        if device.type == "cuda":
            runs["unnoise, captured network"] = lambda sampler=sampler: un.sample(
                recorded, x=x, sampler=sampler, **options, seed=0
            )
            whole = samplers.CapturedRun(denoiser, batch, sampler=sampler, **options, seed=0)
            runs["unnoise, captured run"] = whole
        if name in (theirs := diffusers_runs(network, x, steps)):
            runs["diffusers"] = theirs[name]
        rows += measured(name, alone, runs, device)
    return rows


def diffusers_runs(network: nn.Module, x: Tensor, steps: int) -> dict[str, Callable]:
    try:
        from diffusers.schedulers.scheduling_ddim import DDIMScheduler
        from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
        from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler
    except ImportError:
        return {}
    schedulers = {
        "DDIM": DDIMScheduler(clip_sample=False),
        "DPMSolverPP 2M": DPMSolverMultistepScheduler(solver_order=2),
        "DPMSolverPP 3M": DPMSolverMultistepScheduler(solver_order=3),
        "UniPC": UniPCMultistepScheduler(solver_order=2),
    }

    def run(scheduler) -> None:
        scheduler.set_timesteps(steps, device=x.device)
        state = x
        for t in scheduler.timesteps:
            state = scheduler.step(network(state, (t / 1000).expand(len(x)).to(x.dtype)), t, state).prev_sample

    return {name: lambda scheduler=scheduler: run(scheduler) for name, scheduler in schedulers.items()}


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

    def reveal() -> None:
        un.sample(denoiser, n=batch, sampler=samplers.Reveal(), steps=steps, device=device, seed=0)

    runs: dict[str, Callable] = {"body and head everywhere": everything, "unnoise": reveal}
    if (theirs := flow_matching_run(network, x, steps)) is not None:
        runs["flow_matching"] = theirs
    with torch.autocast(device.type, torch.bfloat16, enabled=large):
        return measured(f"masking, {batch} x {length} x {size}", body, runs, device, repeats=2)


def flow_matching_run(network: nn.Module, x: Tensor, steps: int) -> Callable | None:
    """Its discrete Euler solver, from MASK, by the same number of steps."""
    try:
        from flow_matching.path import MixtureDiscreteProbPath
        from flow_matching.path.scheduler import PolynomialConvexScheduler
        from flow_matching.solver import MixtureDiscreteEulerSolver
        from flow_matching.utils import ModelWrapper
    except ImportError:
        return None

    class Probabilities(ModelWrapper):
        def forward(self, x: Tensor, t: Tensor, **extras) -> Tensor:
            logits = self.model(x, t.expand(len(x)))
            return torch.nn.functional.pad(logits.float().softmax(-1), (0, 1))  # none on MASK

    path = MixtureDiscreteProbPath(PolynomialConvexScheduler(n=1.0))
    size = network.head.out_features
    solver = MixtureDiscreteEulerSolver(Probabilities(network), path, vocabulary_size=size + 1)
    return lambda: solver.sample(x_init=x, step_size=1 / steps, time_grid=torch.tensor([0.0, 1 - 1e-3], device=x.device))


def measured(name: str, floor: Callable, runs: dict[str, Callable], device: torch.device, repeats: int = 15) -> list[dict]:
    least = fastest(floor, device, repeats)
    rows = [{"run": name, "by": "network alone", "ms": 1e3 * least, "ratio": 1.0}]
    for by, run in runs.items():
        took = fastest(run, device, repeats)
        rows.append({"run": name, "by": by, "ms": 1e3 * took, "ratio": took / least})
    return rows


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
    print(f"{'run':30}{'by':28}{'ms':>10}{'ratio':>8}")
    for row in rows:
        print(f"{row['run']:30}{row['by']:28}{row['ms']:10.2f}{row['ratio']:8.2f}")


if __name__ == "__main__":
    main()
