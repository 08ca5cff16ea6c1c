"""The laws that subjects are made of, leaf by leaf, and the prediction kinds of each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from math import prod
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.oracles import (
    CategoricalLeaf,
    CloudLeaf,
    GaussianLeaf,
    HeatLeaf,
    OrthantLeaf,
    PoissonLeaf,
    VertexLeaf,
    WrightFisherLeaf,
)
from unnoise.oracles.leaves import Leaf
from unnoise.predictions import (
    Clean,
    CloudMixture,
    CountRatio,
    Flow,
    Intensity,
    Noise,
    OrthantScore,
    Posterior,
    Rates,
    Ratio,
    RawPosterior,
    Remaining,
    Score,
    SimplexScore,
    TangentScore,
    UnitScore,
    Velocity,
    VertexPosterior,
)
from unnoise.processes import (
    CoxIngersollRoss,
    FiniteProcess,
    Gaussian,
    HeatProcess,
    JumpDiffusion,
    Process,
    Thinning,
    WrightFisher,
)

CONTINUOUS_KINDS = (Clean, Noise, Score, Velocity, Flow)
COUNT_KINDS = (Intensity, CountRatio)  # and Remaining for pure death
HEAT_KINDS = (UnitScore, TangentScore)
JUMP_KINDS = (CloudMixture,)
FINITE_KINDS = (Posterior, RawPosterior, Ratio, Rates)


def mixture_components(dimension: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three Gaussians in general position."""
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    means = torch.tensor([[-1.2, 0.4], [0.3, -0.8], [1.5, 1.0]], dtype=torch.float64)[:, :dimension]
    roots = torch.tensor(
        [[[0.6, 0.0], [0.2, 0.5]], [[0.5, 0.0], [-0.3, 0.7]], [[0.8, 0.0], [0.1, 0.4]]], dtype=torch.float64
    )
    roots = roots[:, :dimension, :dimension]
    return weights, means, roots @ roots.mT


def count_rates(shape: tuple[int, ...]) -> Tensor:
    """Three Poisson rates in general position for each of at most two coordinates."""
    rates = torch.tensor([[0.4, 2.0], [1.5, 0.3], [4.0, 1.2]], dtype=torch.float64)
    return rates[:, : prod(shape)].reshape(3, *shape)


def heat_leaf(process: HeatProcess) -> HeatLeaf:
    """Three heat kernels around points in general position."""
    space, variances = process.space, torch.tensor([0.15, 0.3, 0.08], dtype=torch.float64)
    corners = torch.tensor([[-2.5, 0.4, 0.8], [0.3, 2.8, -0.6], [1.5, -1.0, 0.2]], dtype=torch.float64)
    entries = prod(space.shape)
    if process.integrable and entries > corners.shape[1]:  # wider, as a rule in three dimensions has few nodes for each
        means = process.uniform(torch.zeros(3, *space.shape, dtype=torch.float64)).draw(NoiseSource(7, 3))
        return HeatLeaf(process.law, means, 2 * variances)  # type: ignore[arg-type]
    if entries > corners.shape[1]:
        raise ValueError(f"verification integrates over the space, and {space} is too large: use one or two angles")
    return HeatLeaf(process.law, space.project(corners[:, :entries].reshape(3, *space.shape)), variances)


def cloud_leaf(process: JumpDiffusion) -> CloudLeaf:
    """Three normal laws that are the same in every direction."""
    _, means, covariances = mixture_components(process.space.dimension)
    return CloudLeaf(means.reshape(-1, *process.space.shape), covariances[:, 0, 0])


def simplex_leaf(process: WrightFisher) -> Leaf:
    """Three diffusions from points in general position, or every vertex."""
    size = process.space.size
    if process.vertices:
        return VertexLeaf(size)
    corners = torch.tensor([[6.0, 2.0, 1.0], [2.0, 3.0, 5.0], [1.0, 4.0, 1.0]], dtype=torch.float64)
    if size > corners.shape[1]:
        raise ValueError(f"verification integrates over the space, and {process.space} is too large: use two or three parts")
    ages = torch.tensor([0.1, 0.2, 0.15], dtype=torch.float64)
    return WrightFisherLeaf(process, process.space.project(corners[:, :size]), ages)


def orthant_leaf(process: CoxIngersollRoss) -> OrthantLeaf:
    """Three diffusions from points in general position; of at most two numbers."""
    points = torch.tensor([[0.3, 1.0], [1.5, 4.0], [5.0, 0.4]], dtype=torch.float64)[:, : process.space.dimension]
    points, ages = points.reshape(3, *process.space.shape), torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)
    return OrthantLeaf(process, points, ages)


@dataclass(frozen=True)
class LeafOracle:
    """A leaf's part in the oracle of a product: what it holds, its kinds, and three random components of its law."""

    holds: str
    kinds: tuple[Any, ...]
    components: Callable[[NoiseSource], Leaf]


@singledispatch
def leaf_oracle(process: Process) -> LeafOracle:
    """How a process takes part in a product's oracle; open to registration, like `subject_of`."""
    raise ValueError(
        f"no oracle for the leaf {process}: use finite leaves and Gaussian leaves with one coordinate, or register one, "
        f"unnoise.verify.leaf_oracles.leaf_oracle.register({type(process).__name__})"
    )


@leaf_oracle.register
def _(process: FiniteProcess) -> LeafOracle:
    def components(source: NoiseSource) -> Leaf:
        logits, valid = source.normal((*process.space.shape, process.space.size)), process.space.valid()
        return CategoricalLeaf((logits if valid is None else torch.where(valid, logits, -1e30)).log_softmax(-1))

    return LeafOracle("categories", FINITE_KINDS, components)


@leaf_oracle.register
def _(process: Gaussian) -> LeafOracle:
    _, means, covariances = mixture_components(1)

    def components(source: NoiseSource) -> Leaf:
        if process.space.dimension > 1:
            raise ValueError(f"no oracle for the leaf {process}: use finite leaves and Gaussian leaves with one coordinate")
        return GaussianLeaf(means.reshape(3, *process.space.shape), covariances)

    return LeafOracle("numbers", CONTINUOUS_KINDS, components)


@leaf_oracle.register
def _(process: Thinning) -> LeafOracle:
    kinds = (Remaining, *COUNT_KINDS) if process.pure_death else COUNT_KINDS
    return LeafOracle("counts", kinds[:2], lambda source: PoissonLeaf(count_rates(process.space.shape)))


@leaf_oracle.register
def _(process: HeatProcess) -> LeafOracle:
    return LeafOracle("points", HEAT_KINDS, lambda source: heat_leaf(process))


@leaf_oracle.register
def _(process: JumpDiffusion) -> LeafOracle:
    return LeafOracle("thrown numbers", JUMP_KINDS, lambda source: cloud_leaf(process))


@leaf_oracle.register
def _(process: WrightFisher) -> LeafOracle:
    if process.vertices and process.space.size != 3:
        raise ValueError(f"no oracle for a leaf with the vertices of {process.space}: use three")
    kind = VertexPosterior if process.vertices else SimplexScore
    return LeafOracle("compositions", (kind,), lambda source: simplex_leaf(process))


@leaf_oracle.register
def _(process: CoxIngersollRoss) -> LeafOracle:
    return LeafOracle("positive numbers", (OrthantScore,), lambda source: orthant_leaf(process))
