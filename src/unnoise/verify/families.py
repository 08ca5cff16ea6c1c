"""The library's own families, as they are verified.

`FAMILIES` names a builder per process family.  A family that is registered without an oracle cannot be built, so it fails.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from unnoise import schedules
from unnoise.noise import NoiseSource
from unnoise.oracles import MarkovChain, binomial_mixture
from unnoise.predictions import Transition
from unnoise.processes import (
    BirthDeath,
    BouncyParticle,
    CoxIngersollRoss,
    FiniteProcess,
    Gaussian,
    Interpolation,
    JumpDiffusion,
    Kac,
    Masking,
    MatrixChain,
    Mixture,
    Product,
    RandomisedHamiltonian,
    RateMatrix,
    RotationHeat,
    SphereHeat,
    Superposition,
    Thinning,
    Uniform,
    WrappedNormal,
    WrightFisher,
    ZigZag,
    d3pm,
    noise_laws,
    rate_matrices,
)
from unnoise.verify.flights import kac_subject, refreshed_subject, zigzag_subject
from unnoise.verify.matrix_chains import matrix_chain_subject
from unnoise.verify.subjects import (
    FINITE_KINDS,
    Subject,
    count_subject,
    finite_subject,
    gaussian_subject,
    heat_subject,
    jump_subject,
    orthant_subject,
    product_subject,
    random_law,
    simplex_subject,
    superposition_subject,
    with_energy,
)

# Subjects whose energy is verified as well.  It is by far the slowest kind here, each state of an exact sum being asked for
# with all its neighbours, so a family is represented by a few of its members.
ENERGIES = (
    "Gaussian/Linear",
    "Gaussian/VE",
    "Gaussian/correlated Linear",
    "Masking/Linear",
    "Masking/sizes",
    "Uniform/Linear",
    "Uniform/LinearBeta",
    "Uniform/sizes",
    "Interpolation/uniform+mask",
    "RateMatrix/nearest neighbour",
    "Counts/death",
    "Counts/Thinning×Masking",
    "Angles/VE",
    "Product/Gaussian×Masking",
    "Product/Gaussian×Uniform",
    "Product/nested",
)


def _gaussian() -> Iterator[Subject]:
    for schedule in (
        schedules.Linear(),
        schedules.Cosine(),
        schedules.Polynomial(2.0),
        schedules.LinearBeta(),
        schedules.VE(),
        schedules.EDM(),
        schedules.LogSNRLinear(),
        schedules.SubVP(),
        schedules.Sigmoid(),
        schedules.CosineOffset(),
        schedules.Learned(hidden=4).requires_grad_(False),
    ):
        yield gaussian_subject(Gaussian((1,), schedule), f"Gaussian/{type(schedule).__name__}")
    own = schedules.PerCoordinate([schedules.Linear(), schedules.LinearBeta()])
    yield gaussian_subject(Gaussian((2,), own), "Gaussian/PerCoordinate")
    high, low = torch.tensor([6.0, 9.0]), torch.tensor([-9.0, -6.0])
    learned = Gaussian((2,), schedules.Learned((2,), 4, high, low).requires_grad_(False))
    yield replace(gaussian_subject(learned, "Gaussian/Learned per coordinate"), nodes=64)
    for schedule in (schedules.Cosine(), schedules.Linear()):
        together = Gaussian((2,), schedule, covariance=[[1.0, 0.6], [0.6, 0.8]])
        yield gaussian_subject(together, f"Gaussian/correlated {type(schedule).__name__}")


def _masking() -> Iterator[Subject]:
    for schedule in (
        schedules.Linear(),
        schedules.Cosine(),
        schedules.Polynomial(2.0),
        schedules.CosineOffset(),
        schedules.Sigmoid(),
    ):
        yield finite_subject(Masking(3, (2,), schedule), f"Masking/{type(schedule).__name__}")
    yield finite_subject(Masking([2, 3]), "Masking/sizes")
    own = schedules.PerCoordinate([schedules.Linear(), schedules.Cosine()])
    yield finite_subject(Masking(3, (2,), own), "Masking/PerCoordinate")
    yield _sequence(Masking(3, (3,)), "Masking/sequence")


def _uniform() -> Iterator[Subject]:
    for schedule in (
        schedules.Linear(),
        schedules.Cosine(),
        schedules.LinearBeta(),
        schedules.LogSNRLinear(),
        schedules.Sigmoid(),
    ):
        yield finite_subject(Uniform(3, (2,), schedule), f"Uniform/{type(schedule).__name__}")
    yield finite_subject(Uniform([2, 4]), "Uniform/sizes")
    yield finite_subject(Uniform(4), "Uniform/scalar")
    own = schedules.PerCoordinate([schedules.Linear(), schedules.LinearBeta()])
    yield finite_subject(Uniform(3, (2,), own), "Uniform/PerCoordinate")
    yield _sequence(Uniform(3, (3,)), "Uniform/sequence")


def _interpolation() -> Iterator[Subject]:
    """Any noise law, with and without MASK, for all coordinates or one each."""
    yield finite_subject(Interpolation(3, (2,), torch.tensor([0.5, 0.2, 0.3])), "Interpolation/given")
    yield finite_subject(
        Interpolation(3, (2,), noise_laws.uniform_with_mask(3), schedules.Cosine()), "Interpolation/uniform+mask"
    )
    law = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]])
    yield finite_subject(Interpolation(3, (2,), law), "Interpolation/per coordinate")
    own = Interpolation([2, 3], noise=law, schedule=schedules.PerCoordinate([schedules.Linear(), schedules.Cosine()]))
    yield finite_subject(own, "Interpolation/sizes")
    positive = Interpolation(3, (2,), torch.tensor([0.5, 0.2, 0.2, 0.1]), schedules.LinearBeta())
    yield finite_subject(positive, "Interpolation/LinearBeta")


def _mixture() -> Iterator[Subject]:
    """Noise laws that change with time."""
    yield finite_subject(Mixture.uniform_and_mask(3, (2,), uniform=0.3), "Mixture/uniform+mask", late=2.0)
    yield finite_subject(Mixture.uniform_and_mask(3, (2,), uniform=0.2, gamma=2.0), "Mixture/uniform+mask gamma 2")
    laws = [torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.3, 0.6])]
    moving = Mixture(
        3, (2,), laws=laws, weights=lambda t: torch.stack([1 - 0.8 * t, 0.8 * t], -1), schedule=schedules.Cosine()
    )
    yield finite_subject(moving, "Mixture/overlapping laws")
    own: list[Any] = [torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]), noise_laws.mask(3), noise_laws.uniform(3)]
    three = Mixture(3, (2,), laws=own, weights=lambda t: torch.stack([0.5 - 0.3 * t, 0.2 + 0.3 * t, 0.3 + 0 * t], -1))
    yield finite_subject(three, "Mixture/three laws")


def _rate_matrix() -> Iterator[Subject]:
    """Rate matrices with a time scale: ordered, banded, absorbing, by similarity; reversible or not, sparse or dense."""
    yield finite_subject(RateMatrix(rate_matrices.nearest_neighbour(4), (2,)), "RateMatrix/nearest neighbour")
    law = torch.tensor([0.2, 0.4, 0.3, 0.1])
    yield finite_subject(
        RateMatrix(rate_matrices.discretised_gaussian(4, 1.5, law), (2,)), "RateMatrix/discretised Gaussian"
    )
    absorbing = RateMatrix(rate_matrices.with_mask(rate_matrices.banded(3, 1)), (2,), schedules.Cosine(), size=3)
    yield finite_subject(absorbing, "RateMatrix/banded and absorbing")
    points = NoiseSource(6, 4).normal((3,))
    sparse = RateMatrix(rate_matrices.similarity(points, 2, 1.0, sparse=True), (2,), schedules.LinearBeta(1.0, 5.0))
    yield finite_subject(sparse, "RateMatrix/similarity, sparse")
    cycle = torch.eye(3).roll(1, 0) + 0.2 * torch.rand(3, 3, generator=torch.Generator().manual_seed(0))
    own = schedules.PerCoordinate([schedules.Linear(), schedules.LinearBeta()])
    yield finite_subject(RateMatrix(cycle.fill_diagonal_(0), (2,), own), "RateMatrix/cycle")
    yield finite_subject(
        RateMatrix(rate_matrices.banded(4, 2), (2,), schedules.LinearBeta(), method="eigen"), "RateMatrix/eigen"
    )


def _bounded_counts() -> Iterator[Subject]:
    """Counts on {0, ..., N}."""
    yield finite_subject(BirthDeath(3, (2,), occupancy=0.0), "BirthDeath/pure death")
    yield finite_subject(BirthDeath(3, (2,), schedules.Cosine(), occupancy=0.4), "BirthDeath/Cosine")
    yield finite_subject(BirthDeath(4, (), schedules.LinearBeta(), occupancy=0.3), "BirthDeath/LinearBeta")


def _matrix_chain() -> Iterator[Subject]:
    """Chains by matrices, which have no generator."""
    betas = torch.linspace(0.02, 0.6, 8, dtype=torch.float64)
    for name, steps, size in (
        ("uniform", d3pm.uniform(3, betas), 3),
        ("absorbing", d3pm.absorbing(3, [1 / (8 - i) for i in range(8)]), 3),
        ("Gaussian", d3pm.gaussian(4, betas), 4),
        ("banded", d3pm.banded(4, betas, 1), 4),
    ):
        yield matrix_chain_subject(MatrixChain(steps, (1,), size), f"MatrixChain/{name}")
    weights = NoiseSource(12, 5).uniform((3, 3)) + torch.eye(3, dtype=torch.float64)
    yield matrix_chain_subject(MatrixChain(weights / weights.sum(1, keepdim=True), (2,)), "MatrixChain/arbitrary")


def _sequence(process: FiniteProcess, name: str) -> Subject:
    """A Markov chain along the sequence: posteriors by forward-backward rather than by enumeration."""
    size = process.space.size
    columns = torch.stack([random_law(size, seed) for seed in range(10, 10 + size)], 1)
    oracle = MarkovChain(process, random_law(size, 9), columns)
    points = oracle.draw(NoiseSource(5, 5))
    return Subject(name, process, oracle, FINITE_KINDS, Transition, points, (0.0, 0.1), nodes=48)


def _counts() -> Iterator[Subject]:
    """Counts without end: pure death and immigration, Poisson and binomial data, alone and in products."""
    yield count_subject(Thinning((1,)), "Counts/death")
    yield count_subject(Thinning((1,), schedules.Cosine()), "Counts/death Cosine")
    bounded = Thinning((1,), schedules.Polynomial(2.0))
    probs = torch.tensor([[0.15], [0.5], [0.8]], dtype=torch.float64)
    data = binomial_mixture(bounded, torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), 9, probs)
    yield count_subject(bounded, "Counts/death binomial", data)
    yield count_subject(Thinning((1,), immigration=1.3), "Counts/immigration")
    yield count_subject(Thinning((1,), schedules.LogSNRLinear(), 0.8), "Counts/immigration LogSNRLinear")
    yield count_subject(Thinning((2,)), "Counts/two coordinates")
    own = schedules.PerCoordinate([schedules.Linear(), schedules.Cosine()])
    yield count_subject(Thinning((2,), own), "Counts/PerCoordinate")
    yield product_subject(Product(n=Thinning((1,)), c=Masking(3, (1,))), "Counts/Thinning×Masking")
    arriving = Product(n=Thinning((1,), immigration=0.7), c=Masking(2, (1,)))
    yield product_subject(arriving, "Counts/immigration×Masking")
    yield product_subject(Product(n=Thinning((1,)), y=Gaussian((1,))), "Counts/Thinning×Gaussian")


def _angles() -> Iterator[Subject]:
    """Wrapped normal laws: one angle, two, with schedules of their own, beside categories."""
    yield heat_subject(WrappedNormal(()), "Angles/VE")
    yield heat_subject(WrappedNormal((1,), schedules.EDM(0.02, 5.0, 3.0)), "Angles/EDM")
    own = schedules.PerCoordinate([schedules.VE(0.02, 4.0), schedules.EDM(0.05, 5.0, 2.0)])
    yield heat_subject(WrappedNormal((2,), own), "Angles/PerCoordinate")
    yield product_subject(Product(a=WrappedNormal((1,)), c=Masking(3, (1,))), "Angles/WrappedNormal×Masking")


def _spheres() -> Iterator[Subject]:
    """Heat kernels of the circle in the plane, of the globe, and of unit quaternions."""
    yield heat_subject(SphereHeat(2), "Spheres/globe")
    yield heat_subject(SphereHeat(1, schedules.EDM(0.02, 5.0, 3.0)), "Spheres/circle")
    yield heat_subject(SphereHeat(3), "Spheres/quaternions")


def _finite_speed() -> Iterator[Subject]:
    """Positions with velocities that flip."""
    yield kac_subject(Kac((1,), speed=2.0, rate=1.5), "FiniteSpeed/Kac")
    yield zigzag_subject(ZigZag((1,)), "FiniteSpeed/ZigZag")
    yield refreshed_subject(RandomisedHamiltonian((1,)), "FiniteSpeed/RandomisedHamiltonian")
    yield refreshed_subject(BouncyParticle((1,)), "FiniteSpeed/BouncyParticle")


def _rotations() -> Iterator[Subject]:
    """The heat kernel of rotations."""
    yield heat_subject(RotationHeat(), "Rotations/VE")
    yield heat_subject(RotationHeat(schedules.EDM(0.02, 3.5, 3.0)), "Rotations/EDM")


def _jumps() -> Iterator[Subject]:
    """Numbers that are noised and thrown."""
    yield jump_subject(JumpDiffusion((1,), schedules.LinearBeta(), jumps=1.0, scale=1.5), "Jumps/LinearBeta")
    yield jump_subject(JumpDiffusion((), schedules.VE(0.02, 3.0), jumps=2.0, scale=1.0), "Jumps/VE")


def _simplex() -> Iterator[Subject]:
    """The Wright-Fisher diffusion: of shares inside, of categories at vertices, beside categories of another kind."""
    yield simplex_subject(WrightFisher([1.5, 2.0], schedules.VE(0.15, 2.2)), "Simplex/two")
    yield simplex_subject(WrightFisher([1.0, 2.5], vertices=True), "Simplex/two vertices")
    yield simplex_subject(WrightFisher([1.0, 1.5, 2.0], schedules.VE(0.3, 2.0), vertices=True), "Simplex/three vertices")
    beside = Product(s=WrightFisher([1.5, 2.0], schedules.VE(0.35, 2.2)), c=Masking(3, (1,)))
    yield product_subject(beside, "Simplex/WrightFisher×Masking")


def _superpositions() -> Iterator[Subject]:
    """Of a diffusion and jumps; at every weight (`verify.superpositions`)."""
    for schedule in (schedules.Cosine(), schedules.VE(0.05, 8.0)):
        yield superposition_subject(Superposition((1,), schedule), f"Superposition/{type(schedule).__name__}")


def _orthant() -> Iterator[Subject]:
    """Cox-Ingersoll-Ross noise of positive numbers."""
    yield orthant_subject(CoxIngersollRoss(()), "Orthant/scalar")
    yield orthant_subject(CoxIngersollRoss((1,), 1.3, 2.0, schedules.VE(0.2, 8.0)), "Orthant/alpha 1.3")


def _product() -> Iterator[Subject]:
    yield product_subject(Product(y=Gaussian((1,)), c=Masking(3, (1,))), "Product/Gaussian×Masking")
    mixed = Product(y=Gaussian((1,), schedules.Linear()), c=Uniform(3, (1,), schedules.LinearBeta()))
    yield product_subject(mixed, "Product/Gaussian×Uniform")
    exploding = Product(y=Gaussian((1,), schedules.VE()), c=Uniform(3, (1,), schedules.Cosine()))
    yield product_subject(exploding, "Product/VE×Cosine")
    nested = Product(a=Uniform(2, (1,)), b=Product(c=Masking(2, (1,)), d=Uniform([2, 3])))
    yield product_subject(nested, "Product/nested")


def _with_energies(build: Callable[[], Iterator[Subject]]) -> Callable[[], Iterator[Subject]]:
    def subjects() -> Iterator[Subject]:
        for subject in build():
            yield with_energy(subject) if subject.name in ENERGIES else subject

    return subjects


_BUILDERS: dict[str, Callable[[], Iterator[Subject]]] = {
    "gaussian": _gaussian,
    "masking": _masking,
    "uniform": _uniform,
    "interpolation": _interpolation,
    "mixture": _mixture,
    "rate_matrix": _rate_matrix,
    "bounded_counts": _bounded_counts,
    "matrix_chain": _matrix_chain,
    "counts": _counts,
    "angles": _angles,
    "spheres": _spheres,
    "finite_speed": _finite_speed,
    "rotations": _rotations,
    "jumps": _jumps,
    "simplex": _simplex,
    "superpositions": _superpositions,
    "orthant": _orthant,
    "product": _product,
}
FAMILIES = {name: _with_energies(build) for name, build in _BUILDERS.items()}
