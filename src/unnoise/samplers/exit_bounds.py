"""Upper bounds on the exit rates of a reverse process, without a network.

A reverse process built from a law theta of x_0 has, with m = Q_t theta, the rates R_t(x, y) m(y)/m(x) in each coordinate.
The ratio is an average over a with weights theta_a q(x | a),

    R_t(x, y) m(y)/m(x) = sum_a w_a R_t(x, y) q(y | a)/q(x | a),        w_a = theta_a q(x | a)/m(x),

so it is one of the rates conditioned on x_0 = a, averaged, for any theta whatever: leave-one-out, raw or plug-in.  (Where
q(x | a) = 0 no y with q(y | a) > 0 leads to x, and a adds nothing.)  Hence the exit rate is at most

    b(x, t) = max_a e(x, t | a),        e(x, t | a) = sum_y R_t(x, y) q(y | a)/q(x | a),

a table of states and times.  For rank-one noise R_t(x, y) = r_t(x) for all y and e = r_t(x) (1 - q(x | a))/q(x | a), where
a matters only as being x or not; not being x is the larger one,

    b(x, t) = r_t(x) (1 - f_t(x))/f_t(x),

and under masking that is the exit rate itself, -alpha'/(1 - alpha) at MASK and 0 elsewhere.

Time is cut into intervals that carry equal shares of the largest bound, over which b is replaced by the largest of its
values on a fine grid (geometric towards both ends of time), raised by 1%.  Whoever uses the table compares each exit rate
that is really met with its bound, and stops where it is exceeded.

The rates grow without end as t -> 0, and as t -> 1 where alpha_1 = 0 and noise goes on forever.  There an exact simulation
stops short, at `low` and `high`, and the model's factorised kernel does the rest.  What that costs in total variation, for
an exact denoiser of any data law:

    end      The kernel and the true reverse process agree wherever no coordinate changes any more.  A coordinate differs
             between 0 and low with probability at most max_a 1 - q(x_low = a | a), under both:  TV <= sum_k of that.
    start    x_1 knows nothing of x_0.  With kappa = sum_x min_a q(x_high = x | a), each coordinate at `high` is, with
             probability kappa, a draw from one law for all a.  The true law and the kernel's have the same coordinates one
             by one, so they differ only where two or more were not such draws:  TV <= (sum_k 1 - kappa_k)^2/2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO, log_of
from unnoise.processes import FiniteProcess, FixedNoise, Mixture, RankOne
from unnoise.processes.dense import TimeScaled
from unnoise.shapes import Float, Int

Bound = Callable[[Tensor, Tensor, Tensor], Tensor]  # (x, t_low, t_high) -> [batch], over the total exit rate

INFINITE = 1e12  # what a rate beyond this counts as
MARGIN = 1.01  # over the largest of them
TOGETHER = 2**21  # numbers formed at once
LARGEST = 2048  # states of a process without rank-one structure: its table costs their cube


@dataclass(frozen=True)
class ExitRule:
    """How the bounds of a family are had; `exit_rule.register` takes those of another."""

    exits: Callable[[FiniteProcess, Tensor, Tensor], Tensor]  # b of some states at some times, [times, states, *shape]
    least: Callable[[FiniteProcess, Tensor, float], Tensor]  # min_a q(x_t = x | a) of some states
    nodes: int  # places per interval at which the bound is evaluated
    cubic: bool  # whether a table costs the cube of the states' number
    alike: bool  # whether all coordinates have the same noise, so that one stands for all


@singledispatch
def exit_rule(process: FiniteProcess) -> ExitRule:
    """Of any process between categories, by its evidence and rates."""
    return ExitRule(_general, _least, nodes=4, cubic=True, alike=False)


@exit_rule.register
def _(process: TimeScaled) -> ExitRule:
    return ExitRule(_general, _least, nodes=4, cubic=True, alike=_alike(process, process.schedule.shape))


@exit_rule.register
def _(process: RankOne) -> ExitRule:
    return ExitRule(_rank_one, _fresh, nodes=8, cubic=False, alike=_alike(process, process.schedule.shape))


@exit_rule.register
def _(process: FixedNoise) -> ExitRule:
    alike = _alike(process, process.schedule.shape, process.noise.shape)
    return ExitRule(_rank_one, _fresh, nodes=8, cubic=False, alike=alike)


@exit_rule.register
def _(process: Mixture) -> ExitRule:
    alike = _alike(process, process.schedule.shape, *[law.shape for law in process.laws])
    return ExitRule(_rank_one, _fresh, nodes=8, cubic=False, alike=alike)


def _alike(process: FiniteProcess, *shapes: tuple[int, ...]) -> bool:
    return process.space.sizes is None and not any(shapes)


def every_state(process: FiniteProcess, device: torch.device) -> Int[Tensor, "states *shape"]:
    """All states, in all coordinates alike or in the one that stands for them."""
    shape = [1] * len(process.space.shape) if exit_rule(process).alike else process.space.shape
    states = process.state_space.size
    return torch.arange(states, device=device).reshape(-1, *[1] * len(shape)).expand(states, *shape)


@singledispatch
def classes(process: FiniteProcess, device: torch.device) -> tuple[Int[Tensor, "classes *shape"], Int[Tensor, "states"]]:
    """States of which one stands for all with the same bound, and the class of each."""
    every = every_state(process, device)
    return every, torch.arange(len(every), device=device)


@classes.register
def _(process: FixedNoise, device: torch.device) -> tuple[Int[Tensor, "classes *shape"], Int[Tensor, "states"]]:
    """Few where p has few values."""
    every = every_state(process, device)
    if not exit_rule(process).alike:
        return every, torch.arange(len(every), device=device)
    values, of = process.noise.log_probs(torch.float64, device).unique(return_inverse=True)
    member = torch.zeros(len(values), dtype=torch.int64, device=device).scatter(0, of, torch.arange(len(of), device=device))
    return every[member], of


def exit_bound(
    process: FiniteProcess, t: Float[Tensor, "times"], states: Int[Tensor, "states *shape"] | None = None
) -> Float[Tensor, "times states coordinates"]:
    """b(x, t) of every state (or of some) and coordinate, or of one coordinate where all have the same noise."""
    size, rule = process.state_space.size, exit_rule(process)
    every = every_state(process, t.device) if states is None else states
    if rule.cubic and size > LARGEST:
        raise ValueError(
            f"{type(process).__name__} has {size} states, and a table of exit rates would take their cube (at most "
            f"{LARGEST}): pass bound=, a function (x, t_low, t_high) that bounds the total exit rate of each row"
        )
    parts = t.split(max(1, TOGETHER // (every.numel() * (size if rule.cubic else 1))))
    return torch.cat([rule.exits(process, every, part) for part in parts]).reshape(len(t), len(every), -1)


def _rank_one(process: Any, every: Tensor, t: Tensor) -> Tensor:
    """1 - f(x) as alpha + the rest of f, which keeps -alpha'/(1 - alpha) of masking finite where alpha = 0."""
    x, clock = every.repeat(len(t), *[1] * (every.ndim - 1)), t.repeat_interleave(len(every))
    keep, renew = process.log_coefficients(x, None, clock, torch.float64)
    fresh, jumps = process.log_fresh_at(x, None, clock, torch.float64), process.log_jumps_at(x, clock, torch.float64)
    others = renew + log_of(-torch.expm1((fresh - renew).clamp_max(0)))
    log_exit = jumps + torch.logaddexp(keep.expand_as(fresh), others) - fresh.clamp_min(LOG_ZERO / 2)
    return torch.where(jumps > LOG_ZERO / 2, log_exit.exp(), 0.0).reshape(len(t), *every.shape)


def _general(process: FiniteProcess, every: Tensor, t: Tensor) -> Tensor:
    x, clock = every.repeat(len(t), *[1] * (every.ndim - 1)), t.repeat_interleave(len(every))
    wide = (len(t), len(every), -1, len(every))
    evidence = process.log_evidence(x, None, clock).exp().reshape(wide)[..., : process.space.size]  # q(x | a)
    rates = process.log_rates_into(x, clock).exp().reshape(wide)
    flow = torch.einsum("nxky,nyka->nxka", rates, evidence).nan_to_num(nan=torch.inf)  # an infinite rate
    exits = torch.where((flow > 0) & (evidence > 0), flow / evidence, 0.0)  # an a that underflowed has no weight
    return exits.amax(-1).reshape(len(t), *every.shape)


def changed(process: FiniteProcess, t: float, device: torch.device) -> float:
    """sum_k max_a 1 - q(x_t^k = a | a)."""
    every = every_state(process, device)[: process.space.size]
    evidence = process.log_evidence(every, None, t).gather(-1, every.unsqueeze(-1)).squeeze(-1)
    change = -torch.expm1(evidence).reshape(len(every), -1)
    valid = process.space.valid(device)
    if valid is not None:
        change = torch.where(valid.reshape(-1, len(every)).T, change, 0.0)
    return _over_coordinates(process, change.amax(0))


def _fresh(process: Any, every: Tensor, t: float) -> Tensor:
    """The least is f(x)."""
    clock = torch.full((len(every),), t, dtype=torch.float64, device=every.device)
    return process.log_fresh_at(every, None, clock, torch.float64).exp()


def _least(process: FiniteProcess, every: Tensor, t: float) -> Tensor:
    return process.log_evidence(every, None, t)[..., : process.space.size].exp().amin(-1)


def remembered(process: FiniteProcess, t: float, device: torch.device) -> float:
    """sum_k 1 - kappa_k, kappa = sum_x min_a q(x_t^k = x | a)."""
    every = every_state(process, device)
    least = exit_rule(process).least(process, every, t)
    return _over_coordinates(process, (1 - least.reshape(len(every), -1).sum(0)).clamp_min(0))


def first_error(process: FiniteProcess, start: float, high: float, device: torch.device) -> float:
    """Of the kernel from the start to `high`, in total variation; nothing is known (1) where x_start still tells of x_0."""
    if remembered(process, start, device) > 1e-9:
        return 1.0
    return min(1.0, remembered(process, high, device) ** 2 / 2)


def _over_coordinates(process: FiniteProcess, each: Tensor) -> float:
    """The sum over all coordinates, of which one may stand for all."""
    return float(each.sum()) * (process.space.dimension if len(each) == 1 else 1)


class ExitBoundTable:
    """Falling borders of time and, over each interval, a bound for every state: `of(x)` is that of each row's exit rate."""

    def __init__(self, process: FiniteProcess, start: float, end: float, intervals: int, device: torch.device):
        nodes = places(start, end, exit_rule(process).nodes * intervals).to(device)
        every, self.classes = classes(process, device)
        parts = nodes.split(max(1, TOGETHER // every.numel()))
        most = torch.cat([exit_bound(process, part, every).amax(1).sum(1) for part in parts])
        share = (0.5 * (most[1:] + most[:-1]) * (nodes[:-1] - nodes[1:])).cpu().cumsum(0)
        level = share[-1] * torch.arange(1, intervals, dtype=torch.float64) / intervals
        inner = torch.searchsorted(share, level).clamp_max(len(share) - 1) + 1
        cuts = torch.cat([torch.tensor([0]), inner, torch.tensor([len(nodes) - 1])]).unique()
        self.borders = nodes[cuts.to(device)]
        pairs = zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
        pieces = [exit_bound(process, nodes[a : b + 1], every).amax(0) for a, b in pairs]
        self.table = MARGIN * torch.stack(pieces)  # [intervals, classes, coordinates or 1]
        self.dimension = process.space.dimension

    def of(self, x: Int[Tensor, "batch *shape"]) -> Float[Tensor, "batch intervals"]:
        flat = self.classes[x.reshape(len(x), -1)]
        if self.table.shape[2] == 1:
            return self.table[:, :, 0].T[flat].sum(1)
        return self.table[:, flat, torch.arange(self.dimension, device=x.device)].sum(-1).T

    def largest(self) -> Float[Tensor, "intervals"]:
        """The same for every state at once."""
        return self.table.amax(1).sum(1) * (self.dimension if self.table.shape[2] == 1 else 1)


class GivenExitBound:
    """The same from a function of the user's."""

    def __init__(self, bound: Bound, start: float, end: float, intervals: int, device: torch.device):
        self.bound, self.borders = bound, places(start, end, intervals).to(device)

    def of(self, x: Int[Tensor, "batch *shape"]) -> Float[Tensor, "batch intervals"]:
        high, low = self.borders[:-1], self.borders[1:]
        rows, n = len(x), len(high)
        value = self.bound(x.repeat_interleave(n, 0), low.repeat(rows), high.repeat(rows))
        if not isinstance(value, Tensor) or tuple(value.shape) != (rows * n,):
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise TypeError(f"bound(x, t_low, t_high) returned {found} for {rows * n} rows: return one number per row")
        value = value.double().reshape(rows, n)
        if not bool(((value >= 0) & (value < INFINITE)).all()):
            row, j = (~((value >= 0) & (value < INFINITE))).nonzero()[0].tolist()
            raise ValueError(
                f"bound(x, {low[j].item():g}, {high[j].item():g}) = {value[row, j].item():g}: a bound is finite and not "
                f"negative; start before t = 1 and end after t = 0, as in start=0.999, end=0.001"
            )
        return value


def places(start: float, end: float, count: int) -> Float[Tensor, "places"]:
    """Falling times from start to end, even in log t/(1 - t): geometric towards 0 and 1."""
    ends = torch.tensor([start, end], dtype=torch.float64)
    high, low = ends.clamp(1e-9, 1 - 1e-9).logit().tolist()
    inner = torch.linspace(high, low, count + 1, dtype=torch.float64).sigmoid()
    return torch.cat([ends[:1], inner[1:-1].clamp(end, start), ends[1:]])
