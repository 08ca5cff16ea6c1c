"""Kernels with the process's marginals, leave-one-out laws and choices of coordinates, of other projects beside ours.

    cd benchmarks; python -m peers.category_families [--checkouts FOLDER] [--json]

The truth is an enumeration over x_0 from small matrices (`category_truth`), and the printed rule of how much to remask.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

import unnoise as un
from peers import category_truth as truth
from peers.category_losses import MASKING, TRAINERS, UNIFORM, with_mask
from peers.category_steps import normal
from peers.category_truth import CHANGED, DOUBLE, LOGITS, MASKED, SIZE, THETA
from peers.checkouts import Caught, bare, drawn_from, module
from peers.table import Row, compared, main
from unnoise import samplers
from unnoise.samplers import remasking


def diffusers(folder: Path) -> list[Row]:
    """Discrete DDIM draws x_0 first: its law is the sum over all of them.  Step 4 of 10 is from t = 0.6 to 0.5."""
    from diffusers import DiscreteDDIMScheduler, EntropyBoundScheduler

    ddim: Any = DiscreteDDIMScheduler(num_inference_steps=10)
    found = torch.zeros(3, 3, SIZE, dtype=torch.float64)
    for x_0 in range(SIZE):
        clean = patch.object(ddim, "_sample_from_logits", lambda *a, x=x_0, **o: (torch.full_like(CHANGED, x), None))
        with clean, patch("torch.multinomial", kept := Caught()):
            ddim.step(LOGITS, 4, CHANGED)
        clean, stay, fresh = kept.law.double().reshape(3, 3, 3).unbind(-1)
        law = fresh.unsqueeze(-1).expand(-1, -1, SIZE) / SIZE + clean.unsqueeze(-1) * torch.eye(SIZE)[x_0]
        found += THETA[..., x_0, None] * (law + stay.unsqueeze(-1) * truth.one_hot(CHANGED, SIZE))
    said, early, late = un.RawPosterior(LOGITS, UNIFORM, CHANGED, 0.6), *([truth.UNIFORM.kernel(a)] * 3 for a in (0.5, 0.4))
    ours: Any = said.step(0.5)
    given = [truth.steps(early, late, CHANGED, torch.eye(SIZE).double()[x].expand(3, 3, -1)) for x in range(SIZE)]
    exact = sum(THETA[..., x, None] * law for x, law in enumerate(given))
    rows = [compared("diffusers", "discrete DDIM: the reversal, uniform", ours.probs, found, exact, "", torch.float32)]
    left = ddim._to_loo_logits(LOGITS, CHANGED, 0.4).softmax(-1)
    without = normal(THETA / late[0][CHANGED])
    rows.append(
        compared("diffusers", "leave-one-out from q(x_0 | x_t)", said.to(un.Posterior).log_theta().exp(), left, without)
    )
    every = torch.ones(3, 3, dtype=torch.bool)
    entropy = -(THETA * THETA.log()).sum(-1)
    for bound in (0.5, 1.2, 2.0):
        bounded: Any = EntropyBoundScheduler(entropy_bound=bound, t_max=1.0, t_min=1.0)
        accepted = bounded.step(LOGITS, 0, CHANGED).accepted_index
        chosen = samplers.EntropyBounded(bound)._chosen(LOGITS.flatten(0, 1), torch.arange(9), every).reshape(3, 3)
        ranked = entropy.sort(1).values
        count = (ranked.cumsum(1) - ranked <= bound).sum(1, keepdim=True)  # the sum of the others is within the bound
        exact = entropy.argsort(1).argsort(1) < count
        what = f"entropy-bounded, {bound:g} nats: who is taken"
        rows.append(compared("diffusers", what, chosen.double(), accepted.double(), exact.double()))
    return rows


def duo(folder: Path) -> list[Row]:
    """Psi-samplers: kappa of the reversal, and 1 - kappa of x_0 noised afresh; ReMDM by kappa."""
    theirs = module("duo", "algo", folder, TRAINERS)
    line = theirs.trainer_base.LogLinear(0.0)
    common: Any = {"class_conditional": False, "p_nucleus": 1.0, "neg_infinity": -1e6, "mask_index": SIZE, "device": "cpu"}
    config = SimpleNamespace(sampling=SimpleNamespace(guid_weight=None, use_float64=True))
    run = bare(theirs.MDLM, vocab_size=SIZE + 1, config=config, noise=line, _sigma_from_alphat=lambda a: -a.log(), **common)
    run.forward = lambda x, sigma, labels: run._process_model_output(with_mask(LOGITS), x, sigma)
    t = torch.full((3, 1), 0.6, **DOUBLE)
    times, theta = torch.tensor([0.6, 0.5], **DOUBLE), truth.carried(MASKED, THETA)
    early, late = ([truth.MASKING.kernel(a)] * 3 for a in (0.5, 0.4))
    rows = []
    for kappa in (0.25, 0.8):
        with drawn_from(theirs.trainer_base, "sample_categorical") as laws:
            run._psi_update(MASKED, t, None, 0.1, kappa)
        method = samplers.CategoricalDDIM(eta=1 - kappa)
        shares = torch.stack(torch.broadcast_tensors(*method.shares(MASKING, times)))
        own = method.law(shares, un.Posterior(LOGITS, MASKING, MASKED, 0.6), MASKED, 0)
        fresh = truth.wide(theta, SIZE + 1) @ early[0].T
        exact = kappa * truth.steps(early, late, MASKED, theta) + (1 - kappa) * fresh
        rows.append(compared("Duo", f"psi-sampler, kappa {kappa:g}, masking", own.probs, normal(laws[0]), exact))
    grid = torch.linspace(0.95, 0.05, 10, **DOUBLE)
    alpha_t, alpha_s = 1 - grid[:-1], 1 - grid[1:]
    most = ((1 - alpha_s) / alpha_t).clamp_max(1)
    for name, rule, eta, exact, why in (
        ("max-capped", remasking.Cap, 0.04, most.clamp_max(0.04), ""),
        ("max-rescale", remasking.Rescale, 0.1, 0.1 * most, "eta is put in twice"),
    ):
        kappas = run._mode_to_psi_kappas(f"{name}-{eta}", grid)[:-1]
        found = (1 - kappas) * (1 - alpha_s)
        own = rule(eta).sigma(most, grid[:-1], grid[1:])
        rows.append(compared("Duo", f"ReMDM, {name}: probability to remask", own, found, exact, why, torch.float32))
    return rows


if __name__ == "__main__":
    main(__doc__, [diffusers, duo])
