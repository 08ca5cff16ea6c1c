"""The bound's own cost at a real vocabulary, as a ratio to a plain cross-entropy on the same logits.

K = 50,257 categories, batch 8 x 128, float32, forward only, the network excluded (its logits are ready).  The floor is one
reading of the logits: B L K floats.  A cross-entropy reads them once; the masked bound reads the masked rows (half of
them on average, as counts are uniform); the uniform bound needs the sum of log(1 + c theta_y) over y too, one more
transcendental function per logit.  Each figure is the median of alternating runs in one process; memory is the peak above
the logits themselves, in a process of its own.

    python benchmarks/bound_speed.py            prints the table
    python benchmarks/bound_speed.py --check    also exits with status 1 above the stated ratios (1.5 and 3)
"""

import multiprocessing
import os
import statistics
import sys
import threading
import time

import torch
import torch.nn.functional as F

import unnoise as un

SIZE, BATCH, LENGTH = 50_257, 8, 128
LIMITS = {"masked bound": 1.5, "uniform bound": 3.0}


class Ready(torch.nn.Module):
    """A network whose logits are already there."""

    def __init__(self, logits: torch.Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.logits


def cases() -> dict:
    torch.manual_seed(0)
    logits = torch.randn(BATCH, LENGTH, SIZE)
    x0 = torch.randint(SIZE, (BATCH, LENGTH))
    masked = un.Objective(un.Denoiser(Ready(logits), un.Masking(SIZE, (LENGTH,))))
    uniform = un.Objective(un.Denoiser(Ready(logits), un.Uniform(SIZE, (LENGTH,))))
    return {
        "cross_entropy": lambda i: F.cross_entropy(logits.flatten(0, 1), x0.flatten(), reduction="none"),
        "masked bound": lambda i: masked(x0, un.NoiseSource(i, BATCH)).total,
        "uniform bound": lambda i: uniform(x0, un.NoiseSource(i, BATCH)).total,
    }


def peak(name: str, queue) -> None:
    """Peak resident memory above what stands before the call, in MiB."""
    run, done, seen = cases()[name], threading.Event(), [resident()]

    def watch() -> None:
        while not done.is_set():
            seen.append(resident())
            time.sleep(2e-4)

    watcher = threading.Thread(target=watch)
    with torch.inference_mode():
        watcher.start()
        run(0)
        done.set()
    watcher.join()
    queue.put((max(seen) - seen[0]) / 2**20)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_of(name: str) -> float:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=peak, args=(name, queue))
    process.start()
    value = queue.get()
    process.join()
    return value


def measure(rounds: int = 15) -> dict[str, float]:
    runs = cases()
    times: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for run in runs.values():
            run(0)
        for i in range(rounds):
            for name, run in runs.items():
                start = time.perf_counter()
                run(i)
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    seconds = measure()
    base = seconds["cross_entropy"]
    floor = BATCH * LENGTH * SIZE * 4
    print(f"K = {SIZE}, batch {BATCH} x {LENGTH}, {torch.get_num_threads()} threads, logits {floor / 2**20:.0f} MiB")
    print(f"{'':16}{'time, ms':>10}{'ratio':>8}{'limit':>8}{'logits read, GB/s':>20}{'peak memory, MiB':>20}")
    worst = 0
    for name, value in seconds.items():
        limit = LIMITS.get(name)
        worst += limit is not None and value / base > limit
        print(
            f"{name:16}{1e3 * value:10.1f}{value / base:8.2f}{limit if limit else '-':>8}{floor / value / 1e9:20.1f}"
            f"{peak_of(name):20.0f}"
        )
    return 1 if worst and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
