"""What is verified: a process with its oracle, and the prediction kinds it admits.

`subject_of(process, name)` is open: a process of one's own registers the subject that puts it to `unnoise verify`,

    @subject_of.register
    def _(process: Circle, name: str) -> Subject: ...

and its leaf in products, where it has one, by `leaf_oracle`.
"""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.objectives import Quadrature
from unnoise.oracles import (
    Components,
    Oracle,
    conditional_gaussian,
    mixture,
    poisson_mixture,
    round_mixture,
    table,
)
from unnoise.oracles.leaves import Leaf
from unnoise.predictions import (
    Clean,
    Energy,
    Flow,
    Mean,
    MixturePosterior,
    OrthantScore,
    Posterior,
    Remaining,
    Score,
    SimplexScore,
    Transition,
    VertexPosterior,
)
from unnoise.processes import (
    Chain,
    CoxIngersollRoss,
    FiniteProcess,
    Gaussian,
    HeatProcess,
    JumpDiffusion,
    Process,
    Product,
    Superposition,
    Thinning,
    WrightFisher,
)
from unnoise.shapes import AnyState, Tree
from unnoise.spaces import Finite
from unnoise.verify.guard import Check
from unnoise.verify.leaf_oracles import (
    CONTINUOUS_KINDS,
    COUNT_KINDS,
    FINITE_KINDS,
    HEAT_KINDS,
    JUMP_KINDS,
    cloud_leaf,
    count_rates,
    heat_leaf,
    leaf_oracle,
    mixture_components,
    orthant_leaf,
    simplex_leaf,
)


@dataclass
class Subject:
    """A process with its oracle: what the checks run on."""

    name: str
    process: Process
    oracle: Oracle
    kinds: tuple[Any, ...]  # every prediction that is not tied to a grid (dicts of them on a product)
    grid_kind: Any  # the one that is; None where there is none
    points: AnyState  # data points at which bounds are compared
    cutoffs: tuple[float, ...] = (1e-3, 0.1)
    nodes: int = 64  # of the time quadrature
    late: float | None = None  # its grading towards t = 1; None: as the schedules ask for
    checks: tuple[Check, ...] | None = None  # each makes rows of (subject, networks); None: those of the process's class

    def __post_init__(self) -> None:
        if not isinstance(self.oracle, Oracle):
            raise TypeError(f"{self.name} has no oracle: nothing could be compared, so the process cannot be verified")

    @property
    def quadrature(self) -> Quadrature:
        return Quadrature(self.nodes, late=self.late)


def kind_name(kind: Any) -> str:
    return "+".join(kind_name(part) for part in kind.values()) if isinstance(kind, dict) else kind.__name__


def random_law(count: int, seed: int = 0) -> Tensor:
    """A law with full support on `count` states."""
    weights = NoiseSource(seed, count).at("law").uniform() + 0.1
    return weights / weights.sum()


def finite_subject(process: FiniteProcess, name: str, late: float | None = None) -> Subject:
    """An arbitrary table on the process's space."""
    space = process.space
    if space.count > 200 or process.state_space.count > 2000:
        raise ValueError(
            f"{space} has {space.count} points: verification enumerates the space, so build the process on a small one, "
            f"such as size 3 and shape (2,)"
        )
    oracle = table(process, random_law(space.count))
    clean_start = process.noiseless(0.0)
    cutoffs = (0.0, 1e-3, 0.1) if clean_start else (0.0, 0.1)
    return Subject(name, process, oracle, FINITE_KINDS, Transition, space.states(), cutoffs, late=late)


def gaussian_subject(process: Gaussian, name: str, count: int = 50) -> Subject:
    """A mixture in one or two dimensions."""
    dimension = process.space.dimension
    if dimension > 2:
        raise ValueError(
            f"{process.space}: verification integrates over the space, so build the process on shape (1,) or (2,)"
        )
    weights, means, covariances = mixture_components(dimension)
    oracle = mixture(process, weights, means.reshape(-1, *process.space.shape), covariances)
    points = oracle.draw(NoiseSource(1, count if dimension == 1 else 2))
    cutoffs = (0.0, 0.1) if process.cutoff == 0 else (1e-3, 0.1)
    few = (Clean, Flow) if process.covariance is None else (Clean, Score)  # the score is what a covariance enters
    kinds, nodes = (CONTINUOUS_KINDS, 112) if dimension == 1 else (few, 48)
    return Subject(name, process, oracle, kinds, Mean, points, cutoffs, nodes)


def count_subject(process: Thinning, name: str, oracle: Oracle | None = None) -> Subject:
    """A mixture of Poisson laws (or the oracle given) on one or two counts."""
    shape = process.space.shape
    if process.space.dimension > 2:
        raise ValueError(f"{process.space}: verification sums over the space, so build the process on shape (1,) or (2,)")
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    oracle = oracle or poisson_mixture(process, weights, count_rates(shape))
    points = torch.arange(9).reshape(9, *shape) if process.space.dimension == 1 else Finite(3, shape).states() + 1
    cutoffs = (0.0, 1e-3, 0.1) if process.noiseless(0.0) else (0.0, 0.1)
    kinds = (Remaining, *COUNT_KINDS) if process.pure_death else COUNT_KINDS
    return Subject(name, process, oracle, kinds, None, points, cutoffs, 96)


def heat_subject(process: HeatProcess, name: str) -> Subject:
    """A mixture of three heat kernels on a closed space of one to three dimensions."""
    dimension = process.space.dimension
    if not process.integrable:
        raise ValueError(
            f"{process.space}: verification integrates over the space, so build the process on one or two angles, or on a "
            f"sphere of at most three dimensions"
        )
    oracle = Components(process, torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), heat_leaf(process))
    points = oracle.draw(NoiseSource(1, 20 if dimension == 1 else 2))
    kinds = HEAT_KINDS if dimension == 1 else HEAT_KINDS[:1]
    nodes = {1: 96, 2: 40, 3: 56}[dimension]  # 40 leave 9e-6 of a bound of rotations from the time 0.01 on
    cutoffs = (1e-2, 0.1) if dimension < 3 else (1e-2,)
    return Subject(name, process, oracle, kinds, None, points, cutoffs, nodes)


def jump_subject(process: JumpDiffusion, name: str) -> Subject:
    """A mixture of three normal laws on one number."""
    if process.space.dimension > 1:
        raise ValueError(f"{process.space}: verification integrates over the space, so build the process on one number")
    oracle = Components(process, torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), cloud_leaf(process))
    return Subject(name, process, oracle, JUMP_KINDS, None, oracle.draw(NoiseSource(1, 20)), (1e-2, 0.1), 32)


def simplex_subject(process: WrightFisher, name: str) -> Subject:
    """A mixture of three diffusions inside, or categories at the vertices; of two or three parts."""
    size, weights = process.space.size, torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    if size > 3:
        raise ValueError(f"verification integrates over the space, and {process.space} is too large: use two or three parts")
    cutoffs, times = ((1e-2, 0.1), 48) if size == 2 else ((0.1,), 24)
    if process.vertices:
        oracle = Components(process, random_law(size, 7), simplex_leaf(process))
        return Subject(name, process, oracle, (VertexPosterior,), None, torch.eye(size).double(), cutoffs, times)
    oracle = Components(process, weights, simplex_leaf(process))
    points = oracle.draw(NoiseSource(1, 6 if size == 2 else 2))
    return Subject(name, process, oracle, (SimplexScore,), None, points, cutoffs, times)


def superposition_subject(process: Superposition, name: str) -> Subject:
    """A mixture of three normal laws on one number."""
    if process.space.shape != (1,):
        raise ValueError(f"{process.space}: verification integrates over jumps, so build the process on shape (1,)")
    weights, means, covariances = mixture_components(1)
    oracle = round_mixture(process, weights, means.reshape(-1, 1), covariances.reshape(-1))
    points = oracle.draw(NoiseSource(1, 6))
    return Subject(name, process, oracle, (MixturePosterior,), None, points, (0.1,), 16)


def orthant_subject(process: CoxIngersollRoss, name: str) -> Subject:
    """A mixture of three Cox-Ingersoll-Ross laws of one positive number."""
    if process.space.dimension > 1:
        raise ValueError(f"verification integrates over the space, and {process.space} is too large: use one number")
    oracle = Components(process, torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), orthant_leaf(process))
    return Subject(name, process, oracle, (OrthantScore,), None, oracle.draw(NoiseSource(1, 6)), (1e-2, 0.1), 64)


def product_subject(process: Product, name: str) -> Subject:
    """A conditional Gaussian x categorical law, on a product of one leaf of each kind; else three components."""
    leaves = process.leaves
    holds = {leaf_oracle(leaf).holds: key for key, leaf in leaves.items() if not leaf.leaves}
    if len(leaves) == 2 and set(holds) == {"categories", "numbers"}:
        key, number = holds["categories"], holds["numbers"]
        count, numbers = leaves[key].space.count, leaves[number].space  # type: ignore[attr-defined]
        means = NoiseSource(2, count).at("means").normal((numbers.dimension,))
        spread = 0.3 + NoiseSource(2, count).at("variances").uniform((1,))
        covariances = spread.unsqueeze(-1) * torch.eye(numbers.dimension)
        means = means.reshape(count, *numbers.shape)  # type: ignore[attr-defined]
        oracle = conditional_gaussian(process, random_law(count), means, covariances)
        kinds = tuple({number: c, key: f} for c, f in zip(CONTINUOUS_KINDS, (*FINITE_KINDS, Posterior), strict=True))
        return Subject(
            name, process, oracle, kinds, {number: Mean, key: Transition}, oracle.draw(NoiseSource(3, 6)), (1e-2, 0.1), 80
        )
    oracle, kinds = _mixed_components(process)
    points = oracle.draw(NoiseSource(3, 6))
    return Subject(name, process, oracle, kinds, None, points, (process.cutoff or 1e-3, 0.1), 64)


def _mixed_components(process: Product) -> tuple[Components, tuple[dict, ...]]:
    """A latent-class law on any tree of leaves: three components, independent leaves within each."""

    def build(part: Process, source: NoiseSource) -> Tree[Leaf]:
        if part.leaves:
            return {key: build(leaf, source.at(key)) for key, leaf in part.leaves.items()}
        return leaf_oracle(part).components(source)

    def choose(part: Process, i: int) -> Any:
        if part.leaves:
            return {key: choose(leaf, i) for key, leaf in part.leaves.items()}
        kinds = leaf_oracle(part).kinds
        return kinds[i % len(kinds)]

    oracle = Components(process, mixture_components(1)[0], build(process, NoiseSource(4, 3)))
    return oracle, tuple(choose(process, i) for i in range(4))


def with_energy(subject: Subject) -> Subject:
    """The subject with the energy among its kinds: the one kind that every space admits, at several evaluations a state."""
    return replace(subject, kinds=(*subject.kinds, Energy))


@singledispatch
def subject_of(process: Process, name: str) -> Subject:
    """The subject for any process whose law can be computed; open to registration from outside."""
    raise TypeError(
        f"{type(process).__name__} has no subject: no oracle is known for it.  Write one (a subclass of "
        f"unnoise.oracles.Oracle) and register the subject that holds it, "
        f"unnoise.verify.subject_of.register({type(process).__name__})"
    )


@subject_of.register
def _(process: FiniteProcess, name: str) -> Subject:
    return with_energy(finite_subject(process, name))


@subject_of.register
def _(process: Gaussian, name: str) -> Subject:
    return with_energy(gaussian_subject(process, name))


@subject_of.register
def _(process: Superposition, name: str) -> Subject:
    return superposition_subject(process, name)


@subject_of.register
def _(process: Product, name: str) -> Subject:
    return with_energy(product_subject(process, name))


@subject_of.register
def _(process: Thinning, name: str) -> Subject:
    return with_energy(count_subject(process, name))


@subject_of.register
def _(process: HeatProcess, name: str) -> Subject:
    return with_energy(heat_subject(process, name))


@subject_of.register
def _(process: JumpDiffusion, name: str) -> Subject:
    return jump_subject(process, name)


@subject_of.register
def _(process: WrightFisher, name: str) -> Subject:
    return simplex_subject(process, name)


@subject_of.register
def _(process: CoxIngersollRoss, name: str) -> Subject:
    return orthant_subject(process, name)


@subject_of.register
def _(process: Chain, name: str) -> Subject:
    """A chain is verified as the process that it restricts: its kernels are that process's."""
    return subject_of(process.base, name)
