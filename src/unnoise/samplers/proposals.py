"""Steps that can be weighed: how a particle moves, and the density of that move under each model and backwards.

From x at time t to y at s < t, with models p_i, exponents g_i of sum S, a proposal K and the forward process q, the weight
that turns K into the path law of  prod_i p_i^{g_i}  is

    prod_i p_i(y | x)^{g_i}  q(x | y)^{1 - S} / K(y | x),

since p_{i,s}(y) / p_{i,t}(x) = p_i(y | x) / q(x | y) for a model whose kernels reverse q.  It holds on any space that knows
the densities of its steps: in small steps it tends to the weights that are written with rates (scores) and integrals over
time, and unlike those it is exact for the discretised model.

    KernelSteps       the models' own kernels (`Ancestral`)
    GeneratorSteps    Euler's rule (`FromGenerator`), whose small steps have densities on every space
    MethodSteps       any method that says the law of its steps (`OneStep.step_law`): DDIM, EulerMaruyama, Psi, Remasking
    OwnSteps          any other method with one call a step, several-step ones with what they remember: nothing is weighed
                      but the factor, so that the target is a single model, and leads nowhere on the way
    Reveals           masking, one coordinate at a time in a random order: K, p_i and q share the order, so that only the
                      laws of the token count, prod_i p_i(v)^{g_i} / K(v), whatever S is

Which path law is that of a single model, S = 1, a factor apart?  That of the method itself: p is then its step by the
model's prediction and K the same by that which is led, q is not asked, and the law at the end is the sampler's own times the
factor.  With several models p_i are their own kernels, as the formula needs steps that q reverses, and a method only
proposes: it must reach all that these do, and where it goes beyond (masking again what they never would) the weight is 0.

A step to t = 0 on numbers ends on a point, which has no density: it is that of the models themselves, whatever proposes, and
its weight is 1.  The models are compared down to the last time above 0.

On numbers the variance of a kernel is a choice (`predictions.variance`), and that of q(x_s | x_t, x_0) is short of the exact
kernel's by the share (sigma_{t|s}/sigma_t)^2 or so, which does not shrink in the last steps of an even grid.  Where S = 1 it
cancels between the models; where it is not, as in p^beta, the constant of the law stays off however many steps there are,
and with `OptimalVariance` it does not.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.generators.path_estimates import step_law
from unnoise.laws import Joint, Law, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.samplers.ancestral import Ancestral
from unnoise.samplers.base import OneStep, Sampler
from unnoise.samplers.generic import FromGenerator
from unnoise.samplers.known_path import KnownPath
from unnoise.samplers.problem import Problem
from unnoise.samplers.reveal import FirstHitting, levels, masking_of, reveal_logits
from unnoise.samplers.state import Memory, State
from unnoise.samplers.weighed import Said
from unnoise.shapes import Clock, Float, Int, Tree
from unnoise.tree import batch_size, first_leaf


@dataclass(frozen=True)
class Move:
    """Where a step leads, and the logarithm of its weight."""

    x: Tree
    log_weight: Float[Tensor, "batch"]
    memory: Any = None  # of the method, where it has changed


def log_density(process: Process, law: Any, x: Any, s: float, where: Any = None) -> Float[Tensor, "batch"]:
    """log of a step's density at x; 0 where a step to s ends on points.  `where`: of these coordinates alone."""
    if process.leaves:
        chosen = dict.fromkeys(process.leaves) if where is None else where
        parts = [log_density(leaf, law.leaves[name], x[name], s, chosen[name]) for name, leaf in process.leaves.items()]
        return torch.stack(parts).sum(0)
    if ends_on_points(process, s):
        return torch.zeros(batch_size(x), dtype=torch.float64, device=x.device)
    if where is None:
        return law.log_prob(x).double()
    each = law.each(x)
    if each is None:
        raise TypeError(f"coordinates of {type(process).__name__} are not drawn apart, so that none of them can be held")
    return sum_coordinates(torch.where(where, each.double(), 0.0))


def ends_on_points(process: Process, s: float) -> bool:
    """Whether a step to s leaves any leaf without a density."""
    if process.leaves:
        return any(ends_on_points(leaf, s) for leaf in process.leaves.values())
    return process.has_density and process.noiseless(s)


def points_of(process: Process, own: Any, law: Any, s: float) -> Any:
    """The law of a step, with the target's own where it ends on points, of which no weight could tell."""
    if not process.leaves:
        return own if ends_on_points(process, s) else law
    return Joint({name: points_of(leaf, own.leaves[name], law.leaves[name], s) for name, leaf in process.leaves.items()})


class Proposal(ABC):
    """One kind of step.  It knows the run and the exponents; what belongs to rows is in `memory`."""

    def __init__(self, problem: Problem, exponents: tuple[float, ...], known: KnownPath | None = None):
        self.problem, self.exponents, self.known = problem, exponents, known
        self.rest = 1 - sum(exponents)
        self.rest = 0.0 if abs(self.rest) < 1e-12 else self.rest
        self.held: tuple[str, ...] = ()  # leaves of a product that stand at time 0

    def init(self, x: Tree) -> Memory | None:
        """What is remembered of the rows before the first step."""
        return None

    @property
    @abstractmethod
    def steps(self) -> int: ...

    @abstractmethod
    def time(self, memory: Any, k: int) -> Clock:
        """When the network is asked in step k: one time, or one per row."""

    @abstractmethod
    def move(self, said: Said, x: Tree, memory: Any, k: int, noise: NoiseSource) -> Move: ...

    def weigh(self, parts: list[Tensor], own: Tensor) -> Float[Tensor, "batch"]:
        """sum_i g_i log p_i - log K; what the proposal cannot draw has no weight."""
        terms = [g * part for g, part in zip(self.exponents, parts, strict=True) if g != 0]
        return torch.stack([*terms, -own]).sum(0)


class GridSteps(Proposal):
    """Along the grid."""

    @property
    def steps(self) -> int:
        return self.problem.steps

    def time(self, memory: Any, k: int) -> Any:
        now = self.problem.clock[k]
        if not self.held:
            return now
        return {name: torch.zeros_like(now) if name in self.held else now for name in self.problem.process.leaves}

    def move(self, said: Said, x: Tree, memory: Any, k: int, noise: NoiseSource) -> Move:
        process, s, known = self.problem.process, float(self.problem.times[k + 1]), self.known
        law = self.law(said.prediction, k)
        if said.own is not said.prediction and ends_on_points(process, s):
            law = points_of(process, self.law(said.own, k), law, s)
        y = law.draw(noise) if known is None else known.put(law.draw(noise), k + 1)
        if len(said.parts) == 1 and self.exponents[0] == 1 and said.parts[0] is said.prediction:
            if known is None:
                return Move(y, torch.zeros(batch_size(y), dtype=torch.float64, device=self.problem.device))
            return Move(y, log_density(process, law, y, s, known.fixed))
        parts = [log_density(process, self.model_law(part, k), y, s) for part in said.parts]
        log_weight = self.weigh(parts, log_density(process, law, y, s, None if known is None else known.open))
        if self.rest:
            log_weight = log_weight + self.rest * log_density(process, self.back(y, k), x, s)
        return Move(y, log_weight)

    @abstractmethod
    def law(self, prediction: Prediction, k: int) -> Law:
        """Of the state after step k, as a prediction has it."""

    def model_law(self, prediction: Prediction, k: int) -> Law:
        """The same of a model that is weighed."""
        return self.law(prediction, k)

    @abstractmethod
    def back(self, y: Tree, k: int) -> Law:
        """Of the state before step k under the forward process."""


class Standing(Law):
    """Of what is held: where it is, and no part of any weight."""

    def __init__(self, x: Tree):
        self.x = x

    def log_prob(self, x: Any) -> Float[Tensor, "batch"]:
        return torch.zeros(batch_size(self.x), dtype=torch.float64, device=first_leaf(self.x).device)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        return self.log_prob(self.x)

    def draw(self, noise: NoiseSource) -> Tree:
        return self.x


class KernelSteps(GridSteps):
    def law(self, prediction: Prediction, k: int) -> Law:
        s = self.problem.clock[k + 1]
        if not self.held:
            return prediction.step(s)
        leaves: dict[str, Any] = prediction.by_leaf().leaves  # type: ignore[attr-defined]
        return Joint({name: Standing(leaf.x_t) if name in self.held else leaf.step(s) for name, leaf in leaves.items()})

    def back(self, y: Any, k: int) -> Law:
        process, s, t = self.problem.process, self.problem.clock[k + 1], self.problem.clock[k]
        if not self.held:
            return process.transition(y, s, t)
        leaves = process.leaves.items()
        return Joint({n: Standing(y[n]) if n in self.held else leaf.transition(y[n], s, t) for n, leaf in leaves})


class GeneratorSteps(GridSteps):
    def law(self, prediction: Prediction, k: int) -> Law:
        return step_law(self.problem.process.state_space, prediction.local(), prediction.x_t, self._span(k))

    def back(self, y: Tree, k: int) -> Law:
        process = self.problem.process
        local = process.local(y, self.problem.clock[k].expand(batch_size(y)))  # the rates of the step's own instant
        return step_law(process.state_space, local, y, self._span(k))

    def _span(self, k: int) -> Tensor:
        return self.problem.clock[k] - self.problem.clock[k + 1]


class MethodSteps(KernelSteps):
    """By the step of a method; that of models where there is one, and their own kernels where there are several."""

    def __init__(self, method: OneStep, problem: Problem, exponents: tuple[float, ...], known: KnownPath | None = None):
        super().__init__(problem, exponents, known)
        self.method, self.stages = method, method.setup(problem)

    def time(self, memory: Any, k: int) -> Clock:
        return self.stages.moments[k][0]

    def move(self, said: Said, x: Tree, memory: Any, k: int, noise: NoiseSource) -> Move:
        if self.problem.process.absorbing and said.prediction is not said.parts[0] and self.exponents == (1.0,):
            raise TypeError(
                f"{type(self.method).__name__} may mask again what it has revealed, and this target never reveals what it "
                f"rules out, though that might be taken back: propose with FirstHitting() or Ancestral()"
            )
        return super().move(said, x, memory, k, noise)

    def law(self, prediction: Prediction, k: int) -> Law:
        return self.method.step_law(self.problem, self.stages.tables, prediction, k)

    def model_law(self, prediction: Prediction, k: int) -> Law:
        return self.law(prediction, k) if self.exponents == (1.0,) else super().law(prediction, k)


class OwnSteps(Proposal):
    """Steps without weights, by any method that asks once a step; what it remembers goes where its particle goes."""

    def __init__(self, method: OneStep, problem: Problem, exponents: tuple[float, ...]):
        super().__init__(problem, exponents)
        self.method, self.stages = method, method.setup(problem)

    @property
    def steps(self) -> int:
        return self.problem.steps

    def init(self, x: Tree) -> Memory | None:
        return self.method.memory(self.problem, self.stages.tables, x)

    def time(self, memory: Any, k: int) -> Clock:
        return self.stages.moments[k][0]

    def move(self, said: Said, x: Tree, memory: Any, k: int, noise: NoiseSource) -> Move:
        if said.prediction is not said.parts[0]:
            raise TypeError(f"{self.method.no_law()}, and this target leads on the way: {REMEDY}")
        state = self.method.before(self.problem, self.stages.tables, State(x, memory), k)
        state = self.method.stage(self.problem, self.stages.tables, said.prediction, state, k, 0, noise)
        log_weight = torch.zeros(batch_size(state.x), dtype=torch.float64, device=self.problem.device)
        return Move(state.x, log_weight, state.memory)


@dataclass(frozen=True)
class RevealOrder(Memory):
    """Of each row: its coordinates in the order of their reveals, and alpha at each."""

    order: Int[Tensor, "batch coordinates"]
    level: Float[Tensor, "batch coordinates"]


class Reveals(Proposal):
    def __init__(self, problem: Problem, exponents: tuple[float, ...], most: int):
        super().__init__(problem, exponents)  # what is known is not masked, and stays
        self.process, self.most = masking_of(problem.process), most
        self.end = self.process.schedule.alpha(problem.times[-1]).to(problem.device)

    @property
    def steps(self) -> int:
        return self.most

    def init(self, x: Tensor) -> RevealOrder:  # type: ignore[override]
        level, order = levels(self.problem, x).reshape(len(x), -1).sort(1)
        return RevealOrder(order, level)

    def time(self, memory: RevealOrder, k: int) -> Clock:
        return self.process.schedule.time_of_alpha(memory.level[:, k].clamp_max(1.0))

    def move(self, said: Said, x: Tensor, memory: RevealOrder, k: int, noise: NoiseSource) -> Move:  # type: ignore[override]
        here, active = memory.order[:, k], memory.level[:, k] < self.end
        flat, row = x.reshape(len(x), -1), torch.arange(len(x), device=x.device)
        index = row * flat.shape[1] + here
        own = reveal_logits(said.prediction, index).double().log_softmax(-1)
        u, total = noise.uniform().unsqueeze(1), own.exp().cumsum(1)
        token = torch.searchsorted(total, u * total[:, -1:], right=True).clamp_max(own.shape[1] - 1)
        parts = [reveal_logits(part, index).double().log_softmax(-1).gather(1, token).squeeze(1) for part in said.parts]
        log_weight = self.weigh(parts, own.gather(1, token).squeeze(1))
        moved = flat.scatter(
            1, here.unsqueeze(1), torch.where(active.unsqueeze(1), token, flat.gather(1, here.unsqueeze(1)))
        )
        return Move(moved.reshape(x.shape), torch.where(active, log_weight, 0.0))


def one_by_one(process: Process) -> bool:
    """Whether coordinates can be revealed one at a time."""
    return process.absorbing and FirstHitting().refuse(process) is None


def refused(method: Sampler | None, process: Process) -> str | None:
    """Why a method does not propose for a process; None where it does."""
    if method is None:
        return None
    if type(method) not in PROPOSALS:
        if not isinstance(method, OneStep) or method.stages != 1 or getattr(method, "twice", False):
            calls = f"{type(method).__name__} does not say the density of its steps, and asks more than once in some of them"
            none = f"{type(method).__name__} does not say the density of its steps, and has none that end at known times"
            return f"{calls if isinstance(method, OneStep) else none}: {REMEDY}"
        return method.refuse(process)
    if getattr(method, "rounds", 1) != 1 or getattr(method, "theta", None) is not None or getattr(method, "stir", None):
        return f"{type(method).__name__} proposes as it is: leave its arguments out"
    return method.refuse(process)


def proposal_of(
    method: Sampler | None, problem: Problem, exponents: tuple[float, ...], x: Tree, known: KnownPath | None = None
) -> Proposal:
    """By a method, or the one that suits the process."""
    process = problem.process
    if method is None:
        method = FirstHitting() if one_by_one(process) else Ancestral()
    if isinstance(method, FirstHitting):
        masked = process.movable(x).reshape(batch_size(x), -1)
        return Reveals(problem, exponents, int(masked.sum(1).max()) if len(masked) else 0)
    if type(method) in PROPOSALS:
        return PROPOSALS[type(method)](problem, exponents, known)
    assert isinstance(method, OneStep)
    if method.no_law() is None:
        return MethodSteps(method, problem, exponents, known)
    if exponents != (1.0,) or known is not None:
        what = "several models, or a power of one, are weighed" if known is None else "what is known is weighed"
        raise TypeError(f"{method.no_law()}, and {what}: {REMEDY}")
    return OwnSteps(method, problem, exponents)


REMEDY = (
    "propose with Ancestral(), FromGenerator(), FirstHitting(), or a method that says the law of its steps, such as Psi()"
)
PROPOSALS: dict[type[Sampler], Any] = {Ancestral: KernelSteps, FromGenerator: GeneratorSteps, FirstHitting: Reveals}
