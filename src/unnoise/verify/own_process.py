"""What a process of one's own answers beside its kernels: prior draws, moves on its space, and its default decoder.

    prior      draws have the law that its density says
    moves      a step of `FromGenerator` has its order (`verify.generator_moves`), and over a short time a move leads where a
               transition does: a space that does not close where the process does leads elsewhere
    decoder    int exp(-bound(x)) dx <= 1 with the decoder that is registered: a sum where the space can be listed, else a
               mean over draws of the data and of the data a little noised

The first two have test functions as in `verify.generators`.  Where moves and transitions are compared, their frequencies are
no whole numbers: what is the same point to an angle is not the same to these.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import log

import torch
from torch import Tensor

from unnoise.generators.generator import Function
from unnoise.generators.kolmogorov import code, enumerable, states
from unnoise.noise import NoiseSource
from unnoise.objectives import bound, default_decoder
from unnoise.processes import Process
from unnoise.shapes import Tree
from unnoise.tree import batch_size, join, leaves, map_leaves, repeat_rows
from unnoise.verify.drawn_laws import DRAWS, means_row
from unnoise.verify.generator_moves import SHORT, fastest, move_checks, moved
from unnoise.verify.generators import wave
from unnoise.verify.generic_kernels import answers, noised
from unnoise.verify.guard import guarded
from unnoise.verify.own_sampler import chi_square
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject

MIDDLE, TESTS = 0.5, [wave(k) for k in range(3)]
STARTS, COPIES, BESIDE = 64, 1000, 0.05  # points that are moved, how often, and what a short move may be off by
DATA, SPREAD, DECODED, ERRORS = 16, 0.3, 1e-6, 5.0  # draws of either kind, how noised, rounding, and standard errors


def own_process_checks(subject: Subject) -> Iterator[Row]:
    process, place = subject.process.base, Place(subject.name)
    if process.leaves:
        yield place.unchecked("prior draws, moves and default decoder", "a product's are its leaves': verify each by itself")
        return
    yield from _prior(process, place, subject.points)
    yield from _decoder(subject, process, place)
    if process.has_generator and not enumerable(process.state_space):
        x = noised(process, _repeated(subject.points, STARTS), MIDDLE)
        yield from move_checks(process.generator(MIDDLE), x, place, TESTS)
        yield from _leads(process, place, x)


def _repeated(points: Tree, rows: int) -> Tree:
    which = torch.arange(rows) % batch_size(points)
    return map_leaves(lambda leaf: leaf[which], points)


@guarded("law of prior draws")
def _prior(process: Process, place: Place, x0: Tree) -> Iterator[Row]:
    law, noise = process.prior(DRAWS, torch.float64), NoiseSource(94, DRAWS)
    drawn = law.draw(noise)
    process.state_space.check(drawn, "a prior draw")
    if enumerable(process.state_space):
        points = states(process.state_space)
        exact = process.prior(batch_size(points), torch.float64).log_prob(points).exp()
        counts = code(process.state_space, drawn).bincount(minlength=len(exact)).double()
        yield chi_square(place, "law of prior draws", counts, exact)
        return
    if not answers(process, "support"):
        yield place.unchecked("law of prior draws", f"{type(process).__name__} has no support: no nodes to sum over")
        return
    first = map_leaves(lambda leaf: leaf[:1], x0)
    nodes, log_weight = process.support(first, 1.0)
    flat, n = map_leaves(lambda leaf: leaf[:, 0], nodes), len(log_weight)
    ratio = process.prior(n, torch.float64).log_prob(flat) - process.marginal(_repeated(first, n), 1.0).log_prob(flat)
    weight = (log_weight[:, 0] + ratio).exp()
    if not abs(float(weight.sum()) - 1) < 1e-3:
        yield place.equal("the prior's density sums to 1 over the nodes at t = 1", 1.0, weight.sum(), 1e-3)
        return
    exact = torch.stack([(weight * phi(flat)).sum() for phi in TESTS])
    yield means_row(place, "means over prior draws", exact, torch.stack([phi(drawn) for phi in TESTS]), beside=1e-3)


@guarded("bound with the default decoder")
def _decoder(subject: Subject, process: Process, place: Place) -> Iterator[Row]:
    if not answers(process, "support"):
        yield place.unchecked("int exp(-bound) <= 1 with the default decoder", "no support: no exact bounds")
        return
    quantity, oracle, decoder = "int exp(-bound) <= 1 with the default decoder", subject.oracle, default_decoder(process)
    if enumerable(process.space):
        listed = states(process.space)
        times = subject.quadrature if process.grid is None else None
        total = bound(oracle, listed, exact=True, times=times, decoder=decoder).total
        yield place.at_most(quantity, 1.0, (-total).exp().sum(), DECODED)
        return
    x0 = oracle.draw(NoiseSource(95, 2 * DATA))
    x = join([map_leaves(lambda leaf: leaf[:DATA], x0), noised(process, map_leaves(lambda leaf: leaf[DATA:], x0), SPREAD)])
    total = bound(oracle, x, exact=True, times=subject.quadrature, decoder=decoder).total
    proposal = torch.logaddexp(oracle.log_prob(x), oracle.log_marginal(x, SPREAD)) - log(2)
    values = (-total - proposal).exp()
    spread = float(values.std()) / (2 * DATA) ** 0.5
    row = place.at_most(quantity, 1.0, values.mean(), DECODED + ERRORS * spread)
    yield replace(row, note=f"mean over {2 * DATA} draws, within {ERRORS:g} standard errors")


def _ripple(seed: int) -> Function:
    """A bounded function of the coordinates with no whole frequencies."""

    def phi(x: Tree) -> Tensor:
        angle = torch.zeros(batch_size(x), dtype=torch.float64)
        for i, leaf in enumerate(leaves(x)):
            flat = leaf.reshape(batch_size(x), -1).double()
            draws = NoiseSource(96 + seed, flat.shape[1]).at("ripple", i)
            angle = angle + (flat * (0.2 + 0.3 * draws.uniform())).sum(1) + draws.at("phase").uniform()[0]
        return torch.sin(angle)

    return phi


@guarded("a move leads where a transition does")
def _leads(process: Process, place: Place, x: Tree) -> Iterator[Row]:
    """Over a short time, from each point: the means over moves and over transitions."""
    generator = process.generator(MIDDLE)
    speed = fastest(generator, x, TESTS)
    if not speed > 0:
        return
    h = SHORT / speed
    many = repeat_rows(x, COPIES)
    rows = batch_size(many)
    after = moved(generator, many, torch.tensor(h, dtype=torch.float64), NoiseSource(97, rows))
    right = process.transition(many, MIDDLE, MIDDLE + h).draw(NoiseSource(98, rows))
    pairs = [(phi(after) - phi(right)).reshape(-1, COPIES) for phi in (_ripple(k) for k in range(3))]
    gaps = torch.cat(pairs)
    yield means_row(place, "a move leads where a transition does: mean difference", torch.zeros(len(gaps)), gaps, BESIDE)
