"""Cost of a step against the number of categories K, for every finite family: time, peak memory, and the gap to the floor.

Three things are measured per coordinate of a row, forward only, on one thread, the network excluded (its logits are ready):

    noise     marginal(x0, t).draw
    reverse   Posterior(logits, process, x_t, t).step(s).draw
    rate      the bound's integrand at (x_t, t); for a chain the divergence of the step t -> s

A row has 16 coordinates, and rows are as many as make 2^20 logits (2^18, and fewer at large K, where matrices act), so
that a call's fixed cost is spread alike over all K; noise that needs no row of categories is drawn for 2^16 coordinates at
every K.  Rows have times of their own in `noise` and `rate`, one pair in `reverse`, as in training and in sampling; every
second coordinate of x_t is drawn from the prior, the others are x_0's.

Time is the processor time of the fastest repeat; the allocator keeps what is released, as those of accelerators do (fresh
pages for every temporary would cost as much again).  Memory is the peak above the inputs: the running sum of every
allocation and release of torch's CPU allocator, temporaries inside operators included, as its profiler reports them; it is
exact and the same on every machine.  What a process holds for good, its tables, is listed apart.

The floor is what must be moved: x_0 in and x_t out (of matrices also one column of a kernel); the logits in and a law of K
floats out; the logits in (for masking those of the masked half).  It is timed at the bandwidth of a copy of 2^20 floats in
the same run, between the repeats, and so is one log_softmax of the same logits.  Exponents are fitted to the upper half of
the K's; the stated one may be exceeded by 0.1, by 0.25 where there is a logarithm or a sparse matrix, read in no order.

    python benchmarks/families.py             prints the table and one verdict per family (about two minutes)
      --check            also exits with status 1 if a verdict is not ok
      --quick            few K's and repeats
      --json             prints all figures as JSON instead
      --out DIR          also writes DIR/cost.png and DIR/cost.json
      --picture FILE     also writes the picture there
"""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces each start otherwise; read when torch is loaded

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import unnoise as un
from unnoise.objectives.closed_forms import rate

COORDINATES, STEPS = 16, 16
SHAPE = (COORDINATES,)
LOGITS, ENTRIES = 2**20, 2**24  # per call: so many logits; at most so many coordinates x K^2 where matrices act
LONGEST = 2.0  # seconds: a family's larger K's are left out once a call takes longer
OPERATIONS = ("noise", "reverse", "rate")
LIMITS = {"1": 0.1, "log K": 0.25, "K": 1.1, "entries": 1.25, "K^2": 2.1, "K^2 log K": 2.25}
VOCABULARIES = (16, 64, 256, 1024, 4096, 16384, 65536)
MATRICES = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Family:
    """A process for every K, and what a coordinate is said to cost: noise, reverse, rate."""

    name: str
    make: Callable[[int], un.Process]
    time: tuple[str, ...] = ("1", "K", "K")
    memory: tuple[str, ...] = ("1", "K", "K")
    sizes: tuple[int, ...] = VOCABULARIES
    dense: bool = False  # matrices act: K^2 per coordinate or more

    @property
    def rank_one(self) -> bool:
        return self.memory[0] == "1"

    def rows(self, size: int) -> int:
        logits = (LOGITS if self.rank_one else LOGITS // 4) // size
        wanted = min(logits, ENTRIES // size**2) if self.dense else logits
        return max(1 if self.rank_one else 4, wanted // COORDINATES)


@dataclass
class Figure:
    """One operation of one family at one K, per coordinate; `tables` is what the process holds."""

    family: str
    operation: str
    size: int
    rows: int
    nanoseconds: float
    floor_nanoseconds: float
    softmax_nanoseconds: float
    bytes: float
    tables: int


def law(size: int, *shape: int) -> Tensor:
    return torch.randn(*shape, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).softmax(-1)


@lru_cache(1)
def neighbours(size: int) -> Tensor:
    return un.rate_matrices.nearest_neighbour(size)


def eigen(size: int) -> un.Process:
    return un.RateMatrix(neighbours(size), SHAPE, method="eigen")


def similar(size: int) -> un.Process:
    embeddings = torch.randn(size, 16, generator=torch.Generator().manual_seed(1))
    return un.RateMatrix(un.rate_matrices.similarity(embeddings, 8, sparse=True), SHAPE, un.schedules.LinearBeta())


def d3pm(size: int) -> un.Process:
    return un.MatrixChain(un.d3pm.uniform(size, [0.2] * STEPS), SHAPE)


LINEAR, SQUARE, LOG_SQUARE, SPARSE = (3 * (cost,) for cost in ("K", "K^2", "K^2 log K", "entries"))
FAMILIES = (
    Family("Masking", lambda k: un.Masking(k, SHAPE)),
    Family("Uniform", lambda k: un.Uniform(k, SHAPE)),
    Family("Interpolation", lambda k: un.Interpolation(k, SHAPE, law(k)), ("log K", "K", "K")),
    Family("Interpolation, a law each", lambda k: un.Interpolation(k, SHAPE, law(k, *SHAPE)), ("log K", "K", "K")),
    Family("Mixture, uniform and mask", lambda k: un.Mixture.uniform_and_mask(k, SHAPE)),
    Family("RateMatrix, sparse", similar, SPARSE, LINEAR, VOCABULARIES[:5]),
    Family("RateMatrix", lambda k: un.RateMatrix(neighbours(k), SHAPE), LOG_SQUARE, LINEAR, MATRICES, True),
    Family("RateMatrix, eigen", eigen, SQUARE, LINEAR, MATRICES, True),
    Family("BirthDeath", lambda k: un.BirthDeath(k - 1, SHAPE), SQUARE, SQUARE, MATRICES, True),
    Family("MatrixChain", d3pm, SQUARE, SQUARE, MATRICES[:-1], True),
)


def clock(rows: int) -> Tensor:
    """A time for each row: sixteenths in turn, the latest and the earliest first."""
    turn = torch.tensor([15, 2, 9, 6, 12, 4, 11, 7, 14, 3, 8, 13, 5, 10])
    return turn[torch.arange(rows) % len(turn)].double() / STEPS


def operations(family: Family, process: Any, size: int) -> dict[str, tuple[int, Callable[[], object]]]:
    """Rows and a call for each operation, on ready inputs; and the log_softmax to compare with."""
    base: Any = process.process if isinstance(process, un.Chain) else process
    rows = family.rows(size)
    many = 2**16 // COORDINATES if family.rank_one else rows
    torch.manual_seed(0)
    data, x0 = (torch.randint(size, (n, *SHAPE)) for n in (many, rows))
    logits = torch.randn(rows, *SHAPE, size)
    x_t = torch.where(torch.arange(COORDINATES) % 2 == 0, base.prior(rows).draw(un.NoiseSource(1, rows)), x0)
    times, each, t, s = clock(many), clock(rows), 8 / STEPS, 7 / STEPS

    def noise() -> object:
        return base.marginal(data, times).draw(un.NoiseSource(0, many))

    def reverse() -> object:
        return un.Posterior(logits, base, x_t, t).step(s).draw(un.NoiseSource(0, rows))

    def bound() -> object:
        prediction = un.Posterior(logits, base, x_t, each)
        if isinstance(process, un.Chain):
            return un.divergence(base.reverse(x_t, x0, each), prediction, each - 1 / STEPS)
        return rate(prediction, base, x0)

    return {
        "noise": (many, noise),
        "reverse": (rows, reverse),
        "rate": (rows, bound),
        "softmax": (rows, lambda: logits.log_softmax(-1)),
    }


def floor_bytes(family: Family, operation: str, size: int) -> float:
    """Bytes per coordinate that must be read and written."""
    if operation == "noise":
        return 16 if family.rank_one else 16 + 8 * size
    if operation == "reverse":
        return 4 * size + 4 * size
    return 4 * size * (0.5 if family.name == "Masking" else 1)


def keep_released_memory() -> None:
    """No fresh pages for every temporary (glibc; nothing happens elsewhere)."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(-1, 2**30)  # M_TRIM_THRESHOLD
        option(-3, 2**25)  # M_MMAP_THRESHOLD


def fastest(runs: list[Callable[[], object]], repeats: int) -> list[float]:
    """Seconds of the fastest of alternating repeats, each."""
    for run in runs:
        run()
    best, spent, done = [float("inf")] * len(runs), 0.0, 0
    while done < 2 or (done < repeats and spent < LONGEST):
        for i, run in enumerate(runs):
            start = time.thread_time()
            run()
            seconds = time.thread_time() - start
            best[i], spent = min(best[i], seconds), spent + seconds
        done += 1
    return best


def peak(run: Callable[[], object]) -> int:
    """The most bytes that stood allocated at once during the call, above those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as watch:
        run()
    live = most = 0
    for event in watch.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            live += event.nbytes()
            most = max(most, live)
    return most


def held(table: Tensor) -> int:
    if table.layout == torch.strided:
        return table.untyped_storage().nbytes()
    return held(table.indices()) + held(table.values())


def measure(family: Family, quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    source, target = torch.randn(LOGITS), torch.empty(LOGITS)
    for size in family.sizes[1:6:2] if quick else family.sizes:
        process = family.make(size)
        tables = sum(held(table) for table in process.buffers())
        calls = operations(family, process, size)
        counts = {name: COORDINATES * rows for name, (rows, _) in calls.items()}
        runs = [*(run for _, run in calls.values()), lambda: target.copy_(source)]
        *seconds, copy = fastest(runs, 3 if quick else 9)
        each = {name: 1e9 * value / counts[name] for name, value in zip(calls, seconds, strict=True)}
        for name in OPERATIONS:
            rows, run = calls[name]
            floor = 1e9 * floor_bytes(family, name, size) * copy / (2 * 4 * LOGITS)
            memory = peak(run) / counts[name]
            figures.append(Figure(family.name, name, size, rows, each[name], floor, each["softmax"], memory, tables))
        if max(seconds) > LONGEST:
            break
    return figures


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of log value against log K over the upper half of the K's."""
    first = len(sizes) // 2 if len(sizes) > 2 else 0
    x, y = (torch.tensor(v[first:], dtype=torch.float64).log() for v in (sizes, values))
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def verdicts(figures: list[Figure]) -> dict[str, dict[str, Any]]:
    """The stated cost, the fitted exponents and whether they agree, for each family."""
    found: dict[str, dict[str, Any]] = {}
    for family in FAMILIES:
        fits: dict[str, Any] = {"stated time": family.time, "stated memory": family.memory}
        for what, stated in (("nanoseconds", family.time), ("bytes", family.memory)):
            fitted = []
            for name in OPERATIONS:
                own = [f for f in figures if f.family == family.name and f.operation == name]
                fitted.append(exponent([f.size for f in own], [getattr(f, what) for f in own]))
            fits[what] = fitted
            fits[what + " ok"] = all(a <= LIMITS[b] for a, b in zip(fitted, stated, strict=True))
        found[family.name] = {**fits, "ok": fits["nanoseconds ok"] and fits["bytes ok"]}
    return found


def show(figures: list[Figure]) -> None:
    print(f"per coordinate of a row of {COORDINATES}: time in ns, x the floor, x log_softmax; peak memory in bytes")
    print(f"{'':27}{'K':>6}{'noise':>10}{'floor':>7}{'bytes':>10}", end="")
    print("".join(f"{name:>12}{'floor':>8}{'softmax':>8}{'bytes':>10}" for name in OPERATIONS[1:]), f"{'tables, MiB':>12}")
    for i in range(0, len(figures), len(OPERATIONS)):
        noise, *others = figures[i : i + len(OPERATIONS)]
        print(f"{noise.family:27}{noise.size:6}{noise.nanoseconds:10.0f}", end="")
        print(f"{noise.nanoseconds / noise.floor_nanoseconds:7.0f}{noise.bytes:10.0f}", end="")
        for f in others:
            print(f"{f.nanoseconds:12.0f}{f.nanoseconds / f.floor_nanoseconds:8.0f}", end="")
            print(f"{f.nanoseconds / f.softmax_nanoseconds:8.1f}{f.bytes:10.0f}", end="")
        print(f"{noise.tables / 2**20:13.1f}")
    print(f"\n{'fitted exponents of K':27}{'time: stated':14}{'fitted':23}{'memory: stated':16}{'fitted':23}")
    for name, v in verdicts(figures).items():
        line = f"{name:27}"
        for stated, fitted in (("stated time", "nanoseconds"), ("stated memory", "bytes")):
            told = v[stated][0] if len(set(v[stated])) == 1 else ", ".join(v[stated])
            line += f"{told:{14 if fitted == 'nanoseconds' else 16}}{' '.join(f'{e:6.2f}' for e in v[fitted]):23}"
        print(line + ("ok" if v["ok"] else "NOT OK"))


TITLES = {
    "noise": "noising: marginal(x0, t).draw",
    "reverse": "reverse kernel from ready logits: step(s).draw",
    "rate": "the bound's rate (MatrixChain: divergence of a step)",
}


def draw(figures: list[Figure], path: Path) -> None:
    """Log-log, one line per family: time on the left, memory on the right."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 2, figsize=(12, 13.5), constrained_layout=True)
    figure.suptitle("Cost per coordinate against the number of categories K", fontsize=14)
    for row, name in zip(axes, OPERATIONS, strict=True):
        for axis, what, unit in zip(row, ("nanoseconds", "bytes"), ("time, ns", "peak memory, bytes"), strict=True):
            for i, family in enumerate(FAMILIES):  # lines that coincide are drawn thinner and thinner
                own = [f for f in figures if f.family == family.name and f.operation == name]
                axis.plot(
                    [f.size for f in own],
                    [getattr(f, what) for f in own],
                    label=family.name,
                    color=f"C{i}",
                    marker="os^vDPX*<>"[i],
                    markersize=8 - 0.8 * (i % 5),
                    linewidth=4.5 - 0.8 * (i % 5) if family.rank_one else 1.5,
                    linestyle="-" if family.rank_one else "--",
                )
            own = [f for f in figures if f.family == "Uniform" and f.operation == name]
            out = [8 if name != "reverse" else 4 * f.size for f in own]
            floor = out if what == "bytes" else [f.floor_nanoseconds for f in own]
            axis.plot([f.size for f in own], floor, color="black", linestyle=":", label="floor of rank-one noise")
            _finish(axis, TITLES[name], unit)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _finish(axis: Any, title: str, unit: str) -> None:
    """Logarithmic scales, and guides of slope 1 and 2 from the lower left corner."""
    axis.set(xscale="log", yscale="log", title=title, xlabel="K", ylabel=unit)
    axis.set_xticks([16, 256, 4096, 65536], ["16", "256", "4,096", "65,536"])
    axis.minorticks_off()
    axis.grid(alpha=0.25)
    low, high = axis.get_ylim()
    first, last = axis.get_xlim()
    for power in (1, 2):
        end = min(last, first * (high / low) ** (1 / power))
        axis.plot([first, end], [low, low * (end / first) ** power], color="0.6", linewidth=0.8, zorder=0)
        x = first * (end / first) ** 0.93
        name, box = "K" if power == 1 else "K\u00b2", {"facecolor": "white", "linewidth": 0, "pad": 1}
        axis.text(x, low * (x / first) ** power, name, color="0.4", ha="center", va="top", bbox=box, zorder=1)
    axis.set(xlim=(first, last), ylim=(low, high))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for flag in ("check", "quick", "json"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_released_memory()
    with torch.no_grad():
        figures = [figure for family in FAMILIES for figure in measure(family, options.quick)]
    found = verdicts(figures)
    text = json.dumps({"figures": [asdict(f) for f in figures], "verdicts": found}, indent=1)
    if options.json:
        print(text)
    else:
        show(figures)
    if options.out:
        draw(figures, options.out / "cost.png")
        (options.out / "cost.json").write_text(text + "\n")
    if options.picture:
        draw(figures, options.picture)
    return int(options.check and not all(v["ok"] for v in found.values()))


if __name__ == "__main__":
    sys.exit(main())
