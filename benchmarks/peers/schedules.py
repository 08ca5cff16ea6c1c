"""Schedules of numbers beside those of other projects: alpha, sigma, their slopes, drift, diffusion and inverses.

    cd benchmarks; python -m peers.schedules [--checkouts FOLDER] [--json]

The truth is the published formula in 50 digits (mpmath); slopes are its derivatives.
"""

from pathlib import Path
from typing import Any

import mpmath as mp
import torch

import unnoise as un
from peers.checkouts import k_sampling, module
from peers.table import Row, compared, main
from peers.truth import TIMES, exact, slope


def vp_alpha(t: Any) -> Any:
    return mp.exp(-mp.mpf("0.1") * t / 2 - mp.mpf("19.9") * t**2 / 4)


def vp_sigma(t: Any) -> Any:
    return mp.sqrt(-mp.expm1(-mp.mpf("0.1") * t - mp.mpf("19.9") * t**2 / 2))


def diffusers(folder: Path) -> list[Row]:
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    steps, rows = torch.arange(1, 1001, dtype=torch.float64) / 1000, []
    betas = [mp.mpf("1e-4") + (mp.mpf("0.02") - mp.mpf("1e-4")) * i / 999 for i in range(1000)]
    truth, product = [], mp.mpf(1)
    for beta in betas:
        product *= 1 - beta
        truth.append(float(product))
    ours = un.schedules.FromBetas(torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)).alpha(steps).square()
    theirs = DDPMScheduler(beta_schedule="linear").alphas_cumprod
    rows.append(compared("diffusers", "linear betas: alpha^2 of 1000 steps", ours, theirs, torch.tensor(truth)))
    offset = mp.mpf("0.008")

    def cosine(t: Any) -> Any:
        turn = mp.pi / 2 / (1 + offset)
        return (mp.cos((t + offset) * turn) / mp.cos(offset * turn)) ** 2

    ours = un.schedules.CosineOffset().alpha(steps).square()
    theirs = DDPMScheduler(beta_schedule="squaredcos_cap_v2").alphas_cumprod
    for name, part in (("to step 998", slice(0, 998)), ("last two steps", slice(998, 1000))):
        why = "beta is cut to 0.999" if part.start else ""
        what = f"squared cosine: alpha^2 {name}"
        rows.append(compared("diffusers", what, ours[part], theirs[part], exact(cosine, steps[part]), why))
    flow = FlowMatchEulerDiscreteScheduler()
    flow.set_timesteps(sigmas=[1.0, 0.75, 0.5, 0.25])
    times = torch.tensor([1.0, 0.75, 0.5, 0.25, 0.0], dtype=torch.float64)
    rows.append(compared("diffusers", "flow matching: sigma", un.schedules.Linear().sigma(times), flow.sigmas, times))
    return rows


def k_diffusion(folder: Path) -> list[Row]:
    theirs, n = (
        k_sampling(),
        10,
    )
    t = torch.linspace(1, 0, n, dtype=torch.float64)
    low, high = mp.mpf("0.002") ** (mp.mpf(1) / 7), mp.mpf(80) ** (mp.mpf(1) / 7)
    rows = [
        compared(
            "k-diffusion",
            "Karras: sigma of 10 levels",
            un.schedules.EDM().sigma(t),
            theirs.get_sigmas_karras(n, 0.002, 80.0)[:-1],
            exact(lambda u: (low + u * (high - low)) ** 7, t),
        ),
        compared(
            "k-diffusion",
            "exponential: sigma of 10 levels",
            un.schedules.VE(0.01, 50.0).sigma(t),
            theirs.get_sigmas_exponential(n, 0.01, 50.0)[:-1],
            exact(lambda u: mp.mpf("0.01") * mp.mpf(5000) ** u, t),
        ),
    ]
    t = torch.linspace(1, 1e-3, n, dtype=torch.float64)
    vp = un.schedules.LinearBeta()
    ratio = vp.sigma(t) / vp.alpha(t)
    truth = exact(lambda u: vp_sigma(u) / vp_alpha(u), t)
    return [*rows, compared("k-diffusion", "VP: sigma/alpha", ratio, theirs.get_sigmas_vp(n)[:-1], truth)]


def edm(folder: Path) -> list[Row]:
    theirs, vp = module("edm", "training.loss", folder, absent=["torch_utils"]), un.schedules.LinearBeta()
    truth = exact(lambda t: vp_sigma(t) / vp_alpha(t))
    return [compared("EDM", "VP: sigma/alpha", vp.sigma(TIMES) / vp.alpha(TIMES), theirs.VPLoss().sigma(TIMES), truth)]


def score_sde(folder: Path) -> list[Row]:
    theirs = module("score_sde_pytorch", "sde_lib", folder)

    def rate(t: Any) -> Any:
        return mp.mpf("0.1") + mp.mpf("19.9") * t

    ve = lambda t: mp.mpf("0.01") * mp.mpf(5000) ** t  # noqa: E731
    families = {
        "VP": (un.schedules.LinearBeta(), theirs.VPSDE(), vp_alpha, vp_sigma, rate),
        "sub-VP": (
            *(un.schedules.SubVP(), theirs.subVPSDE(), vp_alpha, lambda t: vp_sigma(t) ** 2),
            lambda t: rate(t) * (1 - vp_alpha(t) ** 4),
        ),
        "VE": (un.schedules.VE(), theirs.VESDE(), lambda t: mp.mpf(1), ve, lambda t: 2 * ve(t) ** 2 * mp.log(5000)),
    }
    rows = []
    for name, (ours, sde, alpha, sigma, diffusion) in families.items():
        for dtype in (torch.float64, torch.float32):
            t = TIMES if dtype is torch.float64 else torch.tensor([1e-5, 1e-4, 1e-3])
            x = torch.ones(len(t), 1, 1, 1, dtype=dtype)
            mean, std = sde.marginal_prob(x, t)
            drift, g = sde.sde(x, t)
            why = "" if dtype is torch.float64 or name == "VE" else "1 - exp of a small number"
            told = f"{name}, {'t to 0.99' if dtype is torch.float64 else 'float32, t from 1e-5'}"
            rows += [
                compared("score_sde", f"{told}: alpha", ours.alpha(t), mean, exact(alpha, t)),
                compared("score_sde", f"{told}: sigma", ours.sigma(t), std, exact(sigma, t), why),
                compared("score_sde", f"{told}: g^2", ours.diffusion(t), g.square(), exact(diffusion, t), why),
                compared("score_sde", f"{told}: drift", ours.drift(t), drift, slope(lambda u, a=alpha: mp.log(a(u)), t)),
            ]
    return rows


def flow_matching(folder: Path) -> list[Row]:
    from flow_matching.path import scheduler as theirs

    pairs = {
        "CondOT": (un.schedules.Linear(), theirs.CondOTScheduler(), lambda t: 1 - t, lambda t: t),
        "VP": (un.schedules.LinearBeta(), theirs.VPScheduler(), vp_alpha, vp_sigma),
        "cosine": (
            *(un.schedules.Cosine(), theirs.CosineScheduler()),
            *(lambda t: mp.cos(mp.pi * t / 2), lambda t: mp.sin(mp.pi * t / 2)),
        ),
        "polynomial": (
            *(un.schedules.Power(3.0), theirs.PolynomialConvexScheduler(3.0)),
            *(lambda t: (1 - t) ** 3, lambda t: 1 - (1 - t) ** 3),
        ),
    }
    rows = []
    for name, (ours, scheduler, alpha, sigma) in pairs.items():
        told, log_snr = scheduler(1 - TIMES), ours.log_snr(TIMES)
        rows += [
            compared("flow_matching", f"{name}: alpha", ours.alpha(TIMES), told.alpha_t, exact(alpha)),
            compared("flow_matching", f"{name}: sigma", ours.sigma(TIMES), told.sigma_t, exact(sigma)),
            compared("flow_matching", f"{name}: alpha'", ours.d_alpha(TIMES), -told.d_alpha_t, slope(alpha)),
            compared("flow_matching", f"{name}: sigma'", ours.d_sigma(TIMES), -told.d_sigma_t, slope(sigma)),
            compared(
                "flow_matching",
                f"{name}: time of alpha/sigma",
                ours.time_of_log_snr(log_snr),
                1 - scheduler.snr_inverse((log_snr / 2).exp()),
                TIMES,
            ),
        ]
    return rows


def azula(folder: Path) -> list[Row]:
    from azula import noise as theirs

    vp_min = float(mp.exp(-5))
    pairs = {
        "VE": (un.schedules.VE(1e-3, 1e3), theirs.VESchedule(), lambda t: mp.mpf(1), lambda t: mp.mpf(10) ** (6 * t - 3)),
        "VP": (
            *(un.schedules.LinearBeta(0.0, 20.0), theirs.VPSchedule(vp_min, 0.0)),
            *(lambda t: mp.exp(-5 * t**2), lambda t: mp.sqrt(-mp.expm1(-10 * t**2))),
        ),
        "cosine": (
            *(un.schedules.Cosine(), theirs.CosineSchedule(0.0, 0.0)),
            *(lambda t: mp.cos(mp.pi * t / 2), lambda t: mp.sin(mp.pi * t / 2)),
        ),
        "rectified": (un.schedules.Linear(), theirs.RectifiedSchedule(0.0, 0.0), lambda t: 1 - t, lambda t: t),
    }
    rows = []
    for name, (ours, schedule, alpha, sigma) in pairs.items():
        their_alpha, their_sigma = schedule(TIMES)
        rows.append(compared("azula", f"{name}: alpha", ours.alpha(TIMES), their_alpha, exact(alpha)))
        rows.append(compared("azula", f"{name}: sigma", ours.sigma(TIMES), their_sigma, exact(sigma)))
    return rows


if __name__ == "__main__":
    main(__doc__, [diffusers, k_diffusion, edm, score_sde, flow_matching, azula])
