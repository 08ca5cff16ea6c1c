"""Consistency distillation: what a network says at t is what it says a little nearer to the data.

**Numbers** (Song et al. 2023).  f(x_t, t) is the end at t = 0 of the probability flow through x_t.  A pair lies on one path,

    x_t ~ q(x_t | x_0),      x_s = one step of the teacher's flow from x_t to s = t - delta,
    loss  d(f(x_t, t), f'(x_s, s)),      f' an average of f over past updates,

with f(x, 0) = x.  That is a matter of how the network is read: with velocities, x_0 = c_skip x_t + c_out v for

    c_skip = alpha/(alpha^2 + sigma^2),      c_out = -sigma/(alpha^2 + sigma^2),

which are 1 and 0 at t = 0.  So the student is a `Denoiser` of the same network, whose clean prediction is f.  The only f at
which the loss is 0 is f(., t) = f(., t - delta) o (the teacher's step), down to f(., 0) = x: the composed steps, and the
flow itself if the steps are exact.  d is the squared distance, or sqrt(|.|^2 + c^2) - c with c = 0.00054 sqrt(dimension).
A step is one of DDIM, or of Heun's kind: DDIM again, with the mean of the clean predictions at both ends.

**Categories** (the duality of Sahoo et al. 2025).  z_t and z_s have one and the same noise (`hybrids.common_noise`), and

    loss  sum over coordinates of KL(student's law of x_0 given z_t  ||  teacher's given z_s),

both leave-one-out, without the evidence of the coordinate's own state.  For each z_t the best student is the normalised
geometric mean of the teacher's laws over z_s given z_t, and the loss left is minus the log of its normaliser; it is 0 only
where the teacher says the same at all z_s that go with z_t, as for coordinates that do not depend on each other.  Under
masking, coordinates count that have no value at either time.  The teacher of a round is the student of the last.

With every round delta doubles.  In a product of both kinds of leaves all are at the same two times, on one joint state.
The pairs are those of the Gaussian coupling, and a student of numbers is no denoiser any more: its law has no bound.
"""

from math import sqrt
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.distillation.base import Distillation, frozen, handed_on, part, parts_of, whole_of
from unnoise.hybrids import common_noise
from unnoise.noise import NoiseSource
from unnoise.objectives import Stratified
from unnoise.predictions import ContinuousPrediction, Posterior, Prediction
from unnoise.processes import FixedNoise, Gaussian, Process
from unnoise.shapes import AnyState, Float

SOLVERS, METRICS = ("ddim", "heun"), ("huber", "squared")
DELTA, ROUNDS = {"number": 1 / 32, "category": 1 / 512}, {"number": 1, "category": 5}
HUBER = 0.00054


class Consistency(Distillation):
    """`delta` is the time between the two of a pair in the first round; `averaged` the rate of f'."""

    def __init__(
        self,
        student: AnyDenoiser,
        teacher: AnyDenoiser,
        rounds: int | None = None,
        delta: float | None = None,
        averaged: float = 0.95,
        solver: str = "heun",
        metric: str = "huber",
    ):
        some = "category" if any(isinstance(leaf, FixedNoise) for leaf in parts_of(student.process).values()) else "number"
        super().__init__(student, teacher, ROUNDS[some] if rounds is None else rounds)
        for name, leaf in self.parts.items():
            _check(name, leaf, student)
        self.delta = DELTA[some] if delta is None else delta
        if not 0 < self.delta * 2 ** (self.rounds - 1) <= 1:
            raise ValueError(
                f"delta = {self.delta:g} doubled in {self.rounds} rounds: it lies in (0, 1] in the last one too"
            )
        if not 0 <= averaged < 1:
            raise ValueError(f"averaged = {averaged:g}: a rate lies in [0, 1)")
        for what, value, choice in (("solver", solver, SOLVERS), ("metric", metric, METRICS)):
            if value not in choice:
                raise ValueError(f"{what} = {value!r}: choose from {', '.join(choice)}")
        self.averaged, self.solver, self.metric = averaged, solver, metric
        self.numbers = [name for name, leaf in self.parts.items() if isinstance(leaf, Gaussian)]
        self.categories = [name for name in self.parts if name not in self.numbers]
        self.target = frozen(teacher) if self.numbers else None  # f'
        self.before = frozen(teacher) if self.categories else None  # the student of the last round

    @property
    def gap(self) -> float:
        """The time between the two of a pair, in the present round."""
        return self.delta * 2**self.round

    def _begin(self) -> None:
        if self.before is not None:
            handed_on(self.before, self.denoiser)

    def losses(self, x0, noise: NoiseSource, told: dict[str, Any]) -> Float[Tensor, "batch"]:
        t = Stratified().draw(noise.at("time"), 0.0).clamp(1e-4, self.denoiser.latest)
        s = (t - self.gap).clamp_min(0.0)
        x_t, x_s = self.pair(x0, t, s, noise.at("state"), told)
        student = self.denoiser(x_t, t, **told)
        total = torch.zeros(len(t), dtype=torch.float64, device=t.device)
        if self.target is not None:
            if torch.is_grad_enabled() and self.training:
                self._follow()
            with torch.no_grad():
                ahead = self.target(x_s, s, **told)
            for name in self.numbers:
                total = total + self.distance(part(student, name).clean() - part(ahead, name).clean())
        if self.before is not None:
            with torch.no_grad():
                said = self.before(x_s, s, **told)
            for name in self.categories:
                total = total + divergence(part(student, name), part(said, name))
        return total

    @torch.no_grad()
    def pair(
        self, x0: AnyState, t: Tensor, s: Tensor, noise: NoiseSource, told: dict[str, Any]
    ) -> tuple[AnyState, AnyState]:
        """The states at t and at s."""
        late: dict[str, Tensor] = {}
        early: dict[str, Tensor] = {}
        for name, leaf in self.parts.items():
            own, mine = part(x0, name), noise.at(name)
            if name in self.numbers:
                late[name] = cast(Tensor, leaf.marginal(own, t).draw(mine))
            else:
                late[name], early[name] = common_noise(cast(FixedNoise, leaf), own, (t, s), mine)
        x_t = whole_of(late)
        if not self.numbers:
            return x_t, whole_of(early)
        first = self.teacher(x_t, t, **told)
        early |= {name: part(first, name).flow_step(s) for name in self.numbers}
        if self.solver == "heun":
            second = self.teacher(whole_of(early), s, **told)
            for name in self.numbers:
                leaf, x = cast(Gaussian, self.parts[name]), late[name]
                mean = (part(first, name).clean() + part(second, name).clean()) / 2
                early[name] = ddim(leaf, x, mean, t, s)
        return x_t, whole_of(early)

    def distance(self, error: Tensor) -> Float[Tensor, "batch"]:
        squares = error.double().reshape(len(error), -1).square().sum(1)
        if self.metric == "squared":
            return squares
        c = HUBER * sqrt(error[0].numel())
        return (squares + c * c).sqrt() - c

    @torch.no_grad()
    def _follow(self) -> None:
        """f' moves towards f, as the last update left it."""
        assert self.target is not None
        own, others = dict(self.target.named_parameters()), dict(self.denoiser.named_parameters())
        for name, value in own.items():
            value.lerp_(others[name].detach(), 1 - self.averaged)


def ddim(process: Gaussian, x: Tensor, clean: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """One step of DDIM by a given clean prediction."""
    schedule = process.schedule
    ratio = schedule.sigma(s) / schedule.sigma(t)
    gained = schedule.alpha(s) - ratio * schedule.alpha(t)
    return process.coefficient(ratio, x) * x + process.coefficient(gained, x) * clean


def divergence(student: Prediction, teacher: Prediction) -> Float[Tensor, "batch"]:
    """KL(student || teacher) of the leave-one-out laws of x_0, summed over the coordinates that have no value yet."""
    mine, theirs = student.to(Posterior), teacher.to(Posterior)
    process: Any = mine.process
    open_ = process.movable(mine.x_t) & process.movable(theirs.x_t)
    log_p, log_q = mine.log_theta().double(), theirs.log_theta().double()
    each = (log_p.exp() * (log_p - log_q)).sum(-1)
    return torch.where(open_, each, 0.0).reshape(len(each), -1).sum(1)


def _check(name: str, leaf: Process, student: AnyDenoiser) -> None:
    where = f"leaf {name!r}" if name else "this data"
    if isinstance(leaf, FixedNoise):
        return
    if not isinstance(leaf, Gaussian):
        raise ValueError(
            f"{where} is noised by {type(leaf).__name__}: there are pairs under Gaussian, uniform and masked noise"
        )
    kinds = student.kinds[name] if isinstance(student.kinds, dict) else student.kinds
    if not ends_in_itself(leaf, kinds):
        raise ValueError(
            f"{where}: f(x, 0) = x does not hold by itself for {getattr(kinds, '__name__', kinds)} under {leaf.schedule}: "
            f"train a model that predicts velocities, under a schedule with alpha = 1, sigma = 0 at t = 0 such as cosine"
        )


def ends_in_itself(process: Gaussian, kind: Any) -> bool:
    """Whether x_0 = (b x_t - sigma value)/(alpha b - sigma a) is x_t at t = 0, whatever the value is."""
    if not (isinstance(kind, type) and issubclass(kind, ContinuousPrediction)) or kind.tied_to_grid:
        return False
    if not kind.tells_clean(process):
        return False
    zero = torch.zeros(1, dtype=torch.float64)
    with torch.no_grad():
        schedule = process.schedule
        a, b = kind.target_coefficients(schedule, zero)
        d = schedule.alpha(zero) * b - schedule.sigma(zero) * a
        skip, out = b / d, schedule.sigma(zero) / d
    return bool(((skip - 1).abs() < 1e-12).all()) and bool((out.abs() < 1e-12).all())
