"""A process that is known by its generator alone: paths are simulated, step by step.

`Simulated(space, local, prior, steps)` takes drift, diffusion and rates at each state and time, `local(x, t)`, and nothing
else.  Over the times 0 = t_0 < t_1 < ... < t_T = 1, evenly spaced, a forward path is drawn in small steps from the laws
`Space.step_law` of the generator frozen at (x_k, t_k), whose densities are known.  So the process *is* this chain, and what
is said of it holds at every step size; the generator's own process is its limit.

    -log p(x_0) <= E[ sum_k log q(x_{k+1} | x_k)/p(x_k | x_{k+1})  -  log p(x_T) ]

is the bound of the path (`objectives.path_bound`), true for any reverse steps p.  They are small steps of a reverse
generator, with the forward step's diffusion: that at the time where the step back ends.  A diffusion that changes with the
*state* is not the same at both ends of a step; then the bound still is one, but does not tend to that of continuous time.

No marginal is known: x_t given x_0 can be drawn, at the cost of a path, and has no density.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import whole
from unnoise.generators import Generator, Local, Paths, simulated
from unnoise.generators.path_estimates import step_law
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.processes.base import Process
from unnoise.shapes import AnyState, Clock, Float, Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size, first_leaf, leaves

LIMIT = 1e12  # beyond which a path has exploded


class Simulated(Process):
    """`local(x, t)` with x a batch and t float64, one time per row; `prior(rows)` a law of x_T; `visits` steps of a path in
    a bound, of which a network is asked."""

    by_paths = True

    def __init__(
        self,
        space: Space,
        local: Callable[[AnyState, Tensor], Tree[Local]],
        prior: Callable[[int], Law],
        steps: int = 100,
        visits: int = 8,
    ):
        super().__init__()
        self.space = self.state_space = space
        self._local, self._prior = local, prior
        self.steps, self.visits = whole(steps, "steps"), whole(visits, "visits")
        self.times = torch.linspace(0, 1, self.steps + 1, dtype=torch.float64)

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        return self._prior(rows)

    def local(self, x: AnyState, t: Clock) -> Tree[Local]:
        clock = torch.as_tensor(t, dtype=torch.float64)
        return self._local(x, clock.to(first_leaf(x).device).expand(batch_size(x)))

    def before(self, t: Tensor) -> Tensor:
        """The time of the grid before each of these."""
        place = (t.double() * self.steps).round().long().clamp(1, self.steps)
        return self.times.to(t.device)[place - 1]

    def paths(self, x0: Tree, noise: NoiseSource) -> Paths:
        """A forward path from each row."""

        def at(t: float) -> Generator:
            return Generator(self.space, lambda x: self._checked(self.local(x, t), t))

        found = simulated(at, x0, self.times.tolist(), noise)
        for t, x in zip(found.times, found.states, strict=True):
            _refuse_explosion(x, t)
        return found

    def marginal(self, x0: AnyState, t: Clock) -> Law:
        return SimulatedLaw(self, x0, t)

    def transition(self, x_s: AnyState, s: Clock, t: Clock) -> Law:
        """One step of the chain; over more of them no law is known."""
        h = torch.as_tensor(t, dtype=torch.float64) - torch.as_tensor(s, dtype=torch.float64)
        if not bool(((h * self.steps - 1).abs() < 1e-9).all()):
            raise self.unanswered("transition(x_s, s, t)", f"the law q(x_t | x_s) but over one step, 1/{self.steps},")
        return step_law(
            self.space, self._checked(self.local(x_s, s), float(torch.as_tensor(s).flatten()[0])), x_s, h.flatten()[0]
        )

    def prior_kl(self, x0: AnyState, t: Clock = 1.0) -> Tensor:
        raise self.unanswered(
            "prior_kl(x0)", "the divergence of q(x_T | x_0) from the prior, which the path's bound is without"
        )

    def _checked(self, local: Tree[Local], t: float) -> Tree[Local]:
        for part in leaves(local):
            _refuse_data(part, t)
        return local


class SimulatedLaw(Law):
    """x_t given x_0, by a path to the nearest time of the grid."""

    def __init__(self, process: Simulated, x0: Tree, t: Any):
        self.process, self.x0, self.t = process, x0, torch.as_tensor(t, dtype=torch.float64)

    def draw(self, noise: NoiseSource) -> Tree:
        place = (self.t * self.process.steps).round().long()
        if place.numel() > 1 and bool((place != place.flatten()[0]).any()):
            raise ValueError("a simulated path is drawn to one time for all rows: pass a single t")
        return self.process.paths(self.x0, noise).states[int(place.flatten()[0])]

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        raise TypeError("x_t given x_0 has no known density under a simulated process: use the bound of its paths")

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("x_t given x_0 has no known density under a simulated process: use the bound of its paths")


def _refuse_data(local: Local, t: float) -> None:
    """Data that no process has."""
    for name, part in (("drift", local.drift), ("diffusion", local.diffusion)):
        if part is not None and not bool(part.isfinite().all()):
            row = int((~part.isfinite()).reshape(len(part), -1).any(1).nonzero()[0])
            raise ValueError(f"at t = {t:g} the generator's {name} in row {row} is not finite: the process would stop there")
    if local.diffusion is not None and bool((local.diffusion < 0).any()):
        raise ValueError(
            f"at t = {t:g} the generator has the diffusion {float(local.diffusion.min()):g}: it is a variance, >= 0"
        )
    if local.log_rates is not None and bool(local.log_rates.isnan().any()):
        raise ValueError(f"at t = {t:g} the generator has log_rates that are NaN, as the logarithm of a negative rate is")


def _refuse_explosion(x: Tree, t: float) -> None:
    for leaf in leaves(x):
        if leaf.dtype.is_floating_point and not bool((leaf.abs() < LIMIT).all()):
            raise ValueError(
                f"a path has exploded by t = {t:g}: its numbers pass {LIMIT:g}; make the steps smaller, or the drift grow "
                f"less than linearly"
            )
