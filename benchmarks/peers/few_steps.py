"""Errors in few steps, ours beside diffusers: distance to the exact probability flow of mixtures of normals.

    python benchmarks/peers/few_steps.py [--json] [--cells]

Both get the same start, the same grid of rho = sigma/alpha, ended at 0, and the same exact clean prediction, in float64.
The error is the root mean square distance to the flow's end, over 256 rows.  Three mixtures (two broad normals, a ring of
eight narrow ones, five in eight dimensions) x two schedules (LinearBeta; Linear, the flow) x two grids (even in t, Karras)
x 5, 8, 10, 20 and 40 steps are 60 cells.  The exact flow is solved by DOP853 at 1e-11 and agrees with `AdaptiveODE`
(printed).

Every method makes one call per step (Heun two but for the last), ours without the second call of its first step.  DEIS and
bh1 of diffusers are no numbers at rho = 0: their grids end at a tenth of the last but one.
"""

import argparse
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from diffusers_runs import RUNS, sde, spacings
from scipy.integrate import solve_ivp
from torch import Tensor

import unnoise as un
from unnoise import samplers

warnings.filterwarnings("ignore")
STEPS, ROWS = (5, 8, 10, 20, 40), 256
SCHEDULES = {"LinearBeta": (un.schedules.LinearBeta(), 1.0), "Linear": (un.schedules.Linear(), 0.999)}  # and where it starts


def ours(method: str, steps: int) -> samplers.Sampler:
    """Ours by the name of theirs: the same rule with the same options, or where it says so our default in place of it."""
    few = steps < 15  # in which theirs lower the order of the last steps
    once = {"start_again": False}
    own: dict[str, Callable[[], samplers.Sampler]] = {
        "DDIM": samplers.DDIM,
        "Euler": samplers.DDIM,  # Euler's method on y over rho is DDIM
        "Heun": samplers.Heun,
        "DPM-Solver++ 2M": lambda: samplers.DPMSolverPP(2),
        "DPM-Solver++ 2M, heun": lambda: samplers.DPMSolverPP(2, rule="exact"),
        "DPM-Solver++ 3M": lambda: samplers.DPMSolverPP(3, rule="published", lower_final=few, **once),
        "DPM-Solver++ 3M, our default": lambda: samplers.DPMSolverPP(3, **once),
        "DPM-Solver++ 2S": lambda: samplers.DPMSolverPP(2, single=True),
        "DPM-Solver++ 2S, heun": lambda: samplers.DPMSolverPP(2, rule="exact", single=True),
        "DPM-Solver++ 3S": lambda: samplers.DPMSolverPP(3, single=True),
        "UniPC-2, bh2": lambda: samplers.UniPC(3, "bh2", lower_final=True),
        "UniPC-2, bh1": lambda: samplers.UniPC(3, "bh1", lower_final=True),
        "UniPC-2, our default": lambda: samplers.UniPC(3),
        "UniPC-3, bh2": lambda: samplers.UniPC(4, "bh2", lower_final=True, **once),
        "UniPC-3, bh1": lambda: samplers.UniPC(4, "bh1", lower_final=True, **once),
        "UniPC-3, our default": lambda: samplers.UniPC(4, **once),
        "DEIS 2": lambda: samplers.DEIS(2, lower_final=few),
        "DEIS 3": lambda: samplers.DEIS(3, lower_final=few, **once),
        "LMS": lambda: samplers.LMS(4, **once),
    }
    return own[method]()


SHORT = ("DEIS", "UniPC-2, bh1", "UniPC-3, bh1")  # which in diffusers do not reach rho = 0


@dataclass(frozen=True)
class Mixture:
    """Round normals: weights, means, variances."""

    weights: Tensor
    means: Tensor
    variances: Tensor

    def clean(self, y: Tensor, rho: Tensor) -> Tensor:
        """E[x_0 | x_0 + rho z = y]."""
        total, away = self.variances + rho.reshape(-1, 1) ** 2, y.unsqueeze(1) - self.means
        log = self.weights.log() - 0.5 * (self.means.shape[1] * total.log() + away.square().sum(-1) / total)
        return (log.softmax(-1).unsqueeze(-1) * (self.means + (self.variances / total).unsqueeze(-1) * away)).sum(1)


def mixtures() -> dict[str, Mixture]:
    angle, normal = torch.arange(8).double() * math.pi / 4, np.random.default_rng(0).normal(size=(5, 8))
    return {
        "two": Mixture(*(torch.tensor(v).double() for v in ([0.4, 0.6], [[1.0, 0.5], [-1.0, 0.2]], [0.15, 0.15]))),
        "ring": Mixture(
            torch.full((8,), 1 / 8).double(),
            1.5 * torch.stack([angle.cos(), angle.sin()], 1),
            torch.full((8,), 0.02).double(),
        ),
        "five": Mixture(
            torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15]).double(),
            torch.tensor(normal),
            torch.tensor([0.05, 0.1, 0.2, 0.1, 0.05]).double(),
        ),
    }


class Told(un.AnyDenoiser):
    def __init__(self, mixture: Mixture, process: un.Gaussian):
        super().__init__()
        self.mixture, self.process = mixture, process

    def forward(self, x_t: Tensor, t: Tensor, **condition: object) -> un.Clean:
        alpha, sigma = (
            self.process.schedule.alpha(t),
            self.process.schedule.sigma(t),
        )  # rows of AdaptiveODE have their own times
        return un.Clean(self.mixture.clean(x_t / alpha.reshape(-1, 1), sigma / alpha), self.process, x_t, t)


def flow(mixture: Mixture, y: Tensor, high: float, ends: list[float]) -> dict[float, Tensor]:
    """Where dy/drho = (y - D)/rho leads, by DOP853."""

    def slope(rho: float, flat: np.ndarray) -> np.ndarray:
        state, r = torch.from_numpy(flat).reshape(y.shape), max(rho, 1e-12)
        return ((state - mixture.clean(state, torch.tensor(r))) / r).numpy().ravel()

    wanted = sorted(set(ends), reverse=True)
    found = solve_ivp(slope, (high, 0.0), y.numpy().ravel(), "DOP853", wanted, rtol=1e-11, atol=1e-11)
    return {end: torch.from_numpy(found.y[:, k].copy()).reshape(y.shape) for k, end in enumerate(wanted)}


def grid(schedule: un.schedules.Schedule, high: float, steps: int, kind: str) -> Tensor:
    """Falling times that end at 0."""
    process = un.Gaussian((1,), schedule)
    if kind == "even":
        return torch.linspace(high, 0, steps + 1, dtype=torch.float64)
    return torch.cat([samplers.grids.Karras().times(process, steps - 1, high, 1e-3), torch.zeros(1).double()])


def error(a: Tensor, b: Tensor) -> float:
    return float((a - b).square().sum(1).mean().sqrt())


def measured() -> tuple[list[dict], float]:
    rows, agreement = [], 0.0
    for name, mixture in mixtures().items():
        z = torch.tensor(np.random.default_rng(1).normal(size=(ROWS, mixture.means.shape[1])))
        for label, (schedule, high) in SCHEDULES.items():
            process = un.Gaussian((z.shape[1],), schedule)
            denoiser, ratio = Told(mixture, process), lambda t, s=schedule: s.sigma(t) / s.alpha(t)
            times = {(kind, n): grid(schedule, high, n, kind) for kind in ("even", "Karras") for n in STEPS}
            short = {
                key: torch.cat([t[:-1], schedule.time_of_log_snr(2 * -(ratio(t[-2:-1]) / 10).log())])
                for key, t in times.items()
            }
            first = float(ratio(torch.tensor(high).double()))
            exact = flow(mixture, first * z, first, [0.0, *[float(ratio(t[-1])) for t in short.values()]])
            fine, _ = un.sample(
                denoiser,
                x=schedule.sigma(high) * z,
                sampler=samplers.AdaptiveODE(1e-10, 1e-10),
                start=high,
                end=1e-4,
                seed=0,
            )
            (near,) = flow(mixture, first * z, first, [float(ratio(torch.tensor(1e-4).double()))]).values()
            agreement = max(agreement, error(fine / schedule.alpha(1e-4), near))
            for (kind, n), t in times.items():
                for method, run in RUNS.items():
                    t_own = short[kind, n] if method.startswith(SHORT) else t
                    rho = ratio(t_own)
                    x, _ = un.sample(denoiser, x=schedule.sigma(high) * z, sampler=ours(method, n), grid=t_own, seed=0)
                    theirs = run(mixture.clean, first * z, rho, label == "Linear")
                    target = exact[float(rho[-1])]
                    rows.append(
                        {
                            "method": method, "mixture": name, "schedule": label, "grid": kind, "steps": n,
                            "ours": error(x / schedule.alpha(t_own[-1]), target), "theirs": error(theirs, target),
                        }
                    )  # fmt: skip
    return rows, agreement


def same_noise() -> dict[int, float]:
    """SDE forms of order 1 and 2 by the same numbers z: the largest distance of ours from theirs."""
    mixture, (schedule, _) = mixtures()["two"], SCHEDULES["LinearBeta"]
    process, out = un.Gaussian((2,), schedule), {}
    for order in (1, 2):
        sampler = samplers.DPMSolverPP(order, sde=True)
        for steps in STEPS:
            z = torch.tensor(np.random.default_rng(2).normal(size=(steps + 1, ROWS, 2)))
            t = grid(schedule, 1.0, steps, "Karras")
            alpha, rho = schedule.alpha(t), schedule.sigma(t) / schedule.alpha(t)
            x, past = schedule.sigma(1.0) * z[-1], []
            for i, row in enumerate(sampler.table(process, t)):
                past = [mixture.clean(x / alpha[i], rho[i]), *past]
                x = row.keep * x + sum(w * d for w, d in zip(row.weights, past, strict=False)) + (row.noise or 0.0) * z[i]
            out[order] = max(out.get(order, 0.0), error(x, sde(mixture.clean, rho[0] * z[-1], rho, z, order)))
    return out


def mean(values: list[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cells", action="store_true", help="every cell of ours that is above 1.01 times theirs")
    options = parser.parse_args()
    rows, agreement = measured()
    if options.json:
        print(json.dumps(rows))
        return
    print(f"AdaptiveODE from DOP853 at t = 1e-4: {agreement:.1e}; SDE forms by the same noise: {same_noise()}")
    same = [
        (samplers.grids.Timesteps(kind).numbers(n) - 1).tolist() == theirs for (kind, n), theirs in spacings(STEPS).items()
    ]
    print(f"spacings of 1000 timesteps that are the same: {sum(same)} of {len(same)}\n")
    print("| method | ours at 5 | 8 | 10 | 20 | 40 | diffusers at 5 | 8 | 10 | 20 | 40 | ours/theirs | worst cell |")
    print("|" + "---|" * 13)
    for method in RUNS:
        cells = [row for row in rows if row["method"] == method]
        by = [[f"{mean([c[who] for c in cells if c['steps'] == n]):.3g}" for n in STEPS] for who in ("ours", "theirs")]
        ratios = [c["ours"] / c["theirs"] for c in cells]
        print(
            f"| {method} | {' | '.join(by[0])} | {' | '.join(by[1])} | {mean(ratios):.3f} | {max(ratios):.2f} |", flush=True
        )
        for c, ratio in zip(cells, ratios, strict=True):
            if options.cells and ratio > 1.01:
                print("   ", {**c, "ratio": round(ratio, 3)})
    for what, chosen in (("the same rules", False), ("our defaults", True)):
        ratios = [row["ours"] / row["theirs"] for row in rows if row["method"].endswith("our default") == chosen]
        print(f"{what}: geometric mean {mean(ratios):.3f}, worst {max(ratios):.2f}, of {len(ratios)} cells")


if __name__ == "__main__":
    main()
