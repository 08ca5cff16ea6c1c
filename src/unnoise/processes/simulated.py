"""A process that is known by its generator alone: paths are simulated, step by step.

`Simulated(space, local, prior, steps)` takes drift, diffusion and rates at each state and time, `local(x, t)`, and nothing
else.  Over the times 0 = t_0 < t_1 < ... < t_T = 1, evenly spaced, a forward path is drawn in small steps from the laws
`Space.step_law` of the generator frozen at (x_k, t_k), whose densities are known.  So the process *is* this chain, and what
is said of it holds at every step size; the generator's own process is its limit.

    -log p(x_0) <= E[ sum_k log q(x_{k+1} | x_k)/p(x_k | x_{k+1})  -  log p(x_T) ]

is the bound of the path (`objectives.path_bound`), true for any reverse steps p.  They are small steps of a reverse
generator, with the forward step's diffusion: that at the time where the step back ends.  A diffusion that changes with the
*state* is not the same at both ends of a step; then the bound still is one, but does not tend to that of continuous time.

Without more, no marginal is known: x_t given x_0 can be drawn, at the cost of a path, and has no density.  The bound of a
path is noisier than one by marginals, and three things lower its variance without a change of its mean:

    visits        more steps of each path
    control       of log q(x_{k+1} | x_k)/p(x_k | x_{k+1}) the part of size sqrt(h) is slope . (x_{k+1} - x_k): with the
                  model's own slope at x_k it is taken off, and its mean given x_k, which the step's law knows, put back
    antithetic    two paths from each row, one driven by the other's noise in a mirror

Where q(x_t | x_0) is known after all, `marginal(x0, t)` says it: a law with a draw, a log-density and a divergence from the
prior (`slope(x_t, x0, t)` in place of the log-density, where only the score is known).  Then the conditional form replaces
paths: one time for each row, the divergence of the two reverse generators there, and at the cut-off 1/steps the model's own
last step (`objectives.path_bound.LastStep`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import Unanswered, instance_of, may_read, whole
from unnoise.generators import Generator, Local, Paths, simulated
from unnoise.generators.path_estimates import step_law
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.processes.base import Process, spread_times
from unnoise.processes.simulated_checks import checked_data, refuse_data, refuse_explosion
from unnoise.shapes import AnyState, Clock, Float, Tree
from unnoise.spaces import Space, tree_leaves
from unnoise.tree import batch_size, first_leaf, map_leaves


class Simulated(Process):
    """`local(x, t)` with x a batch and t float64, one time per row; `prior(rows)` a law of x_T; `visits` steps of a path in
    a bound, of which a network is asked."""

    by_generator = by_paths = True

    def __init__(
        self,
        space: Space,
        local: Callable[[AnyState, Tensor], Tree[Local]],
        prior: Callable[[int], Law],
        steps: int = 100,
        visits: int = 8,
        control: bool = False,
        antithetic: bool = False,
        marginal: Callable[[AnyState, Clock], Law] | None = None,
        slope: Callable[[AnyState, AnyState, Clock], Tree] | None = None,
    ):
        super().__init__()
        self.space = self.state_space = instance_of(space, Space, "space", "un.Euclidean((2,))")
        for name, given in (("local", local), ("prior", prior), ("marginal", marginal), ("slope", slope)):
            if not (given is None and name in ("marginal", "slope")) and not callable(given):
                raise TypeError(f"{name} is a {type(given).__name__}: pass a function, see {type(self).__name__}")
        self._local, self._prior, self._marginal, self._slope = local, prior, marginal, slope
        self.steps, self.visits = whole(steps, "steps"), whole(visits, "visits")
        self.control, self.antithetic = control, antithetic
        self.times = torch.linspace(0, 1, self.steps + 1, dtype=torch.float64)
        if slope is not None and marginal is None:
            raise ValueError("a slope of log q(x_t | x_0) without marginal=...: x_t is drawn from it, so give both")
        if marginal is not None:
            if control or antithetic:
                raise ValueError("control and antithetic are of paths, and with marginal=... there are none: leave them out")
            self.by_paths = False
            self.cutoff = 1 / self.steps
            self.has_density = any(leaf.reference != "counting measure" for _, leaf in tree_leaves(space))

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        law = instance_of(self._prior(rows), Law, "prior(rows)", "un.laws.Normal(mean, std)")
        return law if dtype is None and device is None else Placed(law, dtype, device)

    def local(self, x: AnyState, t: Clock) -> Tree[Local]:
        clock = torch.as_tensor(t, dtype=torch.float64)
        return checked_data(self.space, self._local(x, clock.to(first_leaf(x).device).expand(batch_size(x))), x)

    def before(self, t: Tensor) -> Tensor:
        """The time of the grid before each of these; these themselves where marginals are known, in continuous time."""
        if not self.by_paths:
            return t
        place = (t.double() * self.steps).round().long().clamp(1, self.steps)
        return self.times.to(t.device)[place - 1]

    def paths(self, x0: Tree, noise: NoiseSource) -> Paths:
        """A forward path from each row."""

        def local(x: Tree, t: float) -> Tree[Local]:
            refuse_explosion(x, t)
            data = self.local(x, t)
            refuse_data(self.space, data, x, t)
            return data

        found = simulated(lambda t: Generator(self.space, lambda x: local(x, t)), x0, self.times.tolist(), noise)
        refuse_explosion(found.states[-1], 1.0)
        return found

    def marginal(self, x0: AnyState, t: Clock) -> Law:
        return SimulatedLaw(self, x0, t) if self._marginal is None else self._marginal(x0, t)

    def conditioned_local(self, x_t: AnyState, x0: AnyState, t: Clock) -> Tree[Local]:
        refuse_data(self.space, self.local(x_t, t), x_t, float(torch.as_tensor(t).flatten()[0]))
        if self._slope is None:
            return super().conditioned_local(x_t, x0, t)

        def local(x: Tree) -> Tree[Local]:
            return self.local(x, spread_times(t, batch_size(x_t), batch_size(x)))

        return Generator(self.space, local).backward(self._slope(x_t, x0, t), x_t)

    def noiseless(self, t: float) -> bool:
        return t == 0

    def transition(self, x_s: AnyState, s: Clock, t: Clock) -> Law:
        """One step of the chain; over more of them no law is known."""
        h = torch.as_tensor(t, dtype=torch.float64) - torch.as_tensor(s, dtype=torch.float64)
        if not bool(((h * self.steps - 1).abs() < 1e-9).all()):
            raise self.unanswered("transition(x_s, s, t)", f"the law q(x_t | x_s) but over one step, 1/{self.steps},")
        local = self.local(x_s, s)
        refuse_data(self.space, local, x_s, float(torch.as_tensor(s).flatten()[0]))
        return step_law(self.space, local, x_s, h.flatten()[0])

    def prior_kl(self, x0: AnyState, t: Clock = 1.0) -> Tensor:
        if not self.by_paths:
            return self.marginal(x0, t).kl(self._prior(batch_size(x0)))
        raise Unanswered(
            "a Simulated process has no divergence from its prior, only the bound of its paths: give marginal=, the law "
            "q(x_t | x_0), where it is known; or, if it is a leaf of a product here, make one process of the whole, "
            "Simulated(un.spaces.ProductSpace(...), ...)"
        )


class Placed(Law):
    """A law whose draws are given in another precision, or on another device."""

    def __init__(self, law: Law, dtype: torch.dtype | None, device: torch.device | str | None):
        self.law, self.dtype, self.device = law, dtype, device

    def draw(self, noise: NoiseSource) -> Tree:
        return map_leaves(
            lambda leaf: leaf.to(self.device, self.dtype if leaf.dtype.is_floating_point else None), self.law.draw(noise)
        )

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        return self.law.log_prob(x)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        return self.law.kl(other)


class SimulatedLaw(Law):
    """x_t given x_0, by a path to the nearest time of the grid."""

    def __init__(self, process: Simulated, x0: Tree, t: Any):
        self.process, self.x0, self.t = process, x0, torch.as_tensor(t, dtype=torch.float64)

    def draw(self, noise: NoiseSource) -> Tree:
        if may_read(self.t) and not bool(((self.t >= 0) & (self.t <= 1)).all()):
            raise ValueError(f"t = {float(self.t.flatten()[0]):g} lies outside [0, 1], where paths run")
        place = (self.t * self.process.steps).round().long()
        if place.numel() > 1 and bool((place != place.flatten()[0]).any()):
            raise ValueError("a simulated path is drawn to one time for all rows: pass a single t")
        return self.process.paths(self.x0, noise).states[int(place.flatten()[0])]

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        raise TypeError("x_t given x_0 has no known density under a simulated process: use the bound of its paths")

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("x_t given x_0 has no known density under a simulated process: use the bound of its paths")
