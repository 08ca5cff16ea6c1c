"""Reverse steps of other projects on categories beside ours: the law that is drawn from, for the same x_t, times and output.

    cd benchmarks; python -m peers.category_steps [--checkouts FOLDER] [--json]

Their steps draw inside; the law that they draw from is caught on its way and normalised.  The truth is the step by its
definition, from small matrices (`category_truth`).
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import unnoise as un
from peers import category_truth as truth
from peers.category_losses import MASKING, TRAINERS, UNIFORM, with_mask
from peers.category_truth import CHANGED, LOGITS, MASKED, MIXED, SIZE, THETA, T
from peers.checkouts import Caught, bare, drawn_from, module
from peers.table import Row, compared, main
from unnoise import samplers

S = T - 0.1
HIDDEN = MASKED == SIZE  # their masked steps copy the other coordinates


def normal(law: Tensor) -> Tensor:
    return law / law.sum(-1, keepdim=True)


def masked() -> tuple[Tensor, Tensor]:
    """Our step from MASK, and the truth."""
    law: Any = un.Posterior(LOGITS, MASKING, MASKED, T).step(S)
    early, late = ([truth.MASKING.kernel(1 - t) for t in times.tolist()] for times in (S, T))
    return law.probs[HIDDEN], truth.steps(early, late, MASKED, truth.carried(MASKED, THETA))[HIDDEN]


def masked_row(project: str, name: str, found: Tensor, inside: Any = None) -> Row:
    ours, exact = masked()
    return compared(project, name, ours, normal(found)[HIDDEN], exact, "", inside)


def mdlm(folder: Path) -> list[Row]:
    theirs = module("mdlm", "diffusion", folder, TRAINERS)
    run = bare(
        theirs.Diffusion,
        mask_index=SIZE,
        vocab_size=SIZE + 1,
        neg_infinity=-1e6,
        time_conditioning=False,
        parameterization="subs",
        noise=theirs.noise_schedule.LogLinearNoise(0.0),
        config=SimpleNamespace(noise=SimpleNamespace(type="loglinear")),
        backbone=lambda x, sigma: with_mask(LOGITS),
    )
    rows = []
    for name, update, t in (
        ("ancestral", run._ddpm_update, T),
        ("ancestral, cached", run._ddpm_caching_update, T),
        ("analytic, from ratios", run._analytic_update, T[:, None]),
    ):
        with drawn_from(theirs, "_sample_categorical") as laws:
            update(MASKED, t, 0.1)
        rows.append(masked_row("MDLM", name, laws[0]))
    return rows


def duo(folder: Path) -> list[Row]:
    theirs = module("duo", "algo", folder, TRAINERS)
    config = SimpleNamespace(sampling=SimpleNamespace(use_float64=True))
    common: Any = {"config": config, "device": "cpu", "dtype": torch.float64, "neg_infinity": -1e6}
    run = bare(theirs.MDLM, mask_index=SIZE, vocab_size=SIZE + 1, **common)
    told = run._process_model_output(with_mask(LOGITS), MASKED, None).exp()
    alpha_s, alpha_t = (1 - S)[:, None], (1 - T)[:, None]
    rows = [masked_row("Duo", "MDLM", run._posterior_from_x0(told, MASKED, alpha_s, alpha_t))]
    base = bare(theirs.DUO_BASE, vocab_size=SIZE, **common)
    found = base._posterior_from_x0(THETA, CHANGED, alpha_s, alpha_t)
    law: Any = un.RawPosterior(LOGITS, UNIFORM, CHANGED, T, kernel="plug-in").step(S)
    early, late = ([truth.UNIFORM.kernel(1 - t) for t in times.tolist()] for times in (S, T))
    exact = truth.steps(early, late, CHANGED, THETA)
    return [*rows, compared("Duo", "uniform, plug-in", law.probs, normal(found), exact)]


def sedd(folder: Path) -> list[Row]:
    """From ratios: `analytic` inverts the noise, `euler` takes one step of the rates."""
    absent = ["model.transformer", "omegaconf", "flash_attn"]
    theirs = module("Score-Entropy-Discrete-Diffusion", "sampling", folder, absent)
    graphs = module("Score-Entropy-Discrete-Diffusion", "graph_lib", folder)
    noise = module("Score-Entropy-Discrete-Diffusion", "noise_lib", folder).LogLinearNoise(0.0)
    rows = []
    for name, graph, process, chain, x_t, theta in (
        ("absorbing", graphs.Absorbing(SIZE), MASKING, truth.MASKING, MASKED, truth.carried(MASKED, THETA)),
        ("uniform", graphs.Uniform(SIZE), UNIFORM, truth.UNIFORM, CHANGED, THETA),
    ):
        early, late = ([chain.kernel(1 - t) for t in times.tolist()] for times in (S, T))
        states, keep = len(early[0]), HIDDEN if x_t is MASKED else torch.ones_like(x_t, dtype=torch.bool)
        implied = torch.stack([truth.wide(row, states) @ kernel.T for row, kernel in zip(theta, late, strict=True)])
        ratios = implied / implied.gather(-1, x_t.unsqueeze(-1))  # those of a law of x_0, so that every form is exact
        said = un.Ratio(ratios.clamp_min(1e-300).log(), process, x_t, T)
        predictor = theirs.get_predictor("analytic")(graph, noise)
        with drawn_from(theirs, "sample_categorical") as laws:
            predictor.update_fn(lambda x, sigma, r=ratios: r, x_t, T[:, None], 0.1)
        ours: Any = said.step(S)
        exact = truth.steps(early, late, x_t, theta)
        rows.append(
            compared("SEDD", f"analytic, {name}", ours.probs[keep], normal(laws[0])[keep], exact[keep], "", torch.float32)
        )
        euler = theirs.get_predictor("euler")(graph, noise)
        with drawn_from(graphs, "sample_categorical") as laws:
            euler.update_fn(lambda x, sigma, r=ratios: r, x_t, T[:, None], 0.02)
        moved = 0.02 * samplers.Euler(hold=False).rates(said)
        stay = 1 - moved.sum(-1, keepdim=True)
        own = moved.scatter(-1, x_t.unsqueeze(-1), stay)
        straight = torch.zeros_like(own)
        for row, t in enumerate(T.tolist()):
            rates = chain.rates(1 / (1 - t))
            for k, x in enumerate(x_t[row].tolist()):
                straight[row, k] = 0.02 * truth.rates_of(late[row], rates, truth.wide(theta[row, k], states), x)
                straight[row, k, x] += 1 - straight[row, k].sum()
        rows.append(compared("SEDD", f"Euler, {name}", own[keep], laws[0][keep], straight[keep], "", torch.float32))
    return rows


def gidd(folder: Path) -> list[Row]:
    theirs = module("gidd", "gidd.sampling", folder, ["gidd.pipeline"])
    schedules = module("gidd", "gidd.diffusion_process", folder, ["gidd.pipeline"])
    words = type("Words", (SimpleNamespace,), {"__len__": lambda self: SIZE + 1})(mask_token_id=SIZE)
    hybrid = schedules.HybridDiffusion(words, p_uniform=0.2).double()
    step = theirs.GiddSampler.DenoisingStep(lambda x, t: with_mask(LOGITS), hybrid, words)
    laws = []
    for row, (t, s) in enumerate(zip(T, S, strict=True)):  # one time for all rows
        with drawn_from(theirs, "sample_categorical") as caught:
            step(MIXED, t[None], s[None])
        laws.append(caught[0][row])
    process = un.Mixture.uniform_and_mask(SIZE, (3,), uniform=0.2)
    ours: Any = un.RawPosterior(LOGITS, process, MIXED, T, kernel="plug-in").step(S)
    early, late = ([truth.hybrid(t) for t in times.tolist()] for times in (S, T))
    exact = truth.steps(early, late, MIXED, THETA)
    return [compared("GIDD", "mask and uniform, plug-in", ours.probs, normal(torch.stack(laws)), exact, "", torch.float32)]


def flow_matching(folder: Path) -> list[Row]:
    """The velocity, and the probability to jump in a step of their Euler solver."""
    from flow_matching.path import MixtureDiscreteProbPath
    from flow_matching.path.scheduler import PolynomialConvexScheduler

    path = MixtureDiscreteProbPath(PolynomialConvexScheduler(n=1.0))
    logits = with_mask(truth.carried(MASKED, THETA).log().clamp_min(-1e6), -1e6)
    velocity = path.posterior_to_velocity(logits, MASKED, (1 - T)[:, None])
    ours = samplers.Euler().rates(un.Posterior(LOGITS, MASKING, MASKED, T))
    found = velocity.scatter(-1, MASKED.unsqueeze(-1), 0.0)
    exact = truth.wide(truth.carried(MASKED, THETA) * HIDDEN.unsqueeze(-1), SIZE + 1) / T.reshape(3, 1, 1)
    return [compared("flow_matching", "velocity from MASK", ours, found, exact)]


def moco(folder: Path) -> list[Row]:
    from bionemo.moco import interpolants
    from bionemo.moco.distributions.prior import DiscreteMaskedPrior, DiscreteUniformPrior
    from bionemo.moco.distributions.time import UniformTimeDistribution
    from bionemo.moco.schedules.noise.continuous_noise_transforms import LogLinearExpNoiseTransform
    from bionemo.moco.schedules.noise.discrete_noise_schedules import DiscreteLinearNoiseSchedule

    prior, even = DiscreteMaskedPrior(SIZE, inclusive=False), UniformTimeDistribution()
    mdlm: Any = interpolants.MDLM(even, prior, LogLinearExpNoiseTransform(0.0))
    with drawn_from(mdlm, "_sample_categorical") as laws:
        mdlm.step(with_mask(LOGITS), T, MASKED, torch.full((3,), 0.1, dtype=torch.float64))
    rows = [masked_row("moco", "MDLM", laws[0])]
    flow, gap, rate = interpolants.DiscreteFlowMatcher(even, prior), 0.01, 0.5
    with patch("torch.multinomial", caught := Caught()):
        flow.step(with_mask(LOGITS).float(), (1 - T).float(), MASKED, torch.full((3,), gap), stochasticity=rate)
    found, exact, ours = caught.law.reshape(3, 3, -1), torch.zeros(3, 3, SIZE + 1, dtype=torch.float64), []
    for row, t in enumerate(T.tolist()):
        said = un.Posterior(LOGITS[row : row + 1], MASKING, MASKED[row : row + 1], t)
        moved = gap * samplers.Euler(gamma=rate * (1 - t), hold=False).rates(said)
        here = MASKED[row : row + 1].unsqueeze(-1)
        ours.append(moved.scatter(-1, here, 1 - moved.sum(-1, keepdim=True)))
        for k, x in enumerate(MASKED[row].tolist()):
            exact[row, k, :SIZE] = gap * (1 + rate * (1 - t)) / t * THETA[row, k] if x == SIZE else 0
            exact[row, k, SIZE] = gap * rate if x < SIZE else 0
            exact[row, k, x] += 1 - exact[row, k].sum()
    rows.append(compared("moco", "discrete flow from MASK, stochasticity 1/2", torch.cat(ours), found, exact))
    betas = torch.linspace(0.05, 0.3, 10, dtype=torch.float64)
    discrete = UniformTimeDistribution(discrete_time=True, nsteps=10)
    d3pm: Any = interpolants.D3PM(discrete, DiscreteUniformPrior(SIZE), DiscreteLinearNoiseSchedule(10, 0.05, 0.3))
    law = d3pm._q_posterior_logits(LOGITS.float(), torch.full((3,), 6), CHANGED).softmax(-1)
    chain = un.MatrixChain(un.d3pm.uniform(SIZE, betas), (3,))
    own: Any = un.RawPosterior(LOGITS, chain.base, CHANGED, 0.7, kernel="plug-in").step(0.6)  # type: ignore[arg-type]
    keep = (1 - betas).cumprod(0)
    early, late = ([truth.UNIFORM.kernel(float(keep[i]))] * 3 for i in (5, 6))
    exact = truth.steps(early, late, CHANGED, THETA)
    return [*rows, compared("moco", "D3PM, uniform, plug-in", own.probs, law, exact, "1e-6 is added to probabilities")]


if __name__ == "__main__":
    main(__doc__, [mdlm, duo, sedd, gidd, flow_matching, moco])
