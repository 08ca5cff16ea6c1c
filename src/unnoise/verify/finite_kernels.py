"""Kernels of finite spaces against brute force.

Every law is written out as a matrix over all states (through nothing but `log_prob`), and the transition is compared with
the solution of the generator's own forward equation: kernels and generator must be one process.  A chain by matrices has no
generator; its transition is compared with the product of its matrices, at times of its grid.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from unnoise.generators.kolmogorov import matrices, solve, states
from unnoise.laws import Categorical, Joint, Law
from unnoise.noise import NoiseSource
from unnoise.oracles import Oracle
from unnoise.processes import FiniteProcess, MatrixChain, Process
from unnoise.shapes import Tree
from unnoise.spaces import tree_leaves
from unnoise.tree import batch_size, map_leaves, pick
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name

# (r, s, t): the middle of time, and within 1e-4 of both ends
TRIPLES = ((0.1, 0.35, 0.8), (0.0, 3e-5, 1e-4), (1 - 1e-4, 1 - 5e-5, 1 - 1e-5))
TIGHT, FLOAT32 = 1e-10, 1e-5


def dense(law_of: Callable[[Tree], Law], sources: Tree, targets: Tree) -> Tensor:
    """P[y, x]: the probability of each target under the law of each source."""
    n, m = batch_size(sources), batch_size(targets)
    repeated = map_leaves(lambda x: x.repeat_interleave(m, 0), sources)
    tiled = map_leaves(lambda x: x.repeat(n, *[1] * (x.ndim - 1)), targets)
    return law_of(repeated).log_prob(tiled).exp().reshape(n, m).T


def marginal_matrix(process: Process, data: Tree, points: Tree, t) -> Tensor:
    return dense(lambda x: process.marginal(x, t), data, points)


def transition_matrix(process: Process, points: Tree, s, t) -> Tensor:
    return dense(lambda x: process.transition(x, s, t), points, points)


def triples_of(process: Process) -> tuple[tuple[float, float, float], ...]:
    """The middle and both ends of time; of a chain by matrices, of its grid."""
    return TRIPLES if process.has_generator else grid_triples(process)  # type: ignore[arg-type]


def grid_triples(chain: MatrixChain) -> tuple[tuple[float, float, float], ...]:
    """The middle and both ends of a chain's grid."""
    grid, last = chain.grid.tolist(), chain.steps
    return ((grid[1], grid[last // 2], grid[last - 2]), (grid[0], grid[1], grid[2]), (grid[1], grid[last - 1], grid[last]))


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
    yield from _reverse(subject)


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


def _leaf_laws(law: Law, path: tuple[str, ...]) -> Categorical:
    for name in path:
        assert isinstance(law, Joint)
        law = law.leaves[name]
    assert isinstance(law, Categorical)
    return law


def _reverse(subject: Subject) -> Iterator[Row]:
    """The reverse of the exact denoiser against Bayes' rule on the enumerated law, and against the reversed generator."""
    process = subject.process
    points, data = states(process.state_space), states(process.space)
    law = subject.oracle.log_prob(data).exp()
    triples = grid_triples(process) if not process.has_generator else None  # type: ignore[arg-type]
    pairs = [(0.3, 0.6), (1e-5, 1e-4), (0.9, 1 - 1e-4)] if triples is None else [(s, t) for _, s, t in triples]
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind))
        for s, t in pairs:
            at_t = marginal_matrix(process, data, points, t) @ law
            seen = at_t > 1e-12
            here = map_leaves(lambda x, seen=seen: x[seen], points)
            if _has_exact_step(kind):
                at_s = marginal_matrix(process, data, points, s) @ law
                kernel = transition_matrix(process, points, s, t)
                joint = kernel * at_s / at_t[:, None].clamp_min(1e-300)  # [x_t, x_s]
                yield from _reverse_step(subject, place, kind, here, joint[seen], s, t)
            if process.has_generator:
                yield from _reverse_rates(process, subject.oracle, subject.oracle.predicting(kind), here, t, place)


@guarded("reverse kernel = Bayes")
def _reverse_step(subject: Subject, place: Place, kind, here: Tree, joint: Tensor, s: float, t: float) -> Iterator[Row]:
    """`joint` is the law of all states x_s, by Bayes' rule, given each of the states x_t here."""
    process, view = subject.process, subject.oracle.predicting(kind)
    points = states(process.state_space)
    step = view(here, t).step(s)
    yield from _float32_reverse(process, view, here, s, t, place)
    for path, space in tree_leaves(process.state_space):
        size = space.size  # type: ignore[attr-defined]
        one_hot = torch.nn.functional.one_hot(pick(points, path).reshape(joint.shape[1], -1), size).double()
        exact = torch.einsum("ts,skc->tkc", joint, one_hot)
        ours = _leaf_laws(step, path).probs.reshape(exact.shape)
        yield place.equal(f"reverse kernel = Bayes, t={t:g}", exact, ours, TIGHT)


def _float32_reverse(process: Process, view: Oracle, here: Tree, s: float, t: float, place: Place) -> Iterator[Row]:
    """The reverse kernel from float32 logits and times."""
    process = process.base
    if not isinstance(process, FiniteProcess):
        return
    s32, t32 = (torch.tensor(v, dtype=torch.float32).expand(batch_size(here)) for v in (s, t))
    theta = view(here, t32.double()).log_theta()  # type: ignore[attr-defined]
    exact = process.reverse_step(here, theta, s32.double(), t32.double()).probs
    ours = process.reverse_step(here, theta.float(), s32, t32).probs
    yield place.equal(f"float32 reverse kernel, t={t:g}", exact, ours, FLOAT32, largest=True)


def _has_exact_step(kind) -> bool:
    """Ratios and rates of a finite step are held and leapt, an approximation by name."""
    if isinstance(kind, dict):
        return all(_has_exact_step(part) for part in kind.values())
    return kind.__name__ in ("Posterior", "RawPosterior")


@guarded("reverse rates = reversed generator")
def _reverse_rates(process: Process, oracle: Oracle, view: Oracle, here: Tree, t: float, place: Place) -> Iterator[Row]:
    exact = process.generator(t).reversed(lambda x: oracle.log_marginal(x, t)).local(here)
    ours = view(here, t).local()
    for path, _ in tree_leaves(process.state_space):
        a, b = (pick(tree, path).log_rates.exp() for tree in (exact, ours))
        yield place.equal(f"reverse rates = reversed generator, t={t:g}", a, b, TIGHT)
