"""What noisy vectors say of categories: an open function of the process that noises them.

    evidence_of(process).log_likelihoods(z, t, vectors, process)     log q(z_t^k | e(a)), up to what is free of a
    evidence_of(process).prediction(log_probs, vectors, ...)         the reverse process that p(x^k = a | z_t) makes
    evidence_of(process).points(vectors)                             where vectors lie, noise being alike everywhere
    evidence_of(process).levels(log_snr, process)                    the log-SNRs of its schedule at which points are seen in
                                                                     noise of the variance exp(-log_snr) in each direction

Under Gaussian noise

    log q(z_t^k | e(a)) = (alpha_t/sigma_t^2) z_t^k . e(a) - (alpha_t/sigma_t)^2 |e(a)|^2/2 + const,

number by number where each has a schedule of its own, and the reverse process follows from the mean of e.  A process of
one's own registers: `@codes.evidence_of.register(MyProcess)` on a function that returns a `VectorEvidence`.
"""

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from unnoise.predictions import Clean, Prediction
from unnoise.processes import Gaussian, Process
from unnoise.shapes import Clock, Float, Int


def nearest(z: Float[Tensor, "batch *shape D"], vectors: Float[Tensor, "size D"]) -> Int[Tensor, "batch *shape"]:
    """The categories whose vectors these are."""
    vectors = vectors.to(z.dtype)
    return (z @ vectors.T - 0.5 * vectors.square().sum(1)).argmax(-1)


class Codewords(Prediction):
    """A prediction that is made of log p(x^k = a | z_t)."""

    log_probs: Float[Tensor, "batch *shape size"]
    vectors: Float[Tensor, "size D"]

    def nll(self, z0: Tensor) -> Float[Tensor, "batch *shape"]:
        """-log p(x^k | z_t) of the data that stand behind z_0."""
        index = nearest(z0, self.vectors.detach()).unsqueeze(-1)
        return -self.log_probs.gather(-1, index).squeeze(-1)


class VectorEvidence:
    """How vectors are read under a process."""

    kind: type[Prediction]

    def points(self, vectors: Float[Tensor, "size D"]) -> Float[Tensor, "size D"]:
        return vectors

    def levels(self, log_snr: Float[Tensor, "levels"], process: Any) -> Float[Tensor, "levels"]:
        return log_snr

    def log_likelihoods(self, z: Tensor, t: Clock, vectors: Tensor, process: Any) -> Float[Tensor, "batch *shape size"]:
        raise NotImplementedError(f"{type(self).__name__} does not say log_likelihoods(z, t, vectors, process)")

    def prediction(self, log_probs: Tensor, vectors: Tensor, process: Any, z: Tensor, t: Clock) -> Codewords:
        raise NotImplementedError(f"{type(self).__name__} does not say prediction(log_probs, vectors, process, z, t)")


@singledispatch
def evidence_of(process: Process) -> VectorEvidence:
    name = type(process).__name__
    raise TypeError(
        f"it is not known how vectors are read under {name}: write codes.evidence_of.register({name}), or take Gaussian or "
        f"CoxIngersollRoss"
    )


class CodewordMean(Codewords, Clean):
    """E[z_0 | z_t], by the probabilities of the categories."""

    def __init__(self, log_probs: Tensor, vectors: Tensor, process: Gaussian, z_t: Tensor, t: Clock):
        super().__init__((log_probs.exp() @ vectors.to(log_probs.dtype)).to(z_t.dtype), process, z_t, t)
        self.log_probs, self.vectors = log_probs, vectors


class GaussianEvidence(VectorEvidence):
    kind = Clean

    def log_likelihoods(self, z, t, vectors, process):
        if process.covariance is not None:
            raise TypeError(f"{process} has correlated noise, under which one position would tell of the noise of others")
        times, schedule, vectors = process.times(t, z), process.schedule, vectors.to(z.dtype)
        alpha, sigma = schedule.alpha(times), schedule.sigma(times)
        on_z, snr = (process.coefficient(value, z) for value in (alpha / sigma.square(), (alpha / sigma).square()))
        if schedule.shape:
            return (on_z * z) @ vectors.T - 0.5 * snr @ vectors.square().T
        return on_z * (z @ vectors.T) - 0.5 * snr * vectors.square().sum(1)

    def prediction(self, log_probs, vectors, process, z, t):
        return CodewordMean(log_probs, vectors, process, z, t)


@evidence_of.register(Gaussian)
def _(process: Gaussian) -> VectorEvidence:
    return GaussianEvidence()


def least_and_greatest(points: Float[Tensor, "size D"], most: int = 2048) -> tuple[float, float]:
    """Squared distances of different points: the least, and the greatest.  Of many only some are compared with all."""
    points = points.detach().double()
    some = torch.linspace(0, len(points) - 1, min(len(points), most)).long()
    least, greatest = float("inf"), 0.0
    for part in some.split(256):
        apart = torch.cdist(points[part], points).square()
        greatest = max(greatest, float(apart.max()))
        apart[torch.arange(len(part)), part] = float("inf")
        least = min(least, float(apart.min()))
    return (least, greatest) if greatest > 0 else (1.0, 1.0)
