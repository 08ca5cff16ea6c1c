"""Probability laws of a batch of states: what marginals, transitions, posteriors and model kernels are.

A law factorises over coordinates (joint laws over a product add their leaves).  It answers, per row,

    log_prob(x), kl(other), draw(noise).

Finite laws work with logarithms.  `LOG_ZERO` stands for log 0: a finite number, so that 0 * log 0 is 0 and gradients
of impossible categories are 0 rather than NaN.
"""

from abc import ABC, abstractmethod
from math import log, pi

import torch
from torch import Tensor

from unnoise.covariance import Covariance
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float, Int, Tree

LOG_ZERO = -1e30
TINY = 1e-300


def log_coefficient(c: Tensor) -> Tensor:
    """log of a schedule's coefficient.  Zero gives -800: its exponential is 0, yet log(c a) - log(c b) still is log(a/b)."""
    return torch.where(c > TINY, c.clamp_min(TINY).log(), -800.0)


def log_of(x: Tensor) -> Tensor:
    """log x with log 0 = LOG_ZERO."""
    return torch.where(x > 0, x.clamp_min(torch.finfo(x.dtype).tiny).log(), LOG_ZERO)


def finite_or_inf(x: Tensor, limit: float = 1e12) -> Tensor:
    """Turn quantities that LOG_ZERO made huge into the infinity that they are."""
    x = torch.where(x > limit, torch.inf, x)
    return torch.where(x < -limit, -torch.inf, x)


def sum_coordinates(x: Tensor) -> Float[Tensor, "batch"]:
    """What belongs to independent coordinates adds up (eq:dimensional_factorisation)."""
    return x.flatten(1).sum(1) if x.ndim > 1 else x


def kl_terms(log_p: Tensor, log_q: Tensor) -> Tensor:
    """sum_y p (log p - log q) over the last axis."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


class Law(ABC):
    """A probability law for each row of a batch."""

    @abstractmethod
    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]: ...

    def each(self, x: AnyState) -> Tree | None:
        """The logarithms that add up to `log_prob`, one for each coordinate; None where coordinates hang together."""
        return None

    @abstractmethod
    def kl(self, other: "Law") -> Float[Tensor, "batch"]:
        """KL(self || other) in nats."""

    @abstractmethod
    def draw(self, noise: NoiseSource) -> Tree: ...

    def powered(self, power: float) -> "Law | None":
        """The law whose density is proportional to this one's to a power above 0; None where it is not known."""
        return None


class Normal(Law):
    """Independent normal coordinates; a standard deviation of 0 is a point mass.

    With a covariance C = L L^T it is the law of mean + L (std z), z standard normal: the whitened coordinates L^-1 x are
    independent and have these standard deviations, and the density of x is theirs divided by |det L|.
    """

    def __init__(self, mean: Float[Tensor, "batch *shape"], std: Tensor, covariance: Covariance | None = None):
        self.mean, self.std, self.covariance = mean, std.to(mean.dtype), covariance

    def at(self, z: Tensor) -> Tensor:
        """mean + L (std z): the point whose whitened distance from the mean is z standard deviations."""
        step = self.std * z
        if self.covariance is not None:
            step = self.covariance.colour(step.expand(torch.broadcast_shapes(step.shape, self.mean.shape)))
        return self.mean + step

    def _whiten(self, gap: Tensor) -> Tensor:
        return gap if self.covariance is None else self.covariance.whiten(gap)

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        log_density = sum_coordinates(self._of_white(x))
        return log_density if self.covariance is None else log_density - self.covariance.log_det_root

    def each(self, x: Tensor) -> Tensor | None:  # type: ignore[override]
        return self._of_white(x) if self.covariance is None else None

    def _of_white(self, x: Tensor) -> Tensor:
        z = self._whiten(x - self.mean) / self.std
        return (-0.5 * z.square() - 0.5 * log(2 * pi)) - self.std.log().expand_as(z)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, Normal):
            raise TypeError(f"the divergence of a Normal from a {type(other).__name__} has no closed form here")
        if self.covariance is not other.covariance:
            raise TypeError(
                f"a Normal with covariance {self.covariance} is compared with one with {other.covariance}: "
                f"take both laws from one process"
            )
        ratio = (self.std / other.std).square()
        shift = (self._whiten(self.mean - other.mean) / other.std).square()
        # ratio - 1 - log ratio keeps its digits for ratios near 1 through log1p
        excess = ratio - 1
        return sum_coordinates(0.5 * ((excess - torch.log1p(excess)) + shift))

    def draw(self, noise: NoiseSource) -> Tensor:
        return self.at(noise.normal(tuple(self.mean.shape[1:]), self.mean.dtype).to(self.mean.device))

    def powered(self, power: float) -> Law | None:
        return Normal(self.mean, self.std / power**0.5, self.covariance) if power > 0 else None


class Categorical(Law):
    """Independent categories with normalised log-probabilities in the last axis; of logits: `Categorical.normalised`."""

    def __init__(self, log_probs: Float[Tensor, "batch *shape size"]):
        self.log_probs = log_probs

    @classmethod
    def normalised(cls, logits: Float[Tensor, "batch *shape size"]) -> "Categorical":
        return cls(logits.log_softmax(-1))

    @property
    def probs(self) -> Float[Tensor, "batch *shape size"]:
        return self.log_probs.exp()

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return finite_or_inf(sum_coordinates(self.each(x)))

    def each(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.log_probs.gather(-1, x.unsqueeze(-1)).squeeze(-1)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, Categorical):
            raise TypeError(f"the divergence of a Categorical from a {type(other).__name__} has no closed form here")
        return finite_or_inf(sum_coordinates(kl_terms(self.log_probs, other.log_probs)))

    def draw(self, noise: NoiseSource) -> Tensor:
        return self.drawn(noise)

    def powered(self, power: float) -> Law | None:
        return Categorical.normalised((power * self.log_probs).clamp_min(LOG_ZERO)) if power > 0 else None

    def drawn(self, noise: NoiseSource) -> Tensor:
        """How `draw` goes about it, by the probabilities unless a law knows better."""
        return draw_categories(self.log_probs, noise)


def draw_categories(log_probs: Float[Tensor, "batch *shape size"], noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
    """One category per coordinate, by inverting the distribution function in float64 (its tail is right)."""
    cumulative = log_probs.double().exp().cumsum(-1)
    u = noise.uniform(tuple(log_probs.shape[1:-1])).unsqueeze(-1) * cumulative[..., -1:]
    return (
        torch.searchsorted(cumulative.contiguous(), u.contiguous(), right=True)
        .squeeze(-1)
        .clamp_max(log_probs.shape[-1] - 1)
    )


class TabulatedCategorical(Categorical):
    """Categories whose laws stand in a table: the coordinates in state x have its row x.

    To draw, nothing larger than the table is made.  The rows' distribution functions, each shifted by its number, are one
    rising list, in which a coordinate looks for its state plus a uniform number: float64 then tells probabilities down to
    2^-53 times the number of rows, and a category of probability 0 is never drawn.
    """

    def __init__(self, table: Float[Tensor, "#batch states size"], state: Int[Tensor, "batch *shape"], dtype: torch.dtype):
        self.table, self.state, self.dtype = table, state, dtype

    @property
    def log_probs(self) -> Float[Tensor, "batch *shape size"]:  # type: ignore[override]
        return rows_of(log_of(self.table).to(self.dtype), self.state)

    def draw(self, noise: NoiseSource) -> Tensor:
        states, size = self.table.shape[1:]
        cumulative = self.table.double().cumsum(-1)
        number = torch.arange(states, device=self.state.device).unsqueeze(-1)
        places = (cumulative / cumulative[..., -1:] + number).flatten(1)
        u = noise.uniform(tuple(self.state.shape[1:])).clamp_max(1 - states * 2.0**-52)  # so that x + u is below x + 1
        sought = (self.state + u).reshape(len(self.state), -1)
        found = torch.searchsorted(places[0] if len(places) == 1 else places, sought, right=True)
        return found.reshape(self.state.shape) - size * self.state


def rows_of(
    matrix: Float[Tensor, "#batch states size"], x: Int[Tensor, "batch *shape"]
) -> Float[Tensor, "batch *shape size"]:
    """The row of each coordinate's state; one matrix is for all."""
    if len(matrix) == 1:
        return matrix[0][x]
    flat = x.reshape(len(x), -1)
    return matrix[torch.arange(len(x), device=x.device)[:, None], flat].reshape(*x.shape, matrix.shape[-1])


class Joint(Law):
    """Independent leaves of a product."""

    def __init__(self, leaves: dict[str, Law]):
        self.leaves = leaves

    def log_prob(self, x: dict[str, Tree]) -> Float[Tensor, "batch"]:
        return torch.stack([law.log_prob(x[name]) for name, law in self.leaves.items()]).sum(0)

    def each(self, x: dict[str, Tree]) -> Tree | None:  # type: ignore[override]
        parts = {name: law.each(x[name]) for name, law in self.leaves.items()}
        return None if any(part is None for part in parts.values()) else parts  # type: ignore[return-value]

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, Joint):
            raise TypeError(f"a law on a product is compared with a {type(other).__name__}")
        return torch.stack([law.kl(other.leaves[name]) for name, law in self.leaves.items()]).sum(0)

    def draw(self, noise: NoiseSource) -> dict[str, Tree]:
        return {name: law.draw(noise.at(name)) for name, law in self.leaves.items()}

    def powered(self, power: float) -> Law | None:
        leaves = {name: law.powered(power) for name, law in self.leaves.items()}
        return None if None in leaves.values() else Joint({name: law for name, law in leaves.items() if law is not None})
