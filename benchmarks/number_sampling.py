"""What sampling of numbers costs over the network's own calls, eagerly and as one recorded graph.

    python benchmarks/number_sampling.py [--device cuda] [--batch N] [--steps N] [--repeats N] [--json] [--check]

A perceptron 64 -> 256 -> 256 -> 64, with the time beside the state, is called 50 times on 4096 rows (256 on a CPU):

    network     its calls alone, in a plain loop
    graph       the same calls, recorded as one CUDA graph
    eager       `un.sample(denoiser, n, steps, sampler)`, with all that is done before and after the loop; over the network
    captured    `CapturedRun`, of which a replay is timed with the copy of its result; over the graph

Each figure is the median of repeated runs, timed by CUDA events, or by the clock on a CPU; a run and its floor take turns,
so that what disturbs the machine disturbs both.  `host` is what a step on the CPU costs beside the network, in microseconds
of processor time: a run of many steps less one of a single step, on few rows, of a network that does nothing.

`--check` exits with status 1 above the stated ratios: Ancestral 2 eagerly and 1.3 captured, the others 1.2 captured.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

import unnoise as un
from unnoise import samplers
from unnoise.bench.timing import recorded

WIDTH, HIDDEN = 64, 256
METHODS: dict[str, Callable[[], samplers.Stepping]] = {
    "Ancestral": samplers.Ancestral,
    "DDIM": samplers.DDIM,
    "DPMSolverPP(2)": lambda: samplers.DPMSolverPP(2),
    "UniPC": samplers.UniPC,
}
LIMITS = {("Ancestral", "eager"): 2.0, **{(name, "captured"): 1.3 if name == "Ancestral" else 1.2 for name in METHODS}}


class Small(nn.Module):
    """A perceptron with the time beside the state."""

    def __init__(self, width: int = WIDTH, hidden: int = HIDDEN):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(width + 1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, width)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.body(torch.cat([x, t.unsqueeze(1)], 1))


class Idle(nn.Module):
    """No work: what is left of a run is the library's own."""

    def __init__(self, rows: int, width: int):
        super().__init__()
        self.weight, self.kept = nn.Parameter(torch.zeros(())), torch.randn(rows, width)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.kept


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """Of one run, from its first launch to its last result."""
    if device.type != "cuda":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1e3


def in_turns(runs: dict[str, Callable[[], object]], device: torch.device, repeats: int) -> dict[str, float]:
    """The median time of each, after two runs to warm up."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for n in range(repeats + 2):
        for name, run in runs.items():
            took = seconds(run, device)
            if n >= 2:
                times[name].append(took)
    return {name: statistics.median(taken) for name, taken in times.items()}


@torch.no_grad()
def measure(
    device: torch.device | str | None = None,
    batch: int | None = None,
    steps: int = 50,
    repeats: int = 21,
    methods: list[str] | None = None,
) -> list[dict]:
    """A row for every method and path: {"method", "path", "ms", "floor_ms", "ratio"}."""
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    batch = batch or (4096 if device.type == "cuda" else 256)
    torch.manual_seed(0)
    network = Small().to(device).eval()
    denoiser = un.Denoiser(network, un.Gaussian((WIDTH,)))
    x, t = torch.randn(batch, WIDTH, device=device), torch.full((batch,), 0.5, device=device)

    def alone() -> None:
        for _ in range(steps):
            network(x, t)

    graph = recorded(alone, device) if device.type == "cuda" else None
    rows = []
    for name in methods or METHODS:
        sampler = METHODS[name]()
        runs: dict[str, Callable[[], object]] = {
            "network": alone,
            "eager": partial(un.sample, denoiser, batch, steps, sampler, seed=0),
        }
        if graph is not None:
            runs |= {"graph": graph, "captured": samplers.CapturedRun(denoiser, batch, steps, sampler, seed=0)}
        found = in_turns(runs, device, repeats)
        for path, floor in (("eager", "network"), ("captured", "graph")):
            if path in found:
                ms, least = 1e3 * found[path], 1e3 * found[floor]
                rows.append({"method": name, "path": path, "ms": ms, "floor_ms": least, "ratio": ms / least})
    return rows


def measure_host(steps: int = 51, repeats: int = 40, rows: int = 16, methods: list[str] | None = None) -> list[dict]:
    """A row for every method: {"method", "path": "host", "us"}, on one thread of the CPU."""
    denoiser = un.Denoiser(Idle(rows, 4), un.Gaussian((4,)))

    def least(name: str, steps: int) -> float:
        sampler, taken = METHODS[name](), []
        for _ in range(repeats):
            start = time.process_time()
            un.sample(denoiser, rows, steps, sampler, seed=0)
            taken.append(time.process_time() - start)
        return min(taken)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            {"method": name, "path": "host", "us": 1e6 * (least(name, steps) - least(name, 1)) / (steps - 1)}
            for name in methods or METHODS
        ]
    finally:
        torch.set_num_threads(threads)


def kernels(device: torch.device | str = "cuda", batch: int = 4096, steps: int = 50) -> list[dict]:
    """How many kernels a step launches, the network's and ours: {"method", "network", "ours"}; CUDA only."""
    from torch.profiler import ProfilerActivity, profile

    network = Small().to(device).eval()
    denoiser = un.Denoiser(network, un.Gaussian((WIDTH,)))
    x, t = torch.randn(batch, WIDTH, device=device), torch.full((batch,), 0.5, device=device)

    @torch.no_grad()
    def launched(run: Callable[[], object]) -> int:
        run()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            run()
            torch.cuda.synchronize()
        return sum(event.device_type.name == "CUDA" for event in trace.events())

    each = launched(lambda: network(x, t))
    rows = []
    for name, method in METHODS.items():
        runs = [partial(un.sample, denoiser, batch, n, method(), seed=0) for n in (steps, steps // 2)]
        many, few = map(launched, runs)
        rows.append({"method": name, "network": each, "ours": (many - few) / (steps - steps // 2) - each})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--kernels", action="store_true", help="also count kernels per step (CUDA)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    rows = measure(given.device, given.batch, given.steps, given.repeats)
    host = measure_host()
    counted = kernels(given.device, given.batch or 4096, given.steps) if given.kernels else []
    if given.json:
        print(json.dumps([*rows, *host, *counted]))
    else:
        print(f"{'method':18}{'path':10}{'ms':>10}{'floor ms':>10}{'ratio':>8}")
        for row in rows:
            print(f"{row['method']:18}{row['path']:10}{row['ms']:10.2f}{row['floor_ms']:10.2f}{row['ratio']:8.2f}")
        for row in host:
            print(f"{row['method']:18}{'host':10}{row['us']:10.0f} microseconds a step")
        for row in counted:
            print(f"{row['method']:18}{'kernels':10}{row['network']:10d} of the network in a step, {row['ours']:.2f} beside")
    slow = [row for row in rows if row["ratio"] > LIMITS.get((row["method"], row["path"]), float("inf"))]
    if given.check and slow:
        sys.exit("above the stated ratio: " + ", ".join(f"{row['method']} {row['path']}" for row in slow))


if __name__ == "__main__":
    main()
