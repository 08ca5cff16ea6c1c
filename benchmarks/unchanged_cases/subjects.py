"""What the cases run on: a small process of every kind, with data, an oracle and networks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .adapter import made, name
from .leaves import ARRIVALS, CATEGORIES, DEATH, Leaf, category, kinds_of, mapped, number, parts_of, wave
from .networks import Fixed

ROWS = 4


@dataclass(frozen=True, eq=False)
class Subject:
    """A process, and all that is asked of it."""

    name: str
    make: Callable[[], Any]
    leaves: Any  # a Leaf, or a dict of them
    more: tuple[Any, ...] = ()  # kinds that belong to a grid

    @property
    def numbers(self) -> bool:
        return isinstance(self.leaves, Leaf) and not (self.leaves.size or self.leaves.counts)

    @property
    def chain(self) -> bool:
        return "hain" in self.name

    @property
    def wide(self) -> bool:
        """Whether there are so many coordinates that the order of a sum shows, and too many to visit all states."""
        return self.name.endswith("-wide")

    @property
    def kinds(self) -> list[Any]:
        """As many as the leaf with most of them has, a tree of names each."""
        most = max(len(leaf.kinds) for leaf in parts_of(self.leaves))
        return [mapped(lambda leaf, i=i: leaf.kinds[i % len(leaf.kinds)], self.leaves) for i in range(most)] + [*self.more]

    def data(self, rows: int = ROWS) -> Any:
        return mapped(lambda leaf: leaf.data(rows), self.leaves)

    @cache  # noqa: B019 (there are as many as subjects)
    def process(self) -> Any:
        torch.manual_seed(0)
        return self.make()

    def oracle(self, kinds: Any) -> Any:
        weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
        leaves = mapped(Leaf.oracle, self.leaves)
        return made("oracles.Components", self.process(), weights, leaves, kinds_of(kinds))

    def network(self, kinds: Any, dtype: torch.dtype, **options: Any) -> Any:
        pair = options.pop("pair", False)
        network = Fixed(self.leaves, kinds, pair).to(dtype)
        return made("Denoiser", network, self.process(), kinds_of(kinds), **options)

    def denoiser(self, which: str, kinds: Any, **options: Any) -> Any:
        if which == "oracle":
            return self.oracle(kinds)
        return self.network(kinds, torch.float32 if which == "float32" else torch.float64, **options)


def schedule(kind: str, *arguments: Any, **options: Any) -> Any:
    return made(f"schedules.{kind}", *arguments, **options)


def learned(*arguments: Any) -> Any:
    own = schedule("Learned", *arguments, hidden=4).requires_grad_(False)
    for parameter in own.parameters():
        parameter += 0.05 * wave(*parameter.shape).to(parameter.dtype)
    return own


def each(first: str, second: str) -> Any:
    return schedule("PerCoordinate", [schedule(first), schedule(second)])


SCHEDULES: dict[str, Callable[[], Any]] = {
    **{kind: lambda kind=kind: schedule(kind) for kind in ("Linear", "Cosine", "LinearBeta", "VE", "EDM", "LogSNRLinear")},
    **{kind: lambda kind=kind: schedule(kind) for kind in ("SubVP", "Sigmoid", "CosineOffset")},
    "Polynomial": lambda: schedule("Polynomial", 2.0),
    "Learned": learned,
    "Custom": lambda: schedule("Custom", lambda t: 1 - 0.9 * t, lambda t: 0.1 + 0.8 * t),
    "FromSDE": lambda: schedule("FromSDE", lambda t: -0.5 - t, lambda t: 1 + 2 * t),
    "PerCoordinate": lambda: each("Linear", "LinearBeta"),
}


def moving() -> Any:
    laws = [torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.3, 0.6])]
    shares = lambda t: torch.stack([1 - 0.8 * t, 0.8 * t], -1)  # noqa: E731
    return made("Mixture", 3, (2,), laws=laws, weights=shares, schedule=schedule("Cosine"))


def matrices() -> Tensor:
    steps = 1.2 + wave(4, 3, 3, phase=0.7) + 2 * torch.eye(3, dtype=torch.float64)
    return steps / steps.sum(1, keepdim=True)


def rates(
    kind: str, *arguments: Any, shape: tuple[int, ...] = (2,), under: str = "Linear", **options: Any
) -> Callable[[], Any]:
    def make() -> Any:
        matrix = made(f"rates.{kind}", *arguments)
        return made("RateMatrix", matrix, shape, schedule(under), **options)

    return make


def cycle() -> Any:
    rates = (torch.eye(3).roll(1, 0) + 0.2 * (1 + wave(3, 3).float())).fill_diagonal_(0)
    return made("RateMatrix", rates, (2,), each("Linear", "LinearBeta"))


def absorbing() -> Any:
    return made("RateMatrix", made("rates.with_mask", made("rates.banded", 3, 1)), (2,), schedule("Cosine"), size=3)


def sparse() -> Any:
    matrix = made("rates.similarity", wave(4, 3), 2, 1.0, sparse=True)
    return made("RateMatrix", matrix, (2,), schedule("LinearBeta", 1.0, 5.0))


def on(kind: str, *arguments: Any, under: str = "Linear", **options: Any) -> Callable[[], Any]:
    """A process with its schedule named, or two for two coordinates."""

    def make() -> Any:
        own = each(*under.split("+")) if "+" in under else schedule(under)
        return made(kind, *arguments, schedule=own, **options)

    return make


def product(**leaves: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: made("Product", **{key: make() for key, make in leaves.items()})


def chain(make: Callable[[], Any], grid: Any) -> Callable[[], Any]:
    return lambda: made("Chain", make(), grid)


def by_matrices(steps: Callable[[], Tensor], *size: int) -> Callable[[], Any]:
    return lambda: made("MatrixChain", steps(), (2,), *size)


def normal(under: str, shape: tuple[int, ...] = (2,), **options: Any) -> Callable[[], Any]:
    return lambda: made("Gaussian", shape, SCHEDULES[under](), **options)


BETAS = [0.05, 0.2, 0.4, 0.6]
LAW = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]])
PAIR, MASKED, PLAIN, FOUR = number(2), category(3, (2,), 1), category(3, (2,)), category(4, (2,))
KERNELS, ABSORBED = Leaf(CATEGORIES[:2], (2,), 3, 3), Leaf(CATEGORIES[:2], (2,), 3, 4)  # chains by matrices have no rates
MIXED = {"y": number(2), "c": category(3, (2,), 1), "n": Leaf(DEATH, (1,))}
STEP = ("Transition",)
TIED = {"y": "Mean", "c": "Transition", "n": "Remaining"}
mixed = product(y=normal("Cosine"), c=on("Masking", 3, (2,)), n=on("Thinning", (1,)))
nested = product(a=on("Uniform", 2, (1,)), b=product(c=normal("Linear", (1,)), d=moving))
categories = product(a=on("Masking", 2, (1,)), b=on("Uniform", 3, (1,), under="LinearBeta"))

SUBJECTS = [
    *(Subject(f"Gaussian-{kind}", normal(kind), PAIR) for kind in SCHEDULES),
    Subject("Gaussian-scalar", normal("Cosine", (1,)), number(1)),
    Subject("Gaussian-image", normal("Cosine", (2, 2)), number(2, 2)),
    Subject("Gaussian-wide", normal("Cosine", (5,)), number(5)),
    Subject("Gaussian-correlated", normal("Linear", covariance=[[1.0, 0.6], [0.6, 0.8]]), PAIR),
    Subject("Masking-Linear", on("Masking", 3, (3,)), category(3, (3,), 1)),
    Subject("Masking-Cosine", on("Masking", 3, (2,), under="Cosine"), MASKED),
    Subject("Masking-wide", on("Masking", 3, (7,)), category(3, (7,), 1)),
    Subject("Masking-sizes", on("Masking", [2, 3]), category(3, (2,), 1, (2, 3))),
    Subject("Masking-each", on("Masking", 3, (2,), under="Linear+Cosine"), MASKED),
    Subject("Uniform-Linear", on("Uniform", 3, (2,)), PLAIN),
    Subject("Uniform-LinearBeta", on("Uniform", 3, (2,), under="LinearBeta"), PLAIN),
    Subject("Uniform-wide", on("Uniform", 3, (5,)), category(3, (5,))),
    Subject("Uniform-sizes", on("Uniform", [2, 4]), category(4, (2,), 0, (2, 4))),
    Subject("Interpolation-given", on("Interpolation", 3, (2,), LAW[1]), PLAIN),
    Subject("Interpolation-each", on("Interpolation", 3, (2,), LAW, under="Cosine"), PLAIN),
    Subject("Interpolation-mask", lambda: on("Interpolation", 3, (2,), made("noises.uniform_with_mask", 3))(), MASKED),
    Subject("Mixture-mask", lambda: name("Mixture").uniform_and_mask(3, (2,), uniform=0.3, gamma=2.0), MASKED),
    Subject("Mixture-moving", moving, PLAIN),
    Subject("RateMatrix-neighbour", rates("nearest_neighbour", 4), FOUR),
    Subject("RateMatrix-wide", rates("nearest_neighbour", 4, shape=(5,)), category(4, (5,))),
    Subject("RateMatrix-Gaussian", rates("discretised_gaussian", 4, 1.5, torch.tensor([0.2, 0.4, 0.3, 0.1])), FOUR),
    Subject("RateMatrix-eigen", rates("banded", 4, 2, under="LinearBeta", method="eigen"), FOUR),
    Subject("RateMatrix-absorbing", absorbing, MASKED),
    Subject("RateMatrix-sparse", sparse, FOUR),
    Subject("RateMatrix-each", cycle, PLAIN),
    Subject("BirthDeath-death", on("BirthDeath", 3, (2,), occupancy=0.0), FOUR),
    Subject("BirthDeath-Cosine", on("BirthDeath", 3, (2,), under="Cosine", occupancy=0.4), FOUR),
    Subject("Thinning-death", on("Thinning", (2,)), Leaf(DEATH)),
    Subject("Thinning-arrivals", on("Thinning", (2,), immigration=1.3), Leaf(ARRIVALS)),
    Subject("Thinning-wide", on("Thinning", (5,), immigration=0.7), Leaf(ARRIVALS, (5,))),
    Subject("Thinning-each", on("Thinning", (2,), under="Linear+Cosine"), Leaf(DEATH)),
    Subject("Product-mixed", mixed, MIXED),
    Subject("Product-numbers", product(a=normal("Cosine"), b=normal("VE", (1,))), {"a": number(2), "b": number(1)}),
    Subject("Product-nested", nested, {"a": category(2, (1,)), "b": {"c": number(1), "d": PLAIN}}),
    Subject("Product-categories", categories, {"a": category(2, (1,), 1), "b": category(3, (1,))}),
    Subject("Chain-Gaussian", chain(normal("Cosine"), 5), PAIR, ("Mean",)),
    Subject("Chain-VE", chain(normal("VE"), [0.0, 0.2, 0.5, 1.0]), PAIR, ("Mean",)),
    Subject("Chain-Masking", chain(on("Masking", 3, (2,)), 5), MASKED, STEP),
    Subject(
        "Chain-Uniform", chain(on("Uniform", 3, (2,), under="LinearBeta"), [0.1, 0.3, 0.6, 1.0]), PLAIN, ("Transition",)
    ),
    Subject("Chain-Thinning", chain(on("Thinning", (2,)), 5), Leaf(DEATH)),
    Subject("Chain-Product", chain(mixed, 4), MIXED, (TIED,)),
    Subject("MatrixChain-uniform", by_matrices(lambda: made("d3pm.uniform", 3, BETAS)), KERNELS, STEP),
    Subject("MatrixChain-Gaussian", by_matrices(lambda: made("d3pm.gaussian", 3, BETAS)), KERNELS, STEP),
    Subject(
        "MatrixChain-mask", by_matrices(lambda: made("d3pm.absorbing", 3, [0.2, 0.5, 1.0]), 3), ABSORBED, ("Transition",)
    ),
    Subject("MatrixChain-any", by_matrices(matrices), KERNELS, STEP),
]
BY_NAME = {subject.name: subject for subject in SUBJECTS}
