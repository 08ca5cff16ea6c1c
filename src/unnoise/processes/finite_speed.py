"""Processes of finite speed: a state (x, v) moves along a known flow, and jumps of the velocity break its way.

    between jumps    d(x, v)/dt = b(x, v), a flow that keeps volumes and is undone by turning v round
    jumps            at rate lambda(x, v), in v alone

Data are positions; velocities are drawn beside them, v_0 ~ q(v_0), and forgotten at the end.  Paths are drawn exactly, from
jump to jump, since the time of the next jump has a closed form; x_t given x_0 has no density in general (it lies on curves),
so the bound is that of the path (`objectives.flight_bound`).

Run backwards in time the state moves along -b, and jumps by lambda~(y, x) p_t(y) = lambda(x, y) p_t(x).  All processes here
have lambda(R z) = lambda(z turned round) for the jump R that leads back, so that where the reverse is lambda(R z) r(z) with
a ratio r <= cap, its jumps are found by *thinning the forward process itself*, run from the state turned round at `cap`
times its rates.  The cap is part of the model: bound and sampler read the same one.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.checks import as_times, whole
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.processes.base import Process
from unnoise.shapes import AnyState, Clock, Float, Int, Tree
from unnoise.spaces import Euclidean
from unnoise.spaces.phase import PhaseSpace

MOST_JUMPS = 100_000  # of one path
LONGEST = 1 / 12  # of the parts of a path over which a bound integrates with one rule, in the time of the process
NO_DENSITY = "x_t given x_0 lies on curves under a process of finite speed and has no density: use the bound of its paths"


@dataclass(frozen=True)
class Flights:
    """Forward paths: piece k of a row begins at times[:, k] in states[:, k]; the jump marks[:, k] ends it, none where -1."""

    times: Float[Tensor, "batch pieces"]  # from 0, and 1 where a row has no such piece
    states: Tensor
    marks: Int[Tensor, "batch pieces"]
    end: Tensor  # at t = 1

    def ends(self) -> Float[Tensor, "batch pieces"]:
        return torch.cat([self.times[:, 1:], torch.ones_like(self.times[:, :1])], 1)


def _checked_cap(cap: float) -> float:
    if not cap >= 1:
        raise ValueError(f"cap = {cap:g}: ratios of densities exceed 1 somewhere, so pass a cap of several")
    return float(cap)


class FiniteSpeed(Process):
    """Base of processes of finite speed; `visits` times of a path in a bound, None for the whole of it."""

    by_paths = True
    space: Euclidean
    state_space: PhaseSpace

    def __init__(
        self,
        shape: int | Sequence[int],
        speed: float | None,
        cap: float,
        visits: int | None,
        prior: Callable[[int], Law] | None,
    ):
        super().__init__()
        self.space = Euclidean(shape)
        self.state_space = PhaseSpace(self.space.shape, speed)
        self.cap = _checked_cap(cap)
        self.visits = None if visits is None else whole(visits, "visits")
        self._prior = prior

    @property
    def longest(self) -> float:
        return LONGEST

    # what a family answers

    @abstractmethod
    def flow(self, z: Tensor, h: Tensor) -> Tensor:
        """The states after a time h (one per row, negative: before) without a jump."""

    @abstractmethod
    def exit_rate(self, z: Tensor) -> Float[Tensor, "batch"]:
        """The rate of all jumps together."""

    @abstractmethod
    def next_jump(self, z: Tensor, noise: NoiseSource, times: float = 1.0) -> tuple[Tensor, Tensor]:
        """The time until the next jump along the flow, and its mark, where rates are so many times as large."""

    @abstractmethod
    def jump(self, z: Tensor, mark: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor:
        """The states after a jump."""

    @abstractmethod
    def trial(self, z: Tensor, noise: NoiseSource) -> tuple[Tensor, Tensor, Tensor]:
        """A jump to look at: the states after it, its mark, and its rate over the chance of being looked at."""

    @abstractmethod
    def start_velocity(self, x0: Tensor, noise: NoiseSource) -> Tensor: ...

    @abstractmethod
    def log_start(self, v: Tensor) -> Float[Tensor, "batch"]:
        """log q(v_0)."""

    @abstractmethod
    def rest(self, rows: int, dtype: torch.dtype | None, device: torch.device | str | None) -> Law:
        """The prior unless told."""

    # what follows

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        return self.rest(rows, dtype, device) if self._prior is None else self._prior(rows)

    def with_prior(self, prior: Callable[[int], Law]) -> "FiniteSpeed":
        """The same process, whose reverse starts from `prior(rows)`."""
        other = copy(self)
        other._prior = prior
        return other

    def with_cap(self, cap: float) -> "FiniteSpeed":
        """The same process, with ratios up to another cap."""
        other = copy(self)
        other.cap = _checked_cap(cap)
        return other

    def started(self, x0: Tensor, noise: NoiseSource) -> Tensor:
        """The data with velocities."""
        return torch.stack([x0, self.start_velocity(x0, noise).to(x0.dtype)], 1)

    def flights(self, x0: Tensor, noise: NoiseSource) -> Flights:
        """A forward path from each row, exactly: from jump to jump."""
        z = self.started(x0, noise.at("velocity"))
        now = torch.zeros(len(z), dtype=torch.float64, device=z.device)
        times, states, marks = [now], [z], []
        for k in range(MOST_JUMPS):
            wait, mark = self.next_jump(z, noise.at("next", k))
            stays = now + wait >= 1
            moved = self.flow(z, torch.where(stays, 1 - now, wait))
            z = torch.where(rows_of(stays, z), moved, self.jump(moved, mark, noise.at("jump", k)))
            marks.append(torch.where(stays, -1, mark))
            now = torch.where(stays, 1.0, now + wait)
            if bool(stays.all()):
                return Flights(torch.stack(times, 1), torch.stack(states, 1), torch.stack(marks, 1), z)
            times.append(now)
            states.append(z)
        raise ValueError(f"a path has more than {MOST_JUMPS} jumps by t = {float(now.min()):g}: lower the rates")

    def at(self, flights: Flights, t: Float[Tensor, "batch"]) -> Tensor:
        """Where the paths are at these times."""
        piece = torch.searchsorted(flights.times, t.unsqueeze(1).contiguous(), right=True).squeeze(1) - 1
        row = torch.arange(len(t), device=t.device)
        return self.flow(flights.states[row, piece], t - flights.times[row, piece])

    def marginal(self, x0: AnyState, t: Clock) -> Law:
        return FlightLaw(self, self.space.check(x0, "x0"), as_times(t, len(x0), x0.device))

    def prior_kl(self, x0: AnyState, t: Clock = 1.0) -> Tensor:
        raise self.unanswered(
            "prior_kl(x0)", "the divergence of q(x_1, v_1 | x_0) from the prior, which is infinite where it has no density"
        )

    def extra_repr(self) -> str:
        return repr(self.state_space)


class FlightLaw(Law):
    """(x_t, v_t) given x_0, by its path."""

    def __init__(self, process: FiniteSpeed, x0: Tensor, t: Float[Tensor, "batch"]):
        self.process, self.x0, self.t = process, x0, t

    def draw(self, noise: NoiseSource) -> Tree:
        return self.process.at(self.process.flights(self.x0, noise), self.t)

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        raise TypeError(NO_DENSITY)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError(NO_DENSITY)


def rows_of(value: Tensor, like: Tensor) -> Tensor:
    """One number per row, shaped to broadcast with an array of states."""
    return value.reshape(-1, *[1] * (like.ndim - 1))
