"""The generator as an operator: it acts on test functions, has an adjoint, and can be reversed in time.

    L phi  = b . grad phi + 1/2 tr(a grad^2 phi) + sum_y R(y, x) [phi(y) - phi(x)]
    L* q   = -div(b q) + 1/2 sum_k d_k^2 (a_k q) + sum_y [R(x, y) q(y) - R(y, x) q(x)]            (eq:KFE-eq)
    L^ phi under marginals q: drift -b + div a + a grad log q, the same a, rates R(x, y) q(y)/q(x)  (eq:reversed-generator)

These are the definitions.  How each is computed is for the space of a leaf to say (`spaces`); a generator only maps over the
leaves of its space.  They serve small spaces, tests and users' own processes; the families answer the same questions in
closed form.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unnoise.shapes import AnyState, Clock, Float, Tree
from unnoise.spaces import Local, Space, tree_leaves
from unnoise.tree import Path, batch_size, map_leaves, pick, repeat_rows, replace

Function = Callable[[AnyState], Tensor]  # a batch of states -> one number per row


class Generator:
    """The generator of a Markov process at one time: a function from states to `Local` data, on a space."""

    def __init__(self, space: Space, local: Callable[[AnyState], Tree[Local]]):
        self.space, self.local = space, local

    def act(self, phi: Function, x: Tree) -> Float[Tensor, "batch"]:
        """(L phi)(x) (eq:gen-def): on numbers eq:spatial-generator-1d, on categories eq:ctmc-generator-formula."""
        data, total = self.local(x), torch.zeros(batch_size(x), dtype=torch.float64)
        for path, space in tree_leaves(self.space):
            total = total + space.act(pick(data, path), of_leaf(phi, x, path), pick(x, path))
        return total

    def adjoint(self, q: Function, x: Tree) -> Float[Tensor, "batch"]:
        """(L* q)(x): the right-hand side of the Kolmogorov forward equation, dual to `act` (eq:adjoint-definition).

        Numbers: eq:adjoint-generator-1d, eq:KFE-continuous-sp.  Categories: eq:ctmc-adjoint-formula, eq:KFE-discrete-sp.
        """
        total = torch.zeros(batch_size(x), dtype=torch.float64)
        for path, space in tree_leaves(self.space):
            total = total + space.adjoint(self._field(x, path), of_leaf(q, x, path), pick(x, path))
        return total

    def reversed(self, log_q: Function) -> "Generator":
        """The generator of the process run backwards, where log q is the log-density of its state now.

        Numbers: eq:reverse-Fokker-Planck.  Categories: eq:reversed-generator-discrete-sp, eq:reverse-rate-matrix.
        """

        def local(x: Tree) -> Tree[Local]:
            data = self.local(x)
            for path, space in tree_leaves(self.space):
                backward = space.reverse(self._field(x, path), of_leaf(log_q, x, path), pick(x, path))
                data = replace(data, path, backward)
            return data

        return Generator(self.space, local)

    def backward(self, slope: Tree, x: Tree) -> Tree[Local]:
        """The data at x of the generator run backwards, by what log q does there alone (`Space.backward`)."""
        data = self.local(x)
        for path, space in tree_leaves(self.space):
            data = replace(data, path, space.backward(self._field(x, path), pick(slope, path), pick(x, path)))
        return data

    def extended(self, phi: Callable[[AnyState, Tensor], Tensor], x: Tree, t: Clock) -> Float[Tensor, "batch"]:
        """(d/dt + L) phi for a test function phi(x, t) that changes with time, at the time t of this generator, or at a time
        for each row."""
        with torch.inference_mode(False), torch.enable_grad():
            time = torch.as_tensor(t, dtype=torch.float64).detach().expand(batch_size(x)).clone().requires_grad_()
            value = one_per_row(phi(x, time), x)
            rate = torch.autograd.grad(value.sum(), time)[0] if value.requires_grad else torch.zeros_like(time)
        now = time.detach()
        return rate + self.act(lambda y: phi(y, now.repeat_interleave(batch_size(y) // max(len(now), 1))), x)

    def tilted(self, log_h: Function) -> "Generator":
        """The generator under the change of measure by h > 0, L^h phi = [L(h phi) - phi L h]/h (Doob, Girsanov).

        Drift b + a grad log h, the same diffusion, rates R(y, x) h(y)/h(x).  Where (d/dt + L) h = 0 it is the process
        conditioned by h at the end; else paths have the weight h(x_T)/h(x_0) exp(-int (d/dt + L) h/h dt).
        """

        def local(x: Tree) -> Tree[Local]:
            data = self.local(x)
            for path, space in tree_leaves(self.space):
                data = replace(data, path, space.tilt(pick(data, path), of_leaf(log_h, x, path), pick(x, path)))
            return data

        return Generator(self.space, local)

    def coordinate(self, path: Path, k: int) -> "Generator":
        """L^(k): the part of the generator that moves one coordinate of one leaf (eq:generator-dimensional-sum)."""
        spaces = dict(tree_leaves(self.space))
        if path not in spaces:
            raise ValueError(f"there is no leaf {path!r}: choose from {list(spaces)}")
        if not 0 <= k < spaces[path].dimension:
            raise ValueError(f"k = {k}, but {spaces[path]} has the coordinates 0 ... {spaces[path].dimension - 1}")

        def local(x: Tree) -> Tree[Local]:
            data = self.local(x)
            for other, space in tree_leaves(self.space):
                part = space.coordinate(pick(data, other), pick(x, other), k if other == path else None)
                data = replace(data, other, part)
            return data

        return Generator(self.space, local)

    def __add__(self, other: "Generator") -> "Generator":
        return Generator(self.space, lambda x: map_leaves(Local.__add__, self.local(x), other.local(x)))

    def __mul__(self, weight: float | int) -> "Generator":
        """The same process at another speed; w L + (1 - w) L' is a superposition of two."""
        return Generator(self.space, lambda x: map_leaves(lambda data: data * weight, self.local(x)))

    __rmul__ = __mul__

    def _field(self, x: Tree, path: Path) -> Callable[[Tensor], Local]:
        """The data of one leaf as a function of that leaf's states, with the others as they are."""
        return lambda leaf: pick(self.local(beside(x, path, leaf)), path)


def beside(x: Tree, path: Path, leaf: Tensor) -> Tree:
    """States with one leaf exchanged; a leaf with every row n times over has the others repeated likewise."""
    if not path:
        return leaf
    times = len(leaf) // max(batch_size(x), 1)
    return replace(x if times == 1 else repeat_rows(x, times), path, leaf)


def of_leaf(function: Function, x: Tree, path: Path) -> Callable[[Tensor], Tensor]:
    """A function of the whole state as one of a single leaf."""

    def own(leaf: Tensor) -> Tensor:
        return one_per_row(function(beside(x, path, leaf)), leaf)

    return own


def one_per_row(value: Tensor, x: Tree) -> Tensor:
    """What a function of the state returned; numbers in another shape would be spread over other rows."""
    if tuple(value.shape) != (batch_size(x),):
        raise ValueError(
            f"a function of {batch_size(x)} states returned the shape {tuple(value.shape)}: return one number for each row, "
            f"({batch_size(x)},)"
        )
    return value
