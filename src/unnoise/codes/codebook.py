"""Categories as vectors: z_0^k = e(x^k), a table of one vector for each category, fixed or learned.

The network returns leave-one-out logits l_a, from the other coordinates, and the library adds what the noisy vector says by
itself (`codes.evidence`):

    p(x^k = a | z_t)  prop. to  exp(l_a) q(z_t^k | e(a)),

so that the denoiser is exact where the logits are, at every noise level.  The reverse process is the mixture, by these
probabilities, of those given the vectors: under Gaussian noise it follows from sum_a p(x^k = a | z_t) e(a), and what is
predicted is `Clean`.  (To interpolate scores of the vectors, as this has been called, is the same mean.)  At the cut-off the
same law reads the data: rounding is part of the model, and its likelihood is the bound's last term.  It falls like the
chance that noise takes one vector for another, so that the bound has a limit as the cut-off goes to 0, for any network whose
logits are finite.

**Where the rate is.**  Two vectors at the distance d are told apart by a number of the signal-to-noise ratio g = SNR d^2/4,
wrongly with probability Phi(-sqrt g).  By g = 25 that is 3e-7 for the nearest two, and there the bound ends unless told
otherwise; by g = 0.02 for the farthest two hardly anything is known.  Times are drawn between (`objectives.band_times`), by
a rate per unit of log-SNR of about (1 - e^{-g}) e^{-g/5}, g of the farthest in the first factor and of the nearest in the
second.  (For two vectors and one symbol the mean rate is about (1 - e^{-g}) e^{-g/2}, but mistakes are rare and large there,
and the root of its mean square falls like e^{-g/4}.)
Learned vectors are of length sqrt(D), and taken to be from sqrt(D)/2 to 2 sqrt(D) apart: nearer ones are read with more
errors, which the bound counts.

    bits       the digits of a in base 2, as -1 and 1                       (analog bits)
    one_hot    scale (2 [a = b] - 1) for b = 1 ... K                        (diffusion of logits on the simplex)
    corners    height [a = b], for Cox-Ingersoll-Ross noise                 (`codes.orthant`)
    embeddings learned with the network: their length is brought to sqrt(D) in every use, since the bound of longer ones is
               always smaller
"""

from math import ceil, log, log2
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.codes.base import Code
from unnoise.codes.evidence import Codewords, evidence_of, least_and_greatest
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.predictions import Clean, Prediction
from unnoise.processes import Process
from unnoise.shapes import AnyState, Clock, Float, Tree
from unnoise.spaces import Finite

SURE, UNSURE = 25.0, 0.02  # signal-to-noise ratios g at which the nearest vectors are told apart, the farthest hardly
INTERVALS = 64  # of log-SNR between
FALL = 5.0  # between 2, by which the mean of the rate falls, and what the fewer and larger values of one symbol ask for


class Codebook(Code):
    """`vectors` [size, D] for the categories of every coordinate; the states have the shape of the data and an axis of D."""

    rounds = needs_network = tells_clean = categories = True
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
        self._apart: dict[type, tuple[float, float]] = {}  # by the kind of evidence
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

    def kinds(self, process: Process) -> Any:
        return evidence_of(process).kind

    def apart(self, process: Process) -> tuple[float, float]:
        """Squared distances of two vectors, the least and the greatest."""
        if self.learned:
            return self.raw.shape[1] / 4, 4.0 * self.raw.shape[1]
        how = evidence_of(process)
        if type(how) not in self._apart:
            self._apart[type(how)] = least_and_greatest(how.points(self.raw))
        return self._apart[type(how)]

    def band(self, process: Process) -> tuple[Tensor, Tensor] | None:
        if cast(Any, process).schedule.shape:  # each number has a band of its own
            return None
        least, greatest = self.apart(process)
        levels = torch.linspace(log(4 * SURE / least), log(4 * UNSURE / greatest), INTERVALS + 1, dtype=torch.float64)
        snr = ((levels[1:] + levels[:-1]) / 2).exp()
        rate = -torch.expm1(-snr * greatest / 4) * torch.exp(-snr * least / 4 / FALL)
        own = evidence_of(process).levels(levels, process)
        return own, rate * levels.diff() / own.diff()

    def earliest(self, process: Process) -> float | None:
        band = self.band(process) if self.cutoff is None else None
        if band is None:
            return self.cutoff
        schedule = cast(Any, process).schedule
        where = next((p.device for p in schedule.parameters()), torch.device("cpu"))
        with torch.no_grad():
            return float(schedule.time_of_log_snr(band[0][0].to(where)))

    def encode(self, x: Tree, noise: NoiseSource, condition: dict[str, Any]) -> tuple[Tree, dict[str, Tensor]]:
        return F.embedding(cast(Tensor, x), self.vectors), {}

    def evidence(self, z: Float[Tensor, "batch *shape D"], t: Clock, process: Process) -> Float[Tensor, "batch *shape size"]:
        """log q(z_t^k | e(a)) up to what does not depend on a, in the precision of the states."""
        return evidence_of(process).log_likelihoods(z, t, self.vectors, process)

    def posterior(self, logits: Tensor, z: Tensor, t: Clock, process: Process) -> Float[Tensor, "batch *shape size"]:
        """log p(x^k = a | z_t)."""
        return (logits + self.evidence(z, t, process)).log_softmax(-1)

    def prediction(self, output: AnyState, process: Process, z_t: AnyState, t: Tree) -> Codewords:
        wanted = (len(z_t), *self.space.shape, self.space.size)
        if tuple(output.shape) != wanted:
            raise ValueError(
                f"the network returned shape {tuple(output.shape)}; under a codebook it returns logits, {wanted}"
            )
        log_probs = self.posterior(output, z_t, t, process)  # type: ignore[arg-type]
        return evidence_of(process).prediction(log_probs, self.vectors, process, z_t, t)  # type: ignore[arg-type]

    def law(self, z: Tree, t: float, process: Process, prediction: Prediction | None) -> Categorical:
        return Categorical(cast(Codewords, prediction).log_probs)

    def known(self, x: Tree, fixed: Tree) -> tuple[Tree, Tree]:
        """All numbers of a category that is known."""
        x, fixed = cast(Tensor, x), cast(Tensor, fixed)
        z = F.embedding(x.masked_fill(~fixed.expand_as(x), 0), self.vectors)
        return z, fixed.unsqueeze(-1).expand_as(z)


def bits(size: int, shape: int | tuple[int, ...], cutoff: float | None = None) -> Codebook:
    """The digits of a category in base 2, as -1 and 1, the lowest first."""
    digits = torch.arange(size).unsqueeze(1) >> torch.arange(max(1, ceil(log2(size))))
    return Codebook(Finite(size, shape), 2.0 * (digits & 1) - 1.0, cutoff=cutoff)


def one_hot(size: int, shape: int | tuple[int, ...], scale: float = 1.0, cutoff: float | None = None) -> Codebook:
    """scale in the place of the category, -scale in all others."""
    return Codebook(Finite(size, shape), scale * (2 * torch.eye(size) - 1), cutoff=cutoff)


def corners(size: int, shape: int | tuple[int, ...], height: float = 4.0, cutoff: float | None = None) -> Codebook:
    """height in the place of the category, 0 in all others: for positive numbers."""
    return Codebook(Finite(size, shape), height * torch.eye(size), cutoff=cutoff)


def embeddings(
    size: int, shape: int | tuple[int, ...], width: int, cutoff: float | None = None, seed: int | None = None
) -> Codebook:
    """Learned vectors of length sqrt(width), drawn evenly from the sphere at first."""
    source = None if seed is None else torch.Generator().manual_seed(seed)
    return Codebook(Finite(size, shape), torch.randn(size, width, generator=source), learned=True, cutoff=cutoff)
