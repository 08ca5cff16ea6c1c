"""What categories and counts share: jumps that change one coordinate, given by an array of rates.

    L phi   = sum_y R(y, x) [phi(y) - phi(x)]
    L* q    = sum_y [R(x, y) q(y) - R(y, x) q(x)]                                                         (eq:KFE-eq)
    reversed under q: rates R(x, y) q(y)/q(x)                                                     (eq:reversed-generator)

by visiting every neighbour.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO, finite_or_inf, sum_coordinates
from unnoise.shapes import Float
from unnoise.spaces.base import (
    ArraySpace,
    Field,
    Function,
    flat,
    kernel_action,
    kernel_adjoint,
    kernel_divergence,
    rows_like,
)
from unnoise.spaces.local import Local, ReversedJumps, TiltedJumps, jump_divergence

NOT_SMOOTH = "nothing moves continuously there; give rates"


class JumpingSpace(ArraySpace):
    """A space without derivatives; `destinations` says where each coordinate may jump to."""

    reference = "counting measure"

    def project(self, x: Tensor) -> Tensor:
        return x

    @abstractmethod
    def inflow(self, own: Float[Tensor, "batch d from to"], x: Tensor) -> Float[Tensor, "batch d from"]:
        """Of the log-rates of each coordinate at each of its neighbours, the entry that leads back to x."""

    def _edges(self, field: Field, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log rates into x from each neighbour, and out of x to each neighbour: [batch, *shape, size]."""
        out = self._rates(field(x))
        rates = self._rates(field(self.neighbours(x)))  # [batch*d*size, *shape, size]
        state = flat(x)
        (rows, dimension), size = state.shape, out.shape[-1]
        rates = rates.reshape(rows, dimension, size, dimension, size)
        k = torch.arange(dimension, device=state.device)
        own = rates[:, k, :, k].transpose(0, 1)  # [rows, d, from, to]
        return self.inflow(own, state).reshape(out.shape), out

    def _rates(self, local: Local) -> Tensor:
        if local.log_rates is None:
            raise TypeError(f"the generator on {self} has no log_rates: give the rates of its jumps, or jumps=")
        return local.log_rates

    def act(self, local: Local, phi: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(local, drift=NOT_SMOOTH, diffusion=NOT_SMOOTH)
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        if local.log_rates is not None:
            change = phi(self.neighbours(x)).reshape(local.log_rates.shape)
            base = phi(x).reshape(-1, *[1] * (change.ndim - 1))
            total = total + sum_coordinates(local.rates * (change - base))
        return total if local.jumps is None else total + kernel_action(local.jumps, phi, x)

    def adjoint(self, field: Field, q: Function, x: Tensor) -> Float[Tensor, "batch"]:
        here = field(x)
        self.refuse_parts(here, drift=NOT_SMOOTH, diffusion=NOT_SMOOTH)
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        if here.log_rates is not None:
            inflow, outflow = self._edges(field, x)
            around = q(self.neighbours(x)).reshape(inflow.shape)
            total = total + sum_coordinates(inflow.exp() * around - outflow.exp() * rows_like(q(x), outflow))
        return total if here.jumps is None else total + kernel_adjoint(here.jumps, q, x)

    def reverse(self, field: Field, log_q: Function, x: Tensor) -> Local:
        here, log_rates = field(x), None
        self.refuse_parts(here, drift=NOT_SMOOTH, diffusion=NOT_SMOOTH)
        if here.log_rates is not None:
            into, _ = self._edges(field, x)
            around = log_q(self.neighbours(x)).reshape(into.shape)
            log_rates = self.away(into + (around - rows_like(log_q(x), into)).clamp(-1e20, 1e20), x)
        return Local(log_rates=log_rates, jumps=None if here.jumps is None else ReversedJumps(here.jumps, log_q))

    def backward(self, field: Field, slope: Tensor, x: Tensor) -> Local:
        """Rates R(x, y) exp(slope_y), the slope log q(y) - log q(x)."""
        here = field(x)
        self.refuse_parts(here, drift=NOT_SMOOTH, diffusion=NOT_SMOOTH, jumps="a slope says nothing of far places")
        into, _ = self._edges(field, x)
        return Local(log_rates=self.away((into + slope.clamp(-1e20, 1e20)).clamp_min(LOG_ZERO), x))

    def slope_shape(self, x: Tensor) -> tuple[int, ...]:
        return (*x.shape, self.destinations(flat(x)).shape[-1])

    def tilt(self, local: Local, log_h: Function, x: Tensor) -> Local:
        """Rates R(y, x) h(y)/h(x)."""
        self.refuse_parts(local, drift=NOT_SMOOTH, diffusion=NOT_SMOOTH)
        log_rates = local.log_rates
        if log_rates is not None:
            change = log_h(self.neighbours(x)).reshape(log_rates.shape) - rows_like(log_h(x), log_rates)
            log_rates = self.away((log_rates + change.clamp(-1e20, 1e20)).clamp_min(LOG_ZERO), x)
        return Local(log_rates=log_rates, jumps=None if local.jumps is None else TiltedJumps(local.jumps, log_h))

    def away(self, log_rates: Tensor, x: Tensor) -> Tensor:
        """The rates without those of jumps to x itself, where x is among its own destinations."""
        return log_rates

    def divergence(self, true: Local, model: Local, x: Tensor) -> Float[Tensor, "batch"]:
        for local in (true, model):
            self.refuse_parts(local, drift=NOT_SMOOTH, diffusion=NOT_SMOOTH)
        parts = []
        if true.log_rates is not None or model.log_rates is not None:
            like = next(r for r in (true.log_rates, model.log_rates) if r is not None)
            log_true, log_model = (
                torch.full_like(like, LOG_ZERO) if r is None else r for r in (true.log_rates, model.log_rates)
            )
            parts.append(finite_or_inf(sum_coordinates(jump_divergence(log_true, log_model)), 1e20))
        if true.jumps is not None or model.jumps is not None:
            parts.append(kernel_divergence(true.jumps, model.jumps, x))
        if not parts:
            return torch.zeros(len(x), dtype=torch.float64, device=x.device)
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]

    def coordinate(self, local: Local, x: Tensor, k: int | None) -> Local:
        self.refuse_parts(local, jumps="a jump to anywhere moves all coordinates at once")
        value = self._rates(local)
        flat = value.reshape(len(value), -1, value.shape[-1])
        mask = torch.arange(flat.shape[1], device=flat.device) == (-1 if k is None else k)
        return Local(log_rates=torch.where(mask.unsqueeze(-1), flat, LOG_ZERO).reshape(value.shape))
