"""Which kinds a process admits, which it has by default, and what an energy becomes on it.

Each question is an open function of the process's class.  A family of one's own answers by registering, from outside:

    @un.predictions.kinds.default_kind.register(MyProcess)
    def _(process):
        return MyKind

A product answers leaf by leaf, a chain as the process it restricts.
"""

from functools import singledispatch
from typing import Any

from unnoise.predictions.base import Prediction
from unnoise.predictions.clouds import CloudMixture
from unnoise.predictions.continuous import Clean, Flow, Mean, Noise, Score, Velocity
from unnoise.predictions.counts import CountRatio, Intensity, Remaining
from unnoise.predictions.energy import difference_kind
from unnoise.predictions.finite import Posterior, Rates, Ratio, RawPosterior, Transition
from unnoise.predictions.flip_ratios import FlipRatios
from unnoise.predictions.heat import TangentScore, UnitScore
from unnoise.predictions.mixture_posterior import MixturePosterior
from unnoise.predictions.orthant import OrthantScore
from unnoise.predictions.simplex import SimplexScore, VertexPosterior
from unnoise.predictions.slopes import Slopes
from unnoise.predictions.velocity_density import VelocityDensity
from unnoise.processes import (
    Chain,
    CoxIngersollRoss,
    FiniteProcess,
    Gaussian,
    HeatProcess,
    JumpDiffusion,
    Process,
    Product,
    Simulated,
    Superposition,
    Thinning,
    WrightFisher,
)
from unnoise.processes.flips import FlippingVelocity
from unnoise.processes.refreshed import RefreshedVelocity

Kinds = Any  # a prediction type, None for the default, or on a product a dict of these by leaf

__all__ = [
    "Kinds",
    "admitted_kinds",
    "cutoff_of",
    "latest_of",
    "default_kind",
    "difference_kind",
    "every_kind",
    "resolve_kinds",
]


def _unknown(question: str, process: Process) -> TypeError:
    name = type(process).__name__
    return TypeError(
        f"{question} of {name} is not known: write unnoise.predictions.{question}.register({name}), or pass "
        f"predicts=, a kind whose misfit(process) is None"
    )


@singledispatch
def admitted_kinds(process: Process) -> Any:
    """The library's kinds that speak of a process; a dict by leaf on products.  Others say so themselves (`misfit`)."""
    raise _unknown("admitted_kinds", process)


@singledispatch
def default_kind(process: Process) -> Any:
    """What a denoiser predicts unless told otherwise; a dict by leaf on products.

    Velocities of numbers, since they say something of x_0 at all times and are of size one at both ends; leave-one-out
    posteriors of categories, and intensities of counts, since their bound stays finite for any network; on closed spaces
    scores in units of their size, for both reasons.
    """
    raise _unknown("default_kind", process)


def _those_that_fit(process: Process, *kinds: type[Prediction]) -> tuple[type[Prediction], ...]:
    return tuple(kind for kind in kinds if kind.misfit(process) is None)


@admitted_kinds.register(Gaussian)
def _(process: Gaussian) -> Any:
    return _those_that_fit(process, Clean, Noise, Score, Velocity, Flow, Mean)


@admitted_kinds.register(Superposition)
def _(process: Superposition) -> Any:
    return _those_that_fit(process, MixturePosterior)


@default_kind.register(Superposition)
def _(process: Superposition) -> Any:
    return MixturePosterior


@admitted_kinds.register(FiniteProcess)
def _(process: FiniteProcess) -> Any:
    return _those_that_fit(process, Posterior, RawPosterior, Ratio, Rates, Transition)


@admitted_kinds.register(Thinning)
def _(process: Thinning) -> Any:
    return _those_that_fit(process, Remaining, Intensity, CountRatio)


@admitted_kinds.register(Simulated)
def _(process: Simulated) -> Any:
    return _those_that_fit(process, Slopes)


@default_kind.register(Simulated)
def _(process: Simulated) -> Any:
    return Slopes


@admitted_kinds.register(FlippingVelocity)
def _(process: FlippingVelocity) -> Any:
    return _those_that_fit(process, FlipRatios)


@default_kind.register(FlippingVelocity)
def _(process: FlippingVelocity) -> Any:
    return FlipRatios


@admitted_kinds.register(RefreshedVelocity)
def _(process: RefreshedVelocity) -> Any:
    return _those_that_fit(process, VelocityDensity)


@default_kind.register(RefreshedVelocity)
def _(process: RefreshedVelocity) -> Any:
    return VelocityDensity


@admitted_kinds.register(HeatProcess)
def _(process: HeatProcess) -> Any:
    return _those_that_fit(process, UnitScore, TangentScore)


@admitted_kinds.register(JumpDiffusion)
def _(process: JumpDiffusion) -> Any:
    return _those_that_fit(process, CloudMixture)


@default_kind.register(JumpDiffusion)
def _(process: JumpDiffusion) -> Any:
    return CloudMixture


@default_kind.register(Gaussian)
def _(process: Gaussian) -> Any:
    return Velocity


@default_kind.register(FiniteProcess)
def _(process: FiniteProcess) -> Any:
    return Posterior


@default_kind.register(Thinning)
def _(process: Thinning) -> Any:
    return Remaining if process.pure_death else Intensity


@default_kind.register(HeatProcess)
def _(process: HeatProcess) -> Any:
    return UnitScore


@admitted_kinds.register(WrightFisher)
def _(process: WrightFisher) -> Any:
    return _those_that_fit(process, VertexPosterior, SimplexScore)


@default_kind.register(WrightFisher)
def _(process: WrightFisher) -> Any:
    return VertexPosterior if process.vertices else SimplexScore


@admitted_kinds.register(CoxIngersollRoss)
def _(process: CoxIngersollRoss) -> Any:
    return _those_that_fit(process, OrthantScore)


@default_kind.register(CoxIngersollRoss)
def _(process: CoxIngersollRoss) -> Any:
    return OrthantScore


@admitted_kinds.register(Product)
def _(process: Product) -> Any:
    return {name: admitted_kinds(leaf) for name, leaf in process.leaves.items()}


@default_kind.register(Product)
def _(process: Product) -> Any:
    return {name: default_kind(leaf) for name, leaf in process.leaves.items()}


@admitted_kinds.register(Chain)
def _(process: Chain) -> Any:
    return admitted_kinds(process.base)


@default_kind.register(Chain)
def _(process: Chain) -> Any:
    return default_kind(process.base)


def resolve_kinds(process: Process, predicts: Kinds = None) -> Any:
    """The prediction type of every leaf: as named, else the default; refused at once where it does not fit."""
    if isinstance(predicts, type) and issubclass(predicts, Prediction) and predicts.joint:
        return predicts
    process = process.base
    if process.leaves:
        return _by_leaf(process, predicts)
    kind = default_kind(process) if predicts is None else predicts
    known = isinstance(kind, type) and issubclass(kind, Prediction)
    why = kind.misfit(process) if known else f"does not fit {type(process).__name__}"
    if why is not None:
        raise _refuse(kind, process, why)
    return kind


def _by_leaf(process: Process, predicts: Kinds) -> dict[str, Any]:
    names = list(process.leaves)
    if predicts is not None and not isinstance(predicts, dict):
        raise TypeError(f"predicts = {predicts} on a product: pass a dict with a kind for each of {tuple(names)}, or Energy")
    named = predicts or {}
    joint = [name for name, kind in named.items() if isinstance(kind, type) and issubclass(kind, Prediction) and kind.joint]
    if joint:
        raise TypeError(f"predicts names Energy for {joint}, but it is one number for all leaves: pass predicts=Energy")
    unknown = [name for name in named if name not in names]
    if unknown:
        raise ValueError(f"predicts names {unknown}; the leaves are {names}")
    return {name: resolve_kinds(leaf, named.get(name)) for name, leaf in process.leaves.items()}


def _refuse(kind: Any, process: Process, why: str) -> TypeError:
    name = kind.__name__ if isinstance(kind, type) else repr(kind)
    if admitted_kinds.dispatch(type(process)) is admitted_kinds.dispatch(object):
        return _unknown("admitted_kinds", process)
    admitted = [other.__name__ for other in admitted_kinds(process)]
    if not admitted:
        return TypeError(f"predicts = {name} {why}, and no kind is admitted: pass one whose misfit(process) is None")
    *others, last = admitted
    return TypeError(f"predicts = {name} {why}: choose {', '.join(others) + ' or ' if others else ''}{last}")


def kind_at(kinds: Kinds, name: str) -> Any:
    """The kind of one leaf of a product; a joint one is that of every leaf."""
    return kinds[name] if isinstance(kinds, dict) else kinds


def every_kind(kinds: Kinds) -> list[type[Prediction]]:
    """The kinds of all leaves, in order; none where they are not known."""
    if kinds is None:
        return []
    return [kind for part in kinds.values() for kind in every_kind(part)] if isinstance(kinds, dict) else [kinds]


def cutoff_of(process: Process, kinds: Kinds) -> float:
    """The earliest time that the bound of these kinds visits unless told otherwise."""
    if process.grid is not None:
        return process.cutoff
    process = process.base
    if process.leaves:
        parts = [cutoff_of(leaf, kind_at(kinds, name)) for name, leaf in process.leaves.items() if kinds is not None]
        return max([process.cutoff, *parts])
    return process.cutoff if kinds is None else kinds.cutoff(process)


def latest_of(process: Process, kinds: Kinds) -> float:
    """The latest time at which all of these kinds say something of x_0."""
    process = process.base
    if process.leaves:
        return min(latest_of(leaf, kind_at(kinds, name)) for name, leaf in process.leaves.items()) if kinds else 1.0
    return 1.0 if kinds is None else kinds.latest(process)
