"""A generator of one's own, on any space: identities of the operators, at given points.

For test functions phi, psi and a density q, with L^ the generator reversed under q (all of them hold point by point, so
nothing is integrated):

    L 1 = 0,    L(phi + 2 psi) = L phi + 2 L psi,    L phi^2 - 2 phi L phi >= 0                  (it is a generator)
    q L^ phi = L*(q phi) - phi L* q                                                            (what reversing means)
    L^* q = -L* q                                                    (the law goes back the way it came)
    (L^)^ phi = L phi                                                           (twice reversed is the original)

Where the points are all there are, or come with weights of a sum over the space, also the duality

    sum q L phi = sum phi L* q,    sum L* q = 0.

And a step of `FromGenerator` has the order that it states on the space (`verify.generator_moves`), and jumps to anywhere are
drawn as their nodes say (`verify.drawn_laws`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unnoise.generators import Generator
from unnoise.generators.generator import Function
from unnoise.generators.kolmogorov import enumerable, states
from unnoise.noise import NoiseSource
from unnoise.shapes import Tree
from unnoise.tree import batch_size, leaves
from unnoise.verify.drawn_laws import jump_checks
from unnoise.verify.generator_moves import move_checks
from unnoise.verify.guard import guarded
from unnoise.verify.load import load
from unnoise.verify.rows import Place, Row

POINTWISE, SUMMED = 1e-8, 1e-6


@dataclass
class Operators:
    """What `--generator` names: a generator, points of its space, and where wanted a log-density and weights of a sum."""

    generator: Generator
    points: Tree
    log_density: Function | None = None  # differentiable; up to a constant
    weights: Tensor | None = None  # sum_i weights_i f(points_i) is the integral of f over the space

    def refuse_outside(self, path: str) -> None:
        """The space must take its points, and `project`, where it has one, must leave them alone."""
        space = self.generator.space
        space.check(self.points, f"--generator {path!r}: points")
        try:
            nearest = space.project(self.points)
        except NotImplementedError:
            return
        for given, near in zip(leaves(self.points), leaves(nearest), strict=True):
            if bool(((given - near).abs() > 1e-6).any()):
                i = int((given - near).abs().reshape(len(given), -1).amax(1).argmax())
                raise ValueError(
                    f"--generator {path!r}: point {i}, {given[i].tolist()}, lies outside {type(space).__name__}: its "
                    f"project(x) makes it {near[i].tolist()}; give points of the space"
                )

    @classmethod
    def of(cls, found: "Operators | Generator", path: str) -> "Operators":
        if isinstance(found, Operators):
            found.refuse_outside(path)
            return found
        if not enumerable(found.space):
            raise ValueError(
                f"--generator {path!r}: the points of {found.space} cannot be listed: return "
                f"unnoise.verify.Operators(generator, points), with some points of the space"
            )
        points = states(found.space)
        return cls(found, points, weights=torch.ones(batch_size(points), dtype=torch.float64))


def generator_rows(path: str, thorough: bool = False) -> Iterator[Row]:
    """The rows of `--generator package.module:name`."""
    given = Operators.of(load(path, "generator", (Operators, Generator)), path)
    return generator_checks(given, Place(path, "-", "generator"))


def generator_checks(given: Operators, place: Place) -> Iterator[Row]:
    log_q = given.log_density or wave(4, 0.4)
    tests = [wave(k) for k in range(3)]
    yield from _generates(given, place, tests)
    for k, phi in enumerate(tests):
        yield from _reverses(given, place, phi, log_q, f"function {k}")
    yield from _law(given, place, log_q)
    yield from _dual(given, place, tests[0], log_q)
    yield from move_checks(given.generator, given.points, place, tests)
    yield from jump_checks(given.generator, given.points, place, tests)


def wave(seed: int, size: float = 1.0) -> Function:
    """A smooth function of all coordinates, with whole frequencies, so that it closes on a circle of angles."""

    def phi(x: Tree) -> Tensor:
        angle = torch.zeros(batch_size(x), dtype=torch.float64)
        for i, leaf in enumerate(leaves(x)):
            flat = leaf.reshape(batch_size(x), -1).double()
            draws = NoiseSource(80 + seed, flat.shape[1]).at("wave", i)
            angle = angle + (flat * (1 + (3 * draws.uniform()).floor())).sum(1) + draws.at("phase").uniform()[0]
        return size * torch.sin(angle)

    return phi


def _square(phi: Function) -> Function:
    return lambda y: phi(y).square()


@guarded("what makes a generator")
def _generates(given: Operators, place: Place, tests: list[Function]) -> Iterator[Row]:
    act, x = given.generator.act, given.points
    first, second = tests[:2]
    one = act(lambda y: 1 + 0 * first(y), x)
    yield place.equal("L 1 = 0", 0.0, one, POINTWISE)
    exact = act(first, x) + 2 * act(second, x)
    yield place.equal("L is linear", exact, act(lambda y: first(y) + 2 * second(y), x), POINTWISE)
    for k, phi in enumerate(tests):
        field = act(_square(phi), x) - 2 * phi(x) * act(phi, x)
        yield place.at_most(f"2 phi L phi <= L phi^2, function {k}", 0.0, -field, POINTWISE)
    yield place.at_most("L does something: sup |L phi| > 0", act(first, x).abs().max(), 1e-12)


@guarded("reversed generator")
def _reverses(given: Operators, place: Place, phi: Function, log_q: Function, which: str) -> Iterator[Row]:
    forward, x = given.generator, given.points
    back = forward.reversed(log_q)
    q: Callable[[Tree], Tensor] = lambda y: log_q(y).exp()  # noqa: E731
    exact = forward.adjoint(lambda y: q(y) * phi(y), x) - phi(x) * forward.adjoint(q, x)
    yield place.equal(f"q L^ phi = L*(q phi) - phi L* q, {which}", exact, q(x) * back.act(phi, x), POINTWISE)
    twice = back.reversed(log_q)
    yield place.equal(f"twice reversed = the original, {which}", forward.act(phi, x), twice.act(phi, x), POINTWISE)


@guarded("law of the reversed generator")
def _law(given: Operators, place: Place, log_q: Function) -> Iterator[Row]:
    forward, x = given.generator, given.points
    q: Callable[[Tree], Tensor] = lambda y: log_q(y).exp()  # noqa: E731
    gone, back = forward.adjoint(q, x), forward.reversed(log_q).adjoint(q, x)
    yield place.equal("L^* q = -L* q", -gone, back, POINTWISE)


@guarded("duality")
def _dual(given: Operators, place: Place, phi: Function, log_q: Function) -> Iterator[Row]:
    forward, x = given.generator, given.points
    if given.weights is None:
        yield place.unchecked("sum q L phi = sum phi L* q", "the points come without weights of a sum over the space")
        return
    q = log_q(x).exp()
    adjoint = forward.adjoint(lambda y: log_q(y).exp(), x)
    left, right = ((given.weights * v).sum() for v in (q * forward.act(phi, x), phi(x) * adjoint))
    for row in (
        place.equal("sum q L phi = sum phi L* q", left, right, SUMMED),
        place.equal("sum L* q = 0", 0.0, (given.weights * adjoint).sum(), SUMMED),
    ):
        yield row if row.ok else replace(row, note="if it falls with more points, refine `points` and `weights`")
