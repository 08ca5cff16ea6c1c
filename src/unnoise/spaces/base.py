"""Where x lives.  A space checks a batch, and answers for its geometry: all that a generator needs to know of it.

    check, project          whether states lie in the space; the nearest ones that do
    act, adjoint            L phi and L* q at a state, from the generator's data there (`Local`)
    reverse                 the data of the generator run backwards in time under a density q
    backward                the same by the slope of log q alone, which a network can say
    tilt                    the data of the generator under a change of measure by a function h
    freeze, move            the data as parameters, and the state after a time h under them: still a point of the space
    step_law                the law of that step, where it has a density
    along                   what a slope of log q says of such a step, less its mean
    divergence              the distance of two generators at the same states, in nats per unit time
    reference               the measure that densities on the space are of, in words
    states, code, count     every point, where points can be listed

A generator on a tree of spaces only maps over the leaves (`generators.Generator`), so a space of one's own is one class.
Functions of the state that a space is given (phi, log q, the generator's data) are functions of its own leaf alone, and take
any whole multiple of the rows at hand: every row n times, one after another.

What a space does not answer raises, and names the space and what to write.

The distance of the true reverse process (conditioned on x_0) from the model's is the ELBO's integrand in every space
(eq:ELBO-generator-Dynkin):

    1/2 (b_0 - b_m) . a^-1 (b_0 - b_m)  +  sum_y [ R_m - R_0 + R_0 log(R_0 / R_m) ]           (0 log 0 = 0)

With b = -f + a s on both sides the first term is 1/2 a |s_0 - s_m|^2, denoising score matching; the second is the score
entropy with all its constants, pointwise >= 0 (the print's -R_t(y, x_t) in place of -R_0 is right in expectation only).  It
is infinite where one process can tell itself from the other at once: where the diffusions differ, where the gap of the
drifts lies outside the range of the diffusion, and where a jump of the true process has rate 0 under the model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from unnoise.checks import Unanswered
from unnoise.laws import LOG_ZERO, Law, finite_or_inf
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float, Int, Tree
from unnoise.spaces.local import JumpKernel, Local, unmatched

ENUMERABLE = 100_000  # states of a space that `states()` agrees to list
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)

Function = Callable[[Tensor], Tensor]  # states of one leaf -> one number per row
Field = Callable[[Tensor], Local]  # states of one leaf -> the generator's data there
Frozen = dict[str, Tensor]  # a generator's parameters by name; all but "drift" are rates or variances, never negative


class Space(ABC):
    """A state space.  `check` returns the batch it was given, or raises an error that names value and remedy."""

    reference: str = "a measure that the space does not name"

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many coordinates a point has."""

    @abstractmethod
    def check(self, x: AnyState, name: str = "x") -> Tree: ...

    @property
    def leaves(self) -> dict[str, "Space"]:
        """The spaces of a product by name; none where the space is a leaf itself."""
        return {}

    @property
    def entries(self) -> int:
        """How many numbers a prediction has for each point, about."""
        return self.dimension

    def project(self, x: AnyState) -> AnyState:
        """The nearest points of the space: where a step would leave it."""
        raise self.unanswered("project(x)", "which point of the space is nearest to x")

    # a generator on this space

    def act(self, local: Local, phi: Function, x: Tensor) -> Float[Tensor, "batch"]:
        """(L phi)(x), from the generator's data at x."""
        raise self.unanswered("act(local, phi, x)", "what a generator does to a test function phi")

    def adjoint(self, field: Field, q: Function, x: Tensor) -> Float[Tensor, "batch"]:
        """(L* q)(x), q a density of the reference measure: the right-hand side of the forward equation."""
        raise self.unanswered("adjoint(field, q, x)", "what a generator does to a density q")

    def reverse(self, field: Field, log_q: Function, x: Tensor) -> Local:
        """The data at x of the generator run backwards, where log q is the log-density of the state now."""
        raise self.unanswered("reverse(field, log_q, x)", "the drift and the jumps of a process that is run backwards")

    def backward(self, field: Field, slope: Tensor, x: Tensor) -> Local:
        """`reverse`, from what log q does at x instead of from log q: `slope` is its gradient, or its differences."""
        raise self.unanswered("backward(field, slope, x)", "the reverse process by the slope of log q")

    def slope_shape(self, x: Tensor) -> tuple[int, ...]:
        """The shape of such a slope at the states x."""
        raise self.unanswered("slope_shape(x)", "the shape of the slope of log q")

    def tilt(self, local: Local, log_h: Function, x: Tensor) -> Local:
        """The data at x under the change of measure by h > 0: L^h phi = [L(h phi) - phi L h]/h."""
        raise self.unanswered("tilt(local, log_h, x)", "the drift and the jumps under a change of measure")

    def freeze(self, local: Local, x: Tensor) -> Frozen:
        """The generator's data as named parameters, which `move` reads; schemes of higher order mix them."""
        raise self.unanswered("freeze(local, x)", "a generator's parameters at x by name")

    def move(self, frozen: Frozen, local: Local, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        """The state after a time h under frozen parameters: a point of the space.  `local` is what was frozen."""
        raise self.unanswered("move(frozen, local, x, h, noise)", "where a frozen generator takes x in a time h")

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> Law:
        """The law of `move`: of the state after a time h under the generator's data at x, its density known."""
        raise self.unanswered("step_law(local, x, h)", "the law of a small step")

    def along(self, slope: Tensor, law: Law, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        """What the slope of log q at x says of the step from x to y, less its mean over the step's law: 0 in the mean."""
        raise self.unanswered("along(slope, law, x, y)", "what a slope says of a step, less its mean")

    def divergence(self, true: Local, model: Local, x: Tensor) -> Float[Tensor, "batch"]:
        """The distance of two generators at the states x, in nats per unit time."""
        raise self.unanswered("divergence(true, model, x)", "how far one generator is from another")

    def coordinate(self, local: Local, x: Tensor, k: int | None) -> Local:
        """The part of a generator that moves coordinate k alone; None: the part that moves nothing."""
        raise self.unanswered("coordinate(local, x, k)", "the part of a generator that moves one coordinate")

    def no_turn(self, turn: float | Tensor) -> str | None:
        """Why tangent vectors cannot be turned by `turned`; None where they can."""
        return f"{self} does not say how tangent vectors are turned"

    def turned(self, v: Tensor, x: Tensor, turn: float | Tensor) -> Tensor:
        """Tangent vectors v at x turned so that any gradient field becomes one without divergence; `turn` is an
        antisymmetric matrix, or the number of one in two dimensions."""
        raise self.unanswered("turned(v, x, turn)", "how tangent vectors are turned")

    # listing

    @property
    def enumerable(self) -> bool:
        """Whether every point can be listed, were there not too many."""
        return False

    @property
    def count(self) -> int:
        """How many points the space has."""
        raise TypeError(f"{self} is not finite: its points cannot be listed")

    def states(self) -> Tree:
        """Every point, in the order of `code`."""
        raise TypeError(f"{self} is not finite: its points cannot be listed")

    def code(self, x: AnyState) -> Int[Tensor, "batch"]:
        """The place of each row of x in `states()`."""
        raise TypeError(f"{self} is not finite: its points cannot be listed")

    def destinations(self, x: Tensor) -> Int[Tensor, "batch d size"]:
        """Where each coordinate may jump to, by the entries of `log_rates`."""
        raise TypeError(f"{self} has no neighbours, so rates by coordinate say nothing on it: give jumps=, a JumpKernel")

    def neighbours(self, x: Tensor) -> Tensor:
        """Every state that differs from x in one coordinate, by `destinations`: [batch * dimension * size] rows."""
        leaf = flat(x)
        values = self.destinations(leaf)
        rows, dimension, size = values.shape
        copies = leaf[:, None, None, :].expand(rows, dimension, size, dimension).clone()
        k = torch.arange(dimension, device=leaf.device)
        copies[:, k, :, k] = values.transpose(0, 1)
        return copies.reshape(-1, *x.shape[1:])

    # what leaves with jumps share

    def unanswered(self, method: str, what: str) -> Unanswered:
        name = type(self).__name__
        return Unanswered(f"the space {name} does not say {what}: write the method {method} of the class {name}")

    def refuse_parts(self, local: Local, **parts: str) -> None:
        """Data that means nothing on this space is an error, never left out."""
        given = {"drift": local.drift, "diffusion": local.diffusion, "log_rates": local.log_rates, "jumps": local.jumps}
        for part, why in parts.items():
            if given[part] is not None:
                raise TypeError(f"the generator has {part}, which {self} cannot read: {why}")


class ArraySpace(Space):
    """Points that are arrays of one shape."""

    def __init__(self, shape: int | Sequence[int] = ()):
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(n < 1 for n in self.shape):
            raise ValueError(f"shape {self.shape} has an entry below 1")

    @property
    def dimension(self) -> int:
        return prod(self.shape)

    def check_shape(self, x: AnyState, name: str) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}, not a tensor: pass torch.as_tensor({name})")
        if tuple(x.shape[1:]) != self.shape or x.ndim != 1 + len(self.shape):
            expected = ", ".join(["batch", *map(str, self.shape)])
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected ({expected})")
        return x

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape})"


def flat(x: Tensor) -> Tensor:
    """Rows of numbers, of any array with one row for each state, even of none."""
    return x.reshape(len(x), prod(x.shape[1:]))


# jumps to anywhere, on any space


def rows_like(value: Tensor, like: Tensor) -> Tensor:
    """One number per row, to broadcast with an array of them."""
    return value.reshape(-1, *[1] * (like.ndim - 1))


def kernel_action(jumps: JumpKernel, phi: Function, x: Tensor) -> Float[Tensor, "batch"]:
    """int J(x, dy) [phi(y) - phi(x)]."""
    y, rates = jumps.rates(x)
    return (rates * (phi(y.flatten(0, 1)).reshape(rates.shape) - phi(x).unsqueeze(1))).sum(1)


def kernel_adjoint(jumps: JumpKernel, q: Function, x: Tensor) -> Float[Tensor, "batch"]:
    """int q(y) J(y, x) dy - q(x) int J(x, dy)."""
    y, log_weight = jumps.nodes(x)
    n = y.shape[1]
    sources = y.flatten(0, 1)
    into = jumps.log_rate(sources, x.repeat_interleave(n, 0)).reshape(len(x), n) + log_weight
    return (into.exp() * q(sources).reshape(len(x), n)).sum(1) - jumps.total(x) * q(x)


def kernel_divergence(true: JumpKernel | None, model: JumpKernel | None, x: Tensor) -> Float[Tensor, "batch"]:
    """int [J_m - J_0 + J_0 log(J_0/J_m)], infinite where the model has no jump that the true process makes."""
    if true is None and model is None:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    if true is None:
        return model.total(x).double()  # type: ignore[union-attr]
    y, log_weight = true.nodes(x)
    n = y.shape[1]
    here, there = x.repeat_interleave(n, 0), y.flatten(0, 1)
    log_true = true.log_rate(here, there).reshape(len(x), n)
    log_model = torch.full_like(log_true, LOG_ZERO)
    if model is not None:
        log_model = model.log_rate(here, there).reshape(len(x), n)
    weight = log_weight.exp()
    terms = log_model.exp() - log_true.exp() + log_true.exp() * (log_true - log_model)
    total = (weight * terms).sum(1).double()
    if model is not None:
        total = total + missed_rate(model, x, y, (weight * log_model.exp()).sum(1))
    return torch.where(unmatched(weight * log_true.exp(), log_model).any(1), torch.inf, finite_or_inf(total, 1e20))


def missed_rate(model: JumpKernel, x: Tensor, y: Tensor, seen: Float[Tensor, "batch"]) -> Tensor | float:
    """What the model jumps beside the nodes y, at which a rate `seen` was counted: it has nodes of its own, or says."""
    if model.known_total:
        return model.total(x) - seen
    own, rates = model.rates(x)
    return 0.0 if own.shape == y.shape and torch.equal(own, y) else rates.sum(1) - seen
