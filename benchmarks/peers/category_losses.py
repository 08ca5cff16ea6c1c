"""Losses of other projects on categories beside ours: the same x_0, x_t, time and network output.

    cd benchmarks; python -m peers.category_losses [--checkouts FOLDER] [--json]

The truth is the divergence of the reverse rates by its definition, from small matrices (`category_truth`).
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import unnoise as un
from peers import category_truth as truth
from peers.category_truth import CHANGED, LOGITS, MASKED, MIXED, SIZE, THETA, X_0, T
from peers.checkouts import bare, module
from peers.table import Row, compared, main
from unnoise.objectives.closed_forms import rate

LINE = un.schedules.Linear()
MASKING, UNIFORM = un.Masking(SIZE, (3,), LINE), un.Uniform(SIZE, (3,), LINE)
TRAINERS = ["hydra", "lightning", "torchmetrics", "transformers", "dataloader", "metrics", "models", "utils", "fsspec"]


def with_mask(logits: Tensor, value: float = 0.3) -> Tensor:
    """Their networks have a logit for MASK, too."""
    return torch.nn.functional.pad(logits, (0, 1), value=value).clone()


def masked_truth() -> Tensor:
    kernels = [truth.MASKING.kernel(1 - t) for t in T.tolist()]
    rates = [truth.MASKING.rates(1 / (1 - t)) for t in T.tolist()]
    return truth.loss(kernels, rates, MASKED, truth.carried(MASKED, THETA))


def masked() -> Tensor:
    return rate(un.Posterior(LOGITS, MASKING, MASKED, T), MASKING, X_0)


def score_rows(project: str, name: str, process: Any, chain: truth.Chain, x_t: Tensor, found: Tensor) -> Row:
    """Score entropy, where the network said LOGITS as log-ratios."""
    ratios = LOGITS if x_t is CHANGED else with_mask(LOGITS)
    ratios = ratios.scatter(-1, x_t.unsqueeze(-1), 0.0)
    kernels = [chain.kernel(1 - t) for t in T.tolist()]
    rates = [chain.rates(1 / (1 - t)) for t in T.tolist()]
    ours = rate(un.Ratio(ratios, process, x_t, T), process, X_0)
    inside = torch.float32 if x_t is MASKED else None  # they sum into a tensor of zeros
    return compared(project, name, ours, found, truth.score_loss(kernels, rates, x_t, ratios.exp()), "", inside)


def step_truth(length: float, x_t: Tensor, theta: Tensor) -> Tensor:
    """KL of the exact step from the model's, summed over coordinates."""
    early, late = ([truth.MASKING.kernel(1 - t) for t in times.tolist()] for times in (T - length, T))
    model = truth.steps(early, late, x_t, theta)
    exact = truth.steps(early, late, x_t, truth.one_hot(X_0, SIZE))
    return torch.where(exact > 0, exact * (exact / model).log(), 0.0).sum((1, 2))


def mdlm(folder: Path) -> list[Row]:
    theirs = module("mdlm", "diffusion", folder, TRAINERS)
    noise = theirs.noise_schedule.LogLinearNoise(0.0)
    run = bare(
        theirs.Diffusion,
        mask_index=SIZE,
        vocab_size=SIZE + 1,
        neg_infinity=-1e6,
        noise=noise,
        time_conditioning=False,
        parameterization="subs",
        T=0,
        change_of_variables=False,
        importance_sampling=False,
        _sample_t=lambda rows, device: T,
        q_xt=lambda x, chance: MASKED,
        backbone=lambda x, sigma: with_mask(LOGITS),
    )
    rows = [compared("MDLM", "SUBS, continuous time", masked(), run._forward_pass_diffusion(X_0).sum(1), masked_truth())]
    run.T, length = 10, 0.1
    told = run._subs_parameterization(with_mask(LOGITS), MASKED)
    found = run._d3pm_loss(told, MASKED, X_0, T).sum(1)
    said = un.Posterior(LOGITS, MASKING, MASKED, T)
    ours = 10 * un.divergence(MASKING.reverse(MASKED, X_0, T), said, T - length)
    rows.append(
        compared("MDLM", "SUBS, ten steps", ours, found, 10 * step_truth(length, MASKED, truth.carried(MASKED, THETA)))
    )
    ratios = with_mask(LOGITS).scatter(-1, MASKED.unsqueeze(-1), 0.0)
    sigma, slope = noise(T)
    entropy = slope[:, None] * run._score_entropy(ratios, sigma[:, None], MASKED, X_0)
    return [*rows, score_rows("MDLM", "score entropy", MASKING, truth.MASKING, MASKED, entropy.sum(1))]


def duo(folder: Path) -> list[Row]:
    theirs = module("duo", "algo", folder, TRAINERS)
    common: Any = {"mask_index": SIZE, "vocab_size": SIZE + 1, "neg_infinity": -1e6, "device": "cpu"}
    alpha, slope = (1 - T)[:, None], -torch.ones(3, 1, dtype=torch.float64)
    run = bare(theirs.MDLM, **common)
    told = run._process_model_output(with_mask(LOGITS), MASKED, None)
    found = run.nll_per_token(told, MASKED, X_0, alpha, slope).sum(1)
    rows = [compared("Duo", "MDLM", masked(), found, masked_truth())]
    sedd = bare(theirs.SEDDAbsorb, **common, _sigma_from_alphat=lambda a: -a.log())
    ratios = with_mask(LOGITS).scatter(-1, MASKED.unsqueeze(-1), 0.0)
    entropy = sedd.nll_per_token(ratios, MASKED, X_0, alpha, slope).sum(1)
    rows.append(score_rows("Duo", "SEDD, absorbing", MASKING, truth.MASKING, MASKED, entropy))
    d3pm = bare(theirs.D3PMAbsorb, **common, T=10, _reconstruction_loss=lambda x: 0.0)
    found = d3pm.nll_per_token(told, MASKED, X_0, alpha, slope).sum(1)
    said = un.Posterior(LOGITS, MASKING, MASKED, T)
    ours = 10 * un.divergence(MASKING.reverse(MASKED, X_0, T), said, T - 0.1)
    rows.append(compared("Duo", "D3PM, ten steps", ours, found, 10 * step_truth(0.1, MASKED, truth.carried(MASKED, THETA))))
    base = bare(theirs.DUO_BASE, vocab_size=SIZE)
    found = base.nll_per_token(LOGITS.log_softmax(-1), CHANGED, X_0, alpha, slope).sum(1)
    kernels = [truth.UNIFORM.kernel(1 - t) for t in T.tolist()]
    rates = [truth.UNIFORM.rates(1 / (1 - t)) for t in T.tolist()]
    ours = rate(un.Posterior(LOGITS, UNIFORM, CHANGED, T), UNIFORM, X_0)
    return [*rows, compared("Duo", "uniform", ours, found, truth.loss(kernels, rates, CHANGED, THETA))]


def sedd(folder: Path) -> list[Row]:
    absent = ["model.transformer", "omegaconf", "flash_attn"]
    theirs = module("Score-Entropy-Discrete-Diffusion", "losses", folder, absent)
    noise = module("Score-Entropy-Discrete-Diffusion", "noise_lib", folder).LogLinearNoise(0.0)
    rows = []
    for name, graph, process, chain, x_t in (
        ("absorbing", theirs.graph_lib.Absorbing(SIZE), MASKING, truth.MASKING, MASKED),
        ("uniform", theirs.graph_lib.Uniform(SIZE), UNIFORM, truth.UNIFORM, CHANGED),
    ):
        ratios = (LOGITS if x_t is CHANGED else with_mask(LOGITS)).scatter(-1, x_t.unsqueeze(-1), 0.0)

        class Said(torch.nn.Module):
            def forward(self, x: Tensor, sigma: Tensor, ratios: Tensor = ratios) -> Tensor:
                return ratios

        found = theirs.get_loss_fn(noise, graph, False)(Said(), X_0, t=T, perturbed_batch=x_t)
        rows.append(score_rows("SEDD", f"score entropy, {name}", process, chain, x_t, found))
    return rows


def gidd(folder: Path) -> list[Row]:
    theirs = module("gidd", "gidd.loss", folder, ["gidd.pipeline"])
    schedules = module("gidd", "gidd.diffusion_process", folder, ["gidd.pipeline"])
    words = type("Words", (SimpleNamespace,), {"__len__": lambda self: SIZE + 1})(mask_token_id=SIZE)
    config = SimpleNamespace(loss=SimpleNamespace(loss_weighting="none", min_loss_weight=0.0, max_loss_weight=1e9))
    hybrid, every = schedules.HybridDiffusion(words, p_uniform=0.2).double(), torch.ones(3, 3)
    found = theirs.GiddLoss(config, words, hybrid).loss(with_mask(LOGITS), X_0, every, MIXED, T)[1].sum(1)
    process = un.Mixture.uniform_and_mask(SIZE, (3,), uniform=0.2)
    ours = rate(un.Posterior(LOGITS, process, MIXED, T), process, X_0)
    kernels, rates = [], []
    for t in T.tolist():
        h = 1e-5
        kernels.append(truth.hybrid(t))
        rates.append((truth.hybrid(t + h) - truth.hybrid(t - h)) / (2 * h) @ torch.linalg.inv(kernels[-1]))  # Q' = R Q
    rows = [compared("GIDD", "mask and uniform", ours, found, truth.loss(kernels, rates, MIXED, THETA), "", torch.float32)]
    found = theirs.MDLMLoss(config, words, schedules.MaskedDiffusion(words)).loss(with_mask(LOGITS), X_0, every, MASKED, T)[
        1
    ]
    return [*rows, compared("GIDD", "MDLM", masked(), found.sum(1), masked_truth())]


def flow_matching(folder: Path) -> list[Row]:
    from flow_matching.loss import MixturePathGeneralizedKL
    from flow_matching.path import MixtureDiscreteProbPath
    from flow_matching.path.scheduler import PolynomialConvexScheduler

    path = MixtureDiscreteProbPath(PolynomialConvexScheduler(n=1.0))
    logits = with_mask(truth.carried(MASKED, THETA).log().clamp_min(-1e6), -1e6)
    found = MixturePathGeneralizedKL(path, reduction="none")(logits=logits, x_1=X_0, x_t=MASKED, t=1 - T).sum(1)
    return [compared("flow_matching", "generalised KL, from MASK", masked(), found, masked_truth())]


def moco(folder: Path) -> list[Row]:
    from bionemo.moco import interpolants
    from bionemo.moco.distributions.prior import DiscreteMaskedPrior, DiscreteUniformPrior
    from bionemo.moco.distributions.time import UniformTimeDistribution
    from bionemo.moco.schedules.noise.continuous_noise_transforms import LogLinearExpNoiseTransform
    from bionemo.moco.schedules.noise.discrete_noise_schedules import DiscreteLinearNoiseSchedule

    prior = DiscreteMaskedPrior(SIZE, inclusive=False)
    mdlm = interpolants.MDLM(UniformTimeDistribution(), prior, LogLinearExpNoiseTransform(0.0))
    rows = [compared("moco", "MDLM", masked(), 3 * mdlm.loss(with_mask(LOGITS), X_0, MASKED, T), masked_truth())]
    discrete = UniformTimeDistribution(discrete_time=True, nsteps=10)
    d3pm: Any = interpolants.D3PM(discrete, DiscreteUniformPrior(SIZE), DiscreteLinearNoiseSchedule(10, 0.05, 0.3))
    chain = un.MatrixChain(un.d3pm.uniform(SIZE, torch.linspace(0.05, 0.3, 10, dtype=torch.float64)), (3,))
    at, t = torch.full((3,), 6), torch.full((3,), 0.7, dtype=torch.float64)
    said: Any = un.Posterior(LOGITS, chain.base, CHANGED, t)
    ours = un.divergence(chain.reverse(CHANGED, X_0, t), said, t - 0.1)
    logits = LOGITS.float()
    plain = d3pm.loss(logits, X_0, CHANGED, at)
    found = (d3pm.loss(logits, X_0, CHANGED, at, vb_scale=1.0) - plain).mean() * 3
    keep = (1 - torch.linspace(0.05, 0.3, 10, dtype=torch.float64)).cumprod(0)
    early, late = ([truth.UNIFORM.kernel(float(keep[i]))] * 3 for i in (5, 6))
    model, exact = (truth.steps(early, late, CHANGED, theta) for theta in (THETA, truth.one_hot(X_0, SIZE)))
    kl = (exact * (exact / model).log()).sum((1, 2)).mean()
    why = "x_0 as one-hot numbers is taken for logits"
    return [*rows, compared("moco", "D3PM, KL of a step", ours.mean(), found, kl, why, torch.float32)]


if __name__ == "__main__":
    main(__doc__, [mdlm, duo, sedd, gidd, flow_matching, moco])
