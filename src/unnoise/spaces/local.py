"""A generator at one state: drift, diffusion and jumps as data.

At a state x the generator

    L phi(x) = b . grad phi + 1/2 tr(a grad^2 phi) + sum_y R(y, x) [phi(y) - phi(x)] + int J(x, dy) [phi(y) - phi(x)]

is (b, a, R(., x), J(x, .)); any of them may be absent, and all of them may be there together.  What the arrays mean is for
the space to say:

    drift, diffusion   on numbers one entry per coordinate (a is diagonal, or a = L diag(diffusion) L^T with a covariance
                       C = L L^T of the noise: then it is independent in the whitened coordinates L^-1 x)
    log_rates          rates of jumps that change one coordinate: on categories [batch, *shape, size], one entry per
                       destination; on counts [batch, *shape, 2], to x - 1 and x + 1
    jumps              a `JumpKernel`: jumps to anywhere in the space, as a density of its reference measure

On a product the data is a dict of these, one per leaf, and everything adds over leaves (eq:generator-dimensional-sum).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import exp, inf, log

import torch
from torch import Tensor

from unnoise.covariance import Covariance
from unnoise.laws import LOG_ZERO, draw_categories
from unnoise.noise import NoiseSource
from unnoise.shapes import Bool, Float, Int

PROPOSALS = 100_000  # of a thinned jump, after which something is wrong


class JumpKernel(ABC):
    """J(x, dy): the rates of jumps from x to anywhere, as a density of the space's reference measure.

    A family says the density and a rule for integrals over destinations; the total rate, draws and the reversal follow.
    """

    known_total = False  # whether `total` is in closed form, without the nodes

    @abstractmethod
    def log_rate(self, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        """log J(x, y), row by row; `LOG_ZERO` where no jump leads."""

    @abstractmethod
    def nodes(self, x: Tensor) -> tuple[Tensor, Float[Tensor, "batch nodes"]]:
        """Destinations [batch, nodes, *shape] and log-weights of a rule for integrals over y, of all that matters near x:
        int f(y) J(x, dy) is the sum of weight J(x, y) f(y), and what leads to x is among them too."""

    def rates(self, x: Tensor) -> tuple[Tensor, Float[Tensor, "batch nodes"]]:
        """Destinations, and the rate of jumps to each: density times weight."""
        y, log_weight = self.nodes(x)
        n = y.shape[1]
        return y, (self.log_rate(x.repeat_interleave(n, 0), y.flatten(0, 1)).reshape(len(x), n) + log_weight).exp()

    def total(self, x: Tensor) -> Float[Tensor, "batch"]:
        """The rate at which x is left."""
        return self.rates(x)[1].sum(1)

    def draw(self, x: Tensor, noise: NoiseSource) -> Tensor:
        """Where a jump from x leads: one of the nodes, unless a family knows better."""
        y, rates = self.rates(x)
        which = draw_categories(rates.clamp_min(1e-300).log(), noise)
        return y[torch.arange(len(x), device=x.device), which]

    def leap(self, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        """Where the first jump within a time h leads, or x if there is none; the rates are held at x.

        Whether comes before where.
        """
        leaves = noise.at("whether").uniform() < -torch.expm1(-(h * self.total(x)))
        return torch.where(leaves.reshape(-1, *[1] * (x.ndim - 1)), self.draw(x, noise.at("where")), x)


class ThinnedJumps(JumpKernel):
    """Jumps that are proposed by another kernel and accepted by a rate that depends on the state,

        J(x, y) = P(x, y) min(r(x, y), C).

    Their total rate is an integral that nobody knows, and none is needed to draw them: proposals come at the rate C times
    that of P, and each is accepted with probability min(r, C)/C until one is.  That is exact at any h while the rates are
    held, at C times the total rate of P evaluations of r per unit of time.  The cap C is part of the model: bounds have it
    too.  `proposals` must know its total rate and draw exactly; `log_ratio(x, y)` is log r, every row of x once or n times.
    `draws` destinations of the proposals stand for an integral (0: the nodes of the proposals).
    """

    def __init__(self, proposals: JumpKernel, log_ratio, cap: float | int, draws: int = 0):
        if not 0 < cap < inf:
            raise ValueError(f"cap = {cap:g}: pass the largest ratio of a jump's rate to that of its proposals, such as 50")
        if not proposals.known_total:
            raise TypeError(f"{type(proposals).__name__} does not know its total rate: propose by a kernel that does")
        self.proposals, self.log_ratio, self.log_cap, self.draws = proposals, log_ratio, log(cap), draws

    def log_accepted(self, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        return self.log_ratio(x, y).double().clamp_max(self.log_cap)

    def log_rate(self, x, y):
        return (self.proposals.log_rate(x, y) + self.log_accepted(x, y)).clamp_min(LOG_ZERO)

    def nodes(self, x):
        if not self.draws:
            return self.proposals.nodes(x)
        with torch.no_grad():
            noise = NoiseSource(1, fingerprint(x)).at("destinations")
            y = torch.stack([self.proposals.draw(x, noise.at(i)) for i in range(self.draws)], 1)
            here, there = x.repeat_interleave(self.draws, 0), y.flatten(0, 1)
            log_rate = self.proposals.log_rate(here, there).reshape(len(x), -1)
        return y, self.proposals.total(x).log().unsqueeze(1) - log(self.draws) - log_rate

    def leap(self, x, h, noise):
        speed = exp(self.log_cap) * self.proposals.total(x)
        elapsed, moved = torch.zeros_like(speed), torch.zeros_like(speed, dtype=torch.bool)
        to, i = x, 0
        while i < PROPOSALS:
            own = noise.at("proposal", i)
            elapsed = elapsed - torch.log1p(-own.at("when").uniform().to(x.device)) / speed
            waiting = (elapsed < h) & ~moved
            if not bool(waiting.any()):
                return to
            y = self.proposals.draw(x, own.at("where"))
            accepted = own.at("whether").uniform().to(x.device).log() < self.log_accepted(x, y) - self.log_cap
            accepted = waiting & accepted
            to = torch.where(accepted.reshape(-1, *[1] * (x.ndim - 1)), y, to)
            moved, i = moved | accepted, i + 1
        raise ValueError(
            f"none of {PROPOSALS} proposals was accepted: the jumps' rate is 0 there, or cap x rate x h too large"
        )

    def draw(self, x, noise):
        """Where a jump leads, whenever it comes."""
        return self.leap(x, torch.tensor(inf, dtype=torch.float64), noise)


def fingerprint(x: Tensor) -> Int[Tensor, "batch"]:
    """A whole number for each row, by the bits of its numbers."""
    code = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    for column in x.detach().double().reshape(len(x), -1).view(torch.int64).unbind(1):
        code = code * 1_000_003 + column
    return code


class ReversedJumps(JumpKernel):
    """J(y, x) q(y)/q(x): the jumps of the process run backwards under the density q."""

    def __init__(self, jumps: JumpKernel, log_q):
        self.jumps, self.log_q = jumps, log_q

    def log_rate(self, x, y):
        change = self.log_q(y) - self.log_q(x)
        return (self.jumps.log_rate(y, x) + change.clamp(-1e20, 1e20)).clamp_min(LOG_ZERO)

    def nodes(self, x):
        return self.jumps.nodes(x)


class TiltedJumps(JumpKernel):
    """J(x, y) h(y)/h(x): the jumps under the change of measure by h."""

    def __init__(self, jumps: JumpKernel, log_h):
        self.jumps, self.log_h = jumps, log_h

    def log_rate(self, x, y):
        change = self.log_h(y) - self.log_h(x)
        return (self.jumps.log_rate(x, y) + change.clamp(-1e20, 1e20)).clamp_min(LOG_ZERO)

    def nodes(self, x):
        return self.jumps.nodes(x)


class ScaledJumps(JumpKernel):
    """w J(x, y), w > 0."""

    def __init__(self, jumps: JumpKernel, weight: float | int):
        self.jumps, self.weight = jumps, weight

    def log_rate(self, x, y):
        return (self.jumps.log_rate(x, y) + log(self.weight)).clamp_min(LOG_ZERO)

    def nodes(self, x):
        return self.jumps.nodes(x)

    def draw(self, x, noise):
        return self.jumps.draw(x, noise)


class AddedJumps(JumpKernel):
    """Two kernels at once.

    An integral over y is split by the share that each kernel has in the rate to y, and each part is taken over the nodes of
    its own kernel.  What both leave out is as far from the one as from the other, and shared evenly.
    """

    def __init__(self, first: JumpKernel, second: JumpKernel):
        self.first, self.second = first, second

    def log_rate(self, x, y):
        return torch.logaddexp(self.first.log_rate(x, y), self.second.log_rate(x, y))

    def nodes(self, x):
        parts = [self._share(x, *own.nodes(x), own) for own in (self.first, self.second)]
        return torch.cat([y for y, _ in parts], 1), torch.cat([log_weight for _, log_weight in parts], 1)

    def _share(self, x: Tensor, y: Tensor, log_weight: Tensor, own: JumpKernel) -> tuple[Tensor, Tensor]:
        here, there = x.repeat_interleave(y.shape[1], 0), y.flatten(0, 1)
        share = own.log_rate(here, there) - self.log_rate(here, there)
        nowhere = self.log_rate(here, there) <= LOG_ZERO / 2
        return y, (log_weight + torch.where(nowhere, -log(2.0), share).reshape(log_weight.shape)).clamp_min(LOG_ZERO)


@dataclass(frozen=True)
class Local:
    """Drift, diffusion and jumps at the rows of a batch; None where there is none.

    The first two are an SDE (eq:sde-continuous-diff), the rates a jump process (eq:ctmc-transition, eq:forward-decomp).
    """

    drift: Tensor | None = None
    diffusion: Tensor | None = None
    # [batch, *shape, size], LOG_ZERO at the state itself and where no jump leads; counts: [batch, *shape, 2], to x -+ 1
    log_rates: Tensor | None = None
    covariance: Covariance | None = None  # of the diffusion, where coordinates are noised together
    jumps: JumpKernel | None = None  # to anywhere

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
            plus(self.jumps, other.jumps, AddedJumps),
        )

    def __mul__(self, weight: float | int) -> "Local":
        """The same at another speed, w >= 0."""
        if isinstance(weight, Tensor) and weight.ndim:
            raise TypeError(f"a generator times a tensor of shape {tuple(weight.shape)}: a weight is one number")
        if not 0 <= weight < inf:
            raise ValueError(f"a generator times {weight:g} is none: weights are finite and not negative")
        if weight == 0:
            drift, diffusion = (None if part is None else 0 * part for part in (self.drift, self.diffusion))
            return Local(drift, diffusion, self._no_rates(), self.covariance)
        return Local(
            None if self.drift is None else weight * self.drift,
            None if self.diffusion is None else weight * self.diffusion,
            None if self.log_rates is None else (self.log_rates + log(weight)).clamp_min(LOG_ZERO),
            self.covariance,
            None if self.jumps is None else ScaledJumps(self.jumps, weight),
        )

    __rmul__ = __mul__

    def _no_rates(self) -> Tensor | None:
        return None if self.log_rates is None else torch.full_like(self.log_rates, LOG_ZERO)

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
    total = (model - true + true * (log_true - log_model)).sum(-1)
    return torch.where(unmatched(true, log_model).any(-1), torch.inf, total)


def unmatched(true: Tensor, log_model: Tensor) -> Bool[Tensor, "..."]:
    """Where the true process jumps, however rarely, and the model never does."""
    return (true > 0) & (log_model <= LOG_ZERO / 2)
