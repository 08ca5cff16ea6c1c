"""The divergence of rank-one noise row by row (`closed_forms.rank_one_divergence` has the formula).

With p the noise law, o = alpha/beta, H(y) = p_y + o theta_y, G(y) = p_y + o [y = x_0], x = x_t and g = G(x),

    divergence/r_x = (1 + o - H_x)/H_x + (1 + o - g)/g [log(H_x/g) - 1] + 1/g sum_{y != x} G log(G/H),

and the last sum is -S = -sum_y p_y log(1 + o theta_y/p_y) but for the terms of x_t, which is left out, and of x_0.
"""

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO
from unnoise.predictions import Posterior
from unnoise.processes import FixedNoise, RankOne, Uniform
from unnoise.shapes import Bool, Float, Int


def noise_rows(
    process: RankOne, prediction: Posterior, x0: Tensor, beta: Tensor
) -> tuple[Tensor | None, Int[Tensor, "rows"] | None]:
    """The noise law over the categories, and which of its rows belongs to each coordinate (None: one for all).

    No law at all is the uniform one.  A law that moves with time has a row per example, or per coordinate where they differ.
    """
    size, rows = process.space.size, torch.arange(x0.numel(), device=x0.device)
    if isinstance(process, Uniform) and process.space.sizes is None:
        return None, None
    if isinstance(process, FixedNoise):
        law = process.noise.log_probs(prediction.logits_dtype, x0.device)[..., :size].exp()
        return (law, None) if law.ndim == 1 else (law.reshape(-1, size), rows % process.space.dimension)
    fresh = process.log_fresh(x0, None, prediction.t, torch.float64).exp()
    law = (fresh / beta.unsqueeze(-1))[..., :size].to(prediction.logits_dtype).reshape(-1, size)
    return law, rows if len(law) == len(rows) else rows // process.space.dimension


def rank_one_rows(features, head, x_t, x0, odds, p_x, p_x0, law, valid) -> Tensor:
    """Divergence/r_x for each row of a chunk, in float64 from one pass over its logits; law None is uniform."""
    logits = features if head is None else head(features)
    logits = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    if valid is not None:
        logits = torch.where(valid, logits, LOG_ZERO)
    theta, size = logits.softmax(-1), logits.shape[-1]
    at_x, at_x0 = (theta.gather(-1, i.clamp_max(size - 1).unsqueeze(-1)).squeeze(-1).double() for i in (x_t, x0))
    at_x = torch.where(x_t < size, at_x, 0.0)  # a state that noise added is no category
    o = odds.to(theta.dtype).unsqueeze(-1)
    if law is None:
        scaled = theta * (o * size)
        inplace = not (torch.is_grad_enabled() and scaled.requires_grad)
        total = (scaled.log1p_().sum(-1).double() if inplace else scaled.log1p().sum(-1, dtype=torch.float64)) / size
    else:
        scaled = theta * o / torch.where(law > 0, law, 1.0)
        total = (scaled.log1p() * law).sum(-1, dtype=torch.float64)
    return divergence_of_rows(x_t == x0, at_x, at_x0, total, odds, p_x, p_x0)


def divergence_of_rows(
    same: Bool[Tensor, "rows"],
    at_x: Float[Tensor, "rows"],
    at_x0: Float[Tensor, "rows"],
    total: Float[Tensor, "rows"],
    odds: Float[Tensor, "rows"],
    p_x: Float[Tensor, "rows"],
    p_x0: Float[Tensor, "rows"],
) -> Float[Tensor, "rows"]:
    """Divergence/r_x from theta at x_t and x_0 and the sum S over all categories; `same` says where x_t = x_0."""
    tiny = torch.finfo(torch.float64).tiny
    share_x, share_x0 = (  # p_y log(H_y/p_y) at x_t and x_0
        p * torch.log1p(odds * at / torch.where(p > 0, p, 1.0)) for p, at in ((p_x, at_x), (p_x0, at_x0))
    )
    h_x, h_x0 = p_x + odds * at_x, p_x0 + odds * at_x0
    g, g_x0 = p_x + torch.where(same, odds, 0.0), p_x0 + odds
    own = torch.where(same, 0.0, share_x0 + g_x0 * (g_x0.log() - h_x0.clamp_min(tiny).log()))
    h_x, g = h_x.clamp_min(tiny), g.clamp_min(tiny)
    rest = 1 + odds - g
    return (1 + odds - h_x) / h_x + (rest * (h_x.log() - g.log() - 1) + share_x - total + own) / g
