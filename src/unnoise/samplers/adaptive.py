"""The probability flow, by steps that every sample chooses for itself.

    dx/dt = u(x, t) = alpha' x_0(x, t) + sigma' eps(x, t),                        (eq:reverse-ODE)

the `Flow` form of what the network says, whatever it predicts; on closed spaces u = -1/2 g^2 score, a tangent vector.  Its
solution from noise to data has the marginals of the process where the network is exact.  The integrator is `runge_kutta`:
order 5, a step size per row, and rows that have arrived are not asked for again, so that a hard sample neither slows nor
changes the others.

Where sigma vanishes at the data's end u may be infinite (for `LinearBeta`, sigma' is) or unknown (a clean prediction says
nothing of eps).  There the flow is followed to the process's cutoff, and one step of DDIM goes on from t to s,

    x_s = sigma_s/sigma_t x_t + (alpha_s - alpha_t sigma_s/sigma_t) x_0(x_t, t),

which at s = 0 is the clean prediction.  It is of order 1: exact for data on points, and off by about sigma_t^2/2 times the
score for smooth data, with sigma_t^2 = 2e-8 for `Cosine` and 1e-5 for `LinearBeta`.

Several leaves of numbers are one state, their coordinates side by side.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from unnoise.conditions import Condition, rows_of
from unnoise.denoiser import AnyDenoiser
from unnoise.predictions import ContinuousPrediction, Prediction, ProductPrediction
from unnoise.processes import Process
from unnoise.samplers.base import Sampler
from unnoise.samplers.problem import Problem, on_host
from unnoise.samplers.runge_kutta import RungeKutta
from unnoise.shapes import Float, Int, Tree
from unnoise.tree import batch_size, leaves


@runtime_checkable
class CallRecord(Protocol):
    """A record of what the network was asked."""

    calls: int
    rows: int


def no_flow(process: Process, name: str, path: str = "") -> str | None:
    """Why a process has no probability flow; None where it has."""
    if process.leaves:
        found = [no_flow(leaf, name, f"{path}{key}") for key, leaf in process.leaves.items()]
        return next((why for why in found if why), None)
    if process.has_flow:
        return None
    which = f"leaf '{path}', a {type(process).__name__}," if path else type(process).__name__
    return f"{name} follows the probability flow of numbers under Gaussian noise, which {which} has not"


class FlowField:
    """u as a function of flattened states, times and rows of a batch; counts what the network is asked."""

    def __init__(self, denoiser: AnyDenoiser, like: Tree, ends: tuple[float, ...], condition: Condition, record: CallRecord):
        self.denoiser, self.process = denoiser, denoiser.process.base
        self.like, self.ends, self.condition, self.record = like, ends, condition, record
        self.rows, self.known = batch_size(like), False

    def flat(self, x: Tree) -> Float[Tensor, "batch d"]:
        """The coordinates of all leaves side by side."""
        return torch.cat([leaf.reshape(len(leaf), -1) for leaf in leaves(x)], 1)

    def tree(self, y: Float[Tensor, "batch d"], rounded: bool = True) -> Tree:
        """The leaves of flattened states, in the precision of the states that were given unless told otherwise; where the
        space is closed, its point there (which the flow has the velocity of)."""
        return self.process.state_space.project(_split(self.like, y, rounded)[0])

    def predict(self, x: Tree, t: Float[Tensor, "batch"], rows: Int[Tensor, "batch"]) -> Prediction:
        """What the network says of some rows of the batch, by leaf."""
        condition = rows_of(self.condition, rows)
        self.record.calls += self.denoiser.passes
        self.record.rows += len(rows) * self.denoiser.passes
        prediction = self.denoiser(x, t, **condition).by_leaf()
        if not self.known:
            for leaf in _leaves(prediction):
                if isinstance(leaf, ContinuousPrediction):
                    self._check(leaf)
            self.known = True
        return prediction

    def velocity(self, y: Float[Tensor, "batch d"], t: Float[Tensor, "batch"], rows: Int[Tensor, "batch"]) -> Tensor:
        """u, flattened."""
        leaves = _leaves(self.predict(self.tree(y), t, rows))
        return torch.cat([leaf.flow_velocity().reshape(len(y), -1) for leaf in leaves], 1)

    def each(self, function: Callable[[Process, Tensor, Tensor], Tensor], y: Tensor, other: Tensor) -> Tensor:
        """A function of (leaf's process, its part of y, its part of other), flattened."""
        parts = [leaves(self.tree(value, rounded=False)) for value in (y, other)]
        pairs = zip(_processes(self.process), *parts, strict=True)
        return torch.cat([function(*pair).reshape(len(y), -1) for pair in pairs], 1)

    def _check(self, prediction: ContinuousPrediction) -> None:
        """Whether the velocity is a function of such predictions at both ends of the way."""
        kind = type(prediction)
        if prediction.tied_to_grid:
            raise TypeError(
                f"a {kind.__name__} prediction belongs to the steps of its chain, and the flow is asked between them: "
                f"predict Clean, Noise, Score, Velocity or Flow"
            )
        schedule = on_host(prediction.process.schedule)
        for end in self.ends:
            t = torch.tensor([end], dtype=torch.float64)
            with torch.no_grad():
                (a, b), alpha, sigma = kind.target_coefficients(schedule, t), schedule.alpha(t), schedule.sigma(t)
            determinant = alpha * b - sigma * a
            if not bool((determinant.abs() > 1e-100).all() & determinant.isfinite().all()):
                raise ValueError(
                    f"a {kind.__name__} prediction says nothing of x_0 at t = {end:g}, where alpha = "
                    f"{float(alpha.min()):g}: keep a little away, by start=0.999 in sampling or end=0.999 in a likelihood, "
                    f"or predict Clean, Velocity or Flow"
                )


def _processes(process: Process) -> list[Process]:
    """The leaves of a process that has a flow."""
    if process.leaves:
        return [leaf for part in process.leaves.values() for leaf in _processes(part)]
    return [process]


def _leaves(prediction: Prediction) -> list[Prediction]:
    if isinstance(prediction, ProductPrediction):
        return [leaf for part in prediction.leaves.values() for leaf in _leaves(part)]
    return [prediction.by_leaf()]


def _split(like: Tree, y: Tensor, rounded: bool) -> tuple[Tree, Tensor]:
    """The first columns of y in the shape of `like`, and the rest."""
    if isinstance(like, dict):
        out = {}
        for name, part in like.items():
            out[name], y = _split(part, y, rounded)
        return out, y
    shape = like.shape[1:]
    here = y[:, : shape.numel()].reshape(len(y), *shape)
    return here.to(like.dtype) if rounded else here, y[:, shape.numel() :]


class AdaptiveODE(Sampler):
    """The probability flow by Dormand-Prince 5(4), with a step size per sample that holds the error below the tolerances.

    The grid says where the flow starts and ends.  Every time between is reached by all samples (for trajectories and
    callbacks), each with the step size it had, at the cost of shortened steps: pass `steps=1` unless they are wanted.  Below
    the process's cutoff, where sigma vanishes, a step of DDIM takes the flow's place.
    """

    order = 5
    stages = 6
    draws = False
    differentiable = False  # steps are chosen, and taken back, by looking at values

    def __init__(self, rtol: float = 1e-5, atol: float = 1e-5, maximum: int = 10_000):
        if not (rtol >= 0 and atol > 0):
            raise ValueError(f"rtol = {rtol:g}, atol = {atol:g}: tolerances must be positive")
        self.rtol, self.atol, self.maximum = rtol, atol, maximum

    def refuse(self, process: Process) -> str | None:
        return no_flow(process, type(self).__name__)

    def calls(self, steps: int, process: Process) -> int | None:
        return None  # the samples decide

    @torch.no_grad()
    def run(self, problem: Problem, x: Tree, after) -> Tree:
        times = problem.times.tolist()
        stop = max(times[-1], min(problem.process.cutoff, times[0]))  # where the flow ends
        field = FlowField(problem.denoiser, x, (times[0], stop), problem.condition, problem.info)

        def slope(y: Tensor, t: Tensor, rows: Tensor) -> Tensor:
            finite = y.isfinite().all(1, keepdim=True)  # a trial step may overflow: it is rejected, and not shown around
            return torch.where(finite, field.velocity(torch.where(finite, y, 0.0), t, rows), torch.nan)

        method, now = RungeKutta(slope, self.rtol, self.atol, maximum=self.maximum), times[0]
        state = method.start(field.flat(x), now, stop) if now > stop else None
        for i, then in enumerate(times[1:]):
            if state is not None and now > stop:
                goal = max(then, stop)
                state = method.to(state, now, goal)
                x, now = field.tree(state.y), goal
            if then < now:
                x, now = self._finish(field, x, now, then), then
            after(i, self.told(x))
        return x

    def _finish(self, field: FlowField, x: Tree, t: float, s: float) -> Tree:
        """One step of DDIM."""
        y = field.flat(x)
        clock = torch.full((len(y),), t, dtype=torch.float64, device=y.device)
        leaves = _leaves(field.predict(x, clock, torch.arange(len(y), device=y.device)))
        moved = [leaf.flow_step(torch.full_like(clock, s)).reshape(len(y), -1) for leaf in leaves]
        return field.tree(torch.cat(moved, 1))
