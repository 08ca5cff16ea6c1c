"""Exact draws of the Wright-Fisher diffusion in the simplex of four, a second.

    python benchmarks/simplex_draws.py

Each line: the time tau after the start, draws a second from a point inside and from a vertex, the best of three batches of
20,000 on all threads; and draws a second of one processor's time, which other programs on the machine do not lower.
"""

from time import perf_counter, process_time

import torch

import unnoise as un
from unnoise.simplex_laws import WrightFisherLaw

BATCH, TAUS = 20_000, (0.05, 0.2, 1.0)


def speed(law: WrightFisherLaw) -> tuple[float, float]:
    law.draw(un.NoiseSource(3, BATCH))  # fills tables
    taken = []
    for seed in range(3):
        start = perf_counter(), process_time()
        law.draw(un.NoiseSource(seed, BATCH))
        taken.append((perf_counter() - start[0], process_time() - start[1]))
    return BATCH / min(t[0] for t in taken), BATCH / min(t[1] for t in taken)


def main() -> None:
    alpha = torch.ones(4, dtype=torch.float64)
    starts = torch.tensor([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]]).double()
    print(
        f"{'tau':>6} {'inside':>12} {'vertex':>12} {'inside/cpu':>12} {'vertex/cpu':>12}   {torch.get_num_threads()} threads"
    )
    for tau in TAUS:
        laws = [WrightFisherLaw(s.expand(BATCH, 4), torch.full((BATCH,), tau), alpha, i == 1) for i, s in enumerate(starts)]
        wall, processor = zip(*map(speed, laws), strict=True)
        print(f"{tau:>6g} " + " ".join(f"{rate:>12,.0f}" for rate in (*wall, *processor)))


if __name__ == "__main__":
    main()
