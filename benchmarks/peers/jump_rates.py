"""Rate matrices, reverse rates and leaps of other projects beside ours.

    cd benchmarks; python -m peers.jump_rates [--checkouts FOLDER] [--json]

The truth: matrix exponentials in 50 digits (mpmath), sums over all x_0, for the law of a leap the sum over all numbers of
events, 0 to 7 to each destination.  Where a step decides by a uniform number, its probability is found by bisection of it.
"""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import mpmath as mp
import torch
from torch import Tensor

import unnoise as un
from peers.category_losses import with_mask
from peers.category_truth import CHANGED, DOUBLE, LOGITS, SIZE, THETA, T
from peers.checkouts import module
from peers.table import Row, compared, main
from unnoise import samplers

MODEL = {"rate_const": 0.7, "sigma_min": 0.5, "sigma_max": 3.0, "rate_sigma": 2.0, "Q_sigma": 2.0}
CONFIG: Any = SimpleNamespace(
    data=SimpleNamespace(S=SIZE, shape=(3, 1, 1)),
    model=SimpleNamespace(**MODEL, time_exponential=4.0, time_base=0.6),
)


def exponential(rates: Tensor, clock: Tensor) -> Tensor:
    """exp(clock R) for each clock, in 50 digits."""
    mp.mp.dps = 50
    matrix = mp.matrix(rates.tolist())
    powers = [mp.expm(mp.mpf(c) * matrix) for c in clock.tolist()]
    return torch.tensor([[[float(p[i, j]) for j in range(SIZE)] for i in range(SIZE)] for p in powers], **DOUBLE)


def clocked(clock: Any) -> un.schedules.Schedule:
    """The schedule with -log alpha = clock(t)."""
    return un.schedules.Custom(lambda t: torch.exp(-clock(t)), lambda t: -torch.expm1(-clock(t)))


def tauldr(folder: Path) -> list[Row]:
    theirs = module("tauLDR", "lib.models.models", folder, ["tkinter", "lib.networks.networks", "lib.models.model_utils"])
    clocks = {
        "UniformRate": lambda t: t,
        "BirthDeathForwardBase": lambda t: 0.125 * (torch.exp(2 * math.log(6.0) * t) - 1),
        "GaussianTargetRate": lambda t: 0.6 * (torch.exp(math.log(4.0) * t) - 1),
    }
    rows = []
    for name, clock in clocks.items():
        process = getattr(theirs, name)(CONFIG, "cpu")
        base = (
            (process.rate_matrix if name == "UniformRate" else process.base_rate).double().T
        )  # theirs goes from row to column
        base = base - torch.diag(base.sum(0))  # exact columns: theirs are rounded to float32
        own = un.RateMatrix(base, (3,), clocked(clock))
        exact = exponential(base, clock(T))
        kernel, told = own.kernel(None, T), process.transition(T.float()).transpose(1, 2)
        rows.append(compared("tauLDR", f"{name}: kernel to t", kernel, told, exact, "below 1e-8 it is cut to 0"))
        speed = torch.autograd.functional.jacobian(lambda t, c=clock: c(t).sum(), T)
        off = 1 - torch.eye(SIZE, **DOUBLE)
        found = process.rate(T.float()).transpose(1, 2) * off
        rows.append(
            compared(
                "tauLDR", f"{name}: rates", own.rates(T) * off, found, speed[:, None, None] * base * off, "", torch.float32
            )
        )
    return rows + _leaps(theirs, module("tauLDR", "lib.sampling.sampling", folder))


def _leaps(models: Any, sampling: Any) -> list[Row]:
    """One tau-leap from t = 1 by 0.1, from every number of events."""
    counts = torch.cartesian_prod(*[torch.arange(8)] * (SIZE - 1)).float()
    start = CHANGED[1]  # one row, three coordinates
    events = torch.zeros(3, len(counts), SIZE)
    for k, x in enumerate(start.tolist()):
        events[k][:, [y for y in range(SIZE) if y != x]] = counts
    seen: list[Tensor] = []

    class Known(models.UniformRate):
        def __call__(self, x: Tensor, t: Tensor) -> Tensor:
            seen.append(x.clone())
            return LOGITS[1].float().expand(len(x), -1, -1)

    means: list[Tensor] = []

    class Poisson:
        def __init__(self, mean: Tensor):
            means.append(mean)

        def sample(self) -> Tensor:
            return events.transpose(0, 1)

    config: Any = SimpleNamespace(
        data=CONFIG.data, sampler=SimpleNamespace(num_steps=2, min_t=0.9, eps_ratio=1e-9, initial_dist="uniform")
    )
    rows = start.expand(len(counts), -1)
    with (
        patch.object(sampling, "get_initial_samples", lambda *a: rows),
        patch("torch.distributions.poisson.Poisson", Poisson),
    ):
        sampling.TauLeaping(config).sample(Known(CONFIG, "cpu"), len(counts), 1)
    found, reached = means[0][0].double() / 0.1, seen[1].long()
    base = 0.7 * (torch.ones(SIZE, SIZE, **DOUBLE) - SIZE * torch.eye(SIZE, **DOUBLE))
    process = un.RateMatrix(base, (3,), clocked(lambda t: t))
    said = un.RawPosterior(LOGITS[1:2], process, start[None], 1.0)
    ours = samplers.TauLeaping().rates(said)[0]
    kernel = exponential(base, torch.ones(1, **DOUBLE))[0]
    exact = torch.stack([base[x] * (kernel @ (THETA[1, k] / kernel[x])) for k, x in enumerate(start.tolist())])
    exact = exact.scatter(-1, start[:, None], 0.0)
    leap: Any = samplers.TauLeaping(ordinal=True).law(None, ours[None], SimpleNamespace(x=start[None]), 0.1, 0)
    law, by_ours = torch.zeros(3, SIZE, **DOUBLE), torch.zeros(3, SIZE, **DOUBLE)
    for k in range(3):
        for rate, out in ((found[k], law), (exact[k], by_ours)):
            each = torch.distributions.Poisson(0.1 * rate.clamp_min(1e-300)).log_prob(events[k].double()).sum(-1).exp()
            out[k].index_add_(0, reached[:, k], each)
    return [
        compared("tauLDR", "reverse rates from q(x_0 | x_t)", ours, found, exact, "", torch.float32),
        compared("tauLDR", "law of a tau-leap, ordered states", leap.probs[0], law, by_ours, "", torch.float32),
    ]


def flow_matching(folder: Path) -> list[Row]:
    """The probability that their Euler solver leaves MASK in a step."""
    from flow_matching.path import MixtureDiscreteProbPath
    from flow_matching.path.scheduler import PolynomialConvexScheduler
    from flow_matching.solver import MixtureDiscreteEulerSolver, discrete_solver

    rows = []
    for power in (1.0, 2.0):
        seen: list[Tensor] = []

        def model(x: Tensor, t: Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(x.clone())
            return with_mask(LOGITS, -1e6).softmax(-1)

        path = MixtureDiscreteProbPath(PolynomialConvexScheduler(n=power))
        solver: Any = MixtureDiscreteEulerSolver(model, path, vocabulary_size=SIZE + 1)
        start, low, high = torch.full((3, 3), SIZE), torch.zeros(3, 3, **DOUBLE), torch.ones(3, 3, **DOUBLE)
        for _ in range(40):
            middle = (low + high) / 2
            with (
                patch("torch.rand", lambda *a, m=middle, **o: m),
                patch.object(discrete_solver, "categorical", lambda p: p.argmax(-1)),
            ):
                solver.sample(x_init=start, step_size=None, time_grid=torch.tensor([0.4, 0.5, 1.0], **DOUBLE))
            jumped = seen[-1] != SIZE
            low, high = torch.where(jumped, middle, low), torch.where(jumped, high, middle)
        schedule = un.schedules.Custom(lambda t, n=power: (1 - t) ** n, lambda t, n=power: 1 - (1 - t) ** n)
        process, exact = un.Masking(SIZE, (3,), schedule), power * 0.4 ** (power - 1) / (1 - 0.4**power)
        rates = samplers.Euler().rates(un.Posterior(LOGITS, process, start, 0.6))
        ours = 1 - torch.exp(-0.1 * rates.sum(-1))
        truth_of = torch.full((3, 3), -math.expm1(-0.1 * exact), **DOUBLE)
        what = f"Euler from MASK, kappa = t^{power:g}: chance to jump"
        rows.append(compared("flow_matching", what, ours, (low + high) / 2, truth_of, "", torch.float32))
    return rows


if __name__ == "__main__":
    main(__doc__, [tauldr, flow_matching])
