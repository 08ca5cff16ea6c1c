"""The move that `FromGenerator` makes on a space: its local error in law is of order 2, so that over a run it is of order 1.

A state x that moves for a time h under the generator frozen at x comes to X_h.  For test functions phi

    E phi(X_h) = phi(x) + h L phi(x) + O(h^2),

and a move that forgets the diffusion, or scales its noise wrongly, is off at order h.  The mean is computed, not drawn:
every outcome of the noise is laid out (`verify.branching`).  Where that cannot be done (too many coordinates, counts) it is
drawn, and the rate a(h) = E[phi(X_h) - phi(x)]/h is extrapolated to h = 0,

    2 a(h/2) - a(h) = L phi(x) + O(h^2),

within what the two differ by and so many standard errors that a right move is beyond with probability `LEVEL` at most, all
rows together.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from unnoise.generators import Generator
from unnoise.generators.generator import Function
from unnoise.noise import NoiseSource
from unnoise.samplers.generic import freeze, move
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size, map_leaves, repeat_rows
from unnoise.verify.branching import Layout, NotCompared, TooManyBranches, branches
from unnoise.verify.guard import guarded
from unnoise.verify.orders import slope
from unnoise.verify.rows import Place, Row

POINTS, TRIES, MOST = 8, 32, 2**19  # points that are moved; how often they may leave; rows that are laid out at most
SHORT, LONG = 0.05, 0.5  # h in units of the generator's own time: laid out, and drawn
TOLERANCE, EXACT = 0.25, 1e-11  # of the order; errors below EXACT are rounding
DRAWS, AT_ONCE, LEVEL = 50_000, 2**21, 1e-6  # draws at each point; numbers in memory; how often a right move is rejected


@guarded("moves under the frozen generator")
def move_checks(generator: Generator, points: Tree, place: Place, tests: list[Function]) -> Iterator[Row]:
    """The rows of a generator's moves, at some of the points."""
    rows = batch_size(points)
    some = torch.linspace(0, rows - 1, min(rows, POINTS)).round().long()
    x = map_leaves(lambda leaf: leaf[some], points)
    speed = fastest(generator, x, tests)
    if speed == 0:
        yield place.unchecked("moves under the frozen generator", "L phi = 0 for every test function: nothing moves")
        return
    yield from _stays(generator, x, place, LONG / speed)
    yield from _order(generator, x, place, tests, speed)


def moved(generator: Generator, x: Tree, h: Tensor, noise: NoiseSource) -> Tree:
    """One step of Euler's rule for a time h."""
    local = generator.local(x)
    return move(generator.space, freeze(generator.space, local, x), local, x, h, noise)


def fastest(generator: Generator, x: Tree, tests: list[Function]) -> float:
    """The largest |L phi| + 1/2 (L phi^2 - 2 phi L phi): one over the time in which a test function changes."""

    def speed(phi: Function) -> Tensor:
        first = generator.act(phi, x)
        field = generator.act(lambda y: phi(y).square(), x) - 2 * phi(x) * first
        return (first.abs() + 0.5 * field.abs()).max()

    return float(torch.stack([speed(phi) for phi in tests]).max())


@guarded("a move stays in the space")
def _stays(generator: Generator, x: Tree, place: Place, h: float) -> Iterator[Row]:
    many = repeat_rows(x, TRIES)
    after = moved(generator, many, torch.tensor(h, dtype=torch.float64), NoiseSource(90, batch_size(many)))
    generator.space.check(after, "a moved state")
    yield place.equal("moved states that the space refuses", 0, 0, 0.0)


@guarded("order of a move under the frozen generator")
def _order(generator: Generator, x: Tree, place: Place, tests: list[Function], speed: float) -> Iterator[Row]:
    try:
        rows = list(_laid_out(generator, x, place, tests, SHORT / speed))
    except (NotCompared, TooManyBranches):
        rows = list(_drawn(generator, x, place, tests))
    yield from rows


def _laid_out(generator: Generator, x: Tree, place: Place, tests: list[Function], h: float) -> Iterator[Row]:
    """The order of E phi(X_h) - phi - h L phi, by its largest entry at h, h/2 and h/4."""
    layout, steps = Layout(), [h, h / 2, h / 4]
    outcomes = [_outcomes(generator, x, step, layout) for step in steps]
    for k, phi in enumerate(tests):
        start, rate, errors = phi(x), generator.act(phi, x), []
        for step, (after, weight) in zip(steps, outcomes, strict=True):
            mean = (weight * (phi(after).reshape(weight.shape) - start.unsqueeze(1))).sum(1)
            errors.append(float((mean - step * rate).abs().max()))
        quantity = f"order of E phi(X_h) - phi - h L phi, function {k}: at least"
        if errors[0] < EXACT:
            yield place.equal(f"E phi(X_h) = phi + h L phi, function {k}", 0.0, errors[0], EXACT)
            continue
        fitted = slope([(2**i, error) for i, error in enumerate(errors)])
        row = place.at_most(quantity, -2.0, -fitted, TOLERANCE)
        yield replace(row, exact=2.0, ours=fitted, note=f"all draws laid out, h = {h:.1e}, h/2, h/4")


def _outcomes(generator: Generator, x: Tree, h: float, layout: Layout) -> tuple[Tree, Float[Tensor, "states copies"]]:
    """Every state after a time h, as rows, and their probabilities."""
    step = torch.tensor(h, dtype=torch.float64)
    after, weight = branches(lambda noise, start: moved(generator, start, step, noise), x, layout, MOST)
    return map_leaves(lambda leaf: leaf.flatten(0, 1), after), weight


def _drawn(generator: Generator, x: Tree, place: Place, tests: list[Function]) -> Iterator[Row]:
    """The rate of E phi(X_h) at h = 0, extrapolated from draws at h and h/2; each point has its own h, as it moves."""
    found = [_extrapolated(generator, map_leaves(lambda leaf, i=i: leaf[i : i + 1], x), tests) for i in range(batch_size(x))]
    exact, ours, allowed, spread = (torch.stack(part) for part in zip(*found, strict=True))  # [points, functions]
    chance = torch.tensor(LEVEL / (2 * exact.numel()), dtype=torch.float64)
    limit = allowed - torch.special.ndtri(chance) * spread
    gap = (ours - exact).abs()
    for k in range(len(tests)):
        i = int((gap[:, k] / limit[:, k]).nan_to_num(nan=torch.inf).argmax())
        quantity = f"rate of E phi(X_h) = L phi, function {k}"
        row = place.row(quantity, exact[i, k], ours[i, k], gap[i, k], float(limit[i, k]))
        yield replace(row, note=f"{DRAWS} draws at h and h/2; false alarm below {LEVEL:.0e}")


def _extrapolated(generator: Generator, x: Tree, tests: list[Function]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """L phi, its estimate, what a(h) and a(h/2) differ by for any function, and the standard error: at one point."""
    exact = torch.cat([generator.act(phi, x) for phi in tests])
    speed = fastest(generator, x, tests)
    h = LONG / speed if speed > 0 else 1.0
    (a, a_spread), (b, b_spread) = (_rates(generator, x, step, tests, seed) for seed, step in ((91, h), (92, h / 2)))
    allowed = (b - a).abs().max().expand_as(a)
    return exact, 2 * b - a, allowed, (4 * b_spread.square() + a_spread.square()).sqrt()


def _rates(generator: Generator, x: Tree, h: float, tests: list[Function], seed: int) -> tuple[Tensor, Tensor]:
    """E[phi(X_h) - phi(x)]/h at a point for each function, and its standard error."""
    step, sums = torch.tensor(h, dtype=torch.float64), torch.zeros(2, len(tests), dtype=torch.float64)
    copies = max(1, AT_ONCE // generator.space.dimension)
    for first in range(0, DRAWS, copies):
        many = repeat_rows(x, min(copies, DRAWS - first))
        after = moved(generator, many, step, NoiseSource(seed, batch_size(many)).at(first))
        change = torch.stack([phi(after) - phi(many) for phi in tests]) / h
        sums += torch.stack([change.sum(1), change.square().sum(1)])
    mean, square = sums / DRAWS
    return mean, ((square - mean.square()).clamp_min(0) / DRAWS).sqrt()
