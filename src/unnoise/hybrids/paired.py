"""Masked tokens that carry a vector of their own: continuously augmented discrete diffusion.

Each token has a vector in a table, z_0^k = e(x^k), fixed or learned.  While x^k is masked, z_t^k = a_t e(x^k) + s_t eps
tells of it: the state of a position is its token, or (MASK, z_t^k).  Once x^k is revealed z^k tells nothing more, of this
position or of any other, and is thrown away.

That is the product process of `beside`, with z^k noised on beside the revealed token where nobody looks at it.  For there
the model knows z_0^k = e(x^k) itself: its reverse is the true one, with the rate 0, and the network is not shown it
(`seen`).  So the bound is the sum over positions that are still masked, of cross-entropy and rate, without a weight of ours,
and dropping the vectors of revealed positions alters neither it nor what is sampled.

Of a masked position the vector's own evidence is known in closed form (`codes.codebook`).  The network says leave-one-out
logits l, from all else, and

    p(x^k = v | x_t, z_t)  prop. to  exp(l_v) N(z_t^k; a_t e(v), s_t^2 I),       E[z_0^k | x_t, z_t] = sum_v p(v) e(v):

both leaves are exact where the logits are, and the posterior is sharp wherever the noise is small, so that the bound has a
limit as the cut-off goes to 0.  That mean (soft) makes the rate smallest; for a hard choice see `hardened`.

`everywhere=True` shows the network the vectors of revealed positions too.  They are redundant, and the bound stays a bound.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from unnoise.checks import leaf_time
from unnoise.codes import Codebook, bits, embeddings, one_hot
from unnoise.hybrids.beside import TOKENS, VECTORS, Beside
from unnoise.predictions import Clean, Posterior, Prediction, ProductPrediction
from unnoise.processes import Masking, Process
from unnoise.shapes import AnyState, Float, Tree
from unnoise.spaces import Finite


class Paired(Beside):
    """Tokens, each with its vector of a `table`."""

    predicts = {TOKENS: Posterior, VECTORS: Clean}

    def __init__(self, table: Codebook, everywhere: bool = False, cutoff: float | None = None):
        super().__init__()
        self.table, self.space, self.everywhere, self.cutoff = table, table.space, everywhere, cutoff

    @classmethod
    def learned(cls, space: Finite, width: int, seed: int | None = None, cutoff: float | None = None) -> "Paired":
        """Vectors of length sqrt(width) that are learned with the network."""
        return cls(embeddings(space.size, space.shape, width, seed=seed), cutoff=cutoff)

    @classmethod
    def bits(cls, space: Finite, cutoff: float | None = None) -> "Paired":
        """The digits of categories in base 2."""
        return cls(bits(space.size, space.shape), cutoff=cutoff)

    @classmethod
    def one_hot(cls, space: Finite, scale: float = 1.0, cutoff: float | None = None) -> "Paired":
        return cls(one_hot(space.size, space.shape, scale), cutoff=cutoff)

    @property
    def width(self) -> int:
        """Of a vector."""
        return self.table.shape[-1]

    def vectors_of(self, x: Tensor) -> Float[Tensor, "batch *shape D"]:
        return F.embedding(x, self.table.vectors)

    def seen(self, z_t: Tree) -> Tree:
        """Vectors beside MASK, and 0 beside a token."""
        if self.everywhere:
            return z_t
        x, z = (cast(dict[str, Tensor], z_t)[name] for name in (TOKENS, VECTORS))
        return {TOKENS: x, VECTORS: torch.where((x == self.space.size).unsqueeze(-1), z, 0.0)}

    def prediction(self, output: AnyState, process: Process, z_t: AnyState, t: Tree) -> ProductPrediction:
        tokens, vectors = process.leaves[TOKENS], process.leaves[VECTORS]
        x, z = z_t[TOKENS], z_t[VECTORS]
        wanted = (*x.shape, self.space.size)
        if not isinstance(output, Tensor) or tuple(output.shape) != wanted:
            what = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise ValueError(f"the network returned {what}; of tokens with a vector each it returns logits, {wanted}")
        with torch.autocast(z.device.type, enabled=False):  # rates multiply what is rounded here by SNR'
            logits = output if output.dtype is torch.float64 else output.float()
            log_p = self.table.posterior(logits, z, leaf_time(t, VECTORS), vectors)
            mean = self._vectors(log_p.exp(), x, cast(Masking, tokens)).to(z.dtype)
        said: dict[str, Prediction] = {
            TOKENS: Posterior(log_p, cast(Masking, tokens), x, leaf_time(t, TOKENS)),
            VECTORS: Clean(mean, vectors, z, leaf_time(t, VECTORS)),  # type: ignore[arg-type]
        }
        return ProductPrediction(said, process, z_t, t)

    def _vectors(self, p: Tensor, x: Tensor, tokens: Masking) -> Float[Tensor, "batch *shape D"]:
        """E[z_0 | x_t, z_t]: of a revealed token its own vector, to the last digit."""
        table, masked = self.table.vectors.to(p.dtype), tokens.movable(x)
        known = F.embedding(torch.where(masked, 0, x), table)
        return torch.where(masked.unsqueeze(-1), p @ table, known)

    def known(self, x: Tree, fixed: Tree) -> tuple[Tree, Tree]:
        z = self.vectors_of(cast(Tensor, x))
        return {TOKENS: x, VECTORS: z}, {TOKENS: fixed, VECTORS: cast(Tensor, fixed).unsqueeze(-1).expand_as(z)}

    def extra_repr(self) -> str:
        return "vectors seen everywhere" if self.everywhere else ""
