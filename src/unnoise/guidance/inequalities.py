"""Boxes and linear inequalities of numbers, low <= A x_0 <= high: the factor h(x_0) = 1 where they hold and 0 elsewhere.

Looking ahead, x_0 is taken for normal around the prediction's mean m with a variance r^2 (`guidance.ahead`), so that each
entry of A x_0 is, with s_i = r |a_i|.  Said on the way is, with a = (low - A m)/s and b = (high - A m)/s,

    log h_t  =  sum_i log(Phi(b_i) - Phi(a_i)),        its gradient by m  =  A^T [(phi(a) - phi(b)) / (s (Phi(b) - Phi(a)))],

the law of each inequality by itself; entries that hang together are taken apart, which the weights take back.  At the end
they hold or do not: no sample violates them.
"""

from math import log, pi
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import instance_of
from unnoise.guidance.ahead import NormalAhead, SpreadOfTime, not_numbers
from unnoise.guidance.operators import LinearOperator, Shape
from unnoise.processes import Process
from unnoise.shapes import Float, Tree
from unnoise.tree import pick

NEAR = 1e-15  # of two logarithms: closer ones are those of an interval that rounding has closed


class Between(NormalAhead):
    """`Between(low, high)` holds every number, `Between(low, high, operator)` what is measured of them; either side may be
    None, or infinite in some entries.

    low, high   numbers, or tensors that fit A x; of one row
    operator    A, such as `un.guidance.Matrix(a)`; x itself unless given
    leaf        the leaf of a product that it speaks of
    variance    of the data, 1 unless given, or a function of time that says r^2
    """

    def __init__(
        self,
        low: Any = None,
        high: Any = None,
        operator: LinearOperator | None = None,
        leaf: str | tuple[str, ...] | None = None,
        variance: float | SpreadOfTime | None = None,
    ):
        super().__init__(leaf, variance)
        if low is None and high is None:
            raise ValueError("neither low nor high is given: name a side, Between(low=0.0)")
        self.low = torch.as_tensor(-torch.inf if low is None else low).double()
        self.high = torch.as_tensor(torch.inf if high is None else high).double()
        self.operator = (
            None if operator is None else instance_of(operator, LinearOperator, "operator", "un.guidance.Matrix(a)")
        )
        if bool((self.low.isnan() | (self.low == torch.inf)).any() or (self.high.isnan() | (self.high == -torch.inf)).any()):
            raise ValueError("low or high has entries that are no numbers: -inf and inf leave a side open")
        try:
            wrong = (self.low >= self.high).nonzero()
        except RuntimeError:
            raise ValueError(
                f"low has shape {tuple(self.low.shape)} and high {tuple(self.high.shape)}: pass one shape"
            ) from None
        if len(wrong):
            entry = tuple(wrong[0].tolist())
            low, high = (
                float(side.expand(torch.broadcast_shapes(self.low.shape, self.high.shape))[entry]) for side in self._sides
            )
            where = f" in the entry {entry}" if entry else ""
            if low == high:
                raise ValueError(
                    f"low = high = {low:g}{where}: an equality of numbers has no probability: compute one number from the "
                    f"others, or measure it with some noise, un.targets.measured"
                )
            raise ValueError(f"low = {low:g} and high = {high:g}{where}: nothing lies between them")

    @property
    def _sides(self) -> tuple[Tensor, Tensor]:
        return self.low, self.high

    def refuse_leaf(self, process: Process) -> str | None:
        why = not_numbers(process, self.name)
        if why is None:
            expected: Shape = tuple(process.space.shape)  # type: ignore[attr-defined]
            expected = expected if self.operator is None else self.operator.shape(expected)
            for name, side in zip(("low", "high"), self._sides, strict=True):
                if side.ndim > len(expected) or any(
                    n not in (1, m) for n, m in zip(side.shape[::-1], expected[::-1], strict=False)
                ):
                    why = f"{name} has shape {tuple(side.shape)}, and what it bounds has {expected}: pass one that fits"
        return why

    def _of(self, x: Float[Tensor, "batch *shape"]) -> Tensor:
        return x if self.operator is None else self.operator(x)

    def _scale(self, variance: Tensor, seen: Tensor) -> Tensor:
        """s: with the largest variance, where an operator mixes coordinates of several."""
        if self.operator is None:
            return variance.sqrt()
        rows = seen[0].numel()
        basis = torch.eye(rows, dtype=torch.float64, device=seen.device).reshape(rows, *seen.shape[1:])
        length = self.operator.transpose(basis).flatten(1).norm(dim=1).reshape(seen.shape[1:])
        return variance.flatten(1).amax(1).sqrt().reshape(-1, *[1] * (seen.ndim - 1)) * length

    def expected(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        seen = self._of(mean)
        scale = self._scale(variance, seen).clamp_min(1e-12)
        a, b = ((side.to(seen) - seen) / scale for side in self._sides)
        log_p = log_between(a, b)
        slope = ((_log_phi(a) - log_p).exp() - (_log_phi(b) - log_p).exp()) / scale
        return log_p.flatten(1).sum(1), slope if self.operator is None else self.operator.transpose(slope)

    def at_the_end(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"]:
        seen = self._of(pick(x0, self.leaf).double())
        holds = ((seen >= self.low.to(seen)) & (seen <= self.high.to(seen))).flatten(1).all(1)
        return torch.where(holds, 0.0, -torch.inf).double()


def _log_phi(z: Tensor) -> Tensor:
    return -0.5 * z.square() - 0.5 * log(2 * pi)


def log_between(a: Tensor, b: Tensor) -> Tensor:
    """log(Phi(b) - Phi(a)) for a < b, by the tail that both are nearer to."""
    right = a > 0
    low, high = torch.where(right, -b, a), torch.where(right, -a, b)
    log_low, log_high = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
    return log_high + torch.log(-torch.expm1((log_low - log_high).clamp_max(-NEAR)))
