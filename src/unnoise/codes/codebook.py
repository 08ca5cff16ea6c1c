"""Categories as vectors: z_0^k = e(x^k), a table of one vector for each category, fixed or learned.

Under Gaussian noise z_t^k says of category a, before anything else is known,

    log q(z_t^k | e(a)) = (alpha_t/sigma_t^2) z_t^k . e(a) - (alpha_t/sigma_t)^2 |e(a)|^2/2 + const        (the evidence).

The network returns leave-one-out logits l_a, from the other coordinates, and the library adds the evidence:

    p(x^k = a | z_t)  prop. to  exp(l_a) q(z_t^k | e(a)),        E[z_0^k | z_t] = sum_a p(x^k = a | z_t) e(a),

so that the denoiser is exact where the logits are, at every noise level, and what it predicts is `Clean`.  (To interpolate
scores of the vectors, as this has been called, is the same mean.)  At the cut-off the same law reads the data: rounding is
part of the model, and its likelihood is the bound's last term.  It falls like the chance that noise takes one vector for
another, so that the bound has a limit as the cut-off goes to 0, for any network whose logits are finite.

    bits       the digits of a in base 2, as -1 and 1                       (analog bits)
    one_hot    scale (2 [a = b] - 1) for b = 1 ... K                        (diffusion of logits on the simplex)
    Codebook(space, vectors, learned=True)    embeddings, learned with the network: their length is brought to
                                              sqrt(D) in every use, since the bound of longer ones is always smaller
"""

from math import ceil, log2
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.codes.base import Code
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.predictions import Clean, Prediction
from unnoise.processes import Gaussian, Process
from unnoise.shapes import AnyState, Clock, Float, Tree
from unnoise.spaces import Finite


class CodewordMean(Clean):
    """E[z_0 | z_t], by the probabilities of the categories."""

    def __init__(
        self,
        log_probs: Float[Tensor, "batch *shape size"],
        vectors: Float[Tensor, "size D"],
        process: Gaussian,
        z_t: Tensor,
        t: Clock,
    ):
        super().__init__((log_probs.exp() @ vectors.to(log_probs.dtype)).to(z_t.dtype), process, z_t, t)
        self.log_probs = log_probs


class Codebook(Code):
    """`vectors` [size, D] for the categories of every coordinate; the states have the shape of the data and an axis of D."""

    rounds = needs_network = True
    predicts = Clean
    space: Finite

    def __init__(self, space: Finite, vectors: Float[Tensor, "size D"], learned: bool = False, cutoff: float | None = None):
        super().__init__()
        if space.sizes is not None:
            raise ValueError(f"{space} has coordinates of different sizes: a codebook has one size for all, {space.size}")
        vectors = torch.as_tensor(vectors)
        if vectors.ndim != 2 or len(vectors) != space.size or not vectors.dtype.is_floating_point:
            raise ValueError(
                f"vectors are {tuple(vectors.shape)} of {vectors.dtype}: pass [{space.size}, D], one vector per category"
            )
        if not learned and len(vectors.unique(dim=0)) < len(vectors):
            raise ValueError("two categories have the same vector, and nothing could tell them apart: pass different ones")
        self.space, self.learned, self.cutoff = space, learned, cutoff
        if learned:
            self.raw = nn.Parameter(vectors.clone())
        else:
            self.register_buffer("raw", vectors.clone(), persistent=False)

    @property
    def vectors(self) -> Float[Tensor, "size D"]:
        return F.normalize(self.raw, dim=1) * self.raw.shape[1] ** 0.5 if self.learned else self.raw

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the states."""
        return (*self.space.shape, self.raw.shape[1])

    def extra_repr(self) -> str:
        return f"{self.space} as {self.raw.shape[1]} numbers{', learned' if self.learned else ''}"

    def encode(self, x: Tree, noise: NoiseSource, condition: dict[str, Any]) -> tuple[Tree, dict[str, Tensor]]:
        return F.embedding(cast(Tensor, x), self.vectors), {}

    def evidence(self, z: Float[Tensor, "batch *shape D"], t: Clock, process: Process) -> Float[Tensor, "batch *shape size"]:
        """log q(z_t^k | e(a)) up to what does not depend on a, in the precision of the states."""
        if not isinstance(process, Gaussian) or process.covariance is not None or process.schedule.shape:
            raise TypeError(
                f"{process} is no independent Gaussian noise alike for all coordinates, under which vectors are read"
            )
        times, schedule = process.times(t, z), process.schedule
        alpha, sigma = schedule.alpha(times), schedule.sigma(times)
        on_z, on_norm = (process.coefficient(value, z) for value in (alpha / sigma.square(), (alpha / sigma).square() / 2))
        vectors = self.vectors.to(z.dtype)
        return on_z * (z @ vectors.T) - on_norm * vectors.square().sum(1)

    def posterior(self, logits: Tensor, z: Tensor, t: Clock, process: Process) -> Float[Tensor, "batch *shape size"]:
        """log p(x^k = a | z_t)."""
        return (logits + self.evidence(z, t, process)).log_softmax(-1)

    def prediction(self, output: AnyState, process: Process, z_t: AnyState, t: Tree) -> "CodewordMean":
        wanted = (len(z_t), *self.space.shape, self.space.size)
        if tuple(output.shape) != wanted:
            raise ValueError(
                f"the network returned shape {tuple(output.shape)}; under a codebook it returns logits, {wanted}"
            )
        return CodewordMean(self.posterior(output, z_t, t, process), self.vectors, process, z_t, t)  # type: ignore[arg-type]

    def law(self, z: Tree, t: float, process: Process, prediction: Prediction | None) -> Categorical:
        return Categorical(prediction.log_probs)  # type: ignore[union-attr]

    def known(self, x: Tree, fixed: Tree) -> tuple[Tree, Tree]:
        """All numbers of a category that is known."""
        z = F.embedding(cast(Tensor, x), self.vectors)
        return z, fixed.unsqueeze(-1).expand_as(z)  # type: ignore[union-attr]


def bits(size: int, shape: int | tuple[int, ...], cutoff: float | None = None) -> Codebook:
    """The digits of a category in base 2, as -1 and 1, the lowest first."""
    digits = torch.arange(size).unsqueeze(1) >> torch.arange(max(1, ceil(log2(size))))
    return Codebook(Finite(size, shape), 2.0 * (digits & 1) - 1.0, cutoff=cutoff)


def one_hot(size: int, shape: int | tuple[int, ...], scale: float = 1.0, cutoff: float | None = None) -> Codebook:
    """scale in the place of the category, -scale in all others."""
    return Codebook(Finite(size, shape), scale * (2 * torch.eye(size) - 1), cutoff=cutoff)


def embeddings(
    size: int, shape: int | tuple[int, ...], width: int, cutoff: float | None = None, seed: int | None = None
) -> Codebook:
    """Learned vectors of length sqrt(width), drawn evenly from the sphere at first."""
    source = None if seed is None else torch.Generator().manual_seed(seed)
    return Codebook(Finite(size, shape), torch.randn(size, width, generator=source), learned=True, cutoff=cutoff)
