"""Tokens and representations of the whole text, noised together: co-evolving continuous and discrete diffusion.

z_0 = e(x), where the vector of a position may depend on all tokens: the hidden states of a trained model, say.  The bound is
that of `beside`, with the rate of *every* position from t = 1 down to the cut-off, where z is dropped: a token that is
revealed may have a vector that still tells of other tokens, and what it tells is paid for where it is told.

The figure that shows it: two independent fair bits, e swaps their vectors, z_0 = (e(x^2), e(x^1)) with e = -1, 1, under
`Linear` masking and `Cosine` noise.  The vector beside a revealed x^1 is that of x^2, which may be masked still.  With exact
posteriors all positions together give 2 log 2 = 1.386294; the rates of masked positions alone 1.0815, below the entropy, and
the sum over x of exp(-"bound") is 1.356.

What the vector of a position says of its token is not known here in closed form, so the network says all of both: logits of
p(x^k | x_t, z_t), and for the vectors a prediction of numbers, a velocity unless told otherwise, {"tokens", "vectors"}.  The
rate of an inexact velocity grows like 1/t, so the bound grows like the logarithm of the cut-off, and a larger one, where few
tokens are masked still and are read off, is cheaper: 0.01 unless told.

Of an encoder that adds vectors of neighbours more is known: `blended`.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from unnoise.hybrids.beside import TOKENS, VECTORS, Beside
from unnoise.predictions import Kinds, Posterior, Velocity
from unnoise.shapes import Float, Tree
from unnoise.spaces import Finite

CUTOFF = 0.01


class CoEvolving(Beside):
    """Tokens, and `width` numbers beside each by an `encoder`, x [batch, *shape] -> z_0 [batch, *shape, width].

    Unless it is `learned` beside the network, the encoder is held as it is, and asked as in evaluation."""

    def __init__(
        self,
        space: Finite,
        encoder: Callable[[Tensor], Tensor],
        width: int,
        learned: bool = False,
        vectors: Kinds = Velocity,
        cutoff: float | None = CUTOFF,
    ):
        super().__init__()
        self.space, self.width, self.learned, self.cutoff = space, width, learned, cutoff
        self.predicts = {TOKENS: Posterior, VECTORS: vectors}
        self.encoder = encoder
        if isinstance(encoder, nn.Module) and not learned:
            encoder.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "CoEvolving":
        super().train(mode)
        if isinstance(self.encoder, nn.Module) and not self.learned:
            self.encoder.eval()
        return self

    def vectors_of(self, x: Tensor) -> Float[Tensor, "batch *shape D"]:
        with torch.set_grad_enabled(self.learned and torch.is_grad_enabled()):
            z = self.encoder(x)
        wanted = (*x.shape, self.width)
        if not isinstance(z, Tensor) or tuple(z.shape) != wanted:
            what = f"shape {tuple(z.shape)}" if isinstance(z, Tensor) else f"a {type(z).__name__}"
            raise ValueError(f"the encoder returned {what}; of these tokens it must return {wanted}, their vectors")
        return z if self.learned else z.detach()

    def known(self, x: Tree, fixed: Tree) -> tuple[Tree, Tree]:
        """Tokens alone: their vectors depend on those that are not known."""
        z = self.vectors_of(cast(Tensor, x))
        return {TOKENS: x, VECTORS: z}, {TOKENS: fixed, VECTORS: torch.zeros_like(z, dtype=torch.bool)}

    def extra_repr(self) -> str:
        return f"{self.space} with {self.width} numbers each{', learned' if self.learned else ''}"
