"""The generator as an operator: it acts on test functions, has an adjoint, and can be reversed in time.

    L phi  = b . grad phi + 1/2 tr(a grad^2 phi) + sum_y R(y, x) [phi(y) - phi(x)]
    L* q   = -div(b q) + 1/2 sum_k d_k^2 (a_k q) + sum_y [R(x, y) q(y) - R(y, x) q(x)]            (eq:KFE-eq)
    L^ phi under marginals q: drift -b + div a + a grad log q, the same a, rates R(x, y) q(y)/q(x)  (eq:reversed-generator)

These are the definitions, by autograd and by visiting every neighbour: they serve small spaces, tests and users' own
processes.  The families answer the same questions in closed form.

Correlated noise, a = L diag(g^2) L^T, is independent in the coordinates y = L^-1 x, where the second-order parts are taken:

    tr(a grad^2 phi) = sum_k g_k^2 d^2/dy_k^2 phi(L y),    sum_ij d_i d_j (a_ij q) = sum_k d^2/dy_k^2 [g_k^2 q](L y),
    div a + a grad log q = L [d/dy_k g_k^2 + g_k^2 d/dy_k log q(L y)].
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unnoise.covariance import Covariance
from unnoise.generators.local import Local, without_self
from unnoise.generators.neighbours import neighbours, tree_leaves
from unnoise.laws import LOG_ZERO, sum_coordinates
from unnoise.shapes import Float, Tree
from unnoise.spaces import Counts, Euclidean, Finite, Space
from unnoise.tree import batch_size, pick, replace

Function = Callable[[Tree], Tensor]  # a batch of states -> one number per row


class Generator:
    """The generator of a Markov process at one time: a function from states to `Local` data, on a space."""

    def __init__(self, space: Space, local: Callable[[Tree], Tree]):
        self.space, self.local = space, local

    def act(self, phi: Function, x: Tree) -> Float[Tensor, "batch"]:
        """(L phi)(x)."""
        data, total = self.local(x), torch.zeros(batch_size(x), dtype=torch.float64)
        for path, space in tree_leaves(self.space):
            local = pick(data, path)
            if isinstance(space, Euclidean):
                gradient, curvature = _derivatives(*_whitened(phi, x, path, local.covariance), path)
                if local.drift is not None:
                    drift = local.drift if local.covariance is None else local.covariance.whiten(local.drift)
                    total = total + sum_coordinates(drift * gradient)
                if local.diffusion is not None:
                    total = total + sum_coordinates(0.5 * local.diffusion * curvature)
            if isinstance(space, Finite | Counts) and local.log_rates is not None:
                change = phi(neighbours(x, path, space)).reshape(local.log_rates.shape)
                base = phi(x).reshape(-1, *[1] * (change.ndim - 1))
                total = total + sum_coordinates(local.rates * (change - base))
        return total

    def adjoint(self, q: Function, x: Tree) -> Float[Tensor, "batch"]:
        """(L* q)(x): the right-hand side of the Kolmogorov forward equation."""
        total = torch.zeros(batch_size(x), dtype=torch.float64)
        for path, space in tree_leaves(self.space):
            if isinstance(space, Euclidean):

                def flux(y: Tree, path=path) -> Tensor:
                    drift = pick(self.local(y), path).drift
                    return 0.0 * pick(y, path) if drift is None else drift * _rows(q(y), drift)

                def spread(y: Tree, path=path) -> Tensor:
                    diffusion, leaf = pick(self.local(y), path).diffusion, pick(y, path)
                    return 0.0 * leaf if diffusion is None else diffusion * _rows(q(y), leaf) + 0.0 * leaf

                total = total - sum_coordinates(_diagonal(flux, x, path, order=1))
                inner, y = _whitened(spread, x, path, pick(self.local(x), path).covariance)
                total = total + 0.5 * sum_coordinates(_diagonal(inner, y, path, order=2))
            else:
                inflow, outflow = self._edges(x, path, space)
                around = q(neighbours(x, path, space)).reshape(inflow.shape)
                total = total + sum_coordinates(inflow.exp() * around - outflow.exp() * _rows(q(x), outflow))
        return total

    def _edges(self, x: Tree, path: tuple[str, ...], space: Space) -> tuple[Tensor, Tensor]:
        """Log rates into x from each neighbour, and out of x to each neighbour: [batch, *shape, size]."""
        out = pick(self.local(x), path).log_rates
        around = neighbours(x, path, space)
        rates = pick(self.local(around), path).log_rates  # [batch*d*size, *shape, size]
        state = _flat(pick(x, path))
        (rows, dimension), size = state.shape, out.shape[-1]
        rates = rates.reshape(rows, dimension, size, dimension, size)
        k = torch.arange(dimension, device=state.device)
        own = rates[:, k, :, k].transpose(0, 1)  # [rows, d, from, to]
        if isinstance(space, Counts):  # x - 1 steps up to x, x + 1 down to it
            below = torch.where(state > 0, own[..., 0, 1], LOG_ZERO)
            return torch.stack([below, own[..., 1, 0]], -1).reshape(out.shape), out
        assert isinstance(space, Finite)
        into = own.gather(-1, state[:, :, None, None].expand(-1, -1, size, 1)).squeeze(-1)
        valid = space.valid(state.device)
        if valid is not None:  # nothing comes from the surplus rows
            into = torch.where(valid.flatten(0, -2), into, LOG_ZERO)
        return without_self(into, state).reshape(out.shape), out

    def reversed(self, log_q: Function) -> "Generator":
        """The generator of the process run backwards, where log q is the log-density of its state now."""

        def local(x: Tree) -> Tree:
            data = self.local(x)
            for path, space in tree_leaves(self.space):
                forward = pick(data, path)
                if isinstance(space, Euclidean):
                    a, covariance = forward.diffusion, forward.covariance
                    drift = None if forward.drift is None else -forward.drift
                    if a is not None:

                        def spread(y: Tree, path=path) -> Tensor:
                            return pick(self.local(y), path).diffusion + 0.0 * pick(y, path)

                        score = _derivatives(*_whitened(log_q, x, path, covariance), path, second=False)[0]
                        back = _diagonal(*_whitened(spread, x, path, covariance), path, order=1) + a * score
                        back = back if covariance is None else covariance.colour(back)
                        drift = back if drift is None else drift + back
                    backward = Local(drift, a, covariance=covariance)
                else:
                    into, _ = self._edges(x, path, space)
                    around = log_q(neighbours(x, path, space)).reshape(into.shape)
                    log_rates = into + (around - _rows(log_q(x), into)).clamp(-1e20, 1e20)
                    stays = isinstance(space, Finite)  # a category is among its own destinations
                    backward = Local(log_rates=without_self(log_rates, pick(x, path)) if stays else log_rates)
                data = replace(data, path, backward)
            return data

        return Generator(self.space, local)

    def coordinate(self, path: tuple[str, ...], k: int) -> "Generator":
        """L^(k): the part of the generator that moves one coordinate of one leaf (eq:generator-dimensional-sum)."""

        def local(x: Tree) -> Tree:
            data = self.local(x)
            for other, _ in tree_leaves(self.space):
                part = pick(data, other)
                if part.covariance is not None:
                    raise ValueError(
                        f"the noise of leaf {'.'.join(other) or 'x'} is correlated ({part.covariance}): its coordinates do "
                        f"not decouple, and no part of the generator moves one alone"
                    )

                def keep(value: Tensor | None, fill: float, jumps: bool, other=other) -> Tensor | None:
                    if value is None:
                        return None
                    value = value.expand(pick(x, other).shape) if not jumps else value
                    flat = value.reshape(len(value), -1, value.shape[-1]) if jumps else _flat(value)
                    mask = torch.zeros(flat.shape[1], dtype=torch.bool, device=flat.device)
                    if other == path:
                        mask[k] = True
                    mask = mask.unsqueeze(-1) if jumps else mask
                    return torch.where(mask, flat, fill).reshape(value.shape)

                data = replace(
                    data,
                    other,
                    Local(
                        keep(part.drift, 0.0, False),
                        keep(part.diffusion, 0.0, False),
                        keep(part.log_rates, LOG_ZERO, True),
                    ),
                )
            return data

        return Generator(self.space, local)

    def __add__(self, other: "Generator") -> "Generator":
        def plus(a: Tree, b: Tree) -> Tree:
            return {name: plus(a[name], b[name]) for name in a} if isinstance(a, dict) else a + b

        return Generator(self.space, lambda x: plus(self.local(x), other.local(x)))


def _flat(x: Tensor) -> Tensor:
    """One row of coordinates per example; a scalar state has one."""
    return x.reshape(len(x), -1)


def _rows(value: Tensor, like: Tensor) -> Tensor:
    return value.reshape(-1, *[1] * (like.ndim - 1))


def _whitened(function: Function, x: Tree, path: tuple[str, ...], covariance: Covariance | None) -> tuple[Function, Tree]:
    """A function and a state in the coordinates y = L^-1 x of one leaf."""
    if covariance is None:
        return function, x

    def of_white(y: Tree) -> Tensor:
        return function(replace(y, path, covariance.colour(pick(y, path))))

    return of_white, replace(x, path, covariance.whiten(pick(x, path)))


def _derivatives(phi: Function, x: Tree, path: tuple[str, ...], second: bool = True) -> tuple[Tensor, Tensor]:
    """Gradient and diagonal of the Hessian of phi in one Euclidean leaf; differentiable again where the leaf is."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf, again = _leaf(pick(x, path))
        value = phi(replace(x, path, leaf))
        if not value.requires_grad:
            return torch.zeros_like(leaf), torch.zeros_like(leaf)
        gradient = torch.autograd.grad(value.sum(), leaf, create_graph=second or again)[0]
        if not second:
            return gradient, gradient
        columns = []
        for column in _flat(gradient).unbind(1):
            known = column.requires_grad
            columns.append(torch.autograd.grad(column.sum(), leaf, None, True, again)[0] if known else 0 * leaf)
        k = range(len(columns))
        diagonal = torch.stack([columns[i].reshape(len(leaf), -1)[:, i] for i in k], 1).reshape(leaf.shape)
        return (gradient, diagonal) if again else (gradient.detach(), diagonal.detach())


def _leaf(x: Tensor) -> tuple[Tensor, bool]:
    """A leaf to differentiate by, and whether what follows is differentiated again: the drift of a reversed generator
    holds a score, and its adjoint the derivative of that."""
    return (x, True) if x.requires_grad else (x.detach().clone().requires_grad_(), False)


def _diagonal(field: Function, x: Tree, path: tuple[str, ...], order: int) -> Tensor:
    """d^order field_k / dx_k^order for each coordinate k of one Euclidean leaf."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf, again = _leaf(pick(x, path))
        value = field(replace(x, path, leaf)).reshape(len(leaf), -1)
        out = []
        for i in range(value.shape[1]):
            entry = value[:, i]
            for _ in range(order):
                if not entry.requires_grad:
                    entry = torch.zeros_like(entry)
                    break
                entry = torch.autograd.grad(entry.sum(), leaf, create_graph=True)[0].reshape(len(leaf), -1)[:, i]
            out.append(entry if again else entry.detach())
        return torch.stack(out, 1).reshape(leaf.shape)
