"""Categories on the orthant, under Cox-Ingersoll-Ross noise: z_0^k = h e_{x^k}, one number high and the others 0.

Given x every number of z_t has a law of its own, and it starts from one of a few numbers u (here 0 and h).  So

    log q(z_t^k | e(a)) = sum_d log q(z_t^{k,d} | u = e(a)_d),
    l^{k,d} = z d log r_t = sum_u P(e(x^k)_d = u | z_t) l(z_t^{k,d} | u),        r_t = q_t/pi,

the second because the slope of the logarithm of a mixture is the mean of the slopes given what is mixed.  With the exact
probabilities this is the exact reverse process; with others the bound is a bound.  Numbers fluctuate by sqrt(z tau), so that
it is 2 sqrt(z) that is noised alike everywhere, early by the variance tau, and there corners are sqrt(8 h) apart.  Late they
are told apart by means that are h e^{-tau/2s} apart: about as if the variance were s (e^{tau/s} - 1) throughout.

Between two times z^{k,d} is a bridge given both ends, so that a step back may draw the category of each position, and the
bridges that end on its vector: a kernel that is exact where the probabilities are and positions are independent, however
long it is.

Each position normalised, z/sum z, tends to a Dirichlet law, but on its way it is no Wright-Fisher diffusion: its sum moves,
and what moves it depends on the sum.  That diffusion has its own process, for one position (`processes.wright_fisher`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from unnoise.cir_laws import CIRBridge
from unnoise.codes.evidence import Codewords, VectorEvidence, evidence_of
from unnoise.laws import Categorical, Law, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.predictions import OrthantScore
from unnoise.processes import CoxIngersollRoss
from unnoise.shapes import Clock, Float

MOST = 16  # different numbers of the vectors


class CodewordLines(Codewords, OrthantScore):
    """l of the mixture that the probabilities of the categories make."""

    def __init__(self, log_probs: Tensor, vectors: Tensor, process: CoxIngersollRoss, z_t: Tensor, t: Clock):
        probs = log_probs.double().exp()
        tau = process.tau(t, z_t)
        lines = torch.zeros_like(z_t, dtype=torch.float64)
        for level, which in levels(vectors):
            given = process.law(torch.full_like(z_t, level), tau).lines(z_t)
            lines = lines + (probs @ which) * given
        super().__init__(OrthantScore.of_lines(lines, process, z_t, t).value, process, z_t, t)
        self.log_probs, self.vectors = log_probs, vectors

    def step(self, s: Clock) -> "CodewordBridge":
        return CodewordBridge(self, s)

    def clean(self) -> Tensor:
        """E[z_0 | z_t]."""
        return (self.log_probs.exp() @ self.vectors.to(self.log_probs.dtype)).to(self.x_t.dtype)


class CodewordBridge(Law):
    """z_s given z_t: a category for each position by its probability, and the bridges of its numbers."""

    def __init__(self, prediction: CodewordLines, s: Clock):
        self.prediction, self.s = prediction, s

    def _bridge(self, z0: Tensor) -> CIRBridge:
        p = self.prediction
        return p.process.posterior(p.x_t, z0.to(p.x_t), self.s, p.t)

    def draw(self, noise: NoiseSource) -> Tensor:
        p = self.prediction
        category = Categorical(p.log_probs).draw(noise.at("category"))
        return self._bridge(F.embedding(category, p.vectors)).draw(noise.at("bridge"))

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        p = self.prediction
        total = p.log_probs.double()
        for level, which in levels(p.vectors):
            total = total + self._bridge(torch.full_like(p.x_t, level)).log_probs(x) @ which.T
        return sum_coordinates(total.logsumexp(-1))

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError(f"the divergence of a mixture of bridges from a {type(other).__name__} has no closed form")


def levels(vectors: Tensor) -> list[tuple[float, Tensor]]:
    """The numbers of which vectors consist, and where each stands [size, D]."""
    different = vectors.unique().tolist()
    if len(different) > MOST or different[0] < 0:
        raise ValueError(
            f"vectors on the orthant have few different numbers, none below 0 (at most {MOST}), and these have "
            f"{len(different)} from {different[0]:g} on: take codes.corners(size, shape)"
        )
    return [(level, (vectors == level).double()) for level in different]


class OrthantEvidence(VectorEvidence):
    kind = OrthantScore

    def points(self, vectors):
        return 2 * vectors.clamp_min(0).sqrt()

    def levels(self, log_snr, process):
        """tau of s (e^{tau/s} - 1) = exp(-log_snr)."""
        scale = float(process.scale.max())
        return -(scale * torch.log1p(torch.exp(-log_snr) / scale)).log()

    def log_likelihoods(self, z, t, vectors, process):
        (base, _), *others = levels(vectors)
        tau = process.tau(t, z)
        from_base = process.law(torch.full_like(z, base), tau).log_ratios(z)
        total = torch.zeros(*z.shape[:-1], len(vectors), dtype=torch.float64, device=z.device)
        for level, which in others:
            more = process.law(torch.full_like(z, level), tau).log_ratios(z) - from_base
            total = total + more @ which.T
        return total.to(z.dtype)

    def prediction(self, log_probs, vectors, process, z, t):
        return CodewordLines(log_probs, vectors, process, z, t)


@evidence_of.register(CoxIngersollRoss)
def _(process: CoxIngersollRoss) -> VectorEvidence:
    return OrthantEvidence()
