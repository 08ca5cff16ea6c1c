"""What is verified: a process with its oracle, and the prediction kinds it admits."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import Noise as NoiseSource
from unnoise.oracles import Components, GaussianLeaf, Oracle, conditional_gaussian, mixture, table
from unnoise.oracles.components import CategoricalLeaf
from unnoise.predictions import (
    Clean,
    Flow,
    Mean,
    Noise,
    Posterior,
    Rates,
    Ratio,
    RawPosterior,
    Score,
    Transition,
    Velocity,
)
from unnoise.processes import FiniteProcess, Gaussian, Process, Product
from unnoise.shapes import Tree
from unnoise.spaces import Finite

CONTINUOUS_KINDS = (Clean, Noise, Score, Velocity, Flow)
FINITE_KINDS = (Posterior, RawPosterior, Ratio, Rates)


@dataclass
class Subject:
    """A process with its oracle: what the checks run on."""

    name: str
    process: Process
    oracle: Oracle
    kinds: tuple[Any, ...]  # every prediction that is not tied to a grid (dicts of them on a product)
    grid_kind: Any  # the one that is
    points: Tree  # data points at which bounds are compared
    cutoffs: tuple[float, ...] = (1e-3, 0.1)
    nodes: int = 64  # of the time quadrature
    extra: dict = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        return isinstance(self.process, FiniteProcess)


def kind_name(kind: Any) -> str:
    return "+".join(kind_name(part) for part in kind.values()) if isinstance(kind, dict) else kind.__name__


def random_law(count: int, seed: int = 0) -> Tensor:
    """A law with full support on `count` states."""
    weights = NoiseSource(seed, count).at("law").uniform() + 0.1
    return weights / weights.sum()


def finite_subject(process: FiniteProcess, name: str) -> Subject:
    """An arbitrary table on the process's space."""
    space = process.space
    assert isinstance(space, Finite)
    if space.count > 200 or process.state_space.count > 2000:
        raise ValueError(
            f"{space} has {space.count} points: verification enumerates the space, so build the process on a small one, "
            f"such as size 3 and shape (2,)"
        )
    oracle = table(process, random_law(space.count))
    clean_start = process.noiseless(0.0)
    cutoffs = (0.0, 1e-3, 0.1) if clean_start else (0.0, 0.1)
    return Subject(name, process, oracle, FINITE_KINDS, Transition, space.states(), cutoffs)


def mixture_components(dimension: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three Gaussians in general position."""
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    means = torch.tensor([[-1.2, 0.4], [0.3, -0.8], [1.5, 1.0]], dtype=torch.float64)[:, :dimension]
    roots = torch.tensor(
        [[[0.6, 0.0], [0.2, 0.5]], [[0.5, 0.0], [-0.3, 0.7]], [[0.8, 0.0], [0.1, 0.4]]], dtype=torch.float64
    )
    roots = roots[:, :dimension, :dimension]
    return weights, means, roots @ roots.mT


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
    kinds, nodes = (CONTINUOUS_KINDS, 112) if dimension == 1 else ((Clean, Flow), 48)
    return Subject(name, process, oracle, kinds, Mean, points, cutoffs, nodes)


def product_subject(process: Product, name: str) -> Subject:
    """A conditional Gaussian x categorical law, on a product of one leaf of each kind (or of finite leaves only)."""
    leaves = process.leaves
    finite = {key: leaf for key, leaf in leaves.items() if isinstance(leaf, FiniteProcess)}
    numbers = {key: leaf for key, leaf in leaves.items() if isinstance(leaf, Gaussian)}
    if len(finite) == 1 and len(numbers) == 1 and len(leaves) == 2:
        ((key, leaf),), ((number, gaussian),) = finite.items(), numbers.items()
        count, dimension = leaf.space.count, gaussian.space.dimension
        means = NoiseSource(2, count).at("means").normal((dimension,))
        covariances = (0.3 + NoiseSource(2, count).at("variances").uniform((1,))).unsqueeze(-1) * torch.eye(dimension)
        means = means.reshape(count, *gaussian.space.shape)
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
    weights, means, covariances = mixture_components(1)

    def build(part: Process, source: NoiseSource) -> Tree:
        if isinstance(part, Product):
            return {key: build(leaf, source.at(key)) for key, leaf in part.leaves.items()}
        if isinstance(part, FiniteProcess):
            logits = source.normal((*part.space.shape, part.space.size))
            valid = part.space.valid()
            return CategoricalLeaf((logits if valid is None else torch.where(valid, logits, -1e30)).log_softmax(-1))
        if isinstance(part, Gaussian) and part.space.dimension == 1:
            return GaussianLeaf(means.reshape(3, *part.space.shape), covariances)
        raise ValueError(f"no oracle for the leaf {part}: use finite leaves and Gaussian leaves with one coordinate")

    def choose(part: Process, i: int) -> Any:
        if isinstance(part, Product):
            return {key: choose(leaf, i) for key, leaf in part.leaves.items()}
        return FINITE_KINDS[i] if isinstance(part, FiniteProcess) else CONTINUOUS_KINDS[i]

    oracle = Components(process, weights, build(process, NoiseSource(4, 3)))
    return oracle, tuple(choose(process, i) for i in range(4))


def subject_of(process: Process, name: str) -> Subject:
    """The subject for any process whose law can be computed; used for a user's own."""
    if isinstance(process, FiniteProcess):
        return finite_subject(process, name)
    if isinstance(process, Gaussian):
        return gaussian_subject(process, name)
    if isinstance(process, Product):
        return product_subject(process, name)
    raise TypeError(
        f"{type(process).__name__} is neither a FiniteProcess, a Gaussian nor a Product: no oracle is known for it"
    )
