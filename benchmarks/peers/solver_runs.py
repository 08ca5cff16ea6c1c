"""Runs, mostly of ten steps, of other projects' solvers beside ours, from one start, on one exact denoiser.

    cd benchmarks; python -m peers.solver_runs [--checkouts FOLDER] [--json]

The data are a mixture of two normal laws on the line, whose denoiser is exact.  The truth is the exact probability flow: it
keeps the distribution function of every point, so F_s(x_s) = F_t(x_t) is solved for x_s in 50 digits.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import mpmath as mp
import torch
from torch import Tensor

import unnoise as un
from peers.checkouts import k_sampling, module
from peers.table import Row, compared, main
from unnoise import samplers

WEIGHTS, MEANS, DEVIATIONS = (0.3, 0.7), (-1.0, 0.8), (0.3, 0.5)
DOUBLE: Any = {"dtype": torch.float64}
START = torch.tensor([-1.7, -0.4, 0.1, 0.9, 2.2], dtype=torch.float64)  # in units of sigma


def oracle(schedule: un.schedules.Schedule) -> un.oracles.Oracle:
    variances = torch.tensor(DEVIATIONS, **DOUBLE).square().reshape(2, 1, 1)
    return un.oracles.mixture(
        un.Gaussian((), schedule), torch.tensor(WEIGHTS, **DOUBLE), torch.tensor(MEANS, **DOUBLE), variances
    )


def distribution(x: Any, alpha: Any, sigma: Any) -> Any:
    parts = zip(WEIGHTS, MEANS, DEVIATIONS, strict=True)
    return sum(mp.mpf(w) * mp.ncdf((x - alpha * m) / mp.sqrt((alpha * d) ** 2 + sigma**2)) for w, m, d in parts)


def flow(denoiser: un.oracles.Oracle, x: Tensor, start: float, end: float) -> Tensor:
    """The exact probability flow from `start` to `end`."""
    schedule = denoiser.process.schedule
    mp.mp.dps = 50
    now, then = ((mp.mpf(float(schedule.alpha(t))), mp.mpf(float(schedule.sigma(t)))) for t in (start, end))

    def moved(value: float) -> float:
        level = distribution(mp.mpf(value), *now)
        return float(
            mp.findroot(lambda y: distribution(y, *then) - level, (-12, 12), solver="bisect", maxsteps=120, verify=False)
        )

    return torch.tensor([moved(value) for value in x.tolist()], dtype=torch.float64)


def ours(denoiser: un.oracles.Oracle, sampler: samplers.Sampler, x: Tensor, times: Tensor) -> Tensor:
    return un.sample(denoiser, x=x, sampler=sampler, grid=samplers.grids.GivenTimes(times), finish=False)[0]


def clean(denoiser: un.oracles.Oracle, x: Tensor, t: Any) -> Tensor:
    return denoiser(x, t).to(un.Clean).value


def diffusers(folder: Path) -> list[Row]:
    import diffusers as theirs

    denoiser = oracle(un.schedules.FromBetas(torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)))
    schedule, rows = denoiser.process.schedule, []
    midpoint = "2M with the slope taken at the middle; ours integrates the line"
    cases: list[tuple[str, Any, samplers.Sampler, str]] = [
        ("DDIM", theirs.DDIMScheduler(clip_sample=False), samplers.DDIM(), ""),
        ("Euler", theirs.EulerDiscreteScheduler(), samplers.DDIM(), ""),
        ("Heun", theirs.HeunDiscreteScheduler(beta_start=1e-4, beta_end=0.02), samplers.Heun(), ""),
        ("DPM-Solver++ 1", theirs.DPMSolverMultistepScheduler(solver_order=1), samplers.DPMSolverPP(1), ""),
        ("DPM-Solver++ 2M", theirs.DPMSolverMultistepScheduler(solver_type="heun"), samplers.DPMSolverPP(2), ""),
        ("DPM-Solver++ 2M, default", theirs.DPMSolverMultistepScheduler(), samplers.DPMSolverPP(2), midpoint),
    ]
    for name, scheduler, sampler, why in cases:
        scheduler.set_timesteps(10)
        # entry i of their table is our time (i + 1)/1000; each scheduler ends without noise
        grid = [(float(t) + 1) / 1000 for t in scheduler.timesteps]
        times = torch.tensor([*dict.fromkeys(grid), 0.0], dtype=torch.float64)
        x = START.clone()
        exploding = hasattr(scheduler, "scale_model_input") and scheduler.init_noise_sigma != 1
        state = x / schedule.alpha(times[0]) if exploding else x
        for t, own in zip(scheduler.timesteps, grid, strict=True):
            seen = scheduler.scale_model_input(state, t)
            state = scheduler.step(denoiser(seen, own).to(un.Noise).value, t, state).prev_sample
        truth = flow(denoiser, x, grid[0], 0.0)
        rows.append(compared("diffusers", name, ours(denoiser, sampler, x, times), state, truth, why, torch.float32))
    return rows


def k_diffusion(folder: Path) -> list[Row]:
    theirs, denoiser = k_sampling(), oracle(un.schedules.EDM())
    schedule, x = denoiser.process.schedule, 80 * START
    truth = flow(denoiser, x, 1.0, 0.0)

    def model(x: Tensor, sigma: Tensor) -> Tensor:
        return clean(denoiser, x, schedule.time_of_log_snr(-2 * sigma.log()).clamp(0, 1))

    still: Any = {"eta": 0.0, "noise_sampler": lambda *levels: torch.zeros_like(x)}
    two, three = samplers.DPMSolverPP(2), samplers.DPMSolverPP(3)
    second = "half of the second difference is left out; ours begins with one more call"
    cases: list[tuple[str, int, Callable[..., Tensor], dict[str, Any], samplers.Sampler, str]] = [
        ("Euler", 10, theirs.sample_euler, {}, samplers.DDIM(), ""),
        ("Heun", 10, theirs.sample_heun, {}, samplers.Heun(), ""),
        ("DPM-Solver++ 2M SDE, eta 0, heun", 10, theirs.sample_dpmpp_2m_sde, {"solver_type": "heun", **still}, two, ""),
    ]
    for steps in (10, 40, 160):  # where the formulas differ, also as the steps become short
        cases.append(("DPM-Solver++ 2M", steps, theirs.sample_dpmpp_2m, {}, two, "slope taken at the middle"))
        cases.append(("DPM-Solver++ 3M SDE, eta 0", steps, theirs.sample_dpmpp_3m_sde, still, three, second))
    rows = []
    for name, steps, run, options, sampler, why in cases:
        times = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
        found = run(model, x, schedule.sigma(times), disable=True, **options)
        what = f"{name}, {steps} steps"
        rows.append(compared("k-diffusion", what, ours(denoiser, sampler, x, times), found, truth, why))
    return rows


def azula(folder: Path) -> list[Row]:
    from azula import noise, sample
    from azula.denoise import Denoiser, DiracPosterior

    denoiser = oracle(un.schedules.LinearBeta(0.0, 20.0))

    class Exact(Denoiser):
        schedule = noise.VPSchedule(float(mp.exp(-5)), 0.0)

        def forward(self, x_t: Tensor, t: Tensor, **condition: Any) -> DiracPosterior:
            return DiracPosterior(clean(denoiser, x_t, float(t)))

    options: Any = {"start": 1.0, "stop": 0.1, "steps": 10, "silent": True, "dtype": torch.float64}
    times = torch.linspace(1.0, 0.1, 11, dtype=torch.float64)
    truth = flow(denoiser, START, 1.0, 0.1)
    cases: list[tuple[str, Any, samplers.Sampler]] = [
        ("DDIM", sample.DDIMSampler(Exact(), **options), samplers.DDIM()),
        ("Euler", sample.EulerSampler(Exact(), **options), samplers.DDIM()),
        ("Heun", sample.HeunSampler(Exact(), **options), samplers.Heun()),
        ("Ito, eta 0", sample.ItoSampler(Exact(), eta=0.0, **options), samplers.DDIM()),
        ("exponential Adams-Bashforth 2", sample.xEABSampler(Exact(), order=2, **options), samplers.DPMSolverPP(2)),
        ("exponential Adams-Bashforth 3", sample.xEABSampler(Exact(), order=3, **options), samplers.DPMSolverPP(3)),
    ]
    begun = {"exponential Adams-Bashforth 3": "ours begins with one more call"}
    return [
        compared("azula", name, ours(denoiser, sampler, START, times), theirs(START), truth, begun.get(name, ""))
        for name, theirs, sampler in cases
    ]


def edm(folder: Path) -> list[Row]:
    absent = ["click", "dnnlib", "PIL", "torch_utils.distributed"]
    theirs, denoiser = module("edm", "generate", folder, absent), oracle(un.schedules.EDM())
    schedule, times = denoiser.process.schedule, torch.linspace(1, 0, 10, dtype=torch.float64)

    def net(x: Tensor, sigma: Tensor, labels: Any = None) -> Tensor:
        return clean(denoiser, x, schedule.time_of_log_snr(-2 * sigma.log()).clamp(0, 1))

    network: Any = type("Network", (SimpleNamespace,), {"__call__": staticmethod(net)})(
        sigma_min=0.0, sigma_max=float("inf"), round_sigma=lambda sigma: sigma
    )
    end = flow(denoiser, 80 * START, 1.0, 0.0)
    rows = []
    for name, run, sampler in (
        ("Heun (Algorithm 2)", theirs.edm_sampler, samplers.Heun()),
        ("Euler", lambda *args, **options: theirs.ablation_sampler(*args, solver="euler", **options), samplers.DDIM()),
    ):
        found = run(network, START, num_steps=10, sigma_min=0.002, sigma_max=80)
        own = clean(denoiser, ours(denoiser, sampler, 80 * START, times), 0.0)  # their last step is to the denoised
        rows.append(compared("EDM", name, own, found, clean(denoiser, end, 0.0)))
    levels: Any = {"num_steps": 10, "sigma_min": 0.002, "sigma_max": 80, "S_churn": 2, "S_min": 0.003, "S_max": 79}
    found = theirs.edm_sampler(network, START, randn_like=torch.ones_like, **levels)
    churned = samplers.Heun(churn=1.8, low=0.003, high=79.0)  # theirs is shared by ten steps, ours by nine and the last call
    with patch.object(un.NoiseSource, "normal", lambda self, shape, dtype=None: torch.ones(len(START), *shape, **DOUBLE)):
        own = clean(denoiser, ours(denoiser, churned, 80 * START, times), 0.0)
    rows.append(compared("EDM", "Heun with churn, every noise 1", own, found))
    return rows


def flow_matching(folder: Path) -> list[Row]:
    from flow_matching.solver import ODESolver

    denoiser = oracle(un.schedules.Linear())
    times = torch.linspace(0.9, 0.0, 11, dtype=torch.float64)

    def velocity(x: Tensor, t: Tensor, **extras: Any) -> Tensor:
        return -denoiser(x, 1 - float(t)).to(un.Flow).value  # their time runs the other way

    found = ODESolver(velocity).sample(x_init=START, step_size=None, method="euler", time_grid=1 - times)
    truth = flow(denoiser, START, 0.9, 0.0)
    own = ours(denoiser, samplers.EulerMaruyama(0.0), START, times)
    return [compared("flow_matching", "Euler", own, found, truth)]


if __name__ == "__main__":
    main(__doc__, [diffusers, k_diffusion, azula, edm, flow_matching])
