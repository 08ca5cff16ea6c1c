"""Sets of sequences as factors with exact weights under masking: what automata and grammars have in common.

A language is a set of words.  For a factorised law theta_l(v) of what is masked, with known categories as point masses, it
says the probability h that the whole is in the set, and that after v is put at l,

    h  =  sum over words x in the set of  prod_l theta_l(x_l),        h^{l=v}  =  dh / d theta_l(v),

for h is linear in the law of each place.  Proposals draw v in proportion to theta_l(v) h^{l=v}, and the weight of a step is
the ratio of h by the next call of the network to what this call expected.  One at a time these weights are exact
(`samplers.Particles`); what cannot be completed is never proposed.  A language may count a word several times on the way (an
ambiguous grammar does): at the end it counts once.
"""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from unnoise.guidance.twists import LeafTwist
from unnoise.laws import TINY
from unnoise.predictions import Posterior, Prediction, tilt
from unnoise.processes import Process
from unnoise.shapes import Bool, Float, Int, Tree
from unnoise.tree import pick


class Language(LeafTwist):
    size: int  # how many categories its words are made of

    @abstractmethod
    def reach(self, length: int) -> bool:
        """Whether there is any word of this length."""

    @abstractmethod
    def has(self, x: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch"]:
        """Which rows are words."""

    @abstractmethod
    def messages(
        self, theta: Float[Tensor, "batch length size"]
    ) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch length size"]]:
        """(log h, log h^{l=v} - log h) of factorised laws."""

    def refuse_leaf(self, process: Process) -> str | None:
        own: Any = process
        size, shape = getattr(own.space, "size", None), own.space.shape
        if size != self.size or len(shape) != 1:
            return f"the {self.name} reads {self.size} categories in a row, and {own.space} is something else"
        if not own.absorbing:
            return (
                f"the {self.name} leads what is masked, and {type(own).__name__} masks nothing: use a rule without a lead, "
                f"un.targets.restricted(model, {self.name}.accepts)"
            )
        return None if self.reach(shape[0]) else f"the {self.name} accepts no sequence of length {shape[0]}"

    def accepts(self, x0: Tree) -> Tensor:
        """Of each row."""
        return self.has(pick(x0, self.leaf))

    def at_the_end(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"]:
        return torch.where(self.accepts(x0), 0.0, -torch.inf).double()

    def led(self, prediction: Any) -> tuple[Tensor, Prediction]:
        law = prediction.to(Posterior)
        log_h, by = self.messages(theta(law.x_t, law.logits.double().softmax(-1)))
        return log_h, tilt(law, by.to(law.logits.dtype))


def theta(x: Int[Tensor, "batch *shape"], law: Float[Tensor, "batch *shape size"]) -> Tensor:
    """The law of what is masked, point masses of what is known."""
    size = law.shape[-1]
    known = (x < size).unsqueeze(-1)
    return torch.where(known, torch.nn.functional.one_hot(x.clamp_max(size - 1), size).to(law.dtype), law)


def log_or_zero(x: Tensor) -> Tensor:
    """log x, -inf where it is 0."""
    return torch.where(x > 0, x.clamp_min(TINY).log(), -torch.inf)
