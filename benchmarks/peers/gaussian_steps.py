"""One reverse step of other projects on numbers beside ours: mean and standard deviation, from the same x_t and x_0.

    cd benchmarks; python -m peers.gaussian_steps [--checkouts FOLDER] [--json]

Their steps are run with the noise 0 for the mean, and 1 for what it is multiplied by.  The truth is the closed
form in 50 digits: for the steps with the marginals of the process

    alpha_s x_0 + sqrt(sigma_s^2 - v) (x_t - alpha_t x_0)/sigma_t + sqrt(v) z,
    v = eta^2 sigma_s^2 (1 - (alpha_t sigma_s/(alpha_s sigma_t))^2),        eta = 1: q(x_s | x_t, x_0).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mpmath as mp
import torch
from torch import Tensor

import unnoise as un
from peers.checkouts import k_sampling, module
from peers.table import Row, compared, main
from unnoise import samplers

X_T = torch.tensor([-1.3, 0.2, 0.9], dtype=torch.float64)
X_0 = torch.tensor([-0.7, 0.4, 1.1], dtype=torch.float64)
Level = tuple[Any, Any]  # alpha, sigma


def noise(value: float, where: str = "torch.randn_like") -> Any:
    return patch(where, lambda x, **options: torch.full_like(x, value))


def spread(step: Callable[[], Tensor], where: str = "torch.randn_like") -> tuple[Tensor, Tensor]:
    """The mean of a step, and what its noise is multiplied by."""
    with noise(0.0, where):
        mean = step()
    with noise(1.0, where):
        return mean, step() - mean


def family(now: Level, then: Level, eta: Any = 1) -> tuple[Tensor, Tensor]:
    (alpha_t, sigma_t), (alpha_s, sigma_s) = now, then
    v = mp.mpf(eta) ** 2 * sigma_s**2 * (1 - (alpha_t * sigma_s / (alpha_s * sigma_t)) ** 2)
    rest = mp.sqrt(sigma_s**2 - v) / sigma_t
    mean = [float(alpha_s * x_0 + rest * (x_t - alpha_t * x_0)) for x_t, x_0 in pairs()]
    return torch.tensor(mean, dtype=torch.float64), torch.full_like(X_T, float(mp.sqrt(v)))


def pairs() -> list[tuple[Any, Any]]:
    return [(mp.mpf(x_t), mp.mpf(x_0)) for x_t, x_0 in zip(X_T.tolist(), X_0.tolist(), strict=True)]


def of_table(process: un.Gaussian, sampler: Any, t: float, s: float) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of a linear method's step."""
    row = sampler.table(process, torch.tensor([t, s], dtype=torch.float64))[0]
    return row.keep * X_T + row.weights[0] * X_0, torch.full_like(X_T, row.noise or 0.0)  # type: ignore[operator]


def both(project: str, what: str, ours: Any, theirs: Any, truth: Any, why: str = "", inside: Any = None) -> list[Row]:
    rows = zip(("mean", "deviation"), ours, theirs, truth, strict=True)
    return [compared(project, f"{what}: {name}", a, b, c, why, inside) for name, a, b, c in rows]


def by_betas(first: str, last: str, steps: int) -> tuple[un.Gaussian, Callable[[int], Level]]:
    """The process of evenly spaced betas, and its exact (alpha, sigma) after so many steps."""
    betas = torch.linspace(float(first), float(last), steps, dtype=torch.float64)

    def level(count: int) -> Level:
        low, high = mp.mpf(first), mp.mpf(last)
        signal = mp.fprod(1 - low - (high - low) * i / (steps - 1) for i in range(count))
        return mp.sqrt(signal), mp.sqrt(1 - signal)

    return un.Gaussian((), un.schedules.FromBetas(betas)), level


def diffusers(folder: Path) -> list[Row]:
    from diffusers.schedulers import scheduling_ddpm
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler

    process, level = by_betas("1e-4", "0.02", 1000)
    now, then, rows = level(501), level(401), []
    for name, variance in (
        ("fixed_small", un.variances.PosteriorVariance()),
        ("fixed_large", un.variances.ForwardVariance()),
    ):
        scheduler: Any = scheduling_ddpm.DDPMScheduler(clip_sample=False, prediction_type="sample", variance_type=name)
        scheduler.set_timesteps(10)
        law: Any = un.Clean(X_0, process, X_T, 0.501, variance).step(0.401)
        wide = mp.sqrt(1 - (now[0] / then[0]) ** 2)
        truth = family(now, then)
        truth = truth if name == "fixed_small" else (truth[0], torch.full_like(X_T, float(wide)))
        means = []
        for value in (0.0, 1.0):
            with patch.object(scheduling_ddpm, "randn_tensor", lambda shape, value=value, **o: torch.full(shape, value)):
                means.append(scheduler.step(X_0[:, None], 500, X_T[:, None]).prev_sample.flatten())
        theirs = means[0], means[1] - means[0]
        ours = law.mean, law.std.expand_as(X_T)
        rows += both("diffusers", f"DDPM, {name}", ours, theirs, truth, inside=torch.float32)
    for eta in (0.0, 0.5, 1.0):
        ddim: Any = DDIMScheduler(clip_sample=False, prediction_type="sample")
        ddim.set_timesteps(10)
        steps = [
            ddim.step(X_0, 500, X_T, eta=eta, variance_noise=torch.full_like(X_T, z) if eta else None).prev_sample
            for z in (0.0, 1.0)
        ]
        ours = of_table(process, samplers.DDIM(eta), 0.501, 0.401)
        theirs = steps[0], steps[1] - steps[0]
        rows += both("diffusers", f"DDIM, eta {eta:g}", ours, theirs, family(now, then, eta), inside=torch.float32)
    return rows


def azula(folder: Path) -> list[Row]:
    from azula import noise as schedules
    from azula import sample
    from azula.denoise import Denoiser, DiracPosterior

    class Given(Denoiser):
        schedule = schedules.VPSchedule(float(mp.exp(-5)), 0.0)

        def forward(self, x_t: Tensor, t: Tensor, **condition: Any) -> DiracPosterior:
            return DiracPosterior(X_0)

    process = un.Gaussian((), un.schedules.LinearBeta(0.0, 20.0))
    now, then = ((mp.exp(-5 * t**2), mp.sqrt(-mp.expm1(-10 * t**2))) for t in (mp.mpf(0.6), mp.mpf(0.5)))
    t, s, rows = torch.tensor(0.6, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64), []
    half = float(mp.sqrt(0.5))  # their eta multiplies the variance, ours the standard deviation
    for name, sampler, eta in (
        ("DDPM", sample.DDPMSampler(Given()), 1.0),
        ("DDIM, eta^2 1/2", sample.DDIMSampler(Given(), eta=0.5), half),
    ):
        theirs = spread(lambda sampler=sampler: sampler.step(X_T, t, s))
        rows += both("azula", name, of_table(process, samplers.DDIM(eta), 0.6, 0.5), theirs, family(now, then, eta))
    return rows


def k_diffusion(folder: Path) -> list[Row]:
    theirs, process = k_sampling(), un.Gaussian((), un.schedules.VE(0.01, 50.0))
    levels = [mp.mpf("0.01") * mp.mpf(5000) ** mp.mpf(t) for t in (0.6, 0.5)]
    sigmas, truth = process.schedule.sigma(torch.tensor([0.6, 0.5], dtype=torch.float64)), None
    truth = family((mp.mpf(1), levels[0]), (mp.mpf(1), levels[1]))
    rows = []
    for name, run, sampler in (
        ("Euler, ancestral", theirs.sample_euler_ancestral, samplers.DDIM(1.0)),
        ("DPM-Solver++ 2M SDE, first step", theirs.sample_dpmpp_2m_sde, samplers.DPMSolverPP(2, sde=True)),
        ("DPM-Solver++ 3M SDE, first step", theirs.sample_dpmpp_3m_sde, samplers.DPMSolverPP(3, sde=True)),
    ):
        ends = [
            run(lambda x, sigma: X_0, X_T, sigmas, disable=True, noise_sampler=lambda a, b, z=z: torch.full_like(X_T, z))
            for z in (0.0, 1.0)
        ]
        rows += both("k-diffusion", name, of_table(process, sampler, 0.6, 0.5), (ends[0], ends[1] - ends[0]), truth)
    return rows + [_two_steps(theirs, process)]


def _two_steps(theirs: Any, process: un.Gaussian) -> Row:
    """Two steps of 2M SDE with the noise 0: in the second a line goes through both predictions, X_0 and then its half."""
    times = torch.tensor([0.6, 0.5, 0.45], dtype=torch.float64)
    first, second = samplers.DPMSolverPP(2, sde=True).table(process, times)
    x: Any = first.keep * X_T + first.weights[0] * X_0
    x = second.keep * x + second.weights[0] * X_0 / 2 + second.weights[1] * X_0
    said, silent = iter([X_0, X_0 / 2]), lambda *levels: torch.zeros_like(X_T)
    options: Any = {"disable": True, "noise_sampler": silent, "solver_type": "heun"}
    found = theirs.sample_dpmpp_2m_sde(lambda x, sigma: next(said), X_T, process.schedule.sigma(times), **options)
    (a, b), growth = (mp.mpf(0.1), mp.mpf(times[1].item()) - mp.mpf(times[2].item())), mp.log(5000)
    one, two = a * growth, b * growth  # the steps in lambda
    line = -mp.expm1(-2 * two), 1 + mp.expm1(-2 * two) / (2 * two)  # 2 int e^{-2(h - u)} du, and of u/h
    exact = []
    for x_t, x_0 in pairs():
        middle = mp.exp(-2 * one) * x_t - mp.expm1(-2 * one) * x_0
        exact.append(float(mp.exp(-2 * two) * middle + line[0] * x_0 / 2 + line[1] * (two / one) * (x_0 / 2 - x_0)))
    return compared(
        "k-diffusion", "DPM-Solver++ 2M SDE, two steps: mean", x, found, torch.tensor(exact, dtype=torch.float64)
    )


def score_sde(folder: Path) -> list[Row]:
    sampling = module("score_sde_pytorch", "sampling", folder)
    lib, rows = sampling.sde_lib, []
    t, x, clean = torch.full((3,), 0.6, dtype=torch.float64), X_T.reshape(3, 1, 1, 1), X_0.reshape(3, 1, 1, 1)
    for name, sde, schedule in (
        ("VP", lib.VPSDE(), un.schedules.LinearBeta()),
        ("sub-VP", lib.subVPSDE(), un.schedules.SubVP()),
        ("VE", lib.VESDE(), un.schedules.VE()),
    ):
        process = un.Gaussian((), schedule)
        alpha, sigma, f, g2 = (
            float(c) for c in (schedule.alpha(0.6), schedule.sigma(0.6), schedule.drift(0.6), schedule.diffusion(0.6))
        )
        predictor = sampling.EulerMaruyamaPredictor(sde, lambda x, t, a=alpha, b=sigma: (a * clean - x) / b**2)
        theirs = [value.flatten() for value in spread(lambda predictor=predictor: predictor.update_fn(x, t)[0])]
        mean = X_T + (-f * X_T + g2 * (alpha * X_0 - X_T) / sigma**2) / 1000
        truth = mean, torch.full_like(X_T, (g2 / 1000) ** 0.5)
        ours = of_table(process, samplers.EulerMaruyama(1.0), 0.6, 0.599)
        rows += both("score_sde", f"Euler-Maruyama, {name}", ours, theirs, truth)
    ve, snr = un.Gaussian((), un.schedules.VE()), 0.16
    sigma = float(ve.schedule.sigma(0.6))
    corrector = sampling.AnnealedLangevinDynamics(lib.VESDE(), lambda x, t: (clean - x) / sigma**2, snr, 1)
    theirs = [value.flatten() for value in spread(lambda: corrector.update_fn(x, t)[0])]
    keep, weight, scale = samplers.Langevin(snr=snr).rows(ve, torch.tensor([0.7, 0.6], dtype=torch.float64))[0]
    exact = (
        X_T + 2 * snr**2 * (X_0 - X_T),
        torch.full_like(X_T, float(2 * mp.mpf(snr) * mp.mpf("0.01") * mp.mpf(5000) ** mp.mpf(0.6))),
    )
    own = keep * X_T + weight * X_0, scale.expand_as(X_T)
    rows += both("score_sde", "annealed Langevin, VE", own, theirs, exact)
    process, level = by_betas("1e-4", "0.02", 1000)
    now, then, at = level(500), level(499), torch.full((3,), 499 / 999 + 1e-9, dtype=torch.float64)
    alpha, sigma = float(now[0]), float(now[1])
    predictor = sampling.AncestralSamplingPredictor(lib.VPSDE(), lambda x, t: (alpha * clean - x) / sigma**2)
    theirs = [value.flatten() for value in spread(lambda: predictor.update_fn(x, at)[0])]
    law: Any = un.Clean(X_0, process, X_T, 0.5, un.variances.ForwardVariance()).step(0.499)
    truth = family(now, then)[0], torch.full_like(X_T, float(mp.sqrt(1 - (now[0] / then[0]) ** 2)))
    return rows + both("score_sde", "ancestral, VP", (law.mean, law.std.expand_as(X_T)), theirs, truth, inside=torch.float32)


def moco(folder: Path) -> list[Row]:
    from bionemo.moco import interpolants
    from bionemo.moco.distributions.prior import GaussianPrior
    from bionemo.moco.distributions.time import UniformTimeDistribution
    from bionemo.moco.schedules.noise.continuous_snr_transforms import CosineSNRTransform
    from bionemo.moco.schedules.noise.discrete_noise_schedules import DiscreteLinearNoiseSchedule

    vdm = interpolants.VDM(UniformTimeDistribution(), GaussianPrior(), CosineSNRTransform(s=0.0))
    t, dt = torch.full((3,), 0.6, dtype=torch.float64), torch.full((3,), 0.1, dtype=torch.float64)
    now, then = ((mp.cos(mp.pi * u / 2), mp.sin(mp.pi * u / 2)) for u in (mp.mpf("0.6"), mp.mpf("0.5")))
    x, clean = X_T[:, None], X_0[:, None]
    theirs = [value.flatten() for value in spread(lambda: vdm.step(clean, t, x, dt))]
    process = un.Gaussian((), un.schedules.Cosine())
    rows = both("moco", "VDM, cosine", of_table(process, samplers.DDIM(1.0), 0.6, 0.5), theirs, family(now, then))
    discrete = UniformTimeDistribution(discrete_time=True, nsteps=100)
    ddpm: Any = interpolants.DDPM(discrete, GaussianPrior(), DiscreteLinearNoiseSchedule(100))
    process, level = by_betas("1e-4", "0.02", 100)
    theirs = [value.flatten() for value in spread(lambda: ddpm.step(clean, torch.full((3,), 4), x))]
    ours, why = of_table(process, samplers.DDIM(1.0), 0.05, 0.04), "their variance is that of the step before"
    return rows + both("moco", "DDPM, fifth step", ours, theirs, family(level(5), level(4)), why, torch.float32)


if __name__ == "__main__":
    main(__doc__, [diffusers, azula, k_diffusion, score_sde, moco])
