"""Dormand-Prince 5(4) with a time, a step size and a controller of its own for every row.

    k_i = F(y + h sum_{j<i} a_ij k_j, t + c_i h),    y_new = y + h sum_i b_i k_i,    delta = h sum_i e_i k_i

`delta` is the difference of the fifth order from the embedded fourth: the local error of the latter, and too large for the
former, which is kept.  k_7 is the slope at y_new, so that a step costs six evaluations.  With the error measured as

    E = max over parts of  rms(delta / (atol + rtol max(|y|, |y_new|)))

a step is kept where E <= 1.  The next is longer by 0.9 E^-0.17 E_last^0.04, within [0.2, 10], and not longer after a
rejection (Hairer, Norsett and Wanner, II.4, whose rule also gives the first step).  The error of the whole way is mostly
a fraction of the tolerance.  In one or two coordinates delta may vanish by chance over a long step: at loose tolerances one
row in hundreds misses by some tens of times.

Rows do not know of each other.  Those that have arrived leave the batch: F is asked for the others alone.  What a row
computes is elementwise, sums over its coordinates are taken in a fixed order of pairs, and the factors of its steps are
rounded to 1/1024, so that the last bit of a power cannot move a step: its result is the same, bit for bit, in any batch,
where F's is.

States stay where they are.  The host reads one pair of counts per attempt: how many rows arrived, and how many failed.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NoReturn

import torch
from torch import Tensor

from unnoise.shapes import Float, Int

Function = Callable[[Tensor, Tensor, Tensor], Tensor]  # (y, t, rows) -> slope, for the rows that are still on the way
Watch = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (y, t, slope, delta) -> local error of a number of interest

NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)  # c_2 ... c_7
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),  # b: the last stage is the step itself
)
DIFFERENCE = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)  # e
SAFETY, SHRINK, GROW, POWER, MEMORY = 0.9, 0.2, 10.0, 0.17, 0.04
FLOOR = 16 * torch.finfo(torch.float64).eps  # of the time: a shorter step does not move it


def row_sum(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch"]:
    """The sum of each row, in an order that depends on its length alone."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        paired = x[:, :half] + x[:, half : 2 * half]
        x = torch.cat([paired, x[:, 2 * half :]], 1) if x.shape[1] % 2 else paired
    return x[:, 0]


def weighted(weights: tuple[float, ...], slopes: list[Tensor]) -> Tensor:
    terms = [weight * slope for weight, slope in zip(weights, slopes, strict=False) if weight]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@dataclass
class SolverState:
    """Where the rows are, and what their controllers remember."""

    y: Float[Tensor, "batch n"]
    t: Float[Tensor, "batch"]
    slope: Float[Tensor, "batch n"]
    step: Tensor  # the length to try next, [batch]
    last: Tensor  # E of the last step that was kept
    held: Tensor  # whether the last attempt was rejected
    error: Tensor  # the sum of |local errors| of the watched number over the steps kept

    def of(self, rows: Tensor) -> "SolverState":
        return SolverState(*[getattr(self, field.name)[rows] for field in fields(self)])

    def put(self, rows: Tensor, other: "SolverState") -> None:
        for field in fields(self):
            getattr(self, field.name).index_copy_(0, rows, getattr(other, field.name))


class RungeKutta:
    """Integrates y' = F(y, t) row by row: `state = method.start(y, a)`, then `state = method.to(state, a, b)`.

    `parts` are the sizes of the groups of coordinates whose errors are measured apart.  `watch` says what a local error
    means for some number of interest; it is held below `watch_atol` in every step and summed up in `state.error`.
    """

    def __init__(
        self,
        function: Function,
        rtol: float,
        atol: float,
        parts: tuple[int, ...] | None = None,
        watch: Watch | None = None,
        watch_atol: float | None = None,
        maximum: int = 10_000,
    ):
        if not (rtol >= 0 and atol > 0):
            raise ValueError(f"rtol = {rtol:g}, atol = {atol:g}: tolerances must be positive")
        self.function, self.rtol, self.atol, self.parts = function, rtol, atol, parts
        self.watch, self.watch_atol, self.maximum = watch, watch_atol or atol, maximum
        self.calls = 0

    def start(self, y: Float[Tensor, "batch n"], at: float, end: float) -> SolverState:
        """The slope at the first time, and the first step on the way to `end`."""
        rows, zero = torch.arange(len(y), device=y.device), torch.zeros(len(y), dtype=torch.float64, device=y.device)
        t, span = zero + at, abs(end - at)
        slope = self._ask(y, t, rows)
        failed = ~slope.isfinite().all(1)
        if bool(failed.any()):
            self._refuse("the function is not finite", rows, failed, t)
        size, speed = self._norm(y, y, y), self._norm(slope, y, y)
        small = (size < 1e-5) | (speed < 1e-5)
        trial = torch.where(small, 1e-6, 0.01 * size / speed).clamp_max(span)
        move = (trial if end > at else -trial).unsqueeze(1)
        bend = self._norm(self._ask(y + move.to(y.dtype) * slope, t + move[:, 0], rows) - slope, y, y) / trial
        bend = torch.maximum(torch.where(bend.isfinite(), bend, 1e10), speed)
        rounded = torch.floor(1024 * (0.01 / bend.clamp_min(1e-15)) ** 0.2 / trial) / 1024  # as a factor of the trial
        step = (trial * rounded.clamp(1 / 1024, 100.0)).clamp_max(span)
        return SolverState(y, t, slope, step, zero + 1e-4, zero > 0, zero.clone())

    @torch.no_grad()
    def to(self, state: SolverState, at: float, end: float) -> SolverState:
        """All rows from one time to another, with the step sizes that they bring along."""
        whole = SolverState(*[getattr(state, field.name).clone() for field in fields(state)])
        active, indices = state, torch.arange(len(state.y), device=state.y.device)
        while len(active.y):
            active, arrived, failed = self._attempt(active, indices, at, end)
            finished, broken = torch.stack([arrived.sum(), failed.sum()]).tolist()
            if broken:
                self._refuse("the step size fell to nothing", indices, failed, active.t)
            if self.calls > self.maximum and finished < len(indices):
                self._refuse(f"{self.maximum} evaluations were not enough", indices, ~arrived, active.t)
            if finished:
                whole.put(indices, active)
                rows = torch.argsort(arrived.to(torch.uint8), stable=True)[: len(indices) - finished]
                active, indices = active.of(rows), indices[rows]
        return whole

    def _attempt(self, s: SolverState, rows: Tensor, at: float, end: float) -> tuple[SolverState, Tensor, Tensor]:
        """One step of every row that is given: kept, or shortened."""
        left = (end - s.t).abs()
        last = left <= 1.01 * s.step
        length = torch.where(last, left, s.step)
        h = length if end > at else -length
        t_new = torch.where(last, end, s.t + h)
        move, slopes = h.unsqueeze(1).to(s.y.dtype), [s.slope]
        low, high = min(at, end), max(at, end)
        for node, weights in zip(NODES, STAGES, strict=True):
            y_new = s.y + move * weighted(weights, slopes)
            slopes.append(self._ask(y_new, t_new if node == 1 else (s.t + node * h).clamp(low, high), rows))
        delta = move * weighted(DIFFERENCE, slopes)
        norm, watched = self._norm(delta, s.y, y_new), torch.zeros_like(s.t)
        if self.watch is not None:
            watched = self.watch(y_new, t_new, slopes[-1], delta).abs()
            norm = torch.maximum(norm, watched / self.watch_atol)
        norm = torch.where(norm.isfinite() & slopes[-1].isfinite().all(1), norm, torch.inf)
        kept = norm <= 1
        factor = self._factor(norm, kept, s)
        step = torch.where(kept & last, torch.maximum(s.step, factor * length), factor * length)
        failed = ~kept & (step < FLOOR * torch.maximum(s.t.abs(), t_new.abs()))
        column = kept.unsqueeze(1)
        new = SolverState(
            torch.where(column, y_new, s.y),
            torch.where(kept, t_new, s.t),
            torch.where(column, slopes[-1], s.slope),
            step,
            torch.where(kept, norm.clamp_min(1e-4), s.last),
            ~kept,
            s.error + torch.where(kept, watched, 0.0),
        )
        return new, kept & last, failed

    def _factor(self, norm: Tensor, kept: Tensor, s: SolverState) -> Tensor:
        """By how much the next step is longer."""
        plain = SAFETY * norm.clamp_min(1e-12) ** -POWER
        factor = torch.where(kept, plain * s.last**MEMORY, plain).clamp(SHRINK, GROW)
        return torch.floor(1024 * torch.where(~kept | s.held, factor.clamp_max(1.0), factor)) / 1024

    def _norm(self, delta: Tensor, y: Tensor, y_new: Tensor) -> Float[Tensor, "batch"]:
        squares = (delta / (self.atol + self.rtol * torch.maximum(y.abs(), y_new.abs()))).double().square()
        parts = squares.split(list(self.parts), 1) if self.parts else [squares]
        return torch.stack([row_sum(part) / part.shape[1] for part in parts]).amax(0).sqrt()

    def _ask(self, y: Tensor, t: Tensor, rows: Int[Tensor, "batch"]) -> Tensor:
        self.calls += 1
        return self.function(y, t, rows)

    def _refuse(self, what: str, rows: Tensor, bad: Tensor, t: Tensor) -> NoReturn:
        i = int(bad.nonzero()[0, 0])
        raise ArithmeticError(
            f"row {int(rows[i])}: {what} at t = {float(t[i]):g} (rtol = {self.rtol:g}, atol = {self.atol:g}); check the "
            f"network's values there for this row, loosen the tolerances, or allow more evaluations"
        )
