"""The library's own families, as they are verified.

`FAMILIES` names a builder per process family.  A family that is registered without an oracle cannot be built, so it fails.
"""

from collections.abc import Callable, Iterator

import torch

from unnoise import schedules
from unnoise.noise import Noise as NoiseSource
from unnoise.oracles import MarkovChain
from unnoise.predictions import Transition
from unnoise.processes import FiniteProcess, Gaussian, Masking, Product, Uniform
from unnoise.verify.subjects import FINITE_KINDS, Subject, finite_subject, gaussian_subject, product_subject, random_law


def _gaussian() -> Iterator[Subject]:
    for schedule in (
        schedules.Linear(),
        schedules.Cosine(),
        schedules.Polynomial(2.0),
        schedules.LinearBeta(),
        schedules.VE(),
        schedules.EDM(),
        schedules.LogSNRLinear(),
    ):
        yield gaussian_subject(Gaussian((1,), schedule), f"Gaussian/{type(schedule).__name__}")
    own = schedules.PerCoordinate([schedules.Linear(), schedules.LinearBeta()])
    yield gaussian_subject(Gaussian((2,), own), "Gaussian/PerCoordinate")


def _masking() -> Iterator[Subject]:
    for schedule in (schedules.Linear(), schedules.Cosine(), schedules.Polynomial(2.0)):
        yield finite_subject(Masking(3, (2,), schedule), f"Masking/{type(schedule).__name__}")
    yield finite_subject(Masking([2, 3]), "Masking/sizes")
    own = schedules.PerCoordinate([schedules.Linear(), schedules.Cosine()])
    yield finite_subject(Masking(3, (2,), own), "Masking/PerCoordinate")
    yield _sequence(Masking(3, (3,)), "Masking/sequence")


def _uniform() -> Iterator[Subject]:
    for schedule in (schedules.Linear(), schedules.Cosine(), schedules.LinearBeta(), schedules.LogSNRLinear()):
        yield finite_subject(Uniform(3, (2,), schedule), f"Uniform/{type(schedule).__name__}")
    yield finite_subject(Uniform([2, 4]), "Uniform/sizes")
    yield finite_subject(Uniform(4), "Uniform/scalar")
    own = schedules.PerCoordinate([schedules.Linear(), schedules.LinearBeta()])
    yield finite_subject(Uniform(3, (2,), own), "Uniform/PerCoordinate")
    yield _sequence(Uniform(3, (3,)), "Uniform/sequence")


def _sequence(process: FiniteProcess, name: str) -> Subject:
    """A Markov chain along the sequence: posteriors by forward-backward rather than by enumeration."""
    size = process.space.size
    columns = torch.stack([random_law(size, seed) for seed in range(10, 10 + size)], 1)
    oracle = MarkovChain(process, random_law(size, 9), columns)
    points = oracle.draw(NoiseSource(5, 5))
    return Subject(name, process, oracle, FINITE_KINDS, Transition, points, (0.0, 0.1), nodes=48)


def _product() -> Iterator[Subject]:
    yield product_subject(Product(y=Gaussian((1,)), c=Masking(3, (1,))), "Product/Gaussian×Masking")
    mixed = Product(y=Gaussian((1,), schedules.Linear()), c=Uniform(3, (1,), schedules.LinearBeta()))
    yield product_subject(mixed, "Product/Gaussian×Uniform")
    exploding = Product(y=Gaussian((1,), schedules.VE()), c=Uniform(3, (1,), schedules.Cosine()))
    yield product_subject(exploding, "Product/VE×Cosine")
    nested = Product(a=Uniform(2, (1,)), b=Product(c=Masking(2, (1,)), d=Uniform([2, 3])))
    yield product_subject(nested, "Product/nested")


FAMILIES: dict[str, Callable[[], Iterator[Subject]]] = {
    "gaussian": _gaussian,
    "masking": _masking,
    "uniform": _uniform,
    "product": _product,
}
