"""How to sample unless told: each process's own method and number of steps.

Exactly where that is cheap, else by a good method for the space.  The question is open: a process defined elsewhere answers
by registering,

    @un.samplers.default_sampler.register
    def _(process: MyProcess, steps: int | None = None) -> Plan:
        return Plan(MyMethod(), steps or 100)

and without an answer is drawn by `Ancestral`, which asks for nothing but the process's kernels.  As a leaf of a product it
is drawn by the same method, if that has steps to share, or by another that it registers with `default_leaf_method`.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from unnoise.checks import whole
from unnoise.denoiser import AnyDenoiser
from unnoise.processes import (
    Chain,
    CoxIngersollRoss,
    FiniteSpeed,
    Gaussian,
    JumpDiffusion,
    Masking,
    Process,
    Product,
    RotationHeat,
    Simulated,
    SphereHeat,
    Superposition,
    WrightFisher,
)
from unnoise.samplers.ancestral import Ancestral
from unnoise.samplers.base import OneStep, Sampler
from unnoise.samplers.exponential import DPMSolverPP
from unnoise.samplers.generic import FromGenerator
from unnoise.samplers.masked_leaves import masked_coordinates, other_leaves
from unnoise.samplers.one_by_one import OneByOne
from unnoise.samplers.products import Leaves
from unnoise.samplers.reveal import FirstHitting, Reveal
from unnoise.samplers.thinned_flights import ThinnedFlights

FEW = 64  # masked coordinates that are revealed one by one


@dataclass(frozen=True)
class Plan:
    """A method and how many steps it takes."""

    sampler: Sampler
    steps: int


@singledispatch
def default_sampler(process: Any, steps: int | None = None) -> Plan:
    """The method for a process, and its number of steps; with `steps` the method for so many."""
    if not isinstance(process, Process):
        raise TypeError(
            f"{process!r} is a {type(process).__name__}: a sampler belongs to a process, such as un.Masking(...)"
        )
    return Plan(Ancestral(), _at_least_one(steps) or 256)


@singledispatch
def default_leaf_method(process: Process) -> OneStep:
    """The method of a leaf of a product, which goes by the common steps; open likewise.

    Unless registered it is the leaf's own default method, if that has steps to share (`OneStep`), else `Ancestral`.
    """
    method = default_sampler(process).sampler
    return method if isinstance(method, OneStep) else Ancestral()


@default_leaf_method.register
def _(process: Gaussian) -> OneStep:
    own = default_sampler.dispatch(type(process)) is not default_sampler.dispatch(Gaussian)
    return default_leaf_method.dispatch(Process)(process) if own else DPMSolverPP(2)


@default_leaf_method.register
def _(process: Product) -> OneStep:
    return Ancestral()


@default_sampler.register
def _(process: Simulated, steps: int | None = None) -> Plan:
    return Plan(FromGenerator(), _at_least_one(steps) or process.steps)  # the model's own reverse steps


@default_sampler.register
def _(process: FiniteSpeed, steps: int | None = None) -> Plan:
    return Plan(ThinnedFlights(), _at_least_one(steps) or 1)  # exact in one step


@default_sampler.register
def _(process: Gaussian, steps: int | None = None) -> Plan:
    # of images, in steps enough, the reverse process itself: its noise makes up for what the network gets wrong
    steps = _at_least_one(steps)
    own = len(process.space.shape) > 1 and (steps is None or steps >= 64)
    return Plan(Ancestral(), steps or 128) if own else Plan(DPMSolverPP(2), steps or 64)


@default_sampler.register(SphereHeat)
@default_sampler.register(RotationHeat)
def _(process: SphereHeat | RotationHeat, steps: int | None = None) -> Plan:
    return Plan(FromGenerator(), _at_least_one(steps) or 256)  # along geodesics


@default_sampler.register
def _(process: JumpDiffusion, steps: int | None = None) -> Plan:
    return Plan(FromGenerator(), _at_least_one(steps) or 256)  # its kernels are mixtures of hundreds of normal laws


@default_sampler.register
def _(process: CoxIngersollRoss, steps: int | None = None) -> Plan:
    return Plan(FromGenerator(), _at_least_one(steps) or 256)  # by Gamma laws, which stay positive


@default_sampler.register
def _(process: WrightFisher, steps: int | None = None) -> Plan:
    return Plan(FromGenerator(), _at_least_one(steps) or 256)  # by Dirichlet laws, which stay in the simplex


@default_sampler.register
def _(process: Superposition, steps: int | None = None) -> Plan:
    return Plan(FromGenerator(), _at_least_one(steps) or 256)  # jumps have no kernel over a step


@default_sampler.register
def _(process: Masking, steps: int | None = None) -> Plan:
    steps, length, exact = _at_least_one(steps), process.space.dimension, FirstHitting()
    if steps is None and length <= FEW and exact.refuse(process) is None:
        return Plan(exact, 1)
    return Plan(Reveal(), steps or min(length, 1024))


@default_sampler.register
def _(process: Product, steps: int | None = None) -> Plan:
    steps = _at_least_one(steps)
    methods = {name: default_leaf_method(leaf) for name, leaf in process.leaves.items()}
    masked = {name: methods.pop(name) for name in process.leaves if name not in other_leaves(process)}
    one_by_one = OneByOne(**methods)
    own = any(type(method) is not Ancestral or not method.by_rows for method in masked.values())  # registered for the leaf
    if own or one_by_one.refuse(process) is not None:
        return Plan(Leaves(**methods, **masked), steps or common_steps(process.space.dimension))
    return Plan(one_by_one, steps or _steps_beside_reveals(process, methods))


def common_steps(dimension: int) -> int:
    """Of leaves that step together: two coordinates that jump in one step do so as if independent, so that few may."""
    return min(512, max(64, 32 * dimension))


def _steps_beside_reveals(process: Product, methods: dict[str, OneStep]) -> int:
    """64 for flows of numbers, and as many as in common steps for leaves that jump."""
    leaves = [process.leaves[name] for name, method in methods.items() if method.draws]
    jumping = sum(leaf.space.dimension - masked_coordinates(leaf) for leaf in leaves)
    return common_steps(jumping)


@default_sampler.register
def _(process: Chain, steps: int | None = None) -> Plan:
    """The chain is the model: its own kernels, on its own grid."""
    return Plan(Ancestral(), _at_least_one(steps) or process.steps)


def own_plan(denoiser: AnyDenoiser, steps: int | None = None) -> Plan:
    """How a denoiser is sampled unless told: by the plan that it brings, else by that of its process."""
    own, steps = denoiser.plan, _at_least_one(steps)
    if own is not None:
        return Plan(own.sampler, steps or own.steps)
    plan, name = default_sampler(denoiser.process, steps), type(denoiser.process).__name__
    if not isinstance(plan, Plan):
        raise TypeError(f"the default_sampler of {name} returned {plan!r}: return Plan(method, steps)")
    return plan


def default_steps(process: Process, sampler: Sampler | None = None) -> int:
    """How many steps a method takes that is named, unless told: as many as the default, and where that has none FEW.

    Where the default reveals coordinates one by one, methods that do not take the common steps of leaves.
    """
    plan = default_sampler(process)
    if isinstance(plan.sampler, OneByOne) and not isinstance(sampler, OneByOne):
        return common_steps(process.space.dimension)
    return FEW if isinstance(plan.sampler, FirstHitting) else plan.steps


def _at_least_one(steps: int | None) -> int | None:
    return None if steps is None else whole(steps, "steps")
