"""How a token is drawn from its logits.

By inverting the distribution function in float64, whatever the precision of the logits: float32 noise would cut the tail.
Of many categories the function is not written down: they are summed by blocks, and one block is looked at again
(`kernels.inversion`), which is right up to 1e-7 of each probability and a quarter of the bytes.
"""

from math import inf, log

import torch
from torch import Tensor

from unnoise.kernels import inversion
from unnoise.laws import LOG_ZERO
from unnoise.shapes import Float, Int

MANY = 4096  # categories from which on they are summed by blocks


class Tokens:
    """How a token is drawn from its logits: temperature, the k likeliest, the smallest set with mass p, those with at least
    `min_p` times the probability of the likeliest; in this order."""

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
    ):
        if not 0 <= temperature < inf:
            raise ValueError(f"temperature = {temperature:g} must be finite and not negative (0 takes the likeliest)")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k = {top_k}: keep at least one token")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p = {top_p:g}: a share of the mass, in (0, 1]")
        if min_p is not None and not 0 <= min_p <= 1:
            raise ValueError(f"min_p = {min_p:g}: a share of the largest probability, in [0, 1]")
        self.temperature, self.top_k, self.top_p, self.min_p = temperature, top_k, top_p, min_p

    @property
    def plain(self) -> bool:
        """Whether tokens have the network's own law."""
        return self.temperature == 1 and self.top_k is None and self.top_p in (None, 1) and not self.min_p

    def log_probs(self, logits: Float[Tensor, "n size"]) -> Float[Tensor, "n size"]:
        """float64, of the law that tokens are drawn from."""
        logits = logits.double()
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.full_like(logits, LOG_ZERO).scatter(-1, best, 0.0)
        logits = logits - logits.max(-1, keepdim=True).values
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            kept, where = logits.topk(self.top_k, dim=-1)  # ties do not make it more than k
            logits = torch.full_like(logits, LOG_ZERO).scatter(-1, where, kept)
        possible = logits > LOG_ZERO / 2
        logits = torch.where(possible, logits / self.temperature, LOG_ZERO).clamp_min(LOG_ZERO)
        log_p = logits.log_softmax(-1)
        if self.top_p is not None and self.top_p < 1:
            ranked, where = log_p.sort(-1, descending=True)
            before = ranked.exp().cumsum(-1) - ranked.exp()
            ranked = torch.where(before < self.top_p, ranked, LOG_ZERO)
            log_p = torch.full_like(log_p, LOG_ZERO).scatter(-1, where, ranked).log_softmax(-1)
        if self.min_p:
            least = log_p.max(-1, keepdim=True).values + log(self.min_p)
            log_p = torch.where(log_p >= least, log_p, LOG_ZERO).log_softmax(-1)
        return log_p

    def draw(self, logits: Float[Tensor, "n size"], u: Float[Tensor, "n"]) -> Int[Tensor, "n"]:
        if self.plain and logits.shape[-1] >= MANY:
            return inversion.chosen(inversion.weights(logits.detach()), u)[0]
        cumulative = self.log_probs(logits).exp().cumsum(-1)
        u = (u.unsqueeze(-1) * cumulative[:, -1:]).contiguous()
        return torch.searchsorted(cumulative, u, right=True).squeeze(-1).clamp_max(logits.shape[-1] - 1)
