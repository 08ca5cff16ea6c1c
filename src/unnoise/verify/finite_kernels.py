"""Kernels of finite spaces against brute force.

Every law is written out as a matrix over all states (through nothing but `log_prob`), and the transition is compared with
the solution of the generator's own forward equation: kernels and generator must be one process.  A chain by matrices has no
generator; its transition is compared with the product of its matrices, at times of its grid.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.generators.kolmogorov import matrices, solve, states
from unnoise.noise import NoiseSource
from unnoise.processes import FiniteProcess, MatrixChain, Process
from unnoise.shapes import Tree
from unnoise.tree import batch_size, map_leaves
from unnoise.verify.finite_reverse import finite_reverse
from unnoise.verify.guard import guarded
from unnoise.verify.law_matrices import FLOAT32, TIGHT, dense, marginal_matrix, transition_matrix, triples_of
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject


def finite_kernels(subject: Subject) -> Iterator[Row]:
    process, place = subject.process, Place(subject.name)
    points, data = states(process.state_space), states(process.space)
    if batch_size(points) > 100:
        yield place.unchecked("kernels over all states", f"the space has {batch_size(points)} of them, more than 100")
        return
    for times in triples_of(process):
        t = times[-1]
        where = f"t={t:g}" if t > 1e-3 else f"t={t:.0e}"
        where = "t=1-1e-5" if t > 0.999 else where
        yield from _forward(process, place, points, data, times, where)
        yield from _conditioned(process, place, points, data, times, where)
        yield from _float32(process, place, points, data, times, where)
    yield from _start(process, place, points, data)
    yield from _carried(process, place)
    yield from finite_reverse(subject)


@guarded("forward kernels")
def _forward(process: Process, place: Place, points: Tree, data: Tree, times, where: str) -> Iterator[Row]:
    """Transitions against the generator (a chain: its matrices), and against each other."""

    _, s, t = times
    q = transition_matrix(process, points, s, t)

    def transition(s, t) -> Tensor:
        return q if (s, t) == times[1:] else transition_matrix(process, points, s, t)

    def marginal(t) -> Tensor:
        return marginal_matrix(process, data, points, t)

    def rates(at: Tensor) -> Tensor:
        return matrices(process.state_space, process.local, at)

    yield place.equal(f"transition sums to 1, {where}", 1.0, q.sum(0), TIGHT)
    if process.has_generator:
        eye = torch.eye(batch_size(points), dtype=torch.float64)
        yield place.sensitive(
            f"transition = forward equation of the generator, {where}",
            lambda r, s, t: (solve(rates, eye, s, t, 1e-12), transition(s, t)),
            times,
            TIGHT,
        )
    else:
        exact = _product(process, s, t)  # type: ignore[arg-type]
        yield place.equal(f"transition = product of the matrices, {where}", exact, q, TIGHT)
    yield place.sensitive(
        f"composition of transitions, {where}",
        lambda r, s, t: (transition(r, t), transition(s, t) @ transition(r, s)),
        times,
        TIGHT,
    )
    yield place.sensitive(
        f"marginal = transition of marginal, {where}",
        lambda r, s, t: (marginal(t), transition(s, t) @ marginal(s)),
        times,
        TIGHT,
    )


@guarded("posterior = Bayes")
def _conditioned(process: Process, place: Place, points: Tree, data: Tree, times, where: str) -> Iterator[Row]:
    compared = lambda r, s, t: _bayes(process, points, data, s, t)  # noqa: E731
    yield place.sensitive(f"posterior = Bayes, {where}", compared, times, TIGHT)


@guarded("float32 kernels")
def _float32(process: Process, place: Place, points: Tree, data: Tree, times, where: str) -> Iterator[Row]:
    def transition(s, t) -> Tensor:
        return transition_matrix(process, points, s, t)

    r32, s32, t32 = (torch.tensor(v, dtype=torch.float32) for v in times)
    exact = transition(s32.double(), t32.double())
    yield place.equal(f"float32 transition, {where}", exact, transition(s32, t32), FLOAT32, largest=True)
    chained = transition(s32, t32) @ transition(r32, s32)
    direct = transition(r32.double(), t32.double())
    yield place.equal(f"float32 composition, {where}", direct, chained, FLOAT32, largest=True)
    exact, ours = (marginal_matrix(process, data, points, t) for t in (t32.double(), t32))
    yield place.equal(f"float32 marginal, {where}", exact, ours, FLOAT32, largest=True)
    bayes = _bayes(process, points, data, s32.double(), t32.double())[0]
    own = _bayes(process, points, data, s32, t32)[1]
    yield place.equal(f"float32 posterior, {where}", bayes, own, FLOAT32, largest=True)


@guarded("marginal at 0")
def _start(process: Process, place: Place, points: Tree, data: Tree) -> Iterator[Row]:
    noised = float(dense(lambda x: process.marginal(x, 0.0), data, data).diagonal().min()) < 1 - 1e-12
    if not noised:
        start = marginal_matrix(process, data, points, 0.0)
        yield place.equal("marginal at 0 is the data", (start > 0.5).double(), start, TIGHT)


@guarded("inverse kernels")
def _carried(process: Process, place: Place) -> Iterator[Row]:
    """`push` and `inverse` in the form that one leaf of categories gives them; a product's are its leaves'."""
    if isinstance(process.base, FiniteProcess):
        grid = process.grid
        pairs = [(0.1, 0.7), (0.9, 1 - 1e-4)] if grid is None else [(grid[1].item(), grid[2].item())]
        yield from _inverse(process.base, place, pairs)


def _product(chain: MatrixChain, s: float, t: float) -> Tensor:
    """Q_{t|s} over all states: the steps' matrices, the latest on the left, coordinate by coordinate."""
    i, j = (int(round(v * chain.steps)) for v in (s, t))
    kernel = torch.eye(chain.state_space.size, dtype=torch.float64)  # type: ignore[attr-defined]
    for step in chain.matrices[i:j]:
        kernel = step @ kernel
    total = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(chain.state_space.dimension):
        total = torch.kron(total, kernel)
    return total


def _bayes(process: Process, points: Tree, data: Tree, s, t) -> tuple[Tensor, Tensor]:
    """q(x_s | x_t, x_0) for all triples with q(x_t | x_0) > 0: by Bayes' rule, and ours."""
    n, m = batch_size(points), batch_size(data)
    x_t = map_leaves(lambda x: x.repeat_interleave(m, 0), points)
    x0 = map_leaves(lambda x: x.repeat(n, *[1] * (x.ndim - 1)), data)
    forward = transition_matrix(process, points, s, t)  # [x_t, x_s]
    at_s = marginal_matrix(process, data, points, s)  # [x_s, x_0]
    at_t = marginal_matrix(process, data, points, t)  # [x_t, x_0]
    bayes = forward[:, None, :] * at_s.T[None] / at_t[:, :, None]
    possible = at_t > 1e-30
    pairs = possible.flatten()
    own = _posterior_matrix(process, map_leaves(lambda x: x[pairs], x_t), map_leaves(lambda x: x[pairs], x0), points, s, t)
    return bayes[possible], own


def _posterior_matrix(process: Process, x_t: Tree, x0: Tree, points: Tree, s, t) -> Tensor:
    rows, n = batch_size(x_t), batch_size(points)
    law = process.posterior(
        map_leaves(lambda x: x.repeat_interleave(n, 0), x_t), map_leaves(lambda x: x.repeat_interleave(n, 0), x0), s, t
    )
    tiled = map_leaves(lambda x: x.repeat(rows, *[1] * (x.ndim - 1)), points)
    return law.log_prob(tiled).exp().reshape(rows, n)


def _inverse(process: FiniteProcess, place: Place, pairs: list[tuple[float, float]]) -> Iterator[Row]:
    shape = (4, *process.space.shape, process.state_space.size)
    log_v = NoiseSource(7, 4).normal(shape[1:]).log_softmax(-1)
    signs = NoiseSource(7, 16).at("signs").normal(shape[1:]).sign()
    refused = []
    for s, t in pairs:
        pushed = process.push(log_v, s, t).exp()
        try:
            back, magnified = process.inverse(pushed, s, t), process.inverse(signs, s, t).abs().max()
        except ValueError:  # then the kernel really is singular to working precision
            refused.append(t)
            smallest = min(float(torch.linalg.svdvals(kernel)[-1]) for kernel in _coordinate_kernels(process, s, t))
            yield place.at_most(f"least singular value of a kernel without inverse, t={t:g}", 1e-11, smallest)
            continue
        quantity = f"inverse kernel undoes the transition, t={t:g}"
        yield place.undone(quantity, log_v.exp(), back, TIGHT, float(magnified))
    for s, t in [*pairs, *([(0.0, 1e-4)] if len(pairs) > 1 else [])]:
        if t in refused:
            continue
        narrow = process.push(log_v, s, t).exp().float()
        exact = process.inverse(narrow.double(), s, t)
        ours = process.inverse(narrow, s, t)
        yield place.equal(f"float32 inverse, t={t:g}", exact, ours, FLOAT32, largest=True)


def _coordinate_kernels(process: FiniteProcess, s: float, t: float) -> Tensor:
    """Q_{t|s} of each coordinate, as matrices."""
    size = process.state_space.size
    x = torch.arange(size).reshape(-1, *[1] * len(process.space.shape)).expand(-1, *process.space.shape)
    probs = process.push(process.log_one_hot(x, torch.float64), s, t).exp()
    return probs.reshape(size, -1, size).transpose(0, 1)
