"""Where the bound's integral over time is visited, and with what weight.

A rule returns visits (x_t, t, weight) such that  sum_n weight_n * rate(x_t_n, t_n)  estimates

    int_low^1 E_{x_t ~ q(. | x_0)} rate(x_t, t) dt.

It says how it draws a time and with which density g; then  weight = 1/(draws g(t))  is right for every integrand.  A rule
that draws the state together with the time says the ratio of its joint density to that of q(x_t | x_0), and is weighted by
one over that.  A rule that weighs otherwise (`weight`, `visit`) has its own ends: what it estimates is no bound, and is not
printed as one, unless the rule vouches for its weights (`is_bound = True`).

    UniformTimes independent uniform times
    Stratified   one time per stratum of the global batch: same mean, less variance
    Importance   stratified and graded towards 0, where the integrand of continuous data grows like 1/t
    MaskedCount  masking: the number n of masked coordinates first.  With beta = 1 - alpha uniform and
                 n ~ 1 + Binomial(d - 1, beta) (so n is uniform on 1 ... d, and beta given n is Beta(n, d - n + 1)), a
                 random n-subset masked and weight d/n on the summed cross-entropy.  Unbiased for any schedule, with
                 finite variance; uniform t under the linear schedule has none.
    MixedTimes   products with masked leaves (see `mixed_times`)
    Quadrature   Gauss-Legendre nodes: for exact values on small spaces (see `quadrature`)
    Grid         every step of a chain
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.objectives.batches import place
from unnoise.processes import Process
from unnoise.shapes import Float, Tree
from unnoise.tree import first_leaf, join

LAST = 1 - 2.0**-53  # the last time before 1, where rates may be infinite: what rounds to 1 is drawn as this


@dataclass
class Visits:
    """Times and weights [visits, batch]; x_t [visits * batch, ...] where the rule draws the state as well."""

    t: Float[Tensor, "visits batch"]
    weight: Float[Tensor, "visits batch"]
    x_t: Tree | None = None


def redefined(cls: type, base: type) -> set[str]:
    """What a class says itself, or by a class that it mixes in from outside the family of `base`."""
    inherited = {kind for parent in cls.__bases__ if issubclass(parent, base) for kind in parent.__mro__}
    return {name for kind in cls.__mro__ if kind not in inherited for name in vars(kind)}


class Times:
    """A rule of one's own says `draw` and `density`, and its weights follow."""

    draws: int = 1  # times per row
    is_bound = True  # whether the weights are one over the density
    draws_state = False  # whether the rule draws x_t together with t
    schedule_free = False  # whether the state drawn is the same under any schedule
    every_step = False  # whether the rule visits all steps of a chain

    def __init_subclass__(cls, **options: Any) -> None:
        """What a rule redefines, it answers for: weights of its own, or draws without their density, are those of no bound
        unless it says so; and what follows from a method that it redefines follows anew."""
        super().__init_subclass__(**options)
        own = redefined(cls, Times)
        for name, source in (("draw_all", "draw"), ("inverse_density", "density")):
            if source in own and name not in own:
                setattr(cls, name, vars(Times)[name])
        moved = ("draw" in own or "draw_all" in own) and not ("density" in own or "inverse_density" in own)
        if "is_bound" not in own and (moved or "weight" in own or "visit" in own):
            cls.is_bound = False

    def draw(self, noise: NoiseSource, low: float) -> Float[Tensor, "batch"]:
        """A time in [low, 1] for each row of the source."""
        raise TypeError(f"{type(self).__name__} says no times: write draw(noise, low), and their density(t, low)")

    def density(self, t: Tensor, low: float) -> Tensor:
        """The density of a time, on [low, 1]."""
        raise TypeError(f"{type(self).__name__} says no density: write density(t, low) of what draw(noise, low) draws")

    def inverse_density(self, t: Tensor, low: float) -> Tensor:
        """1/density; a rule that knows it better (as dt/du of a uniform u) says it."""
        return 1 / self.density(t, low)

    def weight(self, t: Tensor, low: float) -> Tensor:
        """On the rate at a time.  A rule with another weight than this estimates no bound."""
        return self.inverse_density(t, low)

    def draw_all(self, noise: NoiseSource, low: float) -> Float[Tensor, "draws batch"]:
        if self.draws == 1:
            return self.draw(noise.at("draw", 0), low).unsqueeze(0)
        return torch.stack([self.draw(noise.at("draw", i), low) for i in range(self.draws)])

    def visit(self, process: Process, x0: Tree, low: float, noise: NoiseSource) -> Visits:
        t = self.draw_all(noise, low)
        weight = self.weight(t, low)
        return Visits(t, weight / self.draws if self.draws > 1 else weight)

    def on_chain(self) -> "Times":
        """The rule that takes its place where there are steps to choose from: of [0, 1], cut into equal parts."""
        return self


class JointTimes(Times):
    """A rule that draws the state with the time: it says `draw_joint`, and the `density_ratio` of what that draws.

    `known` says, for some leaves of a product by name, which rows know them: there they are not noised.
    """

    draws_state = True
    is_bound = True
    label = "draw"  # of the noise of each draw

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = redefined(cls, Times)
        says = [name in own for name in ("draw_joint", "density_ratio")]
        if any(says) and "draw_weighted" not in own:
            cls.draw_weighted = JointTimes.draw_weighted  # type: ignore[method-assign]
        if "is_bound" not in own and ("draw_weighted" in own or says == [True, False]):
            cls.is_bound = False

    def draw_joint(
        self, process: Process, x0: Tree, low: float, noise: NoiseSource, known: dict[str, Tensor]
    ) -> tuple[Float[Tensor, "batch"], Tree]:
        """(t, x_t) for each row."""
        raise TypeError(f"{type(self).__name__} says no states: write draw_joint(...), and their density_ratio(...)")

    def density_ratio(
        self, process: Process, x_t: Tree, t: Float[Tensor, "batch"], low: float, known: dict[str, Tensor]
    ) -> Float[Tensor, "batch"]:
        """The density of (t, x_t) as drawn, divided by q(x_t | x_0)."""
        raise TypeError(f"{type(self).__name__} says no density: write density_ratio(...) of what draw_joint(...) draws")

    def draw_weighted(
        self, process: Process, x0: Tree, low: float, noise: NoiseSource, known: dict[str, Tensor]
    ) -> tuple[Float[Tensor, "batch"], Tree, Float[Tensor, "batch"]]:
        """(t, x_t, one over the ratio); a rule that knows the latter better says it."""
        t, x_t = self.draw_joint(process, x0, low, noise, known)
        return t, x_t, 1 / self.density_ratio(process, x_t, t, low, known)

    def visit(
        self, process: Process, x0: Tree, low: float, noise: NoiseSource, known: dict[str, Tensor] | None = None
    ) -> Visits:
        sources = [noise.at(self.label, i) for i in range(self.draws)]
        parts = [self.draw_weighted(process, x0, low, source, known or {}) for source in sources]
        t, x_t, weight = zip(*parts, strict=True)
        return Visits(torch.stack(t), torch.stack(weight) / self.draws, join(x_t))

    def on_chain(self) -> Times:
        return Importance()  # a chain draws its own states


def rows_and_device(x0: Tree) -> tuple[int, torch.device]:
    leaf = first_leaf(x0)
    return leaf.shape[0], leaf.device


def positions(rows: int, device: torch.device) -> tuple[Float[Tensor, "rows"], int]:
    """The places of these rows in the global batch (all workers' rows together), and its size."""
    first, total = place(rows)
    return torch.arange(first, first + rows, device=device, dtype=torch.float64), total


def strata(rows: int, noise: NoiseSource) -> Float[Tensor, "rows"]:
    """One uniform number per row, one in each stratum of the global batch."""
    position, total = positions(rows, noise.rows.device)
    return (noise.at("strata").shared_uniform() + position / total) % 1.0


def graded(u: Tensor, low: float, power: float | Tensor) -> Tensor:
    """t = (low^(1/p) + u (1 - low^(1/p)))^p."""
    base = low ** (1 / power)
    return (base + u * (1 - base)) ** power


def graded_slope(t: Tensor, low: float, power: float | Tensor) -> Tensor:
    """dt/du: one over the density of t, where u is uniform."""
    return power * t ** (1 - 1 / power) * (1 - low ** (1 / power))


class UniformTimes(Times):
    def __init__(self, draws: int = 1):
        self.draws = draws

    def draw_all(self, noise, low):
        return (low + (1 - low) * noise.at("time").uniform((self.draws,)).T).clamp_max(LAST)

    def density(self, t, low):
        return torch.full_like(t, 1 / (1 - low))

    def inverse_density(self, t, low):
        return torch.full_like(t, 1 - low)


class Importance(Times):
    """Stratified over the global batch with density proportional to t^(1/power - 1)."""

    def __init__(self, draws: int = 1, power: float = 4.0):
        if not power >= 1:
            raise ValueError(f"power = {power}: grading towards 0 needs a power of at least 1")
        self.draws, self.power = draws, power

    def draw(self, noise, low):
        return graded(strata(len(noise.rows), noise), low, self.power).clamp_max(LAST)

    def density(self, t, low):
        return 1 / graded_slope(t, low, self.power)

    def inverse_density(self, t, low):
        return graded_slope(t, low, self.power)


class Stratified(Importance):
    """Stratified uniform times."""

    def __init__(self, draws: int = 1):
        super().__init__(draws, power=1.0)


class MaskedCount(JointTimes):
    """With h = -alpha'/beta and p(S) the probability that the process masks the set S at time t,

        density of t = -alpha'/(1 - beta_low),    probability of S given t = p(S) |S|/(d beta),

    since any coordinate of S may be the one that is masked for certain; the ratio is h |S|/(d (1 - beta_low)).
    """

    schedule_free = True
    is_bound = True
    label = "count"

    def __init__(self, draws: int = 1):
        self.draws = draws

    def draw_weighted(self, process, x0, low, noise, known):
        """The weight comes from the drawn beta itself, which t gives back only rounded."""
        if not process.absorbing or process.schedule.shape:
            raise TypeError("count-based times belong to Masking with one schedule for all coordinates: use Importance()")
        d, beta_low = process.space.dimension, process.schedule.beta(low)
        beta = beta_low + (1 - beta_low) * strata(len(x0), noise)
        # n - 1 ~ Binomial(d - 1, beta): of d coordinates in random order the first is masked for certain, and each of
        # the others with probability beta
        key = noise.at("order").uniform((d,))
        coin = noise.at("coin").uniform((d,)) < beta.unsqueeze(-1)
        masked = coin.scatter(-1, key.argmin(-1, keepdim=True), True)
        n = masked.sum(-1)
        t = process.schedule.time_of_beta(beta).clamp_max(LAST)
        hazard = -process.schedule.d_alpha(t) / beta  # the rate multiplies the cross-entropy by this; divide it out
        x_t = torch.where(masked.reshape(x0.shape), process.mask, x0)
        return t, x_t, (1 - beta_low) * d / n / hazard

    def draw_joint(self, process, x0, low, noise, known):
        t, x_t, _ = MaskedCount.draw_weighted(self, process, x0, low, noise, known)  # whatever a subclass makes of that
        return t, x_t

    def density_ratio(self, process, x_t, t, low, known):
        schedule, n = process.schedule, (x_t == process.mask).flatten(1).sum(1)
        return -schedule.d_alpha(t) / schedule.beta(t) * n / (process.space.dimension * (1 - schedule.beta(low)))

    def on_chain(self):
        return Stratified()


class Grid(Times):
    """Every step of a chain."""

    is_bound = True
    every_step = True

    def visit(self, process, x0, low, noise):
        raise TypeError("Grid() visits the steps of a chain: build the denoiser on Chain(process, T)")
