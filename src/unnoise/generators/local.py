"""A generator at one state: drift, diffusion and jumps as data, and the distance of two of them.

At a state x the generator

    L phi(x) = b . grad phi + 1/2 tr(a grad^2 phi) + sum_y R(y, x) [phi(y) - phi(x)]

is the triple (b, a, R(., x)).  Coordinates are noised independently, so `a` is diagonal and jumps change one coordinate
at a time: the rates are an array with one row of destinations per coordinate.  Noise with a covariance C = L L^T has
a = L diag(diffusion) L^T, and is independent in the whitened coordinates L^-1 x.  On a product the data is a dict of
triples, one per leaf, and everything below adds over leaves (eq:generator-dimensional-sum).

The distance of the true reverse process (conditioned on x_0) from the model's, per unit time, is the ELBO's integrand
in every space (eq:ELBO-generator-Dynkin):

    1/2 (b_0 - b_m)^2 / a  +  sum_y [ R_m - R_0 + R_0 log(R_0 / R_m) ]           (0 log 0 = 0)

(with a covariance the gap of the drifts is whitened first: it is gap . a^-1 gap that counts).
With b = -f + a s on both sides the first term is 1/2 a |s_0 - s_m|^2, denoising score matching; the second is the
score entropy with all its constants, pointwise >= 0 (the print's -R_t(y, x_t) in place of -R_0 is right in expectation
only).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.covariance import Covariance
from unnoise.laws import LOG_ZERO, finite_or_inf, sum_coordinates
from unnoise.shapes import Float, Int, Tree


@dataclass(frozen=True)
class Local:
    """Drift, diffusion and log jump rates at the rows of a batch; None where there is none.

    The first two are an SDE (eq:sde-continuous-diff), the rates a jump process (eq:ctmc-transition, eq:forward-decomp).
    """

    drift: Tensor | None = None
    diffusion: Tensor | None = None
    # [batch, *shape, size], LOG_ZERO at the state itself and where no jump leads; counts: [batch, *shape, 2], to x -+ 1
    log_rates: Tensor | None = None
    covariance: Covariance | None = None  # of the diffusion, where coordinates are noised together

    @property
    def rates(self) -> Tensor:
        if self.log_rates is None:
            raise ValueError("this generator has no jumps")
        return self.log_rates.exp()

    @property
    def exit_rate(self) -> Tensor:
        """How fast each coordinate leaves its state."""
        return self.rates.sum(-1)

    def __add__(self, other: "Local") -> "Local":
        def plus(a, b, join=torch.add):
            return b if a is None else a if b is None else join(a, b)

        return Local(
            plus(self.drift, other.drift),
            plus(self.diffusion, other.diffusion),
            plus(self.log_rates, other.log_rates, torch.logaddexp),
            self._shared_covariance(other),
        )

    def _shared_covariance(self, other: "Local") -> Covariance | None:
        both = self.diffusion is not None and other.diffusion is not None
        if both and self.covariance is not other.covariance:
            raise ValueError(
                f"diffusions with the covariances {self.covariance} and {other.covariance} do not add in either's root: "
                f"add generators of one process"
            )
        return self.covariance if self.diffusion is not None else other.covariance


def without_self(log_rates: Float[Tensor, "*batch size"], x: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch size"]:
    """No jump leads from a state to itself."""
    return log_rates.scatter(-1, x.unsqueeze(-1), LOG_ZERO)


def jump_divergence(log_true: Tensor, log_model: Tensor) -> Tensor:
    """sum_y [R_m - R_0 + R_0 log(R_0/R_m)] over the last axis (eq:discrete-combined, eq:discrete-elbo-expanded-step)."""
    true, model = log_true.exp(), log_model.exp()
    return (model - true + true * (log_true - log_model)).sum(-1)


def divergence_rate(true: Tree, model: Tree) -> Float[Tensor, "batch"]:
    """The distance of two generators at the same states, in nats per unit time (eq:girsanov-kl, eq:score-diff-squared)."""
    if isinstance(true, dict):
        return torch.stack([divergence_rate(true[name], model[name]) for name in true]).sum(0)
    parts = []
    if true.drift is not None:
        gap = true.drift - model.drift
        if true.covariance is not None:
            gap = true.covariance.whiten(gap)
        if true.diffusion is None:
            parts.append(sum_coordinates(torch.where(gap == 0, 0.0, torch.inf).expand_as(gap)))
        else:
            a = true.diffusion.expand_as(gap)
            quotient = torch.where(gap == 0, 0.0, 0.5 * gap.square() / torch.where(a == 0, 1.0, a))
            parts.append(sum_coordinates(torch.where((a == 0) & (gap != 0), torch.inf, quotient)))
    if true.log_rates is not None:
        parts.append(finite_or_inf(sum_coordinates(jump_divergence(true.log_rates, model.log_rates)), 1e20))
    return torch.stack(parts).sum(0)
