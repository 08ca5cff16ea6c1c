"""Representations that are known: every position's vector is the sum of what its neighbours add.

    z_0^i = sum_j e_j(x^{i+j})/sqrt(n),      j = -reach ... reach,  n = 2 reach + 1,  each e_j a table with vectors of
                                             length sqrt(D); beyond the ends there is nothing

It is an encoder of `co_evolving`, under the same bound: a revealed token's vector tells of its masked neighbours.  Since it
is linear in the tokens, its posterior mean is one of their marginals, and the network has no numbers to say:

    E[z_0^i | x_t, z_t] = sum_j sum_v p(x^{i+j} = v | x_t, z_t) e_j(v)/sqrt(n),

where p is one-hot for what is revealed.  And what vectors say of a masked token k is known where no other token near it is
masked.  For z_t^i with i = k - j, less what revealed tokens add,

    r_i = z_t^i - a_t sum_revealed e(x)/sqrt(n)  ~  N(a_t [e_j(x^k) + sum of other masked ones]/sqrt(n), s_t^2 I).

The others are taken for normal, with the mean m_j of their table and its variance v_j per number, which are added to the
mean and to s_t^2.  The evidence of the 2 reach + 1 vectors adds to the network's logits:

    log p(x^k = v | x_t, z_t)  =  l_v + const
                                      + sum_j log N(r_{k-j}; a_t [e_j(v) + others' m]/sqrt(n), s_t^2 + a_t^2 (others' v)/n).

Where two masked tokens share a vector this is a guess, and the network, which sees all of it, makes up the difference; the
bound is one in any case.  At little noise masked tokens stand alone, p is sharp, and where a token is not yet known the rate
of vectors is of the order of the chance that two are masked together, t^2/t^3: it grows like the logarithm of the cut-off.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.checks import leaf_time
from unnoise.hybrids.beside import TOKENS, VECTORS, Beside
from unnoise.hybrids.co_evolving import CUTOFF
from unnoise.predictions import Clean, Posterior, Prediction, ProductPrediction
from unnoise.processes import Gaussian, Masking, Process
from unnoise.shapes import AnyState, Bool, Clock, Float, Int, Tree
from unnoise.spaces import Finite


def shifted(value: Tensor, j: int) -> Tensor:
    """What stands at k + j, at k; 0 beyond the ends."""
    length = value.shape[1]
    lost = min(abs(j), length)
    kept = value[:, lost:] if j > 0 else value[:, : length - lost]
    sides = (0, lost) if j > 0 else (lost, 0)
    return F.pad(kept, (*[0, 0] * (value.ndim - 2), *sides))


class Blend(nn.Module):
    """The encoder, x [batch, *shape] -> z_0 [batch, *shape, width]; tables are drawn by the seed, and learned if wanted."""

    raw: Tensor

    def __init__(self, size: int, width: int, reach: int = 1, learned: bool = False, seed: int = 0):
        super().__init__()
        if reach < 0:
            raise ValueError(f"reach = {reach}: neighbours on either side are counted from 0")
        self.reach, self.count = reach, 2 * reach + 1
        drawn = torch.randn(self.count, size, width, generator=torch.Generator().manual_seed(seed))
        if learned:
            self.raw = nn.Parameter(drawn)
        else:
            self.register_buffer("raw", drawn)

    @property
    def tables(self) -> Float[Tensor, "count size D"]:
        return F.normalize(self.raw, dim=-1) * self.raw.shape[-1] ** 0.5

    @property
    def offsets(self) -> range:
        return range(-self.reach, self.reach + 1)

    def added(self, parts: Sequence[Float[Tensor, "batch length D"]]) -> Float[Tensor, "batch length D"]:
        """The sum of what each token adds to its neighbours, by offset."""
        z: Any = 0.0
        for j, part in zip(self.offsets, parts, strict=True):
            z = z + shifted(part, j)
        return z / self.count**0.5

    def forward(self, x: Int[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape D"]:
        flat = x.flatten(1)
        return self.added([F.embedding(flat, table) for table in self.tables]).reshape(*x.shape, -1)

    def evidence(
        self,
        x: Int[Tensor, "batch length"],
        masked: Bool[Tensor, "batch length"],
        z: Float[Tensor, "batch length D"],
        alpha: Float[Tensor, "batch 1 1"],
        sigma: Float[Tensor, "batch 1 1"],
    ) -> Float[Tensor, "batch length size"]:
        """What the vectors say of each token, up to a constant; of revealed ones nothing that is read."""
        tables, alpha = self.tables.to(z.dtype), alpha / self.count**0.5
        hidden, index = masked.unsqueeze(-1), torch.where(masked, 0, x)
        means, wide = tables.mean(1), tables.shape[-1]
        variances = (tables.square().sum(-1).mean(1) - means.square().sum(-1)) / wide
        said = [torch.where(hidden, mean, F.embedding(index, table)) for mean, table in zip(means, tables, strict=True)]
        rest = z - alpha * self.count**0.5 * self.added(said)
        pairs = zip(self.offsets, variances, strict=True)
        unknown: Any = sum(variance * shifted(hidden.to(z.dtype), j) for j, variance in pairs)
        found: Any = 0.0
        for j, table, mean, variance in zip(self.offsets, tables, means, variances, strict=True):
            own = rest + alpha * mean  # where the token that is asked about is masked
            square = sigma.square() + alpha.square() * (unknown - variance).clamp_min(0)
            score = alpha / square * (own @ table.T) - (alpha.square() / square / 2) * table.square().sum(-1)
            found = found + shifted(score, -j)  # from position i = k - j to k
        return found


class Blended(Beside):
    """Tokens beside the vectors of `Blend`; the network says logits alone."""

    predicts = {TOKENS: Posterior, VECTORS: Clean}

    def __init__(
        self,
        space: Finite,
        width: int,
        reach: int = 1,
        learned: bool = False,
        cutoff: float | None = CUTOFF,
        seed: int = 0,
    ):
        super().__init__()
        self.space, self.width, self.cutoff = space, width, cutoff
        self.encoder = Blend(space.size, width, reach, learned, seed)

    def vectors_of(self, x: Tensor) -> Float[Tensor, "batch *shape D"]:
        return self.encoder(x)

    def prediction(self, output: AnyState, process: Process, z_t: AnyState, t: Tree) -> ProductPrediction:
        tokens, vectors = cast(Masking, process.leaves[TOKENS]), cast(Gaussian, process.leaves[VECTORS])
        if vectors.covariance is not None or vectors.schedule.shape:
            raise TypeError(f"{vectors} is no independent noise alike for all numbers, under which vectors are read")
        x, z, clock = z_t[TOKENS], z_t[VECTORS], cast(Clock, leaf_time(t, VECTORS))
        wanted = (*x.shape, self.space.size)
        if not isinstance(output, Tensor) or tuple(output.shape) != wanted:
            what = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise ValueError(f"the network returned {what}; of tokens with blended vectors it returns logits, {wanted}")
        with torch.autocast(z.device.type, enabled=False):  # rates multiply what is rounded here by SNR'
            logits = output if output.dtype is torch.float64 else output.float()
            times, masked, flat = vectors.times(clock, z), tokens.movable(x).flatten(1), z.reshape(len(z), -1, self.width)
            alpha, sigma = (
                vectors.coefficient(part(times), flat) for part in (vectors.schedule.alpha, vectors.schedule.sigma)
            )
            evidence = self.encoder.evidence(x.flatten(1), masked, flat, alpha, sigma).reshape(wanted)
            log_p = (logits + evidence).log_softmax(-1)
            mean = self.mean(log_p.exp(), x, masked).to(z.dtype)
        said: dict[str, Prediction] = {
            TOKENS: Posterior(log_p, tokens, x, leaf_time(t, TOKENS)),
            VECTORS: Clean(mean, vectors, z, clock),  # type: ignore[arg-type]
        }
        return ProductPrediction(said, process, z_t, t)

    def mean(self, p: Tensor, x: Tensor, masked: Bool[Tensor, "batch length"]) -> Float[Tensor, "batch *shape D"]:
        """E[z_0 | x_t, z_t]: of what is revealed the very vectors that were added."""
        flat, hidden, tables = torch.where(masked, 0, x.flatten(1)), masked.unsqueeze(-1), self.encoder.tables
        probs = p.flatten(1, -2).to(tables.dtype)  # that of z_0, so that the two are rounded alike
        parts = [torch.where(hidden, probs @ table, F.embedding(flat, table)) for table in tables]
        return self.encoder.added(parts).reshape(*x.shape, -1)

    def known(self, x: Tree, fixed: Tree) -> tuple[Tree, Tree]:
        """Tokens alone: their vectors depend on those that are not known."""
        z = self.vectors_of(cast(Tensor, x))
        return {TOKENS: x, VECTORS: z}, {TOKENS: fixed, VECTORS: torch.zeros_like(z, dtype=torch.bool)}

    def extra_repr(self) -> str:
        return f"{self.space} with {self.width} numbers each"
