"""What a reverse step on categories costs beside its network, and how far that is from the least it could.

    python benchmarks/reverse_steps.py [--device cuda] [--steps 128] [--run] [--json]

Two settings, sized to the device: *ordinal*, arrays of 28 x 28 with 256 levels under steps up and down, and *uniform*,
tokens of a vocabulary of 50,257.  For each, the time of one step (all that follows the network's features: head, law, draw),
in the mean over a run of so many steps, drawn

    by probabilities    log-probabilities of all states first, in float64 where they are summed
    as it is            what `prediction.step(s).draw(noise)` does (`processes.lazy_steps`)
    floor               the head on the rows that can move, their product with one matrix (ordinal), and their logits written
                        and read once at the speed of a copy on this machine

and the bytes that operators of torch read and write on the way (fused kernels add their reading of the logits).  On the host
times are seconds of one core.  --run also samples whole arrays by the network of the `base` preset, untrained: 1,000 of them
on an accelerator, in float32 and in bfloat16, compiled there, beside the network's calls alone and their arithmetic.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import unnoise as un
from unnoise.laws import draw_categories
from unnoise.networks import default_network
from unnoise.networks.compiled import compile_network
from unnoise.networks.precision import in_precision
from unnoise.noise import NoiseSource
from unnoise.processes import FiniteProcess, rate_matrices


class Bytes(TorchDispatchMode):
    """Counts what operators read and write; views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        out = function(*arguments, **(options or {}))
        read = [value for value in (*arguments, *(options or {}).values()) if isinstance(value, Tensor)]
        made = [value for value in (out if isinstance(out, tuple | list) else [out]) if isinstance(value, Tensor)]
        places = {value.untyped_storage().data_ptr() for value in read}
        if function.is_view or not made:
            return out
        fresh = [value for value in made if value.untyped_storage().data_ptr() not in places]
        if fresh or function._schema.is_mutable:
            self.total += sum(value.numel() * value.element_size() for value in (*read, *(fresh or made)))
        return out


@dataclass
class Setting:
    """A process, features of a network, and its head."""

    name: str
    process: FiniteProcess
    features: Tensor
    head: nn.Linear
    x: Tensor

    def law(self, t: float, s: float):
        return un.Posterior.of_features(self.features, self.head, self.process, self.x, t).step(s)


def settings(device: torch.device) -> list[Setting]:
    torch.manual_seed(0)
    large = device.type == "cuda"
    half = torch.bfloat16 if large else torch.float32
    rates, cosine = rate_matrices.nearest_neighbour(256), un.schedules.Cosine()
    ordinal = un.RateMatrix(rates, (28, 28), cosine, method="eigen").to(device)
    uniform = un.Uniform(50_257, (1024,) if large else (64,))
    out = []
    for name, process, rows, width in (
        ("ordinal, 256 levels", ordinal, 1000 if large else 8, 128),
        ("uniform, 50,257 tokens", uniform, 16 if large else 4, 768 if large else 64),
    ):
        head = nn.Linear(width, process.space.size, dtype=half, device=device)
        features = torch.randn(rows, *process.space.shape, width, dtype=half, device=device)
        x = process.prior(rows, device=device).draw(NoiseSource(0, rows, device))
        out.append(Setting(name, process, features, head, x))
    return out


def clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()  # whatever else the machine does


def seconds(function: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    function()
    times = []
    for _ in range(repeats):
        began = clock(device)
        function()
        times.append(clock(device) - began)
    return min(times)


def copied_per_second(device: torch.device) -> float:
    """Bytes read and written by a copy of what no cache holds."""
    source = torch.zeros(2**28 if device.type == "cuda" else 2**24, device=device)
    target = torch.empty_like(source)
    return 2 * 4 * len(source) / seconds(lambda: target.copy_(source), device)


def movable_share(setting: Setting, t: float, s: float) -> float:
    """The share of coordinates whose logits decide anything: all, or under uniform noise what `kernels.raised` derives."""
    if not isinstance(setting.process, un.Uniform):
        return 1.0
    return min(1.0, 2 * (1 - s / setting.process.space.size) * (t - s) / ((1 - s) * t))


@torch.no_grad()
def steps_of(setting: Setting, count: int, device: torch.device, speed: float) -> dict:
    """Means over the steps of a run; probabilities cost the same in each, so some will do."""
    times = torch.linspace(1, 0, count + 1, dtype=torch.float64).tolist()
    pairs = list(pairwise(times))
    noise = NoiseSource(1, len(setting.x), device)
    row: dict = {"setting": setting.name, "coordinates": setting.x.numel()}
    ways = {
        "by probabilities": lambda t, s: draw_categories(setting.law(t, s).log_probs, noise),
        "as it is": lambda t, s: setting.law(t, s).draw(noise),
    }
    drawn = {}
    for name, way in ways.items():
        try:
            drawn[name] = way(0.5, 0.5 - 1 / count)
            visited = pairs if name == "as it is" else pairs[:: max(1, count // 3)]
            spent = sum(seconds(lambda t=t, s=s, way=way: way(t, s), device, 1) for t, s in visited)
            row[f"{name}, ms"] = 1e3 * spent / len(visited)
            with Bytes() as counted:
                way(0.5, 0.5 - 1 / count)
            row[f"{name}, GB"] = counted.total / 1e9
        except torch.cuda.OutOfMemoryError:
            row[f"{name}, ms"] = "out of memory"
    if len(drawn) == 2:
        row["share of draws that differ"] = float((drawn["by probabilities"] != drawn["as it is"]).double().mean())
    share = sum(movable_share(setting, t, s) for t, s in pairs) / len(pairs)
    rows = setting.features.flatten(0, -2)[: max(1, int(share * setting.x.numel()))]
    logits = len(rows) * setting.process.space.size * setting.features.element_size()
    floor = seconds(lambda: [setting.head(part) for part in rows.split(4096)], device) + logits / speed
    if isinstance(setting.process, un.RateMatrix):
        some, matrix = (
            torch.rand(4096, 256, device=device).to(rows.dtype),
            torch.rand(256, 256, device=device).to(rows.dtype),
        )
        floor += seconds(lambda: [some @ matrix for _ in rows.split(4096)], device)
    return row | {"share that can move": share, "logits, GB": logits / 1e9, "floor, ms": 1e3 * floor}


@torch.no_grad()
def runs(device: torch.device, steps: int) -> list[dict]:
    """Whole samples by the base network, and its calls alone."""
    large = device.type == "cuda"
    count, preset = (1000, "base") if large else (4, "tiny")
    process = un.RateMatrix(rate_matrices.nearest_neighbour(256), (28, 28), un.schedules.Cosine(), method="eigen")
    network = default_network(process, preset, seed=0).to(device).eval()
    x, t = torch.randint(256, (count, 28, 28), device=device), torch.full((count,), 0.5, device=device)
    with FlopCounterMode(display=False) as flops:
        network(x[:1], t[:1])
    work = flops.get_total_flops() * count * steps / 1e12
    out = []
    for name in ("float32", "bfloat16", "bfloat16, compiled") if large else ("float32",):
        denoiser = un.Denoiser(network, process).to(device)
        if "compiled" in name:
            compile_network(network)
        denoiser = in_precision(denoiser, "bf16") if "bfloat16" in name else denoiser
        alone = steps * seconds(lambda denoiser=denoiser: denoiser.network.features(x, t), device)
        began = clock(device)
        un.sample(denoiser, count, 4, seed=0, device=device)
        first = clock(device) - began
        began = clock(device)
        un.sample(denoiser, count, steps, seed=0, device=device)
        row = {"samples": count, "steps": steps, "network": f"{preset}, {name}", "seconds": clock(device) - began}
        row |= {"network alone, s": alone, "first 4 steps, s": first, "TFLOP of the network": work}
        out.append(row | {"TFLOP/s of the network": work / alone})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--run", action="store_true", help="sample whole arrays too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    speed = copied_per_second(device)
    rows = [{"copies, GB/s": speed / 1e9}]
    rows += [steps_of(setting, options.steps, device, speed) for setting in settings(device)]
    rows += runs(device, options.steps) if options.run else []
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            "; ".join(
                f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}" for name, value in row.items()
            )
        )


if __name__ == "__main__":
    main()
