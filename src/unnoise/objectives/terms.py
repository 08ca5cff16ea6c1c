"""What an objective returns: named terms in nats per row, and what training minimises.

A bound is the sum of its terms: prior, diffusion and reconstruction, and whatever a model adds, such as the entropy of an
encoder (see `bound.Objective`).  What is not a bound is not printed as one.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

import torch
from torch import Tensor

from unnoise.shapes import Float


class Terms:
    """`terms` by name, with `prior`, `diffusion` and `reconstruction` among them; `total` is their sum.

    `weighted` is a loss other than that sum.  `is_bound`: whether `loss` estimates a bound on -log p(x_0) without bias.  It
    does not under a weighting, with times whose weights are not one over their density, or with leaves that are known.
    """

    def __init__(
        self, terms: Mapping[str, Float[Tensor, "batch"]], weighted: Tensor | None = None, is_bound: bool | None = None
    ):
        self.terms, self.weighted = dict(terms), weighted
        self.is_bound = weighted is None if is_bound is None else is_bound

    @property
    def prior(self) -> Float[Tensor, "batch"]:
        return self.terms["prior"]

    @property
    def diffusion(self) -> Float[Tensor, "batch"]:
        return self.terms["diffusion"]

    @property
    def reconstruction(self) -> Float[Tensor, "batch"]:
        return self.terms["reconstruction"]

    def __getitem__(self, name: str) -> Float[Tensor, "batch"]:
        return self.terms[name]

    @property
    def total(self) -> Float[Tensor, "batch"]:
        """The sum of all terms."""
        return reduce(add, self.terms.values())

    @property
    def loss(self) -> Float[Tensor, "batch"]:
        """What training minimises."""
        return self.total if self.weighted is None else self.weighted

    @classmethod
    def joined(cls, parts: "Sequence[Terms]") -> "Terms":
        """Of the rows of all parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        terms = {name: torch.cat([part.terms[name] for part in parts]) for name in parts[0].terms}
        weighted = [part.weighted for part in parts if part.weighted is not None]
        return cls(terms, torch.cat(weighted) if weighted else None, parts[0].is_bound)

    def __repr__(self) -> str:
        shown = {**self.terms, "total": self.total}
        if self.weighted is not None:
            shown = {"loss": self.weighted, **shown}
        means = ", ".join(f"{name}={value.mean().item():.4f}" for name, value in shown.items())
        return f"{'Bound' if self.is_bound else 'Loss'}(mean over {len(self.total)} examples: {means})"
