"""What a training step of a large vocabulary costs beside the network's body: its loss forward and backward, and its memory.

The network is a plain transformer in eager mode (12 layers, 768 wide, 12 heads, normalised first; `--body library` is the
library's own, `--compile` compiles it) with an `nn.Linear` head of 50,257 tokens, under autocast to bfloat16, on 16 x 1024
tokens.  Each figure is the median of CUDA events around one call, gradients set to None before it; memory is the peak that
torch allocated during a call, weights included.

    body               features forward, and backward from a gradient that is ready: the floor
    masked step        un.Objective on Masking: half of the tokens are masked, as counts are uniform
    uniform step       un.Objective on Uniform: all tokens
    full log-probs     the masked cross-entropy from log_softmax of all logits, as a notebook has it
    head, masked       the loss alone on ready features, half of the rows chosen; and all of them
    ... recorded       the same step as one CUDA graph, as `unnoise train` launches it (with `--recorded`)

The head's floor: [rows x 768] x [768 x 50257] is 2 rows 768 50257 operations, three times with its gradients and once more
for logits that are made again; at 600 TFLOP/s 4.2 ms for the 8192 masked rows, 8.4 ms for all 16384.

    python benchmarks/head_training.py                          the table (on a CPU: --small sizes)
    python benchmarks/head_training.py --variant likely=0 --variant held=2**28,tile=128x256x64
                                                                the steps again with other chunks (fields of ChunkPlan)
    python benchmarks/head_training.py --check                  also exits with status 1 above the stated ratios (1.3 and 2)
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

import unnoise as un
from unnoise.kernels import head_chunks
from unnoise.kernels.head import head_terms
from unnoise.kernels.head_chunks import ChunkPlan
from unnoise.networks import SequenceTransformer, SequenceTransformerConfig

LIMITS = {"masked step": 1.3, "uniform step": 2.0}


@dataclass(frozen=True)
class Sizes:
    batch: int = 16
    length: int = 1024
    vocabulary: int = 50_257
    width: int = 768
    layers: int = 12
    heads: int = 12


SMALL = Sizes(batch=4, length=64, width=64, layers=2, heads=2)


@dataclass(frozen=True)
class Row:
    name: str
    variant: str
    ms: float
    ratio: float  # to the body
    gib: float | None  # peak memory, where it is known


class PlainBody(nn.Module):
    """Layers of plain torch, normalised first, with a linear head."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.embed = nn.Embedding(sizes.vocabulary + 1, sizes.width)
        self.place = nn.Parameter(0.02 * torch.randn(sizes.length, sizes.width))
        layer = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(sizes.width, sizes.heads, 4 * sizes.width, **layer) for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary)

    def features(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.embed(x) + self.place
        for layer in self.layers:
            h = layer(h)
        return self.norm(h)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x, t))


def network_of(body: str, sizes: Sizes) -> nn.Module:
    torch.manual_seed(0)
    if body == "plain":
        return PlainBody(sizes)
    options = {"width": sizes.width, "layers": sizes.layers, "heads": sizes.heads}
    return SequenceTransformer(SequenceTransformerConfig(size=sizes.vocabulary, **options))


def timed(
    call: Callable[[], None], before: Callable[[], None], device: torch.device, turns: int
) -> tuple[float, float | None]:
    """Milliseconds of a call (the median), and the most memory that it allocates in GiB."""
    cuda, times = device.type == "cuda", []
    for turn in range(turns + 3):
        before()
        if turn == 3 and cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        if cuda:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            times.append((start, end))
        else:
            begun = time.perf_counter()
            call()
            times.append((time.perf_counter() - begun) * 1e3)
    if cuda:
        torch.cuda.synchronize()
        times = [start.elapsed_time(end) for start, end in times]
    return statistics.median(times[3:]), torch.cuda.max_memory_allocated() / 2**30 if cuda else None


def recorded(call: Callable[[], None]) -> Callable[[], None]:
    """The kernels of a call as one graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


class Cases:
    """The calls that are timed, on one network."""

    def __init__(self, device: torch.device, sizes: Sizes, body: str, compiled: bool):
        self.device, self.sizes = device, sizes
        self.network = network_of(body, sizes).to(device)
        if compiled:
            self.network.features = torch.compile(self.network.features)
        shape = (sizes.batch, sizes.length)
        self.x0 = torch.randint(sizes.vocabulary, shape, device=device)
        self.t = torch.full((sizes.batch,), 0.5, device=device)
        rows = torch.arange(sizes.batch, device=device)
        key = torch.tensor(12345, device=device)
        self.noise = un.NoiseSource.keyed(key, rows) if device.type == "cuda" else un.NoiseSource(0, sizes.batch, device)
        self.masked = torch.rand(shape, device=device) < 0.5
        self.x_t = torch.where(self.masked, sizes.vocabulary, self.x0)
        processes = {"masked step": un.Masking, "uniform step": un.Uniform}
        self.objectives = {
            name: un.Objective(un.Denoiser(self.network, process(sizes.vocabulary, (sizes.length,))))
            for name, process in processes.items()
        }
        with torch.no_grad(), self.precision():
            self.ready = self.network.features(self.x_t, self.t).detach().requires_grad_()
        self.arriving = torch.randn_like(self.ready)

    def precision(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext()

    def forget(self) -> None:
        self.network.zero_grad(set_to_none=True)
        self.ready.grad = None

    def body(self) -> None:
        with self.precision():
            h = self.network.features(self.x_t, self.t)
        h.backward(self.arriving)

    def step(self, name: str) -> None:
        with self.precision():
            loss = self.objectives[name](self.x0, self.noise).loss.mean()
        loss.backward()

    def full(self) -> None:
        with self.precision():
            logits = self.network(self.x_t, self.t)
            log_probs = logits.float().log_softmax(-1)
            loss = -log_probs.gather(-1, self.x0.unsqueeze(-1)).squeeze(-1)
            loss = (loss * self.masked).sum() / self.sizes.batch
        loss.backward()

    def head(self, share: str) -> None:
        """The loss of ready features alone."""
        head, rows = self.network.head, self.ready.flatten(0, 1)
        with self.precision():
            index = self.x0.reshape(-1, 1)
            if share == "uniform":
                scale = torch.full((len(rows),), 100.0, device=self.device)
                terms = head_terms(rows, head.weight, head.bias, index.expand(-1, 2), scale=scale)
            else:
                chosen = self.masked.flatten() if share == "masked" else torch.ones_like(self.masked).flatten()
                terms = head_terms(rows, head.weight, head.bias, index, chosen=chosen)
        (terms[0].sum() + terms[1].sum()).backward()


def variant_of(text: str, base: ChunkPlan) -> ChunkPlan:
    """`held=2**26,likely=0,tile=128x256x64` as a plan."""
    given: dict[str, Any] = {}
    for entry in filter(None, text.split(",")):
        name, _, value = entry.partition("=")
        if name not in asdict(base) or not value:
            sys.exit(f"--variant {text}: {entry!r} is none of {', '.join(f'{field}=...' for field in asdict(base))}")
        if name == "tile":
            given[name] = tuple(int(side) for side in value.split("x"))
        elif "**" in value:
            low, _, high = value.partition("**")
            given[name] = int(low) ** int(high)
        else:
            given[name] = {"True": True, "False": False}.get(value, float(value) if "." in value else int(value))
    return replace(base, **given)


def measure(
    device: torch.device | str,
    sizes: Sizes | None = None,
    body: str = "plain",
    compiled: bool = False,
    turns: int = 20,
    variants: tuple[str, ...] = ("",),
    with_recorded: bool = False,
) -> list[Row]:
    """Every case on the device; those with a head in chunks once for each variant."""
    device = torch.device(device)
    cases = Cases(device, sizes or (Sizes() if device.type == "cuda" else SMALL), body, compiled)
    floor, gib = timed(cases.body, cases.forget, device, turns)
    rows = [Row("body", "", floor, 1.0, gib)]
    base = (head_chunks.PLAN, head_chunks.ON_HOST)
    calls: dict[str, Callable[[], None]] = {name: (lambda name=name: cases.step(name)) for name in LIMITS}
    calls |= {f"head, {share}": (lambda share=share: cases.head(share)) for share in ("masked", "all", "uniform")}
    try:
        for variant in variants:
            head_chunks.PLAN, head_chunks.ON_HOST = (variant_of(variant, plan) for plan in base)
            for name, call in calls.items():
                rows.append(row_of(name, variant, call, cases, floor, turns))
            for name in LIMITS if with_recorded and device.type == "cuda" else ():
                cases.forget()
                replay = recorded(calls[name])
                rows.append(row_of(f"{name}, recorded", variant, replay, cases, floor, turns, keep=True))
                del replay
    finally:
        head_chunks.PLAN, head_chunks.ON_HOST = base
    rows.append(row_of("full log-probs", "", cases.full, cases, floor, turns))
    return rows


def row_of(
    name: str, variant: str, call: Callable[[], None], cases: Cases, floor: float, turns: int, keep: bool = False
) -> Row:
    """`keep`: gradients stay where they are, as a recorded step needs them."""
    ms, gib = timed(call, (lambda: None) if keep else cases.forget, cases.device, turns)
    return Row(name, variant, ms, ms / floor, gib)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="sizes that fit a CPU")
    parser.add_argument("--body", choices=["plain", "library"], default="plain")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--variant", action="append", help="fields of ChunkPlan; '' is the default one")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    sizes = SMALL if given.small or given.device == "cpu" else Sizes()
    variants = tuple(given.variant or ("",))
    rows = measure(given.device, sizes, given.body, given.compile, given.turns, variants, given.recorded)
    if given.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        where = torch.cuda.get_device_name() if given.device.startswith("cuda") else f"{torch.get_num_threads()} threads"
        mode = f"{given.body} body, {'compiled' if given.compile else 'eager'}"
        print(f"{where}, torch {torch.__version__}, {mode}, {sizes}")
        print(f"{'':24}{'ms':>9}{'x body':>8}{'limit':>7}{'GiB':>7}  variant")
        for row in rows:
            memory = "-" if row.gib is None else f"{row.gib:.2f}"
            print(f"{row.name:24}{row.ms:9.2f}{row.ratio:8.2f}{LIMITS.get(row.name, '-'):>7}{memory:>7}  {row.variant}")
    slow = [row.name for row in rows if row.ratio > LIMITS.get(row.name, float("inf"))]
    return 1 if slow and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
