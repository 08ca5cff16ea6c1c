"""Kernels of a process whose space is not known here: what any process can be asked, by its laws and its generator alone.

Nothing is assumed of the states but that laws draw them and know their log-densities, and that the generator acts on
functions.  Sums over x_t are taken by the process's own nodes (`support`); where it has none, or leaves another question
without an answer, a row says what was not checked.  The functions that operators act on are those of `verify.generators`.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from unnoise.generators import Generator
from unnoise.noise import NoiseSource
from unnoise.processes import Process
from unnoise.shapes import Clock, Tree
from unnoise.tree import batch_size, leaves, map_leaves
from unnoise.verify.generators import wave
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name

IDENTITY, SUM, FLOAT32 = 1e-8, 1e-6, 1e-5  # of formulas, of sums over nodes, of single precision
PAIRS = ((0.2, 0.6), (0.5, 0.9))  # (s, t)
DRAWS = 4000
TESTS = [wave(k) for k in range(3)]


def generic_kernels(subject: Subject) -> Iterator[Row]:
    yield from kernels_by_laws(subject)
    name = type(subject.process.state_space).__name__
    why = f"{name} has no list of states on which a wrong network's own law could be found"
    yield Place(subject.name).unchecked("bounds of wrong networks", why)


def kernels_by_laws(subject: Subject) -> Iterator[Row]:
    process, place, x0 = subject.process, Place(subject.name), map_leaves(lambda v: v[:6], subject.points)
    for s, t in PAIRS:
        yield from _bayes(process, place, x0, s, t)
        yield from forward_equation(process, place, x0, t)
        yield from conditioned(process, place, x0, t)
        yield from _support(process, place, x0, s, t)
        yield from drawn(process, place, x0, t)
        yield from _float32(process, place, x0, t)
        for kind in subject.kinds:
            yield from _reverse(subject, Place(subject.name, kind_name(kind)), x0, kind, t)
    yield from _prior(process, place, x0)


def answers(process: Process, name: str) -> bool:
    """Whether the process's class has its own answer to a question that the base class leaves open."""
    return getattr(type(process), name) is not getattr(Process, name)


def noised(process: Process, x0: Tree, t: float, seed: int = 21) -> Tree:
    return process.marginal(x0, t).draw(NoiseSource(seed, batch_size(x0)))


@guarded("posterior = Bayes")
def _bayes(process: Process, place: Place, x0: Tree, s: float, t: float) -> Iterator[Row]:
    if not answers(process, "posterior"):
        yield place.unchecked(f"posterior = Bayes, t={t:g}", f"{type(process).__name__} has no posterior")
        return
    x_t = noised(process, x0, t)
    law = process.posterior(x_t, x0, s, t)
    x_s = law.draw(NoiseSource(22, batch_size(x0)))
    exact = process.transition(x_s, s, t).log_prob(x_t) + process.marginal(x0, s).log_prob(x_s)
    exact = exact - process.marginal(x0, t).log_prob(x_t)
    yield place.equal(f"posterior = Bayes (log density), t={t:g}", exact, law.log_prob(x_s), IDENTITY)


def _one(process: Process, x0: Tree, t: float) -> tuple[Callable[..., Tensor], Tree]:
    """log q(x | x_0) for one data point, at any states and time, and a few states drawn from it."""

    def log_density(x: Tree, t: Clock = t) -> Tensor:
        rows = batch_size(x)
        return process.marginal(map_leaves(lambda v: v[:1].expand(rows, *v.shape[1:]), x0), t).log_prob(x)

    return log_density, noised(process, map_leaves(lambda v: v[:1].expand(6, *v.shape[1:]), x0), t)


@guarded("forward equation of the generator")
def forward_equation(process: Process, place: Place, x0: Tree, t: float) -> Iterator[Row]:
    """d/dt log q(x | x_0) against (L* q)/q at drawn states."""
    log_density, x = _one(process, x0, t)
    clock = torch.full((batch_size(x),), t, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        log_q = log_density(x, clock)
    quantity = f"forward equation of the generator, t={t:g}"
    if not log_q.requires_grad:
        yield place.unchecked(quantity, "the marginal's log-density is not differentiable in t")
        return
    slope = torch.autograd.grad(log_q.sum(), clock)[0]
    flow = process.generator(t).adjoint(lambda y: log_density(y).exp(), x)
    yield place.equal(quantity, slope, flow / log_q.detach().exp(), IDENTITY)


@guarded("reverse generator given x_0")
def conditioned(process: Process, place: Place, x0: Tree, t: float) -> Iterator[Row]:
    log_density, x_t = _one(process, x0, t)
    exact = process.generator(t).reversed(log_density)
    start = map_leaves(lambda v: v[:1].expand(batch_size(x_t), *v.shape[1:]), x0)
    own = Generator(process.state_space, lambda y: process.reverse(y, start, t).local())
    for j, phi in enumerate(TESTS):
        quantity = f"reverse given x_0 = reversed generator, on function {j}, t={t:g}"
        yield place.equal(quantity, exact.act(phi, x_t), own.act(phi, x_t), IDENTITY)


@guarded("sums over the process's own nodes")
def _support(process: Process, place: Place, x0: Tree, s: float, t: float) -> Iterator[Row]:
    """sum_x q(x | x_0) = 1 and q(x_t | x_0) = sum q(x_t | x_s) q(x_s | x_0), by the nodes that exact bounds use."""
    if not answers(process, "support"):
        why = f"{type(process).__name__} has no support: no nodes for an exact expectation"
        yield place.unchecked("composition of transitions, exact bounds", why)
        return
    nodes, log_weight = process.support(x0, s)
    yield place.equal(f"weights of the nodes sum to 1, t={s:g}", 1.0, log_weight.exp().sum(0), SUM)
    x_t, total = noised(process, x0, t), torch.zeros(batch_size(x0), dtype=torch.float64)
    for i, weight in enumerate(log_weight.exp()):
        node = map_leaves(lambda v, i=i: v[i], nodes)
        total = total + weight * process.transition(node, s, t).log_prob(x_t).exp()
    exact = process.marginal(x0, t).log_prob(x_t).exp()
    yield place.equal(f"marginal = transition of marginal, t={t:g}", exact, total, SUM, largest=True)


@guarded("drawn states")
def drawn(process: Process, place: Place, x0: Tree, t: float) -> Iterator[Row]:
    """Draws have the law that the density says (false alarm 6e-5 a row), and a row's draw is its own in any batch."""
    whole = noised(process, x0, t)
    few = process.marginal(map_leaves(lambda v: v[1:2], x0), t).draw(NoiseSource(21, torch.arange(1, 2)))
    gaps = [(a[1:2].double() - b.double()).abs().max() for a, b in zip(leaves(whole), leaves(few), strict=True)]
    yield place.equal(f"a row's draw alone and in a batch, t={t:g}", 0.0, torch.stack(gaps).max(), 0.0)
    if not answers(process, "support"):
        return
    first = map_leaves(lambda v: v[:1], x0)
    phi, (nodes, log_weight) = TESTS[0], process.support(first, t)
    exact = sum(w * phi(map_leaves(lambda v, i=i: v[i], nodes)) for i, w in enumerate(log_weight.exp()))
    many = map_leaves(lambda v: v.expand(DRAWS, *v.shape[1:]), first)
    values = phi(process.marginal(many, t).draw(NoiseSource(23, DRAWS)))
    error = (values.mean() - exact).abs() / (values.std() / DRAWS**0.5 + 1e-12)  # type: ignore[operator]
    quantity = f"mean of a function over draws, error in standard errors, t={t:g}"
    yield place.row(quantity, exact, values.mean(), error, 4.0)


@guarded("float32 marginal")
def _float32(process: Process, place: Place, x0: Tree, t: float) -> Iterator[Row]:
    narrow = map_leaves(lambda v: v.float() if v.dtype.is_floating_point else v, x0)
    wide = map_leaves(lambda v: v.double() if v.dtype.is_floating_point else v, narrow)
    x_t = noised(process, narrow, t)
    same = map_leaves(lambda v: v.double() if v.dtype.is_floating_point else v, x_t)
    exact, ours = process.marginal(wide, t).log_prob(same), process.marginal(narrow, t).log_prob(x_t)
    yield place.equal(f"float32 marginal (log density), t={t:g}", exact, ours, FLOAT32)


@guarded("reverse of the exact denoiser")
def _reverse(subject: Subject, place: Place, x0: Tree, kind, t: float) -> Iterator[Row]:
    process, oracle = subject.process, subject.oracle
    x_t = noised(process, x0, t)
    view = oracle.predicting(kind)
    exact = process.generator(t).reversed(lambda y: oracle.log_marginal(y, t))
    own = Generator(process.state_space, lambda y: view(y, t).local())
    for j, phi in enumerate(TESTS):
        quantity = f"reverse generator = reversed generator, on function {j}, t={t:g}"
        yield place.equal(quantity, exact.act(phi, x_t), own.act(phi, x_t), IDENTITY)


@guarded("prior")
def _prior(process: Process, place: Place, x0: Tree) -> Iterator[Row]:
    """KL(q(x_1 | x_0) || p_1) against its sum over nodes."""
    if not answers(process, "support"):
        return
    nodes, log_weight = process.support(x0, 1.0)
    prior, total = process.prior(batch_size(x0), torch.float64), torch.zeros(batch_size(x0), dtype=torch.float64)
    for i, weight in enumerate(log_weight.exp()):
        node = map_leaves(lambda v, i=i: v[i], nodes)
        gap = process.marginal(x0, 1.0).log_prob(node) - prior.log_prob(node)
        total = total + torch.where(weight > 1e-200, weight * gap, 0.0)
    yield place.equal("KL of the last marginal and the prior", total, process.prior_kl(x0), SUM)
