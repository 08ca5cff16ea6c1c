"""Schedules of categories beside those of other projects: the total noise -log alpha, its rate, the noise law.

    cd benchmarks; python -m peers.masking_schedules [--checkouts FOLDER] [--json]

The truth is the published formula in 50 digits (mpmath); rates are its derivatives.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpmath as mp
import torch

import unnoise as un
from peers.checkouts import module
from peers.table import Row, compared, main
from peers.truth import TIMES, exact, slope


def masking_rates(project: str, noises: dict[str, Any]) -> list[Row]:
    """-log alpha and -alpha'/alpha of schedules that speak of the total noise and its rate."""
    formulas = {"log-linear": (un.schedules.Linear(), lambda t: 1 - t)}
    formulas["cosine"] = (un.schedules.Cosine(), lambda t: mp.cos(mp.pi * t / 2))
    geometric = lambda t: torch.exp(-(0.001 ** (1 - t)))  # noqa: E731
    custom = un.schedules.Custom(geometric, lambda t: 1 - geometric(t))
    formulas["geometric"] = (custom, lambda t: mp.exp(-(mp.mpf("0.001") ** (1 - t))))
    rows = []
    for name, (total, rate) in noises.items():
        ours, alpha = formulas[name]
        log_alpha = lambda t, a=alpha: -mp.log(a(t))  # noqa: E731
        why = "float32 constants" if name == "geometric" else ""
        own = -ours.d_alpha(TIMES) / ours.alpha(TIMES)
        rows.append(compared(project, f"{name}: -log alpha", -ours.alpha(TIMES).log(), total, exact(log_alpha), why))
        rows.append(compared(project, f"{name}: rate", own, rate, slope(log_alpha), why))
    return rows


def mdlm(folder: Path) -> list[Row]:
    theirs = module("mdlm", "noise_schedule", folder)
    noises = {"log-linear": theirs.LogLinearNoise(0.0), "cosine": theirs.CosineNoise(0.0)}
    noises["geometric"] = theirs.GeometricNoise()
    return masking_rates("MDLM", {name: noise(TIMES) for name, noise in noises.items()})


def duo(folder: Path) -> list[Row]:
    absent = ["hydra", "lightning", "transformers", "dataloader", "metrics", "models", "utils"]
    theirs, eps = module("duo", "trainer_base", folder, absent), 1e-3
    (slope_of, alpha), ours = theirs.Cosine(eps)(TIMES), un.schedules.OneMinusCosine()
    own_alpha, own_slope = ours.alpha((1 - eps) * TIMES), (1 - eps) * ours.d_alpha((1 - eps) * TIMES)
    formula = lambda t: 1 - mp.cos(mp.pi / 2 * (1 - (1 - mp.mpf(eps)) * t))  # noqa: E731
    line_slope, line = theirs.LogLinear(0.0)(TIMES)
    linear = un.schedules.Linear()
    return [
        compared("Duo", "cosine, from eps = 1e-3: alpha", own_alpha, alpha, exact(formula)),
        compared(
            "Duo", "cosine, from eps = 1e-3: alpha'", own_slope, slope_of, slope(formula), "1 - eps left out of the slope"
        ),
        compared("Duo", "log-linear: alpha", linear.alpha(TIMES), line, 1 - TIMES),
        compared("Duo", "log-linear: alpha'", linear.d_alpha(TIMES), line_slope, -torch.ones_like(TIMES)),
    ]


def sedd(folder: Path) -> list[Row]:
    theirs = module("Score-Entropy-Discrete-Diffusion", "noise_lib", folder)
    noises = {"log-linear": theirs.LogLinearNoise(0.0), "geometric": theirs.GeometricNoise()}
    return masking_rates("SEDD", {name: noise(TIMES) for name, noise in noises.items()})


def moco(folder: Path) -> list[Row]:
    from bionemo.moco.interpolants import MDLM  # noqa: F401  (first: its parts import each other)
    from bionemo.moco.schedules.noise import continuous_noise_transforms as theirs

    noises = {"log-linear": theirs.LogLinearExpNoiseTransform(0.0), "cosine": theirs.CosineExpNoiseTransform(0.0)}
    told = {name: (noise.calculate_sigma(TIMES), noise.d_dt_sigma(TIMES)) for name, noise in noises.items()}
    return masking_rates("moco", told)


def gidd(folder: Path) -> list[Row]:
    theirs = module("gidd", "gidd.diffusion_process", folder, absent=["gidd.pipeline"])
    process = un.Mixture.uniform_and_mask(5, (), uniform=0.2)
    words = type("Words", (SimpleNamespace,), {"__len__": lambda self: 6})(mask_token_id=5)
    hybrid = theirs.HybridDiffusion(words, p_uniform=0.2)
    alpha, noise = hybrid.double().get_alpha_betapi(TIMES)
    weight = lambda t: mp.sqrt(t * (1 - t)) / 2  # noqa: E731
    x0 = torch.zeros(len(TIMES), dtype=torch.long)
    ours = process.marginal(x0, TIMES).probs
    truth = [exact(lambda t: (1 - t + weight(t) / 5) / (1 + weight(t)))]
    truth += [exact(lambda t: weight(t) / 5 / (1 + weight(t)))] * 4 + [exact(lambda t: t / (1 + weight(t)))]
    theirs_at = noise + alpha * torch.nn.functional.one_hot(x0, 6)
    why = "float32 constants"
    return [compared("GIDD", "uniform and mask: q(x_t | x_0)", ours, theirs_at, torch.stack(truth, 1), why)]


if __name__ == "__main__":
    main(__doc__, [mdlm, duo, sedd, moco, gidd])
