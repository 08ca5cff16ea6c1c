"""Allowed categories place by place, as a factor with exact weights under masking.

    h(x)  =  prod_l m_l(x_l),        m_l(v) in {0, 1}

is a product, and so is its mean under a factorised law theta of what is masked,

    E h  =  prod_l sum_v m_l(v) theta_l(v),        h^{l=v} / h  =  m_l(v) / sum_u m_l(u) theta_l(u).

A proposal draws each place by its own law cut to what is allowed there.  That alone is not the law of the model given the
rule: what is drawn first does not know how likely the other places are to be allowed.  The ratios of E h from call to call
are those weights (`languages`).
"""

from typing import Any

import torch
from torch import Tensor

from unnoise.guidance.languages import Language, log_or_zero
from unnoise.laws import LOG_ZERO, TINY
from unnoise.processes import Process
from unnoise.shapes import Bool, Int


class AllowedCategories(Language):
    """`AllowedCategories(mask, leaf=())`: mask [*shape, size], or what broadcasts to it, of states of the space."""

    def __init__(self, mask: Any, leaf: str | tuple[str, ...] = ()):
        super().__init__(leaf)
        self.mask = torch.as_tensor(mask)
        if self.mask.dtype != torch.bool or not self.mask.ndim:
            raise ValueError(
                f"mask is of {self.mask.dtype} and shape {tuple(self.mask.shape)}: pass booleans, [*shape, size], True "
                f"where a category is allowed"
            )
        self.size = self.mask.shape[-1]

    @property
    def name(self) -> str:
        return "mask of allowed categories"

    def refuse_leaf(self, process: Process) -> str | None:
        space: Any = process.space
        if getattr(space, "size", None) is None:
            return f"the {self.name} speaks of categories, and {space} is something else"
        expected = (*space.shape, space.size)
        try:
            fits = torch.broadcast_shapes(tuple(self.mask.shape), expected) == expected and self.size == space.size
        except RuntimeError:
            fits = False
        if not fits:
            return f"the {self.name} has shape {tuple(self.mask.shape)}, and {space} has {expected}: pass one that fits"
        if not process.absorbing:
            return (
                f"the {self.name} leads what is masked, and {type(process).__name__} masks nothing: use a rule without a "
                f"lead, un.targets.restricted(model, rule.accepts)"
            )
        valid = space.valid()
        open_places = (self.mask if valid is None else self.mask & valid).expand(expected).any(-1)
        if bool(open_places.all()):
            return None
        return f"the {self.name} allows nothing at the place {tuple((~open_places).nonzero()[0].tolist())}"

    def reach(self, length: int) -> bool:
        return bool(self.mask.any(-1).all())

    def has(self, x: Int[Tensor, "batch *shape"]) -> Bool[Tensor, "batch"]:
        mask = self.mask.to(x.device).expand(*x.shape, self.size)
        return mask.gather(-1, x.unsqueeze(-1)).flatten(1).all(1)

    def messages(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        mask = self.mask.to(theta.device)
        whole = (theta * mask).sum(-1)
        by = torch.where(mask, -whole.clamp_min(TINY).log().unsqueeze(-1), LOG_ZERO)
        return log_or_zero(whole).flatten(1).sum(1), by
